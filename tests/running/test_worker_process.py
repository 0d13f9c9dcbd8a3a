"""Workers that an interrupt meets while they are started or killed: none is left behind."""

from __future__ import annotations

import sys

import pytest

from tests.command_lines import ROOT, run_python
from tests.running.isolated_runs import needs_proc
from tests.tables import each_row

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


# Closed standard input is no obstacle.
COPY = """
import sys, threading, time
from lar.cli.main import main
from lar.running import worker_process

start = worker_process.start_python
worker_process.start_python = lambda *words: print("started", flush=True) or start(*words)
sys.stdin.close()
if "--debug" in sys.argv:
    threading.Thread(target=time.sleep, args=(9,), daemon=True).start()
sys.exit(main())
"""


@each_row("running/cases/workers that are copies")
def test_the_worker_of_a_run_is_a_copy_unless_it_needs_more(words: str, is_copy: bool) -> None:
    model = str(ROOT / "models" / "one_operator.onnx")
    arguments = words.replace("PYTHON", sys.executable).split()
    done = run_python("-c", COPY, model, "--iter", "1", *arguments, code=0)
    assert ("started" not in done.stdout) == is_copy


WORKS = """
import os, signal
from lar.files.python_process import fork_python
from lar.running.interrupts import heed_interrupts

heed_interrupts()
kills = [lambda n=n: os.kill(os.getpid(), n) for n in (signal.SIGINT, signal.SIGTERM)]
for work in (*kills, lambda: 1 / 0, lambda: os._exit(7)):
    # By its group, which it leads.
    print(os.waitstatus_to_exitcode(os.waitpid(-fork_python({}, work), 0)[1]))
"""


def test_a_copy_of_a_process_never_returns_and_signals_end_it() -> None:
    assert run_python("-c", WORKS).stdout.split() == ["-2", "-15", "1", "7"]
