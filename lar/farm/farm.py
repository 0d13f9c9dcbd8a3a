"""A Dask scheduler and its workers, which do jobs.

Dask chooses a worker with a free device for each job. If the chosen worker is lost during the job,
Dask chooses another worker. The process of the user's command sends the files that a job asks for,
shows the progress, and waits for the result.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import pickle
import queue
import re
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from lar.errors import EngineMissing, LarError, UsageError, first_line
from lar.farm import worker as remote
from lar.farm.sending import Answer, Sending
from lar.farm.worker import TOPIC, Task, TaskLost
from lar.measurement.machine import read_machine
from lar.records.run import MachineFacts
from lar.tuning.session import identity_of

if TYPE_CHECKING:
    from distributed import Future

FLAG, ON = "--scheduler", "--on"
DEVICE = "device"  # the resource of a worker, which a job takes
# How long lar waits for a scheduler to answer.
CONNECT_SECONDS = 10.0
# Dask raises these if a worker is gone when something is sent to it.
GONE = (OSError, KeyError, asyncio.TimeoutError)
# How long lar waits for a first worker with a label, and for another after the last one was lost.
FIRST_SECONDS = 5.0
AGAIN_SECONDS = 30.0
# How long lar waits for the answer of an interrupted job.
END_SECONDS = 8.0
# The time between two looks at the workers.
LOOK_SECONDS = 0.5
# How often a job is started again if its process ends by itself. If a worker is lost, a setting of
# the scheduler decides, with the same default.
MOST_REPEATS = 3
STARTING = "`lar help farm` says how to start a scheduler and its workers"

On = str | tuple[str, ...]
"""The label that a worker must have (empty for any), or the addresses of the allowed workers."""

Follow = Mapping[str, Callable[..., None]]
"""Functions that take the news of a call, by kind; the news `began` makes earlier news void."""

T = TypeVar("T")


class Lost(LarError):
    """The error of a job that no worker has finished."""


class Killed(Lost):
    """The error of a job whose workers were lost several times, perhaps because of the job."""


class Farm:
    """A connection to a scheduler, whose workers do jobs."""

    def __init__(self, scheduler: str) -> None:
        """Connect to a scheduler.

        Raises:
            UsageError: the address of the scheduler has no host or no port.
            EngineMissing: Dask is not installed.
            LarError: no scheduler answers.
        """
        # The address in Dask's form: `dask://` means `tcp://`.
        protocol, _, place = scheduler.rpartition("://")
        if not re.match(r"[^\s/]+:\d+$", place):
            problem = f"{scheduler!r} is not the address of a scheduler"
            raise UsageError(problem, "give dask://HOST:PORT, as dask://office:8786", flag=FLAG)
        self.address = f"{'tcp' if protocol in ('', 'dask') else protocol}://{place}"
        try:
            from distributed import Client
        except ImportError as error:
            problem = f"Dask cannot be imported: {error}"
            raise EngineMissing(problem, "pip install 'lar[farm]'", flag=FLAG) from None
        # lar reports errors in its own words.
        logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._client = Client(self.address, timeout=CONNECT_SECONDS, set_as_default=False)
        except (OSError, ValueError, TypeError) as error:
            problem = f"no scheduler answers at {self.address}: {first_line(error)}"
            raise LarError(problem, STARTING, flag=FLAG) from None
        self._playing: dict[str, Playing] = {}
        self._client.subscribe_topic(TOPIC, self._hand_out)
        self._sent: dict[str, Future] = {}  # a worker has a file as long as its future exists
        self._workers: dict[str, Any] = {}
        self._look_at = 0.0
        self._machines: dict[str, MachineFacts] = {}

    def _hand_out(self, event: tuple[float, tuple[str, Any]]) -> None:
        """Pass a worker's message to the waiting call; ignore messages to other clients."""
        name, said = event[1]
        if playing := self._playing.get(name):
            playing.inbox.put(said)

    def close(self) -> None:
        """Close the connection, which ends the running jobs."""
        with contextlib.suppress(Exception):  # a scheduler that is gone, or slow
            self._client.close(timeout=2)

    def interrupt(self) -> None:
        """Interrupt each running job."""
        for playing in [*self._playing.values()]:
            playing.inbox.put(KeyboardInterrupt())

    def play(
        self,
        sending: Sending,
        function: Callable[..., T],
        *arguments: Any,
        on: On = "",
        follow: Follow = MappingProxyType({}),
    ) -> T:
        """Call a function of `lar.farm.worker` on a worker; return the function's value.

        Files that the function writes are copied to their paths on this machine. `sending` has the
        files to send; if an argument names such a file, it has the path that the file has on the
        worker. An interrupt ends the call on the worker. If the worker answers within `END_SECONDS`
        after the interrupt, the value of the call is returned.

        Raises:
            Lost: no worker has finished the call.
            UsageError: no worker has the label, or a file cannot be read.
            LarError: the call failed, the farm has no worker, or the connection is lost.
        """
        name = f"lar-{uuid.uuid4().hex}"
        playing = self._playing[name] = Playing(self, sending, on, follow)
        label, workers = (on, None) if isinstance(on, str) else ("", on)
        future = self._client.submit(
            remote.play,
            Task(name, self._client.id, function, arguments, sending),
            key=name,
            workers=workers,
            resources={DEVICE: 1.0, (label or DEVICE): 1.0},
            retries=MOST_REPEATS,
        )

        def wait() -> None:  # Dask repeats a lost call, even after the answer
            try:
                playing.inbox.put(future.result())
            except BaseException as error:  # whatever the worker raises
                playing.inbox.put(error)

        threading.Thread(target=wait, daemon=True).start()
        try:
            value: T = playing.wait()
        except KeyboardInterrupt:
            if not playing.attempts:
                raise
            self._client.run(remote.interrupt, name, wait=False, on_error="ignore")
            value = playing.wait(END_SECONDS)
        finally:
            del self._playing[name]
            future.release()
        return value

    def send(self, worker: str, files: Mapping[str, str], sending: Sending) -> None:
        """Send files to a worker.

        `files` maps the key that the worker uses for a file to the identity of the file.

        Raises:
            LarError: a file cannot be read.
        """
        for key, identity in files.items():
            content = sending.read(identity)
            with contextlib.suppress(*GONE):  # another worker will ask
                self._sent |= self._client.scatter(
                    {key: content}, workers=[worker], timeout=CONNECT_SECONDS
                )

    def alike(self, label: str, machine: MachineFacts) -> tuple[str, ...]:
        """Return the workers that have a label and run on a machine like `machine`.

        Raises:
            LarError: no worker has the label and a machine like `machine`, or the connection is
                lost.
        """
        able = self.able(label)
        if new := [each for each in able if each not in self._machines]:
            self._machines |= self._client.run(read_machine, workers=new, on_error="ignore")
        known = {address: identity_of(facts) for address, facts in self._machines.items()}
        alike = tuple(each for each in able if known.get(each) == identity_of(machine))
        if not alike:
            problem = "no worker's machine is like the machine that lar measured before"
            raise LarError(problem, "results of different machines are never mixed", flag=FLAG)
        return alike

    def able(self, on: On = "") -> list[str]:
        """Return the addresses of the workers that have a device and may do the job.

        Raises:
            LarError: the connection is lost.
        """
        found = {address: has for address, has in self._labels().items() if DEVICE in has}
        return [each for each, has in found.items() if not on or on in has or each in on]

    def _labels(self) -> Mapping[str, set[str]]:
        """Return the labels of each worker, by the worker's address.

        Raises:
            LarError: the connection is lost.
        """
        if time.monotonic() > self._look_at:
            self._look_at = time.monotonic() + LOOK_SECONDS
            with contextlib.suppress(OSError, KeyError):  # the connection may be closed
                self._workers = self._client.scheduler_info(n_workers=-1)["workers"]
        if self._client.status != "running":
            raise self.connection_lost()
        return {
            address: {name for name, count in facts["resources"].items() if count >= 1}
            for address, facts in self._workers.items()
            if facts["status"] == "running"
        }

    def connection_lost(self) -> LarError:
        """Return the error for a lost connection to the scheduler."""
        return LarError(f"the connection to the scheduler {self.address} is lost", flag=FLAG)

    def explain_absence(self, label: str) -> LarError:
        """Return the error for a job that no worker can do."""
        workers = self._labels().values()
        labels = ", ".join(sorted(set().union(*workers) - {DEVICE}))
        if label and any(DEVICE in each for each in workers):
            problem = f"no worker with a device has the label {label!r}"
            return UsageError(problem, f"known labels: {labels}" if labels else STARTING, flag=ON)
        problem = f"no worker of {self.address} has a device"
        return LarError(problem, 'start workers with --resources "device=1"', flag=FLAG)


@dataclass
class Playing:
    """A running call.

    `attempts` has a name for each start of the call on a worker. If no worker can run the call, lar
    waits until the time `patience`.
    """

    farm: Farm
    sending: Sending
    on: On
    follow: Follow
    attempts: list[str] = field(default_factory=list)
    inbox: queue.SimpleQueue[Any] = field(default_factory=queue.SimpleQueue)
    patience: float = field(default_factory=lambda: time.monotonic() + FIRST_SECONDS)

    def wait(self, seconds: float = math.inf) -> Any:
        """Return the answer to the call.

        Raises:
            KeyboardInterrupt: the answer does not come in time.
            LarError: the job failed, or the worker sent a wrong answer.
        """
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.look()
            try:
                said = self.inbox.get(timeout=LOOK_SECONDS)
            except queue.Empty:
                continue
            try:
                if isinstance(said, dict):
                    self.take(said)
                elif isinstance(said, Answer):
                    return self.sending.receive(said)
                else:
                    self.explain(said)
            except (AttributeError, LookupError, TypeError, pickle.UnpicklingError) as error:
                problem = f"a worker sent a wrong answer: {type(error).__name__}: {error}"
                raise LarError(
                    problem, "start workers with this version of lar", flag=FLAG
                ) from error
        raise KeyboardInterrupt

    def look(self) -> None:
        """Raise an error if no worker is left."""
        now = time.monotonic()
        if self.farm.able(self.on):
            self.patience = now + AGAIN_SECONDS
        elif now > self.patience and isinstance(self.on, str) and not self.attempts:
            raise self.farm.explain_absence(self.on)
        elif now > self.patience:
            label = f" with the label {self.on!r}" if self.on and isinstance(self.on, str) else ""
            raise Lost(f"no worker{label} is left", "all workers were lost", flag=FLAG)

    def take(self, said: Mapping[str, Any]) -> None:
        """Handle a message of a worker about the job."""
        attempt = said["attempt"]
        if attempt not in self.attempts:
            self.attempts.append(attempt)
            self.tell("began")
        if attempt != self.attempts[-1]:
            return  # a late message of a worker that seemed lost
        if "missing" in said:
            self.farm.send(said["worker"], said["missing"], self.sending)
        else:
            for entry in self.sending.name_all(pickle.loads(said["happened"]), said["root"]):
                self.tell(*entry)

    def tell(self, kind: str, *values: Any) -> None:
        """Pass a worker's message to the function that handles messages of this kind."""
        if take := self.follow.get(kind):
            take(*values)

    def explain(self, error: BaseException) -> None:
        """Raise the error that says why no worker has finished the job."""
        from distributed import KilledWorker

        match error:
            case KilledWorker():
                raise Killed(f"workers were lost, again and again: {error.last_worker.address}")
            case TaskLost():
                raise Killed(f"{error}, again and again")
            case CancelledError():
                raise self.farm.connection_lost()
            case LarError() | KeyboardInterrupt():
                raise error
            case _:  # from another version of lar, or a worker without lar
                problem = f"a worker failed: {type(error).__name__}: {first_line(error)}"
                raise LarError(problem, "start workers where lar is installed", flag=FLAG) from None
