"""Paddle's table of memory: what each operator took and gave back, where the engine tells it."""

from __future__ import annotations

from dataclasses import dataclass

from lar.profiles.devices import device_number
from lar.records.profile import Allocation, Profile
from lar.reports.document import ReportTable
from lar.reports.styles.paddle.layout import Block, Section, format_table
from lar.reports.styles.paddle.run import Settings, TimedRun

# What is derived from shapes or from the plan was not measured.
MEASURED = "engine"
COLUMNS = (
    *("Name", "Type", "Allocation Count", "Free Count"),
    *("Allocation Size", "Free Size", "Increased Size"),
)
WIDTHS = (50, 12, 15, 15, 15, 15, 15)
UNATTRIBUTED = "(no operator)"


@dataclass
class MemoryUse:
    """What one row took and gave back, in bytes."""

    taken_count: int = 0
    freed_count: int = 0
    taken_bytes: int = 0
    freed_bytes: int = 0

    def add(self, size_bytes: int) -> None:
        if size_bytes > 0:
            self.taken_count += 1
            self.taken_bytes += size_bytes
        else:
            self.freed_count += 1
            self.freed_bytes -= size_bytes


def memory_section(run: TimedRun, settings: Settings) -> list[Section]:
    """Return a table for each place that memory was taken in, the whole run long; sizes are bytes.

    What an engine has reserved is not known.
    """
    profile = run.profile
    places: dict[str, list[Allocation]] = {}
    for each in profile.allocations:
        if each.source == MEASURED:
            places.setdefault(place_name(each.device), []).append(each)
    return [
        place_section(profile, place, allocations, settings)
        for place, allocations in places.items()
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
    rows = [
        (
            name,
            "Allocated",
            use.taken_count,
            use.freed_count,
            use.taken_bytes,
            use.freed_bytes,
            use.taken_bytes - use.freed_bytes,
        )
        for name, use in uses.items()
    ]
    rows = sorted(rows, key=lambda row: -row[-1])[: settings.top]
    title = f"Memory Summary - {place}"
    text = format_table(
        title,
        WIDTHS,
        [Block(COLUMNS, [[str(cell) for cell in row] for row in rows])],
        above=[f"Peak Allocated Memory: {peak_bytes}", "Peak Reserved Memory: -"],
        closed=False,
    )
    table = ReportTable(
        name=f"memory_{place.lower()}",
        title=title,
        columns=(*COLUMNS[:4], *(f"{column} (bytes)" for column in COLUMNS[4:])),
        rows=tuple(rows),
        notes=(f"Peak Allocated Memory: {peak_bytes} bytes",),
    )
    return Section(text, table)
