"""Tables as text in every layout, in any width, and numbers."""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lar.reports.model import MARKDOWN, WRAPPED, Column, Layout, Rule, Table
from lar.reports.text import Screen, format_bytes, format_count, format_rows, format_table
from tests.tables import each_row

CELLS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=9)


def test_a_row_of_another_length_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="2 cells"):
        format_rows(["a", "b"], [["only one"]])


@given(st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=5))
def test_every_cell_stands_under_its_header(rows: list[tuple[str, str, str]]) -> None:
    header, *lines = format_rows(["one", "two", "three"], rows)
    starts = [header.index(name) for name in ("one", "two", "three")]
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows, strict=True):
        assert line == line.rstrip()
        for start, cell in zip(starts, row, strict=True):
            assert line[start : start + len(cell)] == cell


@each_row("reports/numbers/counts")
def test_counts(value: float | None, text: str) -> None:
    assert format_count(value) == text


@each_row("reports/numbers/sizes")
def test_sizes(size: float | None, text: str) -> None:
    assert format_bytes(size) == text


ROWS = (("a", 1.5), ("longer", 22.25))
NAME = Column[tuple[str, float]]("name", itemgetter(0), rank=0)
SIZE = Column[tuple[str, float]](
    "size", itemgetter(1), lambda row: f"{row[1]:.1f}", align="right", unit="B"
)
BOX = Layout(
    start="| ",
    gap=" | ",
    end=" |",
    over=Rule("=", "+", "<", ">", added=2),
    under=Rule("-", "+", "<", ">", added=2),
    between=Rule(".", "+", "<", ">", added=2),
    closing=Rule("=", "+", "<", ">", added=2),
)


def table_of(*columns: Column[tuple[str, float]], **fields: Any) -> Table[tuple[str, float]]:
    return Table(name="t", title="T", columns=columns or (NAME, SIZE), rows=ROWS, **fields)


def test_a_column_is_declared_once_for_text_and_records() -> None:
    table = table_of()
    assert format_table(table) == ["name    size", "a        1.5", "longer  22.2"]
    assert table.headings == ("name", "size (B)")
    assert table.records == ROWS


def test_a_layout_says_where_rules_and_bars_are() -> None:
    assert format_table(table_of(layout=BOX)) == [
        "<========+======>",
        "| name   | size |",
        "<--------+------>",
        "| a      |  1.5 |",
        "<........+......>",
        "| longer | 22.2 |",
        "<========+======>",
    ]


def test_the_last_row_may_be_a_total_below_a_rule_of_its_own() -> None:
    rule = Rule(middle="--")
    lines = format_table(table_of(layout=Layout(under=rule, total=rule)))
    assert lines[1] == lines[3] == "-" * 12


def test_a_cell_of_several_values_is_a_column_of_records_for_each() -> None:
    parts = (NAME, Column[tuple[str, float]]("place", text=lambda row: "7"), SIZE)
    table = table_of(Column("all", parts=parts), layout=Layout(has_lines=True, is_stripped=True))
    assert format_table(table) == ["all", "a", "7", "1.5", "longer", "7", "22.2"]
    assert table.headings == ("name", "size (B)")
    assert table.records == ROWS


def test_a_title_and_a_second_header_may_stand_between_rows() -> None:
    layout = Layout(under=Rule(), fill="-", note="Note:", empty_lines=1)
    table = table_of(layout=layout, breaks={0: "All", 1: ("", "time")}, notes=("of bytes",))
    assert format_table(table) == [
        "-----T------",
        "name    size",
        "------  ----",
        "----All-----",
        "a        1.5",
        "        time",
        "------  ----",
        "longer  22.2",
        "Note:",
        "of bytes",
        "-" * 12,
        "",
    ]
    longer = "a title longer than the table"
    assert format_table(replace(table, title=longer))[0] == longer


def test_numbers_stand_under_each_other_by_their_points() -> None:
    column = Column[tuple[str, float]]("n", lambda row: f"{row[1] * 10:g}", align="point")
    assert format_table(table_of(NAME, column)) == ["name        n", "a        15", "longer  222.5"]


def test_markdown_escapes_its_bars() -> None:
    assert format_rows(["a|b", "c"], [["x|y", "z"]], MARKDOWN) == [
        "| a\\|b | c |",
        "|---|---|",
        "| x\\|y | z |",
    ]


HEADER = ("operator", "shape", "note")
WIDE = (("x" * 40, "y" * 30, "z"), ("short", "y", "z" * 20))


@pytest.mark.parametrize("width", [120, 94, 80, 60, 40])
def test_no_line_is_wider_than_the_screen(width: int) -> None:
    lines = format_rows(HEADER, WIDE, screen=Screen(width))
    assert max(map(len, lines[:3])) <= width
    assert lines[1].startswith("xxx")
    assert "short" in lines[2]


def test_spaces_that_end_a_line_are_no_part_of_a_screen() -> None:
    layout = Layout(over=Rule(right="  "), end="  ")
    paper = format_rows(HEADER, WIDE, layout)
    assert paper[0].endswith("-  ")
    assert max(map(len, paper)) == 96
    assert format_rows(HEADER, WIDE, layout, Screen(94)) == [line.rstrip() for line in paper]


@pytest.mark.parametrize("width", [80, 50])
def test_cells_may_be_wrapped_instead(width: int) -> None:
    words = "some words of a sentence that is too long for one line of a narrow terminal"
    rows = [("--flag", words, words), ("--other", "no", "yes")]
    lines = format_rows(("option", "one", "two"), rows, WRAPPED, Screen(width))
    assert max(map(len, lines)) <= width
    for word in words.split():
        assert " ".join(lines).count(f" {word}") >= 2
    assert lines[-1].split() == ["--other", "no", "yes"]
    assert format_rows(("option", "one", "two"), rows, WRAPPED)[1].count(words) == 2


def test_names_give_way_before_columns_do() -> None:
    rows = [("net.stage1.conv.weight", 1.5), ("net.stage2.conv.weight", 22.25)]
    lines = format_table(replace(table_of(), rows=tuple(rows)), Screen(22))
    assert lines == ["name              size", "ne...e1.co...ght   1.5", "ne...e2.co...ght  22.2"]


def test_columns_for_which_there_is_no_room_are_named() -> None:
    columns = [
        Column[str](title, lambda row: "1234567890", align="right", rank=rank)
        for title, rank in {"best": 1, "worst": 9, "middle": 5}.items()
    ]
    table = Table(
        name="", title="", columns=(Column("name", str, rank=0), *columns), rows=("a", "b")
    )
    lines = format_table(table, Screen(30))
    assert lines[0].split() == ["name", "best", "middle"]
    assert lines[-1] == "(too narrow to show: worst)"
    assert format_table(table, Screen(18))[-3:] == ["(too narrow to", "show: worst,", "middle)"]


def test_colours_are_on_a_screen_that_has_them_alone() -> None:
    table = table_of(color=lambda row: "red" if row[0] == "a" else "")
    plain, colored = format_table(table), format_table(table, Screen(has_color=True))
    assert colored[0] == f"\x1b[1m{plain[0]}\x1b[m"
    assert colored[1] == f"\x1b[31m{plain[1]}\x1b[m"
    assert colored[2] == plain[2]
    assert not any("\x1b" in line for line in plain)
