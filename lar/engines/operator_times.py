"""The profile of an engine that runs one operator at a time and reports only durations.

The engine does not report when an operator started. Therefore, in the profile the first operator
starts when the dispatch of its iteration began, and each further operator starts when the operator
before it ends. Other facts that the engine does not report about an operator are derived from names
and shapes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import msgspec

from lar.engines import all_engines
from lar.engines.driver import HOST_THREAD, EngineTrace
from lar.engines.engine import Engine
from lar.engines.onnx_file.fields import bits_of
from lar.errors import UsageError
from lar.files.input_file import read_input
from lar.files.unpacking import unpack
from lar.profiles.trace_file import decode_profile, is_written_by_lar, read_as_written
from lar.records.profile import (
    Execution,
    ExecutionColumns,
    Profile,
    ProfiledOperator,
    Step,
    TensorFact,
    Times,
)

# Match a name inside a layer; the group is the layer's path. DOTTED allows only dots in the path.
LAYER = re.compile(r"/?(.+)[/.][^/.]+")
DOTTED = re.compile(r"(\w+(?:\.\w+)*)\.\w+")

# The category and name of a span that converts a layout.
RELAYOUT: Mapping[str, Any] = {"category": "relayout", "name": "[relayout]"}


class OperatorTimes:
    """A profiler (`EngineProfiler`) for an engine that reports only durations of operators.

    `read` returns the nanoseconds that each operator took in the iteration that has just ended, in
    the order of the operators. If `times` is "mean", `read` is called only once, after the last
    iteration, and returns the mean durations over all iterations.
    """

    def __init__(
        self,
        operators: Sequence[ProfiledOperator],
        read: Callable[[], Sequence[int]],
        times: Times = "each",
    ) -> None:
        self.operators = tuple(operators)
        self.read = read
        self.times: Times = times
        self._taken: list[tuple[Step, int, Sequence[int]]] = []

    def take(self, step: Step, forward_ns: int, dispatched_ns: int, waited_ns: int) -> None:
        self._taken.append((step, forward_ns, () if self.times == "mean" else self.read()))

    def finish(self) -> EngineTrace:
        means = self.read() if self.times == "mean" else ()
        executions = ExecutionColumns()
        for step, at, durations in self._taken:
            executions.extend(executions_in(step, at, durations or means))
        return EngineTrace(operators=self.operators, executions=executions, times=self.times)


def executions_in(step: Step, begin_ns: int, durations_ns: Sequence[int]) -> Iterator[Execution]:
    """Yield the executions of the operators of an iteration, one after the other without gaps.

    If the sum of the durations is longer than the iteration, all durations are shortened in
    proportion.
    """
    whole, room = sum(durations_ns), step.end_ns - begin_ns
    at = done = 0
    for operator, duration in enumerate(durations_ns):
        done += duration
        until = done * room // whole if whole > room else done
        times = (begin_ns + at, begin_ns + until)
        yield Execution(operator, step.number, HOST_THREAD, *times, warmup=step.warmup)
        at = until


def derived_operator(
    name: str, *, flops: int | None = None, size_bytes: int | None = None, **known: Any
) -> ProfiledOperator:
    """Return an operator whose FLOPs and bytes are derived from shapes.

    The operator's layer is derived from the operator's name, unless `known` contains the layer.
    """
    return ProfiledOperator(
        name=name,
        flops=flops,
        size_bytes=size_bytes,
        source="none" if flops is None and size_bytes is None else "derived",
        **{"module": layer_in((name,)), **known},
    )


def layer_in(names: Iterable[str], path: re.Pattern[str] = LAYER) -> str:
    """Return the path of a layer, from the first name that contains a path.

    The result is empty if no name contains a path.
    """
    return next((found[1] for found in map(path.fullmatch, names) if found), "")


def copy_span(source: str, target: str, library: str = "CUDA") -> dict[str, Any]:
    """Return the fields of a span for a copy of data: category, name, and the kinds of memory."""
    name = f"[{library} memcpy {source[0].upper()}to{target[0].upper()}]"
    return {"category": "memcpy", "name": name, "source_kind": source, "destination_kind": target}


def bytes_of(facts: Iterable[TensorFact]) -> int | None:
    """Return the size of some tensors in bytes, None if the size of an element is unknown."""
    total = 0
    for fact in facts:
        if (bits := bits_of(fact.dtype)) is None:
            return None
        total += -(-prod(fact.shape) * bits // 8)
    return total


def moved_bytes(
    inputs: Mapping[Any, TensorFact], outputs: Iterable[TensorFact], picked: Iterable[Any] = ()
) -> int | None:
    """Return how many bytes an operator reads and writes, None if an element's size is unknown.

    `picked` has the keys of the inputs from which the operator only picks elements, such as tables.
    An input in `picked` counts at most as many bytes as the operator writes.
    """
    outputs = tuple(outputs)
    written, total = bytes_of(outputs), bytes_of((*inputs.values(), *outputs))
    if written is None or total is None:
        return None
    return total - sum(max(0, (bytes_of((inputs[it],)) or 0) - written) for it in picked)


# Profile files: lar's own, or files that an engine has written itself.
#
# Each format is recognised by the keys in its JSON.


HINT = "make it again with --profile, or an engine's own with --profile-raw"
# What is wrong with a file, by the kind of error that its reader raises.
PROBLEMS: tuple[tuple[type[Exception], str], ...] = (
    (msgspec.ValidationError, "is damaged, or no profile that lar knows"),
    (msgspec.DecodeError, "is not a profile, or was cut short"),
    (UnicodeDecodeError, "is not a profile, or was cut short"),
    (RecursionError, "is not a profile: it is nested too deeply"),
    (Exception, "is damaged"),
)


def read_profile(path: str | Path) -> Profile:
    """Read a profile that was written because of `--profile` or `--profile-raw`.

    Raises:
        UsageError: the file is missing, truncated or empty, or is not a profile, or has a newer
            schema.
    """
    found = read_as_written(path)
    return decode_any(read_input(path), str(path)) if found is None else found


def decode_any(data: bytes, name: str) -> Profile:
    """Return the profile in the content of a file; error messages use `name` as the file's name.

    Raises:
        UsageError: the content is empty, truncated or damaged, or is not a profile, or has a newer
            schema.
    """
    data = unpack(data, name, HINT)
    if not data.strip():
        raise UsageError("the profile is empty", HINT, subject=name)
    engine = None if is_written_by_lar(data) else writer_of(data)
    try:
        profile = engine.read_profile(data, name) if engine else decode_profile(data, name)
        check_waits(profile)
    except (msgspec.MsgspecError, RecursionError, OverflowError, ValueError) as error:
        problem = next(text for kind, text in PROBLEMS if isinstance(error, kind))
        raise UsageError(f"{problem}: {str(error).lower()}", HINT, subject=name) from None
    return profile


def check_waits(profile: Profile) -> None:
    """Check that each operator computes within the time of its execution.

    Raises:
        ValueError: the time that an operator waits is negative, or longer than its execution.
    """
    for each in profile.executions:
        if not 0 <= (each.wait_ns or 0) <= each.duration_ns:
            problem = "ends before it begins to compute, or computes before it begins"
            raise ValueError(f"{profile.operators[each.operator].name} {problem}")


def writer_of(data: bytes) -> Engine | None:
    """Return the engine whose profiler has written a file, according to the keys in the file.

    The result is None if no engine's profiler writes these keys.
    """
    return next((engine for engine in all_engines() if engine.writes_profile(data)), None)
