"""The connection to a Dask scheduler and its workers; the only module that a client has of Dask."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import threading
import time
import uuid
import warnings
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import CancelledError
from typing import Any, NamedTuple, Protocol

from lar.errors import EngineMissing, LarError, UsageError
from lar.farm.worker import TOPIC

FLAG = "--scheduler"
PORT = 8786
# To wait so long for a scheduler that does not answer.
CONNECT_SECONDS = 10.0
# Between two looks at which workers there are.
LOOK_SECONDS = 0.3
STARTING = "`lar help farm` has how to start a scheduler and its workers"


class WorkerLost(Exception):
    """A worker has gone."""


class Stopped(Exception):
    """The job is not wanted any more."""


class WorkerFacts(NamedTuple):
    """A worker as the scheduler knows it."""

    name: str
    resources: Mapping[str, float]

    @property
    def labels(self) -> frozenset[str]:
        """What `--on` may name."""
        return frozenset(name for name, count in self.resources.items() if count >= 1)


class Cluster(Protocol):
    """A scheduler and its workers."""

    address: str

    def workers(self) -> Mapping[str, WorkerFacts]:
        """Return the workers that there are, by address.

        Raises:
            LarError: the connection is lost.
        """

    def call(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        worker: str,
        resources: Mapping[str, float],
        stopping: threading.Event,
    ) -> Any:
        """Call a function on a worker when it has the resources free, and return its value.

        Raises:
            WorkerLost: the worker has gone.
            Stopped: `stopping` was set meanwhile.
            LarError: the connection is lost, or the function failed.
        """

    def call_at_once(
        self, function: Callable[..., Coroutine[Any, Any, None]], *arguments: Any, worker: str
    ) -> None:
        """Call a function on a worker that may be busy, and do not wait for it."""

    def listen(self, take: Callable[[Mapping[str, Any]], None]) -> None:
        """Have a function take what workers publish."""

    def close(self) -> None:
        """Close the connection."""


def address_of(text: str) -> str:
    """Return the address of a scheduler as Dask takes it: `dask://` stands for `tcp://`.

    Raises:
        UsageError: it is none.
    """
    found = re.fullmatch(r"(?:(dask|tcp|tls|ucx|ws|wss)://)?([^/\s]+?)(?::(\d{1,5}))?/?", text)
    if found is None or not found[1]:
        raise UsageError(
            "is not the address of a scheduler",
            "give dask://HOST:PORT, or tls://HOST:PORT",
            flag=FLAG,
            subject=text,
        )
    protocol = "tcp" if found[1] == "dask" else found[1]
    return f"{protocol}://{found[2]}:{found[3] or PORT}"


class DaskCluster:
    """A Dask scheduler and its workers."""

    def __init__(self, address: str) -> None:
        """Connect.

        Raises:
            EngineMissing: Dask is not installed.
            UsageError: the address is none.
            LarError: no scheduler answers.
        """
        self.address = address_of(address)
        try:
            from distributed import Client
        except ImportError as error:
            raise EngineMissing(
                f"Dask cannot be imported: {error}", "pip install 'lar[farm]'", flag=FLAG
            ) from None
        # What is wrong is said in lar's own words.
        logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self._client = Client(
                    self.address, timeout=CONNECT_SECONDS, set_as_default=False, name="lar"
                )
        except (OSError, TimeoutError, ValueError, TypeError) as error:
            reason = str(error).strip().splitlines()[-1:] or [type(error).__name__]
            if isinstance(error, (ValueError, TypeError)):
                raise LarError(f"cannot be used: {reason[0]}", STARTING, flag=FLAG) from None
            raise LarError(f"no scheduler answers at {self.address}", STARTING, flag=FLAG) from None
        self._workers: dict[str, WorkerFacts] = {}
        self._looked = 0.0
        self._lock = threading.Lock()

    def workers(self) -> Mapping[str, WorkerFacts]:
        with self._lock:
            if time.monotonic() - self._looked > LOOK_SECONDS:
                if self._client.status != "running":
                    raise self.connection_lost()
                found = self._client.scheduler_info(n_workers=-1)["workers"]
                self._workers = {
                    address: WorkerFacts(str(facts["name"]), facts["resources"])
                    for address, facts in found.items()
                    if facts["status"] == "running"
                }
                self._looked = time.monotonic()
        return self._workers

    def connection_lost(self) -> LarError:
        """Return the error of a scheduler that has gone."""
        return LarError(f"the connection to the scheduler {self.address} is lost", flag=FLAG)

    def loss_of(self, worker: str) -> WorkerLost | LarError:
        """Return the error of a worker that has gone, or of its scheduler."""
        # Workers end when their scheduler does, and may be seen to go first.
        time.sleep(LOOK_SECONDS)
        return WorkerLost(worker) if self._client.status == "running" else self.connection_lost()

    def call(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        worker: str,
        resources: Mapping[str, float],
        stopping: threading.Event,
    ) -> Any:
        done = threading.Event()
        future = self._client.submit(
            function,
            *arguments,
            key=f"lar-{function.__name__}-{uuid.uuid4().hex}",
            workers=[worker],
            resources=dict(resources),
            pure=False,
        )
        future.add_done_callback(lambda _: done.set())
        try:
            while not done.wait(LOOK_SECONDS):
                if stopping.is_set():
                    raise Stopped
                if worker not in self.workers():
                    raise self.loss_of(worker)
            return self.value_of(future, worker)
        finally:
            if done.is_set():
                future.release()
            else:
                future.cancel()

    def value_of(self, future: Any, worker: str) -> Any:
        """Return the value of a future that is done."""
        from distributed import KilledWorker

        try:
            return future.result(timeout=CONNECT_SECONDS)
        except (KilledWorker, CancelledError):
            raise self.loss_of(worker) from None
        except ModuleNotFoundError as error:
            raise LarError(
                f"the worker {worker} has no module {error.name}",
                "start it where the same lar is installed",
                flag=FLAG,
            ) from None
        except (OSError, asyncio.TimeoutError) as error:
            # It may have gone between the end of its work and here.
            lost = self.loss_of(worker)
            if worker not in self.workers():
                raise lost from None
            raise LarError(f"the worker {worker} failed: {error}", flag=FLAG) from None

    def call_at_once(
        self, function: Callable[..., Coroutine[Any, Any, None]], *arguments: Any, worker: str
    ) -> None:
        self._client.run(function, *arguments, workers=[worker], wait=False, on_error="ignore")

    def listen(self, take: Callable[[Mapping[str, Any]], None]) -> None:
        self._client.subscribe_topic(TOPIC, lambda event: take(event[1]))

    def close(self) -> None:
        with contextlib.suppress(Exception):  # a scheduler that has gone, or is slow
            self._client.close(timeout=2)
