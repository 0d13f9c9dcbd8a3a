"""The module view of the TensorBoard plugin: the layers that the operators belong to, as a tree."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lar.profiles.activities import device_times_of
from lar.records.profile import Profile
from lar.reports.model import Table
from lar.reports.styles.tensorboard.views import (
    View,
    ViewColumn,
    describe_columns,
    microseconds,
    text_column,
)


@dataclass
class Module:
    """A layer; its self times are those of its operators that are in none of its parts."""

    name: str
    steps: set[int] = field(default_factory=set)
    operators: int = 0
    host_self_ns: int = 0
    device_self_ns: int = 0
    parts: dict[str, Module] = field(default_factory=dict)

    def parts_on(self, names: Iterable[str]) -> list[Module]:
        """Return its part of the first name, the part of that of the second, and so on; new ones
        where there were none."""
        found: list[Module] = []
        parts = self.parts
        for name in names:
            found.append(parts.setdefault(name, Module(name)))
            parts = found[-1].parts
        return found

    @property
    def sorted_parts(self) -> list[Module]:
        return sorted(self.parts.values(), key=lambda part: part.name)

    @property
    def host_ns(self) -> int:
        return self.host_self_ns + sum(part.host_ns for part in self.parts.values())

    @property
    def device_ns(self) -> int:
        return self.device_self_ns + sum(part.device_ns for part in self.parts.values())


ModuleColumn = ViewColumn[Module]


def module_columns(*, on_device: bool) -> tuple[ModuleColumn, ...]:
    """Return the columns; without a device, its times are None."""

    def time(title: str, field: str, time_ns: Callable[[Module], int]) -> ModuleColumn:
        return ViewColumn(title, lambda it: microseconds(time_ns(it)), unit="us", field=field)

    def device(title: str, field: str, time_ns: Callable[[Module], int]) -> ModuleColumn:
        known = time(title, field, time_ns)
        return known if on_device else replace(known, value=lambda it: None)

    return (
        text_column("Module Name", lambda it: it.name, field="name"),
        ViewColumn("Occurences", lambda it: len(it.steps), field="occurences"),
        ViewColumn("Operators", lambda it: it.operators, field="operators"),
        time("Host Total Time", "host_duration", lambda it: it.host_ns),
        time("Host Self Time", "self_host_duration", lambda it: it.host_self_ns),
        device("Device Total Time", "device_duration", lambda it: it.device_ns),
        device("Device Self Time", "self_device_duration", lambda it: it.device_self_ns),
    )


def modules_of(profile: Profile, accepts: Callable[[int], bool] = lambda _: True) -> View:
    """Return the tree of modules with times in microseconds over all timed iterations; None if the
    names of the operators show no modules. `accepts` takes an operator's number."""
    root = Module("")
    places: dict[int, list[Module]] = {}  # of operators, those around them from the root on
    times_ns = device_times_of(profile)
    times = zip(profile.timed_executions, profile.host_times_ns, times_ns, strict=True)
    for execution, host_ns, device_ns in times:
        operator = execution.operator
        modules = places.get(operator)
        if modules is None:
            path = profile.operators[operator].module if accepts(operator) else ""
            modules = places[operator] = root.parts_on(filter(None, re.split(r"[./]", path)))
        if not modules:
            continue
        for module in modules:
            module.steps.add(execution.step)
        module = modules[-1]
        module.operators += 1
        module.host_self_ns += host_ns
        module.device_self_ns += device_ns
    if not root.parts:
        return View(None)
    columns = module_columns(on_device=profile.on_device)
    data = parts_of(root, columns)
    names = {id(module): "  " * depth + module.name for depth, module in flatten(root)}
    indented: ModuleColumn = replace(columns[0], value=lambda it: names[id(it)])
    table = Table(
        name="modules",
        title="Modules",
        columns=(indented, *columns[1:]),
        rows=tuple(module for _, module in flatten(root)),
    )
    return View(
        {"columns": describe_columns(columns, "name", "type", "key"), "data": data}, (table,)
    )


def parts_of(module: Module, columns: Sequence[ModuleColumn]) -> list[dict[str, Any]]:
    """Return the parts of a module, by name."""
    return [
        {
            **{column.field: column.value(part) for column in columns},
            "avg_duration": (part.device_ns or part.host_ns) / len(part.steps) / 1000,
            "children": parts_of(part, columns),
        }
        for part in module.sorted_parts
    ]


def flatten(module: Module, depth: int = 0) -> Iterator[tuple[int, Module]]:
    """Yield the parts of a module, each with its depth and before its own parts."""
    for part in module.sorted_parts:
        yield depth, part
        yield from flatten(part, depth + 1)
