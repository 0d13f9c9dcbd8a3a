"""Sums over the calls of one name, as the key averages of torch's profiler have them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lar.profiles.operator_filter import operators_matching
from lar.records.profile import Profile
from lar.reports.styles.torch.calls import Call, Kind, Memory


@dataclass(frozen=True, kw_only=True)
class KeyAverage:
    """All calls of one name: nanoseconds and bytes in sum; what is not known is None.

    `shapes` are those of the inputs where rows are distinguished by them.
    """

    name: str
    kind: Kind
    count: int
    shapes: str = ""
    self_cpu_ns: int | None = 0
    cpu_ns: int | None = 0
    self_device_ns: int = 0
    device_ns: int = 0
    cpu_memory_bytes: int | None = None
    self_cpu_memory_bytes: int | None = None
    device_memory_bytes: int | None = None
    self_device_memory_bytes: int | None = None
    flops: int | None = None

    @property
    def average_cpu_ns(self) -> float | None:
        return None if self.cpu_ns is None else self.cpu_ns / self.count

    @property
    def average_device_ns(self) -> float:
        return self.device_ns / self.count


def key_averages_of(profile: Profile, calls: Iterable[Call], group: str) -> list[KeyAverage]:
    """Put calls together by name, in the order of the first: `group` is name (for operators the
    type), shape (the shapes of the inputs too) or instance (each operator of the graph)."""
    operators = profile.operators
    shapes = ["[]"] * len(operators)
    if group == "shape":
        shapes = [str([list(fact.shape) for fact in each.inputs]) for each in operators]
    groups: dict[tuple[Kind, str, str], list[Call]] = {}
    for call in calls:
        name, shape = call.name, "[]"
        if call.kind == "operator" and call.operator is not None:
            shape = shapes[call.operator]
            if group == "instance":
                name = operators[call.operator].name
        groups.setdefault((call.kind, name, shape), []).append(call)
    return [
        key_average_of(profile, kind, name, shape if group == "shape" else "", members)
        for (kind, name, shape), members in groups.items()
    ]


def key_average_of(
    profile: Profile, kind: Kind, name: str, shapes: str, calls: list[Call]
) -> KeyAverage:
    """Sum up the calls of one row."""
    memory = sum_memory(calls, lambda call: call.memory)
    own = sum_memory(calls, lambda call: call.self_memory)
    return KeyAverage(
        name=name,
        kind=kind,
        count=len(calls),
        shapes=shapes,
        self_cpu_ns=sum_known(call.self_cpu_ns for call in calls),
        cpu_ns=sum_known(call.cpu_ns for call in calls),
        self_device_ns=sum(call.self_device_ns for call in calls),
        device_ns=sum(call.device_ns for call in calls),
        cpu_memory_bytes=memory and memory.cpu_bytes,
        self_cpu_memory_bytes=own and own.cpu_bytes,
        device_memory_bytes=memory and memory.device_bytes,
        self_device_memory_bytes=own and own.device_bytes,
        flops=sum_known(flops_of(profile, call) for call in calls),
    )


def flops_of(profile: Profile, call: Call) -> int | None:
    if call.kind != "operator" or call.operator is None:
        return None
    return profile.operators[call.operator].flops


def sum_known(values: Iterable[int | None]) -> int | None:
    """Return the sum, None where one of them is not known."""
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def sum_memory(calls: Iterable[Call], memory: Callable[[Call], Memory | None]) -> Memory | None:
    """Return the sum, None where that of an operator is not known, or nothing is."""
    total = None
    for call in calls:
        if (own := memory(call)) is not None:
            total = own.plus(total)
        elif call.kind == "operator":
            return None
    return total


def matching_calls(profile: Profile, calls: Iterable[Call], pattern: str) -> list[Call]:
    """Return the calls whose name, operator or operator's type matches `pattern`."""
    search = re.compile(pattern).search
    operators = operators_matching(profile, pattern)
    return [call for call in calls if call.operator in operators or search(call.name)]
