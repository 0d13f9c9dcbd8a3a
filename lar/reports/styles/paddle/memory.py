"""Paddle's table of memory: what each operator took and gave back, where the engine reports it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from operator import itemgetter

from lar.profiles.devices import device_number
from lar.profiles.totals import group_by
from lar.records.profile import Allocation, Profile
from lar.reports.model import Column, Table
from lar.reports.styles.paddle.layout import OPEN, Section
from lar.reports.styles.paddle.run import Settings, TimedRun

# What is derived from shapes or from the plan was not measured.
MEASURED = "engine"
UNATTRIBUTED = "(no operator)"


@dataclass
class MemoryUse:
    """The bytes that one row took and gave back."""

    taken_count: int = 0
    freed_count: int = 0
    taken_bytes: int = 0
    freed_bytes: int = 0

    @property
    def increase(self) -> int:
        return self.taken_bytes - self.freed_bytes

    def add(self, size_bytes: int) -> None:
        if size_bytes > 0:
            self.taken_count += 1
            self.taken_bytes += size_bytes
        else:
            self.freed_count += 1
            self.freed_bytes -= size_bytes


Row = tuple[str, MemoryUse]


def number_column(
    title: str, value: Callable[[MemoryUse], int], rank: int, key: str = ""
) -> Column[Row]:
    return Column(
        *(title, lambda row: value(row[1])),
        key=key,
        width=15,
        is_fixed=True,
        rank=rank,
    )


def size_column(title: str, size: Callable[[MemoryUse], int], rank: int) -> Column[Row]:
    return number_column(title, size, rank, f"{title} (bytes)")


COLUMNS: tuple[Column[Row], ...] = (
    Column("Name", itemgetter(0), width=50, is_fixed=True, rank=0),
    Column("Type", lambda row: "Allocated", width=12, is_fixed=True),
    number_column("Allocation Count", lambda use: use.taken_count, 0),
    number_column("Free Count", lambda use: use.freed_count, 4),
    size_column("Allocation Size", lambda use: use.taken_bytes, 2),
    size_column("Free Size", lambda use: use.freed_bytes, 3),
    size_column("Increased Size", lambda use: use.increase, 0),
)


def memory_section(run: TimedRun, settings: Settings) -> list[Section]:
    """Return a table for each place that memory was taken in, the whole run long; sizes are bytes.

    What an engine has reserved is not known.
    """
    measured = (each for each in run.profile.allocations if each.source == MEASURED)
    return [
        place_section(run.profile, place, allocations, settings)
        for place, allocations in group_by(measured, lambda each: place_name(each.device)).items()
    ]


def place_name(device: str) -> str:
    if device.startswith("cpu"):
        return "CPU"
    return f"GPU{device_number(device)}"


def place_section(
    profile: Profile, place: str, allocations: list[Allocation], settings: Settings
) -> Section:
    """Return the table of one place, the largest increase first."""
    uses: dict[str, MemoryUse] = {}
    held_bytes = peak_bytes = 0
    for each in allocations:
        held_bytes += each.size_bytes
        peak_bytes = max(peak_bytes, held_bytes)
        name = UNATTRIBUTED
        if each.operator is not None:
            operator = profile.operators[each.operator]
            name = operator.name if settings.group_by == "name" else operator.type
        uses.setdefault(name, MemoryUse()).add(each.size_bytes)
    rows = sorted(uses.items(), key=lambda row: -row[1].increase)[: settings.top]
    table = Table(
        name=f"memory_{place.lower()}",
        title=f"Memory Summary - {place}",
        columns=COLUMNS,
        rows=tuple(rows),
        notes=(f"Peak Allocated Memory: {peak_bytes} bytes",),
        layout=replace(OPEN, note=""),
        above=(f"Peak Allocated Memory: {peak_bytes}", "Peak Reserved Memory: -"),
    )
    return Section(table)
