"""The devices of a farm, and the jobs that are shared out between them.

A thread for each device has one job at a time; it sends the files that the worker lacks, has the
job done, and fetches what was written. What it sends and fetches it does with the device in hand,
so that nobody's run is disturbed by it.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lar import __version__
from lar.errors import EXIT_CODES, LarError, UsageError, first_line
from lar.farm import worker as remote
from lar.farm.cluster import FLAG, STARTING, Cluster, Stopped, WorkerLost
from lar.farm.sending import Sending
from lar.farm.store import FILES, WRITTEN
from lar.options.table import BY_KEY
from lar.records.facts import MachineFacts
from lar.records.run import Failure, record_from_json

ON = "--on"
DEVICE = "device"  # the resource of which a job takes one
PIECE_BYTES = 4 << 20
# After so many losses of its worker a job is given up: it may be what kills them.
MOST_LOSSES = 3
# To wait so long for the first worker of a label, and for one when the last was lost.
FIRST_SECONDS = 5.0
AGAIN_SECONDS = 30.0
LOOK_SECONDS = 0.1
# For so long what was published before a job's answer may come after it.
LATE_SECONDS = 2.0
# For so long an interrupted job may take to answer.
END_SECONDS = 8.0

Follow = Callable[[Sequence[Any]], None]


@dataclass(frozen=True)
class Job:
    """What is done on a device that has the label, if there is one.

    `request` has places on the worker for the paths of `sending`. Jobs of one `group` are done on
    machines that are alike. `follow` takes what happens meanwhile, in the main thread. `losses`
    counts the workers that were lost with it before; where another one shall not do it at once if
    its worker is lost, `is_repeated` is False.
    """

    kind: str
    request: bytes
    sending: Sending
    label: str = ""
    group: str = ""
    follow: Follow | None = None
    losses: int = 0
    is_repeated: bool = True
    name: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass(frozen=True)
class Outcome:
    """What came of a job: its record as JSON, or why there is none.

    `losses` counts the workers that were lost with it. `seconds` is from when a device took it to
    its answer.
    """

    record: str = ""
    failure: Failure | None = None
    losses: int = 0
    worker: str = ""
    seconds: float = 0.0


@dataclass
class Waiting:
    """A job that waits for a device."""

    number: int
    job: Job
    losses: int = 0


class Field:
    """Shares jobs out between the devices of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._lock = threading.Lock()
        self._waiting: list[Waiting] = []
        self._serving: dict[str, threading.Thread] = {}
        self._active: dict[str, str] = {}  # the names of jobs by worker
        self._playing: set[str] = set()  # of those whose files are there
        self._placed: dict[str, set[str]] = {}  # what workers have, by address
        self._machines: dict[str, MachineFacts] = {}
        self._kinds: dict[str, tuple[object, ...]] = {}  # of the machines of each group
        self._served: set[str] = set()  # the labels of the jobs that workers took
        self._stopping = threading.Event()
        self._found: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._is_listening = False
        self._followed: dict[str, Follower] = {}

    def play(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Outcome]]:
        """Have jobs done; yield the number of each with what came of it, as they end.

        An interrupt ends the jobs on their workers; those that end in time are yielded, and then
        it is raised again.
        """
        if any(job.follow for job in jobs) and not self._is_listening:
            self.cluster.listen(lambda message: self._found.put(("happened", message)))
            self._is_listening = True
        self._stopping.clear()
        self._waiting = [Waiting(number, job, job.losses) for number, job in enumerate(jobs)]
        self._followed = {job.name: Follower(job.follow) for job in jobs if job.follow}
        left, had_one = len(jobs), any(job.label in self._served for job in jobs)
        idle_since: float | None = None  # no worker may do any job that waits
        while left:
            try:
                if self.start_serving():
                    idle_since, had_one = None, True
                elif idle_since is None:
                    idle_since = time.monotonic()
                elif time.monotonic() - idle_since > (AGAIN_SECONDS if had_one else FIRST_SECONDS):
                    self.give_up_waiting(had_one)
                found = self.next_found()
                if found is None:
                    continue
                ended = self.take_found(*found)
                if ended is not None:
                    left -= 1
                    yield ended
            except KeyboardInterrupt:
                yield from self.interrupt()
                raise

    def keep_to(self, group: str, machine: MachineFacts) -> None:
        """Have the jobs of a group done on machines like this one alone."""
        self._kinds[group] = kind_of_machine(machine)

    def next_found(self) -> tuple[str, Any] | None:
        """Return what came next, None if nothing came for a while."""
        try:
            return self._found.get(timeout=LOOK_SECONDS)
        except queue.Empty:
            return None

    def take_found(self, kind: str, value: Any) -> tuple[int, Outcome] | None:
        """Take what came; return the number and the outcome of a job that has ended."""
        if kind == "happened":
            follower = self._followed.get(value["job"])
            if follower is not None:
                follower.take(value)
            return None
        number, name, outcome, published = value
        self.take_late(name, published)
        return number, outcome

    def take_late(self, name: str, published: int) -> None:
        """Take what was published before an answer that came first."""
        follower, deadline = self._followed.get(name), time.monotonic() + LATE_SECONDS
        others = []
        while follower and follower.count < published and time.monotonic() < deadline:
            found = self.next_found()
            if found is not None and found[0] == "happened":
                self.take_found(*found)
            elif found is not None:
                others.append(found)
        for found in others:
            self._found.put(found)

    def interrupt(self) -> Iterator[tuple[int, Outcome]]:
        """Have the jobs end that are being done; yield those that answer in time."""
        self.take_all_waiting()
        if not self._playing:
            self._stopping.set()
        for address, name in dict(self._active).items():
            self.cluster.call_at_once(remote.interrupt, name, worker=address)
        deadline = time.monotonic() + END_SECONDS
        try:
            while self._active and time.monotonic() < deadline:
                if (found := self.next_found()) and (ended := self.take_found(*found)):
                    yield ended
            while found := self.next_found():
                if ended := self.take_found(*found):
                    yield ended
        finally:
            self._stopping.set()

    def start_serving(self) -> bool:
        """Have a thread serve each device that may do a waiting job; return whether any is
        served."""
        try:
            workers = self.cluster.workers()
        except LarError as error:
            self.give_up_all(error)
            return True
        with self._lock:
            for address, facts in workers.items():
                if DEVICE not in facts.labels or address in self._serving:
                    continue
                if any(self.fits(address, facts.labels, each.job) for each in self._waiting):
                    thread = threading.Thread(target=self.serve, args=(address,), daemon=True)
                    self._serving[address] = thread
                    thread.start()
            return bool(self._serving) or not self._waiting

    def fits(self, address: str, labels: frozenset[str], job: Job) -> bool:
        """Return whether a worker may do a job, as far as that is known."""
        if job.label and job.label not in labels:
            return False
        wanted, machine = self._kinds.get(job.group), self._machines.get(address)
        return wanted is None or machine is None or kind_of_machine(machine) == wanted

    def give_up_waiting(self, had_one: bool) -> None:
        """End the jobs that no worker may do."""
        for each in self.take_all_waiting():
            error = self.explain_absence(each.job, had_one)
            self.put(each, Outcome(failure=Failure.of(error), losses=each.losses))

    def give_up_all(self, error: LarError) -> None:
        """End all jobs that wait: the scheduler has gone."""
        for each in self.take_all_waiting():
            self.put(each, Outcome(failure=Failure.of(error)))

    def take_all_waiting(self) -> list[Waiting]:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        return waiting

    def explain_absence(self, job: Job, had_one: bool) -> LarError:
        """Return the error of a job that no worker may do."""
        label, facts = job.label, self.cluster.workers().values()
        labels = sorted({name for each in facts for name in each.labels} - {DEVICE})
        able = [each for each in facts if {DEVICE, label or DEVICE} <= each.labels]
        if able and job.group in self._kinds:
            return LarError(
                "no worker has a machine like the one that was measured before",
                "results of different machines are never mixed",
                flag=FLAG,
            )
        if had_one:
            what = f"no worker with the label {label!r}" if label else "no worker"
            return LarError(f"{what} is left", "the others were lost", flag=FLAG)
        if not facts:
            problem = f"the scheduler {self.cluster.address} has no workers"
            return LarError(problem, STARTING, flag=FLAG)
        if not any(DEVICE in each.labels for each in facts):
            hint = 'start them with --resources "device=1"'
            return LarError(f"no worker of {self.cluster.address} has a device", hint, flag=FLAG)
        return UsageError(
            f"no worker with a device has the label {label!r}",
            f"labels: {', '.join(labels)}" if labels else STARTING,
            flag=ON,
        )

    def serve(self, address: str) -> None:
        """Do jobs on a device, one after the other, as long as there are any for it."""
        try:
            while (waiting := self.take(address)) is not None:
                began = time.monotonic()
                self._active[address] = waiting.job.name
                try:
                    outcome, published = self.do(waiting.job, address)
                except (WorkerLost, remote.Lost) as error:
                    self.lose(waiting, address, error)
                    if isinstance(error, WorkerLost):
                        return
                    continue
                except Stopped:
                    return
                except LarError as error:
                    outcome, published = Outcome(failure=Failure.of(error)), 0
                except Exception as error:
                    text = f"the worker {address} failed: {type(error).__name__}: "
                    failure = Failure(text + first_line(error))
                    outcome, published = Outcome(failure=failure), 0
                finally:
                    self._active.pop(address, None)
                seconds = time.monotonic() - began
                outcome = Outcome(outcome.record, outcome.failure, worker=address, seconds=seconds)
                self.put(waiting, outcome, published)
        finally:
            with self._lock:
                self._serving.pop(address, None)

    def put(self, ended: Waiting, outcome: Outcome, published: int = 0) -> None:
        """Hand what came of a job to the main thread."""
        self._found.put(("outcome", (ended.number, ended.job.name, outcome, published)))

    def take(self, address: str) -> Waiting | None:
        """Return a job for a device, None if there is none."""
        if self._stopping.is_set():
            return None
        try:
            facts = self.cluster.workers().get(address)
            if facts is None:
                return None
            self.look_at(address)
            if self.has_choice():
                # Others may compute on it: then another device may do the job sooner.
                self.call(remote.be_free, worker=address)
        except (WorkerLost, Stopped):
            return None
        except LarError as error:
            self.give_up_all(error)
            return None
        except Exception as error:  # whatever another version of lar does
            text = f"the worker {address} failed: {type(error).__name__}: {first_line(error)}"
            self.give_up_all(LarError(text, flag=FLAG))
            return None
        with self._lock:
            for each in self._waiting:
                if self.fits(address, facts.labels, each.job):
                    self._waiting.remove(each)
                    self._served.add(each.job.label)
                    if each.job.group:
                        kind = kind_of_machine(self._machines[address])
                        self._kinds.setdefault(each.job.group, kind)
                    return each
        return None

    def has_choice(self) -> bool:
        """Return whether there are fewer jobs than devices."""
        devices = [each for each in self.cluster.workers().values() if DEVICE in each.labels]
        with self._lock:
            return 0 < len(self._waiting) < len(devices)

    def look_at(self, address: str) -> None:
        """Read the facts about the machine of a worker, once.

        Raises:
            LarError: it has another lar.
        """
        if address in self._machines:
            return
        facts = self.call(remote.describe, worker=address)
        if facts["version"] != __version__:
            raise LarError(
                f"the worker {address} has lar {facts['version']}, and this is lar {__version__}",
                "install the same on both",
                flag=FLAG,
            )
        self._machines[address] = record_from_json(facts["machine"], MachineFacts)

    def lose(self, waiting: Waiting, address: str, error: Exception) -> None:
        """Have a job done elsewhere whose worker is lost, unless that was so too often."""
        self._placed.pop(address, None)
        waiting.losses += 1
        if waiting.losses < MOST_LOSSES and waiting.job.is_repeated:
            with self._lock:
                self._waiting.insert(0, waiting)
            return
        why = str(error) if isinstance(error, remote.Lost) else "it has gone"
        failure = Failure(
            f"the worker was lost, {waiting.losses} times; the last was {address}: {why}",
            exit_code=EXIT_CODES["crashed"],
        )
        self.put(waiting, Outcome(failure=failure, losses=waiting.losses))

    def call(
        self, function: Callable[..., Any], *arguments: Any, worker: str, label: str = ""
    ) -> Any:
        """Call a function on a worker when nobody else has its device."""
        resources = {DEVICE: 1.0, **({label: 1.0} if label and label != DEVICE else {})}
        return self.cluster.call(
            function, *arguments, worker=worker, resources=resources, stopping=self._stopping
        )

    def do(self, job: Job, address: str) -> tuple[Outcome, int]:
        """Do a job on a worker; return what came of it, and how often it has published.

        Raises:
            WorkerLost, remote.Lost: the worker has gone, or what makes its runs has.
            Stopped: it is not wanted any more.
            LarError: a file cannot be sent or written.
        """
        for _ in range(2):  # files may have had to make room meanwhile
            self.send_files(job, address)
            asked = {
                "name": job.name,
                "kind": job.kind,
                "request": job.request.decode(),
                "files": [
                    (each.place, each.sha256, each.size_bytes, each.own)
                    for each in job.sending.files.values()
                ],
                "folders": sorted(job.sending.folders),
                "caches": sorted(job.sending.caches),
                "arguments": list(sys.argv),
                "follow": job.follow is not None,
            }
            self._playing.add(job.name)
            try:
                answer = self.call(remote.play, asked, worker=address, label=job.label)
            finally:
                self._playing.discard(job.name)
            if answer["kind"] != "missing":
                break
            self._placed.pop(address, None)
        if answer["kind"] == "lost":
            raise remote.Lost(answer["value"])
        names = Names(job.sending, answer["root"])
        if answer["kind"] != "record":
            text = names.in_text(json.dumps(answer["value"], ensure_ascii=False))
            return Outcome(failure=record_from_json(text, Failure)), answer["published"]
        self.fetch_files(job, address, answer, names)
        return Outcome(record=names.in_text(answer["value"])), answer["published"]

    def send_files(self, job: Job, address: str) -> None:
        """Send a worker the files that it lacks, in pieces."""
        placed = self._placed.setdefault(address, set())
        hashes = {each.sha256 for each in job.sending.files.values()} - placed
        if not hashes:
            return
        for sha256 in self.call(remote.find_missing, sorted(hashes), worker=address):
            path = job.sending.paths[sha256]
            with open(path, "rb") as file:
                offset = 0
                while (data := file.read(PIECE_BYTES)) or not offset:
                    self.call(remote.add_piece, sha256, offset, data, worker=address)
                    offset += len(data)
                    if len(data) < PIECE_BYTES:
                        break
            if not self.call(remote.finish_file, sha256, worker=address):
                raise LarError("has changed while it was sent", "run again", subject=path)
        placed |= hashes

    def fetch_files(self, job: Job, address: str, answer: Mapping[str, Any], names: Names) -> None:
        """Put the files that a job has written where its names say."""
        for place in answer["folders"]:
            if path := names.path_of(place):
                os.makedirs(path, exist_ok=True)
        for place, size in answer["written"]:
            path = names.path_of(place)
            if not path:
                continue
            if place in answer["contents"]:
                write_whole(path, iter([answer["contents"][place]]))
            else:
                write_whole(path, self.pieces_of(job, address, place, size))
            if is_profile(place):
                text = Path(path).read_text(errors="surrogateescape")
                data = names.in_text(text).encode(errors="surrogateescape")
                write_whole(path, iter([data]))
        if len(answer["contents"]) < len(answer["written"]):
            self.call(remote.forget, job.name, worker=address)

    def pieces_of(self, job: Job, address: str, place: str, size: int) -> Iterator[bytes]:
        """Yield the content of a file that a job has written."""
        for offset in range(0, size, PIECE_BYTES):
            arguments = (job.name, place, offset, PIECE_BYTES)
            yield self.call(remote.read_piece, *arguments, worker=address)


class Names:
    """What the user calls the places in a job's folder."""

    def __init__(self, sending: Sending, root: str) -> None:
        self.root = root
        self.names = sorted(sending.names.items(), key=lambda each: -len(each[0]))

    def path_of(self, place: str) -> str:
        """Return the path on this machine of what was written, empty if nobody asked for it."""
        for known, path in self.names:
            if place == known or place.startswith(known + "/"):
                return path + place[len(known) :]
        return ""

    def in_text(self, text: str) -> str:
        """Return JSON with the user's names for the places in it."""
        if self.root not in text:
            return text
        for place, path in self.names:
            text = text.replace(quoted(f"{self.root}/{place}"), quoted(path))
        return text.replace(quoted(f"{self.root}/{FILES}"), "")


def is_profile(place: str) -> bool:
    """Return whether a written file is a profile, which is JSON and names files."""
    option = BY_KEY.get(Path(place).parts[1]) if place.startswith(f"{WRITTEN}/") else None
    return option is not None and option.purpose == "profile"


def quoted(text: str) -> str:
    """Return a text as it stands within JSON."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def write_whole(path: str, pieces: Iterator[bytes]) -> None:
    """Write a file, which takes its place when it is whole.

    Raises:
        LarError: it cannot be written.
    """
    from lar.errors import error_of_write

    beside = Path(f"{path}.{uuid.uuid4().hex[:8]}.part")
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with beside.open("wb") as file:
            for data in pieces:
                file.write(data)
        os.replace(beside, path)
    except OSError as error:
        raise error_of_write(error, subject=path) from None
    finally:
        beside.unlink(missing_ok=True)


class Follower:
    """Takes what happens during a job, in its order and once."""

    def __init__(self, follow: Follow) -> None:
        self.follow = follow
        self.count = 0

    def take(self, message: Mapping[str, Any]) -> None:
        """Take a message of the job."""
        if message["number"] == self.count:
            self.count += 1
            self.follow([message["root"], *message["entries"]])


def kind_of_machine(machine: MachineFacts) -> tuple[object, ...]:
    """Return what two machines have in common whose results may be compared."""
    memory = machine.memory_bytes and round(machine.memory_bytes / 2**30)
    cores = (machine.cores, machine.usable_cores, machine.threads_per_core, machine.cpu_limit)
    names = (machine.processor, machine.architecture, machine.system, machine.governor)
    return (*names, *cores, memory)
