"""Plain text tables and numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lar.reports.tables import format_bytes, format_count, format_table

CELLS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=9)


def test_columns_are_as_wide_as_their_widest_cell() -> None:
    assert format_table(["a", "long header"], [["wide cell", "x"], ["", "y"]]) == [
        "a          long header",
        "wide cell  x",
        "           y",
    ]


def test_a_table_without_rows_is_its_header() -> None:
    assert format_table(["a", "b"], []) == ["a  b"]


def test_a_row_of_another_length_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="zip"):
        format_table(["a", "b"], [["only one"]])


@given(st.lists(st.tuples(CELLS, CELLS, CELLS), max_size=5))
def test_every_cell_stands_under_its_header(rows: list[tuple[str, str, str]]) -> None:
    header, *lines = format_table(["one", "two", "three"], rows)
    starts = [header.index(name) for name in ("one", "two", "three")]
    assert len(lines) == len(rows)
    for line, row in zip(lines, rows, strict=True):
        assert line == line.rstrip()
        for start, cell in zip(starts, row, strict=True):
            assert line[start : start + len(cell)] == cell


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (999, "999"), (1000, "1,000"), (1234567, "1,234,567"), (None, "N/A")],
)
def test_counts(value: float | None, text: str) -> None:
    assert format_count(value) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (2**20, "1.0 MiB"),
        (102_400_000, "97.7 MiB"),
        (2**30, "1.00 GiB"),
        (5 * 2**40, "5120.00 GiB"),
        (None, "N/A"),
    ],
)
def test_sizes(size: float | None, text: str) -> None:
    assert format_bytes(size) == text
