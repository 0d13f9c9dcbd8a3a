"""The text of the style `ncu`: a table of the roofline, and a block of metrics for each row."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from lar.errors import count_of
from lar.profiles.roofline import NEAR_PERCENT, describe_measurement, ridge_of, saving_is_part
from lar.profiles.times import CLOCK_STEP_NS, LEAST_ESTIMATE_NS
from lar.profiles.totals import Totals
from lar.records.profile import Peak, Profile
from lar.reports.cut_names import cut_end, shorten_all
from lar.reports.model import AnyTable, Column, Layout, Rule, Table
from lar.reports.styles.ncu.metrics import (
    METRIC_COLUMNS,
    Metric,
    format_number,
    format_size,
    giga,
    metrics_of,
    scale_time,
)
from lar.reports.styles.ncu.rows import Row, first_rows, section_of

# How many rows are printed unless it is said; CSV and JSON have all.
PRINTED_ROWS = 10

LONGEST_NAME = 48
ROOFLINE = Layout(under=Rule(), is_stripped=True)
BLOCK = Layout(
    start="    ",
    gap=" ",
    header_align="left",
    over=Rule(left="    ", middle=" "),
    closing=Rule(left="    ", middle=" "),
)


def body_of(
    profile: Profile, rows: Sequence[Row], peak: Peak | None, options: Mapping[str, Any]
) -> tuple[str | AnyTable, ...]:
    """Return the text: the run and the peak, the table of the roofline, and ncu's block for each
    row."""
    shown = first_rows(rows, options.get("top", PRINTED_ROWS))
    unit, views = options.get("time_unit", ""), options.get("view", ("roofline", "metrics"))
    body: list[str | AnyTable] = [*describe_profile(profile), describe_peak(profile, peak)]
    if "roofline" in views:
        body += ["", roofline_of(shown, peak, unit), *describe_figures(shown, peak)]
    if len(shown) < len(rows):
        body.append(f"{len(shown)} of {len(rows)} rows; --top {len(rows)} shows all")
    if "metrics" in views:
        for row in shown:
            metrics = metrics_of(row, profile.on_device, peak, unit)
            body += ["", *describe_row(row), block_of(metrics)]
    return tuple(body)


def describe_profile(profile: Profile) -> list[str]:
    facts = profile.facts
    parts = [
        facts.model.path or "a model",
        " ".join(filter(None, (facts.engine, facts.engine_version))),
        facts.device,
        "" if facts.threads is None else count_of(facts.threads, "thread"),
        count_of(len(profile.timed_steps()), "timed iteration"),
    ]
    return [f"Profile: {', '.join(part for part in parts if part)}"]


def describe_peak(profile: Profile, peak: Peak | None) -> str:
    if peak is None:
        where = profile.facts.device if profile.on_device else "this machine"
        return f"Peak of {where}: not measured, so that there are no percentages of it"
    measured = describe_measurement(peak)
    return (
        f"Peak measured with {count_of(peak.threads, 'thread')}: "
        f"{peak.flops_per_second / 1e9:.1f} GFLOP/s, {peak.bytes_per_second / 1e9:.1f} GB/s; "
        f"memory binds below {ridge_of(peak):.2f} FLOP/byte"
        f"{measured and f' ({measured})'}"
    )


def describe_figures(rows: Sequence[Row], peak: Peak | None) -> list[str]:
    """Return the notes that the figures shown need."""
    notes = ["Duration is the median of one call; a range's is its own, from begin to end."]
    if any(len(row.work.parts) > 1 for row in rows if row.kind != "range"):
        notes.append("That of several operators is the mean of their medians.")
    if any(0 < share < 1 for row in rows for share in (row.work.flops_share, row.work.bytes_share)):
        notes.append(">= leaves out operators whose FLOPs or bytes are not known.")
    if peak is not None and any(row.saving_ns(peak) is not None for row in rows):
        notes.append(
            "Could save: how much shorter an iteration would be with this at its roof, by its "
            f"median time. Bound names the roof that it reaches {NEAR_PERCENT:.0f}% of, or latency."
        )
    if any(row.work.size_bytes == 0 for row in rows):
        notes.append("Views, constants and pointers that are handed on move nothing: no GB/s.")
    if peak is not None and not all(row.work.is_float32 for row in rows):
        notes.append("The peak is one of float32; that of other types is not known, hence n/a.")
    wrong = [row.work for row in rows if peak is not None and row.work.has_wrong_time(peak)]
    if not all(work.is_too_short for work in wrong):
        notes.append("Percentages are n/a where the time is too short to be right.")
    if any(row.work.is_too_short for row in rows):
        notes.append(
            f"Estimates below {LEAST_ESTIMATE_NS / 1e3:.0f} us have no rate: the clock says no "
            "more than that the operator is short."
        )
    percents = [row.work.memory_percent(peak) for row in rows]
    if any(percent is not None and percent > 100 for percent in percents):
        notes.append("Above 100% of the memory's peak: the data came from the caches.")
    percents = [row.work.compute_percent(peak) for row in rows]
    if any(percent is not None and percent > 100 for percent in percents):
        notes.append(
            "Above 100% of the computing peak: quicker code than the product it was measured with, "
            "or fewer operations than counted, as Winograd's."
        )
    return notes


class NumberedRow(NamedTuple):
    number: int
    row: Row


def roofline_of(rows: Sequence[Row], peak: Peak | None, unit: str) -> Table[NumberedRow]:
    """Return the table of the rows."""

    def duration(it: NumberedRow) -> str:
        work = it.row.work
        is_nothing = work.is_too_short and not work.typical_call_ns
        time, chosen = scale_time(CLOCK_STEP_NS if is_nothing else work.typical_call_ns, unit)
        return f"{'<' * is_nothing}{format_number(time)} {chosen}"

    def of_flops(it: NumberedRow, value: float | None) -> str:
        return format_cell(value, 0 < it.row.work.flops_share < 1)

    def of_bytes(it: NumberedRow, value: float | None) -> str:
        return format_cell(value, 0 < it.row.work.bytes_share < 1)

    def saving(it: NumberedRow) -> str:
        saving_ns = it.row.saving_ns(peak)
        if saving_ns is None:
            return "n/a"
        time, chosen = scale_time(saving_ns, unit)
        start = ">=" if saving_is_part(it.row.work, peak) else ""
        return f"{start}{format_number(time)} {chosen}"

    def right(title: str, text: Callable[[NumberedRow], str], rank: int) -> Column[NumberedRow]:
        return Column(title, text=text, align="right", rank=rank)

    def of_times(figure: Callable[[Totals], float | None]) -> Callable[[NumberedRow], str]:
        def text(it: NumberedRow) -> str:
            if (known := figure(it.row.times)) is None:
                return "n/a"
            time, chosen = scale_time(known, unit)
            return f"{format_number(time)} {chosen}"

        return text

    names = shorten_all(map(name_of, rows), LONGEST_NAME, cut_end)
    details = shorten_all((row.detail for row in rows), LONGEST_NAME, cut_end)
    disturbed = right("Disturbed", lambda it: str(it.row.disturbed or ""), 3)
    return Table(
        name="roofline",
        title="Roofline",
        layout=ROOFLINE,
        columns=(
            right("ID", lambda it: str(it.number), 0),
            Column("Name", lambda it: name_of(it.row), lambda it: names[it.number], rank=0),
            Column(
                "Of",
                lambda it: it.row.detail,
                lambda it: details[it.number],
            ),
            right("Calls", lambda it: str(it.row.work.calls), 0),
            *((disturbed,) if any(row.disturbed for row in rows) else ()),
            right("Duration", duration, 0),
            right("p90", of_times(lambda it: it.p90_ns), 2),
            right("Mean", of_times(lambda it: it.average_ns), 6),
            right("Min", of_times(lambda it: it.min_ns), 6),
            right("Max", of_times(lambda it: it.max_ns), 5),
            right("Total", of_times(lambda it: it.total_ns), 3),
            right("Time%", lambda it: format_cell(it.row.share and 100 * it.row.share), 2),
            right("GFLOP/s", lambda it: of_flops(it, giga(it.row.work.flops_per_second)), 7),
            right("Compute%", lambda it: of_flops(it, it.row.work.compute_percent(peak)), 3),
            right("GB/s", lambda it: of_bytes(it, giga(it.row.work.bytes_per_second)), 7),
            right("Memory%", lambda it: of_bytes(it, it.row.work.memory_percent(peak)), 3),
            right("FLOP/byte", lambda it: of_flops(it, it.row.work.intensity), 8),
            Column("Bound", text=lambda it: it.row.work.bound(peak) or "n/a", rank=3),
            right("Could save", saving, 1),
        ),
        rows=tuple(NumberedRow(number, row) for number, row in enumerate(rows)),
    )


def name_of(row: Row) -> str:
    return f"range {row.name}" if row.kind == "range" else row.name


def format_cell(value: float | None, is_part: bool = False) -> str:
    """Return a figure; one that counts a part only is a lower bound."""
    return "n/a" if value is None else f"{'>=' if is_part else ''}{format_number(value)}"


def describe_row(row: Row) -> list[str]:
    """Return the lines above ncu's block of a row: what was launched how, and the section."""
    launch = (
        ""
        if row.grid is None or row.block is None
        else f" {format_size(row.grid)}x{format_size(row.block)}"
    )
    places = (("Stream", row.stream), ("Device", row.device))
    about = [row.name + launch, *(f"{what} {it}" for what, it in places if it is not None)]
    return [f"  {', '.join(about)}", f"    Section: {section_of(row)}"]


def block_of(metrics: Sequence[Metric]) -> Table[Metric]:
    """Return ncu's block of one row: name, unit and value of each metric."""
    return Table(
        name="metrics", title="Metrics", columns=METRIC_COLUMNS, rows=tuple(metrics), layout=BLOCK
    )
