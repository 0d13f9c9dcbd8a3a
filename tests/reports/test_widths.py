"""Reports as wide as a terminal: which columns go, which stay, and that rows stay apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from lar.records.profile import Profile, StepNoise
from lar.reports.model import AnyTable, Table
from lar.reports.report import Report
from lar.reports.styles import STYLES
from lar.reports.text import CUT, Drawing, Screen, cut_around, shorten_all, uncut_cell
from tests.profiles.layers import profile_of_layers
from tests.profiles.synthetic import with_facts
from tests.tables import each_row

WIDTHS = (80, 100, 120, 150)
# Of each style the options, and what its table of operators has on any screen: how often operators
# were called, their median, and the time that the style shows.
STYLES_AND_TITLES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "megengine": ({"top": 9}, ("device self time", "operator info")),
    "paddle": ({"group_by": "name"}, ("Calls", "CPU Total / Avg")),
    "torch": ({"group_by": "instance"}, ("Name", "# of Calls", "Self CPU")),
    "nsys": ({}, ("Instances", "Total Time", "Minimum", "Name")),
    "ncu": ({"group_by": "kernel"}, ("Calls", "Duration", "Name")),
    "diff": ({}, ("name", "change us", "verdict")),
}
ALIKE = "CONVOLUTION_FORWARD_{}_OF_A_SIZE_THAT_FITS:X86_FALLBACK:LARGE_GROUP"


def make_profile(seed: int) -> Profile:
    """Names and algorithms that begin and end alike, in a run of which one iteration waited."""
    made = profile_of_layers(layers=4, iterations=10, seed=seed)
    operators = tuple(
        msgspec.structs.replace(
            each,
            name=f"net.stage{place}.{each.type.lower()}.with_bias_and_activation",
            algorithm=each.algorithm and ALIKE.format("DIRECT" if place % 8 else "IM2COL"),
        )
        for place, each in enumerate(made.operators)
    )
    noise = tuple(StepNoise(n, 400_000, ("queue delay",) * (n == 3)) for n in range(10))
    return with_facts(replace(made, operators=operators), noise=noise)


PROFILE = make_profile(1)
# A baseline, and two more pairs of runs.
PAIRS = [make_profile(seed) for seed in (2, 3, 4, 5, 6)]


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    return {
        style: STYLES[style].build(PROFILE, options, *(PAIRS if style == "diff" else []))
        for style, (options, _) in STYLES_AND_TITLES.items()
    }


def tables_of(report: Report) -> list[AnyTable]:
    return [part for part in report.body if isinstance(part, Table)]


def drawings_of(report: Report, width: int) -> Iterator[tuple[AnyTable, Drawing]]:
    for table in tables_of(report):
        yield table, Drawing(table, Screen(width))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("style", STYLES_AND_TITLES)
def test_what_matters_has_room_on_every_screen(
    reports: dict[str, Report], style: str, width: int
) -> None:
    lines = reports[style].lines_for(Screen(width))
    assert max(map(len, lines)) <= width
    assert any(all(title in line for title in STYLES_AND_TITLES[style][1]) for line in lines)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("style", STYLES_AND_TITLES)
def test_rows_that_differ_stay_apart(reports: dict[str, Report], style: str, width: int) -> None:
    for table, drawing in drawings_of(reports[style], width):
        for shown, place in enumerate(drawing.shown):
            column = drawing.given[place]
            whole = {uncut_cell(column, row) for row in table.rows}
            seen = {"\n".join(line[shown] for line in row) for row in drawing.rows}
            if any(map(column.is_name, table.rows)):
                assert len(seen) == len(whole), (table.name, column.title)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("style", STYLES_AND_TITLES)
def test_columns_of_nothing_go_first(reports: dict[str, Report], style: str, width: int) -> None:
    for table, drawing in drawings_of(reports[style], width):
        columns = table.text_columns
        empty = {at for at, it in enumerate(columns) if all(map(it.is_empty, table.rows))}
        gone = {*range(len(columns))} - {*drawing.shown}
        if gone - empty:
            assert all(columns[at].rank == 0 for at in empty - gone - {0})
        assert all(columns[at].rank for at in gone)


@pytest.mark.parametrize("style", STYLES_AND_TITLES)
def test_a_wide_screen_has_what_paper_has(style: str) -> None:
    others = PAIRS if style == "diff" else []
    options = STYLES_AND_TITLES[style][0]
    if style == "paddle":  # its table of memory has a heading that is wider than its column
        options |= {"view": ["model", "operator", "kernel", "userdefined"]}
    report = STYLES[style].build(PROFILE, options, *others)
    paper = [line.rstrip() for line in report.text.splitlines()]
    assert report.lines_for(Screen(4000)) == paper


@pytest.mark.parametrize("width", [18, 21, 30])
def test_the_letters_that_names_differ_by_stay(width: int) -> None:
    names = [ALIKE.format(kind) for kind in ("DIRECT", "DIRECT_2", "IM2COL", "WINOGRAD")]
    names += [f"{'layer.' * 9}{n}" for n in range(11)] + ["short", f"x{'layer.' * 9}1"]
    short = shorten_all(names, width)
    assert max(map(len, short)) <= width
    assert len({*short}) == len(names)
    assert short[-2] == "short"
    # A name that no other resembles loses its middle alone.
    assert short[-1].count(CUT) == 1


@each_row("reports/cases/names cut at their ends")
def test_names_that_a_style_cuts_at_their_ends_stay_apart(
    style: str, options: dict[str, Any], length: int
) -> None:
    """On paper they are cut as other tools do."""
    end = "_OF_A_KERNEL" * (length // 12)
    operators = tuple(
        msgspec.structs.replace(
            each,
            name=f"net.{'module.' * (length // 7)}conv{place}",
            algorithm=each.algorithm and f"{ALIKE.format('X' * length)}_{place // 4 % 2}{end}",
        )
        for place, each in enumerate(PROFILE.operators)
    )
    report = STYLES[style].build(replace(PROFILE, operators=operators), options)
    (table, *_) = tables_of(report)
    place = next(n for n, it in enumerate(table.text_columns) if it.title == "Name")
    column = table.text_columns[place]
    assert [*map(column.cell, table.rows)] != [*map(column.value, table.rows)]
    paper = len(report.text.splitlines()[0])
    whole = Drawing(table, Screen())
    just = Screen(whole.length + len(table.layout.start) + len(table.layout.end.rstrip()))
    assert Drawing(table, just).rows == whole.rows
    for width in (it for it in WIDTHS if it < paper):
        drawing = Drawing(table, Screen(width))
        seen = {drawing.rows[n][0][drawing.shown.index(place)] for n in range(len(table.rows))}
        assert len(seen) == len(table.rows)


@each_row("reports/cases/names cut around a place")
def test_a_name_is_cut_around_a_place(at: int, width: int, short: str) -> None:
    assert cut_around("a beginning, a middle, an end", at, width) == short
