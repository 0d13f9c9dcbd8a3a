"""The text of the style `ncu`: a table of the roofline, and a block of metrics for each row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lar.profiles.roofline import ridge_of
from lar.records.profile import Peak, Profile
from lar.reports.styles.ncu.metrics import Metric, giga, metrics_of, scale_time
from lar.reports.styles.ncu.rows import Row, first_rows, section_of

# How many rows are printed unless it is said; CSV and JSON have all.
PRINTED_ROWS = 10

HEADINGS = (
    *("ID", "Name", "Of", "Calls", "Duration", "Time%", "GFLOP/s", "Compute%", "GB/s", "Memory%"),
    *("FLOP/byte", "Bound"),
)
LEFT = ("Name", "Of", "Bound")
LONGEST_NAME = 48


def lines_of(
    profile: Profile, rows: Sequence[Row], peak: Peak | None, options: Mapping[str, Any]
) -> list[str]:
    """Return the text: what is measured, the roofline's table, ncu's block for each row."""
    shown = first_rows(rows, options.get("top", PRINTED_ROWS))
    unit, views = options.get("time_unit", ""), options.get("view", ("roofline", "metrics"))
    lines = [*describe_profile(profile), describe_peak(profile, peak)]
    if "roofline" in views:
        lines += ["", *format_roofline(shown, peak, unit)]
        lines += describe_figures(shown, peak)
    if len(shown) < len(rows):
        lines.append(f"{len(shown)} of {len(rows)} rows; --top {len(rows)} shows all")
    if "metrics" in views:
        for row in shown:
            lines += ["", *format_metrics(row, metrics_of(row, profile.on_device, peak, unit))]
    return lines


def describe_profile(profile: Profile) -> list[str]:
    facts = profile.facts
    parts = [
        facts.model.path or "a model",
        " ".join(filter(None, (facts.engine, facts.engine_version))),
        facts.device,
        "" if facts.threads is None else counted(facts.threads, "thread"),
        counted(len(profile.timed_steps()), "timed iteration"),
    ]
    return [f"Profile: {', '.join(part for part in parts if part)}"]


def counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def describe_peak(profile: Profile, peak: Peak | None) -> str:
    if peak is None:
        where = profile.facts.device if profile.on_device else "this machine"
        return f"Peak of {where}: not measured, so that there are no percentages of it"
    return (
        f"Peak measured with {counted(peak.threads, 'thread')}: "
        f"{peak.flops_per_second / 1e9:.1f} GFLOP/s, {peak.bytes_per_second / 1e9:.1f} GB/s; "
        f"memory binds below {ridge_of(peak):.2f} FLOP/byte"
    )


def describe_figures(rows: Sequence[Row], peak: Peak | None) -> list[str]:
    """Return the notes that the figures shown need."""
    notes = ["Duration is the mean of one call; a range's is its own, from begin to end."]
    if any(0 < share < 1 for row in rows for share in (row.work.flops_share, row.work.bytes_share)):
        notes.append(">= leaves out operators whose FLOPs or bytes are not known.")
    percents = [row.work.memory_percent(peak) for row in rows]
    if any(percent is not None and percent > 100 for percent in percents):
        notes.append("Above 100% of the memory's peak: the data came from the caches.")
    percents = [row.work.compute_percent(peak) for row in rows]
    if any(percent is not None and percent > 100 for percent in percents):
        notes.append(
            "Above 100% of the computing peak: quicker code than the product it was measured with, "
            "fewer operations than counted, or a type smaller than float32."
        )
    return notes


def format_roofline(rows: Sequence[Row], peak: Peak | None, unit: str) -> list[str]:
    """Return the table of the rows."""
    cells = [
        HEADINGS,
        *(roofline_cells(number, row, peak, unit) for number, row in enumerate(rows)),
    ]
    widths = [max(len(line[index]) for line in cells) for index in range(len(HEADINGS))]
    aligned = [
        "  ".join(
            text.ljust(width) if heading in LEFT else text.rjust(width)
            for heading, text, width in zip(HEADINGS, line, widths, strict=True)
        ).rstrip()
        for line in cells
    ]
    return [aligned[0], "  ".join("-" * width for width in widths), *aligned[1:]]


def roofline_cells(number: int, row: Row, peak: Peak | None, unit: str) -> tuple[str, ...]:
    work = row.work
    duration, unit = scale_time(work.average_ns, unit)
    flops_part, bytes_part = 0 < work.flops_share < 1, 0 < work.bytes_share < 1
    return (
        str(number),
        shorten(f"range {row.name}" if row.kind == "range" else row.name),
        shorten(row.detail),
        str(work.calls),
        f"{format_number(duration)} {unit}",
        format_cell(None if row.share is None else 100 * row.share),
        format_cell(giga(work.flops_per_second), flops_part),
        format_cell(work.compute_percent(peak), flops_part),
        format_cell(giga(work.bytes_per_second), bytes_part),
        format_cell(work.memory_percent(peak), bytes_part),
        format_cell(work.intensity, flops_part),
        work.bound(peak) or "n/a",
    )


def shorten(text: str) -> str:
    return text if len(text) <= LONGEST_NAME else text[: LONGEST_NAME - 3] + "..."


def format_cell(value: float | None, is_part: bool = False) -> str:
    """Return a figure; one that counts a part only is a lower bound."""
    return "n/a" if value is None else f"{'>=' if is_part else ''}{format_number(value)}"


def format_number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def format_size(size: tuple[int, int, int] | None) -> str | None:
    return None if size is None else f"({size[0]}, {size[1]}, {size[2]})"


def format_metrics(row: Row, metrics: Sequence[Metric]) -> list[str]:
    """Return ncu's block of one row: name, unit and value of each metric."""
    launch = (
        ""
        if row.grid is None or row.block is None
        else f" {format_size(row.grid)}x{format_size(row.block)}"
    )
    places = (("Stream", row.stream), ("Device", row.device))
    about = [row.name + launch, *(f"{what} {it}" for what, it in places if it is not None)]
    values = [
        metric.value
        if isinstance(metric.value, str)
        else "(!) n/a"
        if metric.value is None
        else format_number(metric.value)
        for metric in metrics
    ]
    names, units = [metric.name for metric in metrics], [metric.unit for metric in metrics]
    columns = (("Metric Name", *names), ("Metric Unit", *units), ("Metric Value", *values))
    widths = [max(map(len, column)) for column in columns]
    name, unit, value = widths
    dashes = "    " + " ".join("-" * width for width in widths)
    heading, *lines = zip(*columns, strict=True)
    return [
        f"  {', '.join(about)}",
        f"    Section: {section_of(row)}",
        dashes,
        "    " + " ".join(text.ljust(width) for text, width in zip(heading, widths, strict=True)),
        *(f"    {line[0]:<{name}} {line[1]:>{unit}} {line[2]:>{value}}" for line in lines),
        dashes,
    ]
