"""The functions that Dask calls on a worker: a process does a task, and its news is passed on.

dask worker tcp://HOST:8786 --host ADDRESS --nworkers 1 --nthreads 1 --resources "device=1 x86=1"
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from subprocess import PIPE, Popen
from typing import Any

from lar import __version__
from lar.errors import Interrupted, LarError
from lar.farm.sending import Answer, Sending
from lar.files.python_process import python_command
from lar.running.isolation import name_of_signal

# The topic for what workers say during tasks.
TOPIC = "lar"
# The time between two looks for an interrupt, and for a file that is to come.
LOOK_SECONDS = 0.1
# An interrupted process is interrupted again after a second, and killed after so many.
MOST_INTERRUPTS = 5

Publish = Callable[..., None]
Check = Callable[[], bool]

_interrupted: set[str] = set()


class TaskLost(Exception):
    """The process of a task has ended in the middle of it; the text says how."""


@dataclass(frozen=True)
class Task:
    """A function of `lar.farm.executor` to call on a device.

    Its arguments have places there for the paths of `sending`. `client` has a name of its own.
    """

    name: str
    client: str
    function: Callable[..., Any]
    arguments: Sequence[Any]
    sending: Sending
    command: Sequence[str] = field(default_factory=lambda: sys.argv)
    version: str = __version__


async def interrupt(name: str) -> None:
    """Have a task end soon; Dask calls this while the task is running."""
    _interrupted.add(name)


def play(task: Task) -> Answer:
    """Do a task; return its answer with the files that it has written.

    Raises:
        TaskLost: its process has ended in the middle of it.
        LarError: another version of lar sent it, or nobody wants it any more.
    """
    from distributed import get_worker

    if task.version != __version__:
        problem = f"a worker has lar {__version__}, and this is lar {task.version}"
        raise LarError(problem, "install the same on both", flag="--scheduler")
    worker, attempt = get_worker(), uuid.uuid4().hex

    def publish(**said: Any) -> None:
        message = {"attempt": attempt, "worker": worker.address, **said}
        worker.log_event(TOPIC, (task.name, message))

    def is_unwanted() -> bool:
        found = worker.state.tasks.get(task.name)  # its client may be gone
        return task.name in _interrupted or not found or found.state in ("cancelled", "resumed")

    # What a worker holds for a client is gone when the client is.
    keys = {each: f"{task.client}-{each}-{worker.address}" for each in task.sending.files.values()}
    publish(missing={key: each for each, key in keys.items() if key not in worker.data})
    while not all(key in worker.data for key in keys.values()):
        if is_unwanted():
            raise Interrupted("interrupted")
        time.sleep(LOOK_SECONDS)
    contents = {place: worker.data[keys[each]] for place, each in task.sending.files.items()}
    with tempfile.TemporaryDirectory(prefix="lar-", dir=worker.local_directory) as root:
        try:
            return do(task, root, contents, publish, is_unwanted)
        finally:
            _interrupted.discard(task.name)


def do(
    task: Task, root: str, contents: Mapping[str, bytes], publish: Publish, is_unwanted: Check
) -> Answer:
    """Have a process do a task: an interrupt ends it as Ctrl-C does in a shell.

    Raises:
        TaskLost: it has ended without an answer.
    """
    words = python_command("from lar.farm.executor import main; main()")
    environment = environment_of_runs()
    process = Popen(words, env=environment, stdin=PIPE, stdout=PIPE, start_new_session=True)
    assert process.stdin is not None
    assert process.stdout is not None
    threading.Thread(target=end_unwanted, args=(process, is_unwanted)).start()
    with process:
        try:
            with process.stdin:
                pickle.dump((task, root, contents), process.stdin)
            while not isinstance(said := pickle.load(process.stdout), Answer):
                publish(root=root, happened=said)
            return said
        except (EOFError, OSError, pickle.UnpicklingError):
            status = process.wait()
            how = name_of_signal(-status) if status < 0 else f"exit code {status}"
            raise TaskLost(f"its process ended by {how}") from None


def environment_of_runs() -> dict[str, str]:
    """Return the environment without the variables of Dask's nanny.

    With these, engines would compute on one thread.
    """
    import dask

    added: Mapping[str, object] = dask.config.get("distributed.nanny.pre-spawn-environ", {})
    return {name: value for name, value in os.environ.items() if str(added.get(name, "")) != value}


def end_unwanted(process: Popen[bytes], is_unwanted: Check) -> None:
    """End a process as soon as nobody wants its answer."""
    while not is_unwanted():
        if process.poll() is not None:
            return
        time.sleep(LOOK_SECONDS)
    for _ in range(MOST_INTERRUPTS):  # a second interrupt too soon counts as the first
        process.send_signal(signal.SIGINT)
        time.sleep(1.0)
    process.kill()
