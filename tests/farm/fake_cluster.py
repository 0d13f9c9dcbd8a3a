"""A cluster without Dask: what is called on a worker is called here, in the caller's thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from lar.farm import executor, worker
from lar.farm.cluster import Stopped, WorkerFacts, WorkerLost
from lar.farm.field import Field
from lar.farm.worker import play


class FakeCluster:
    """Workers by address with their labels; each is a folder.

    `lose` is asked before each call whether its worker is lost by it, and `lose_after` when it has
    done all but answer.
    """

    address = "tcp://fake:8786"

    def __init__(self, folder: Path, labels: Mapping[str, Sequence[str]]) -> None:
        self.folder = folder
        self.labels = {address: [*each] for address, each in labels.items()}
        self.calls: list[tuple[str, str]] = []
        self.kinds: list[str] = []  # of jobs
        self.lose: Callable[[str, str], bool] = lambda name, address: False
        self.lose_after: Callable[[str], bool] = lambda name: False
        self.at = threading.local()
        self.takers: list[Callable[[Mapping[str, Any]], None]] = []
        self.busy = 0
        self.most_busy = 0

    def workers(self) -> Mapping[str, WorkerFacts]:
        return {
            address: WorkerFacts(address, dict.fromkeys(each, 1.0))
            for address, each in dict(self.labels).items()
        }

    def call(
        self,
        function: Callable[..., Any],
        *arguments: Any,
        worker: str,
        resources: Mapping[str, float],
        stopping: threading.Event,
    ) -> Any:
        assert {*resources} <= {*self.labels.get(worker, resources)}
        assert resources["device"] == 1
        self.calls.append((function.__name__, worker))
        if function is play:
            self.kinds.append(arguments[0]["kind"])
        if worker not in self.labels or self.lose(function.__name__, worker):
            self.labels.pop(worker, None)
            raise WorkerLost(worker)
        if stopping.is_set():
            raise Stopped
        self.at.worker = worker
        answer = function(*arguments)
        if self.lose_after(function.__name__):
            self.labels.pop(worker, None)
            raise WorkerLost(worker)
        return answer

    def call_at_once(self, function: Callable[..., Any], *arguments: Any, worker: str) -> None:
        asyncio.run(function(*arguments))

    def listen(self, take: Callable[[Mapping[str, Any]], None]) -> None:
        self.takers.append(take)

    def close(self) -> None:
        pass

    def count(self, name: str) -> int:
        """How often a function was called."""
        return sum(called == name for called, _ in self.calls)


class ExecutorHere:
    """Makes the runs in the thread that asks for them."""

    def do(
        self,
        job: Mapping[str, Any],
        publish: Callable[[Sequence[Any]], None],
        ends: Callable[[], bool],
    ) -> tuple[str, Any]:
        def write(kind: str, value: Any) -> None:
            publish(value)

        return executor.answer_to(job, write)


@contextmanager
def fake_farm(cluster: FakeCluster) -> Any:
    """A farm of a fake cluster, which `open_farm` gives whatever the address."""

    def log_event(message: Mapping[str, Any]) -> None:
        for take in cluster.takers:
            take(message)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worker, "home", lambda: cluster.folder / cluster.at.worker)
        patch.setattr(worker, "executor_at", lambda folder: ExecutorHere())
        patch.setattr(worker, "cancel_check", lambda name: lambda: False)
        patch.setattr(worker, "log_event", log_event)
        patch.setattr("lar.farm.runs.DaskCluster", lambda address: cluster)
        patch.setattr("lar.farm.field.FIRST_SECONDS", 0.05)
        patch.setattr("lar.farm.field.AGAIN_SECONDS", 0.05)
        patch.setattr("lar.farm.field.LOOK_SECONDS", 0.01)
        yield Field(cluster)
