"""The module view of the TensorBoard plugin: the layers that the operators belong to, as a tree."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lar.profiles.activities import device_times_of
from lar.records.profile import Profile
from lar.reports.styles.tensorboard.overview import microseconds

COLUMNS = (
    ("Module Name", "string", "name"),
    ("Occurences", "number", "occurences"),
    ("Operators", "number", "operators"),
    ("Host Total Time", "number", "host_duration"),
    ("Host Self Time", "number", "self_host_duration"),
    ("Device Total Time", "number", "device_duration"),
    ("Device Self Time", "number", "self_device_duration"),
)


@dataclass
class Module:
    """A layer; its self times are those of the operators that are in none of its parts."""

    name: str
    steps: set[int] = field(default_factory=set)
    operators: int = 0
    host_self_ns: int = 0
    device_self_ns: int = 0
    parts: dict[str, Module] = field(default_factory=dict)

    @property
    def host_ns(self) -> int:
        return self.host_self_ns + sum(part.host_ns for part in self.parts.values())

    @property
    def device_ns(self) -> int:
        return self.device_self_ns + sum(part.device_ns for part in self.parts.values())


def modules_of(
    profile: Profile, accepts: Callable[[int], bool] = lambda _: True
) -> dict[str, Any] | None:
    """Return the tree of modules with times in microseconds over all timed iterations; None where
    the names of the operators have none. `accepts` takes an operator's number."""
    root = Module("")
    times_ns = device_times_of(profile)
    for execution, device_ns in zip(profile.timed_executions(), times_ns, strict=True):
        path = profile.operators[execution.operator].module
        if not path or not accepts(execution.operator):
            continue
        module = root
        for name in filter(None, re.split(r"[./]", path)):
            module = module.parts.setdefault(name, Module(name))
            module.steps.add(execution.step)
        module.operators += 1
        module.host_self_ns += profile.host_ns(execution)
        module.device_self_ns += device_ns
    if not root.parts:
        return None
    columns = [{"name": name, "type": type, "key": key} for name, type, key in COLUMNS]
    return {"columns": columns, "data": rows_of(root, profile.on_device)}


def rows_of(module: Module, on_device: bool) -> list[dict[str, Any]]:
    """Return the parts of a module, by name; without a device, its times are None."""
    rows = []
    for part in sorted(module.parts.values(), key=lambda part: part.name):
        host_ns, device_ns = part.host_ns, part.device_ns
        rows.append(
            {
                "name": part.name,
                "occurences": len(part.steps),
                "operators": part.operators,
                "host_duration": microseconds(host_ns),
                "self_host_duration": microseconds(part.host_self_ns),
                "device_duration": microseconds(device_ns) if on_device else None,
                "self_device_duration": microseconds(part.device_self_ns) if on_device else None,
                "avg_duration": (device_ns or host_ns) / len(part.steps) / 1000,
                "children": rows_of(part, on_device),
            }
        )
    return rows
