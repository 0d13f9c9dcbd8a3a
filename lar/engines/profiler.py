"""The seam between an engine's own profiler and the recorder of a profiled run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from lar.records.profile import (
        Alignment,
        Allocation,
        Execution,
        MemoryPlan,
        ProfiledOperator,
        Span,
        Step,
    )
    from lar.records.run import RunSpec

T = TypeVar("T")

HOST_THREAD = 1


@dataclass(frozen=True, kw_only=True)
class EngineTrace:
    """What an engine tells of all iterations.

    Times are those of the recorder's clock. Threads are numbered from 2, the host's being 1;
    `thread_count` is how many the engine computes on. `dropped` says what it cannot tell.
    `engine_raw` is the engine's own profile of the last iteration; `raw_file` is the file in
    which it has written that of all.
    """

    operators: tuple[ProfiledOperator, ...] = ()
    executions: tuple[Execution, ...] = ()
    spans: tuple[Span, ...] = ()
    allocations: tuple[Allocation, ...] = ()
    memory_plan: MemoryPlan | None = None
    threads: dict[int, str] = field(default_factory=dict)
    thread_count: int | None = None
    alignments: tuple[Alignment, ...] = ()
    dropped: tuple[str, ...] = ()
    engine_raw: bytes = b""
    raw_file: str = ""


class EngineProfiler(Protocol):
    """What takes an engine's own profile; a driver has one in a profiled run."""

    def take(self, step: Step, forward_ns: int, dispatched_ns: int, waited_ns: int) -> None:
        """Keep what the engine has told of an iteration that has just ended.

        Its dispatch began at `forward_ns` and returned at `dispatched_ns`; it had been computed at
        `waited_ns`, before its outputs were copied.
        """

    def finish(self) -> EngineTrace:
        """Return all that was kept, when the last iteration has ended."""


class Silent:
    """Records nothing, in a run that is not profiled."""

    def attach(self, driver: Any) -> None:
        """Have a driver's iterations recorded."""

    def phase(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Record what is done inside as a phase."""
        return contextlib.nullcontext()

    def warming_up(self) -> contextlib.AbstractContextManager[None]:
        """Record the iterations inside as those of the warm-up."""
        return contextlib.nullcontext()

    def each_feed(self, feeds: Iterator[T]) -> Iterator[T]:
        """Yield what is fed; the reading of each is the beginning of the next iteration."""
        return feeds

    def call(self, name: str) -> contextlib.AbstractContextManager[None]:
        """Record what is done inside as one call of the engine's API."""
        return contextlib.nullcontext()

    def copy(
        self, name: str, size_bytes: int, tensor: str
    ) -> contextlib.AbstractContextManager[None]:
        """Record a call that copies a tensor within the host's memory."""
        return contextlib.nullcontext()

    def noting_begin(self, driver: Any, copy: Callable[[], object]) -> Callable[[], object]:
        """Return a copy of the outputs that notes when it began."""
        return copy

    def write(self, spec: RunSpec, driver: Any, batch: int | None) -> list[str]:
        """Write the files that the spec asks for; return what the user should know of them."""
        return []


SILENT = Silent()
