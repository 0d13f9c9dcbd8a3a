"""What Dask calls on a worker: files come and go, and a process beside it makes the runs.

dask worker tcp://HOST:8786 --nworkers 1 --nthreads 1 --resources "device=1 x86=1"
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from lar import __version__
from lar.farm.store import ROOT, WRITTEN, SentFile, Store, hash_content
from lar.measurement.machine import read_machine
from lar.records.run import record_to_json
from lar.running.worker_process import module_path

# The topic under which workers report what happens during jobs.
TOPIC = "lar"
# Written files that are smaller, all together, come with the answer.
INLINE_BYTES = 1 << 18
# Between two looks for an interrupt.
LOOK_SECONDS = 0.1
# For so long a run that was interrupted may take to end by itself.
END_SECONDS = 5.0
AGAIN_SECONDS = 1.0
# Files of a job that its client never fetches go away after so long.
KEPT_SECONDS = 3600.0

_interrupted: set[str] = set()
_executors: dict[str, Executor] = {}


class Lost(Exception):
    """The process that makes the runs has ended in the middle of a job."""


def describe() -> dict[str, str]:
    """Return the version of lar on this worker, and the facts about its machine as JSON.

    The process that makes its runs is started meanwhile: a client asks this before its first job.
    """
    executor_at(str(home()))
    return {"version": __version__, "machine": record_to_json(read_machine()).decode()}


def be_free() -> None:
    """Return at once: what calls this has the device of the worker."""


def home() -> Path:
    """Return the folder of lar on this worker: it goes when the worker ends."""
    from distributed import get_worker

    return Path(get_worker().local_directory) / "lar"


def store() -> Store:
    """Return the files that were sent to this worker."""
    return Store(home() / "store")


def find_missing(hashes: Sequence[str]) -> list[str]:
    """Return those of some files that are not on this worker."""
    return store().find_missing(hashes)


def add_piece(sha256: str, offset: int, data: bytes) -> None:
    """Take a piece of a file."""
    store().add_piece(sha256, offset, data)


def finish_file(sha256: str) -> bool:
    """Take a file whose pieces have all come; False if it was damaged on the way."""
    return store().finish(sha256)


def read_piece(job: str, place: str, offset: int, size: int) -> bytes:
    """Return a piece of a file that a job has written."""
    with open(folder_of(job) / place, "rb") as file:
        file.seek(offset)
        return file.read(size)


def forget(job: str) -> None:
    """Remove the folder of a job."""
    shutil.rmtree(folder_of(job), ignore_errors=True)


def folder_of(job: str) -> Path:
    """Return the folder of a job, which may not exist."""
    return home() / "jobs" / job


async def interrupt(job: str) -> None:
    """Have a job end soon; Dask calls it while the job goes on."""
    _interrupted.add(job)


def play(job: Mapping[str, Any]) -> dict[str, Any]:
    """Do a job; return what came of it, and what files it has written.

    `kind` is `record`, with a result as JSON, or `failure`, with its parts, or `lost`.
    """
    name, root = job["name"], folder_of(job["name"])
    forget_old(root.parent)
    files = [SentFile(*each) for each in job["files"]]
    try:
        store().lay_out(root, files, job["folders"])
    except FileNotFoundError as error:
        shutil.rmtree(root, ignore_errors=True)
        return {"kind": "missing", "value": str(error)}
    request = job["request"].replace(ROOT, json.dumps(str(root))[1:-1])
    asked = {**{key: job[key] for key in ("kind", "arguments", "follow")}, "request": request}
    count = 0

    def publish(entries: Sequence[Any]) -> None:
        nonlocal count
        log_event({"job": name, "number": count, "entries": entries, "root": str(root)})
        count += 1

    ends = cancel_check(name)
    try:
        kind, value = executor_at(str(home())).do(asked, publish, ends)
    except Lost as error:
        kind, value = "lost", str(error)
    finally:
        _interrupted.discard(name)
    written = [*written_files(root, files, job["caches"])]
    inline = sum(size for _, size in written) <= INLINE_BYTES
    contents = {place: (root / place).read_bytes() for place, _ in written} if inline else {}
    folders = [str(each.relative_to(root)) for each in (root / WRITTEN).rglob("*") if each.is_dir()]
    if inline:
        shutil.rmtree(root, ignore_errors=True)
    return {
        "kind": kind,
        "value": value,
        "root": str(root),
        "published": count,
        "written": written,
        "contents": contents,
        "folders": folders,
    }


def cancel_check(name: str) -> Callable[[], bool]:
    """Return what says whether a job shall end: its client wants it no more, or has gone."""
    from distributed import get_worker

    worker = get_worker()
    key = worker.get_current_task()

    def ends() -> bool:
        task = worker.state.tasks.get(key)
        return name in _interrupted or task is None or task.state in ("cancelled", "resumed")

    return ends


def log_event(message: Mapping[str, Any]) -> None:
    """Pass a message on to the clients."""
    from distributed import get_worker

    get_worker().log_event(TOPIC, message)


def environment_of_runs() -> dict[str, str]:
    """Return the environment without what Dask's nanny sets in that of a worker: it would have
    engines compute on one thread."""
    import dask

    added: Mapping[str, object] = dask.config.get("distributed.nanny.pre-spawn-environ", {})
    return {
        name: value
        for name, value in os.environ.items()
        if name not in added or value != str(added[name])
    }


def forget_old(jobs: Path) -> None:
    """Remove the folders of jobs whose clients have gone."""
    jobs.mkdir(parents=True, exist_ok=True)
    for folder in jobs.iterdir():
        with contextlib.suppress(OSError):
            if time.time() - folder.stat().st_mtime > KEPT_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)


def written_files(
    root: Path, sent: Sequence[SentFile], caches: Sequence[str]
) -> Iterator[tuple[str, int]]:
    """Yield the places and sizes of files that a job has written, or changed."""
    for path in sorted((root / WRITTEN).rglob("*")):
        if path.is_file():
            yield str(path.relative_to(root)), path.stat().st_size
    before = {file.place: file.sha256 for file in sent}
    for place in caches:
        path = root / place
        if path.is_file():
            with path.open("rb") as file:
                if hash_content(file) != before.get(place):
                    yield place, path.stat().st_size


def executor_at(folder: str) -> Executor:
    """Return the process that makes the runs of a worker; it is started for its first job."""
    found = _executors.get(folder)
    if found is None or not found.is_alive:
        found = _executors[folder] = Executor()
    return found


class Executor:
    """The process that makes the runs, as a Dask worker sees it."""

    def __init__(self) -> None:
        code = (
            f"import sys; sys.path[:] = {module_path()!r}; "
            "from lar.farm.executor import main; main()"
        )
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            env=environment_of_runs(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )
        self._partial = b""

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def do(
        self,
        job: Mapping[str, Any],
        publish: Callable[[Sequence[Any]], None],
        ends: Callable[[], bool],
    ) -> tuple[str, Any]:
        """Have it do a job, and wait; `publish` is given what happens meanwhile.

        Raises:
            Lost: the process has ended.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(job).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise Lost(self._explain_end()) from None
        patience, again = None, 0.0
        while True:
            for kind, value in self._read():
                if kind != "happened":
                    return kind, value
                publish(value)
            now = time.monotonic()
            if patience is None and ends():
                patience = now + END_SECONDS
            if patience is not None and now > patience:
                self.kill()
            elif patience is not None and now > again:
                # Again: one that follows another soon is taken for the same.
                self._process.send_signal(signal.SIGINT)
                again = now + AGAIN_SECONDS

    def _read(self) -> Iterator[tuple[str, Any]]:
        """Yield what comes, after waiting for it a while.

        Raises:
            Lost: nothing comes any more.
        """
        assert self._process.stdout is not None
        file = self._process.stdout.fileno()
        ready, _, _ = select.select([file], [], [], LOOK_SECONDS)
        if not ready:
            return
        data = os.read(file, 1 << 20)
        if not data:
            raise Lost(self._explain_end())
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            kind, value = json.loads(line)
            yield kind, value

    def _explain_end(self) -> str:
        code = self._process.wait()
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return f"the process that makes the runs has ended: {how}"

    def kill(self) -> None:
        """End it, and what it runs."""
        self._process.kill()
        self._process.wait()
