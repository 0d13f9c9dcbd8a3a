"""Workers that an interrupt meets while they are started or killed: none is left behind."""

from __future__ import annotations

import pytest

from tests.command_lines import run_python
from tests.running.isolated_runs import needs_proc

# An interrupt comes while a call goes on, which ends. Then the children are counted, those
# that have ended and that nobody has waited for too.
CODE = """
import contextlib, os, signal, sys, threading, time
from lar.running import worker_process
from lar.running.interrupts import heed_interrupts
from tests.running.isolated_runs import workers_of

name, threads = sys.argv[1:]
owner = os if hasattr(os, name) else worker_process
call = getattr(owner, name)

def call_and_interrupt(*arguments, **options):
    setattr(owner, name, call)
    try:
        return call(*arguments, **options)
    finally:
        os.kill(os.getpid(), signal.SIGINT)

heed_interrupts()
for _ in range(int(threads)):  # the system may hand it to any that does not block it
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
try:
    if name == "posix_spawn":
        os.posix_spawn = call_and_interrupt
    with contextlib.ExitStack() as stack:
        worker_process.WorkerProcess(stack, ("run", "fake", "script"), {}, "")
        setattr(owner, name, call_and_interrupt)
    time.sleep(60)  # an interrupt may come as late as the stack ends
except KeyboardInterrupt:
    print(f"{len(workers_of(os.getpid()))} left")
"""


@needs_proc
@pytest.mark.parametrize(
    "words", ["posix_spawn 0", "posix_spawn 1", "uninterrupted 0", "killpg 1", "wait4 0"]
)
def test_an_interrupt_leaves_no_worker(words: str) -> None:
    done = run_python("-c", CODE, *words.split())
    assert done.stdout == "0 left\n", done.stderr


# A worker can be interrupted, whatever its parent did when it was started.
SIGNALS = """
import contextlib
from lar.running.worker_process import WorkerProcess

with contextlib.ExitStack() as stack:
    worker = WorkerProcess(stack, ("run", "fake", "script"), {}, "")
    with open(f"/proc/{worker.pid}/status") as file:
        print(*(line for line in file if line.startswith("SigBlk")))
"""


@needs_proc
def test_a_worker_blocks_no_signals() -> None:
    done = run_python("-c", SIGNALS)
    assert int(done.stdout.split()[1], 16) == 0, done.stderr
