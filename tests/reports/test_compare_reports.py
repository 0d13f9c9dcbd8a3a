"""A comparison as text, CSV, JSON and HTML: all say the same."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from lar.records.comparison import (
    Comparison,
    Culprit,
    Element,
    Figures,
    OperatorFacts,
    SideFacts,
    TensorComparison,
    TensorFacts,
    Tolerance,
    UnmatchedTensor,
    read_comparison,
)
from lar.reports.compare_csv import COLUMNS, format_csv
from lar.reports.compare_html import format_html
from lar.reports.compare_text import COLUMNS as COLUMNS_OF_TEXT
from lar.reports.compare_text import Row, format_comparison, format_json, format_markdown
from lar.reports.text import Screen
from tests.profiles.browser import NEEDS_BROWSER, opened, unreadable

GOOD = Figures(
    elements=4,
    identical=False,
    max_error=1e-6,
    max_absolute=2e-6,
    mean_absolute=1e-6,
    max_relative=3e-6,
    mean_relative=1e-6,
    relative_l2=1e-6,
    scale=1.0,
    max_ulp=12,
    cosine=1.0,
    snr_db=120.0,
)
BAD = replace(
    GOOD,
    max_error=0.5,
    relative_l2=0.25,
    snr_db=12.04,
    mismatches=3,
    first=Element(index=(0, 1), actual="1.5", expected="1.0"),
    worst=Element(index=(1, 1), actual="nan", expected="2.0"),
    nan_counts=(1, 0),
    nonfinite_mismatches=1,
)


def facts(name: str, **others: Any) -> TensorFacts:
    fields = {"dtype": "float32", "shape": (2, 2), "operator_type": "Conv", **others}
    return TensorFacts(key=name, name=name, **fields)


def pair(name: str, figures: Figures | None = GOOD, **others: Any) -> TensorComparison:
    passed = figures is not None and not figures.mismatches
    fields: dict[str, Any] = {"matched_by": "name", "passed": passed, "depth": 1, **others}
    return TensorComparison(actual=facts(name), expected=facts(name), figures=figures, **fields)


def operator(name: str, **others: Any) -> OperatorFacts:
    return OperatorFacts(key=name, name=name, type="Conv", output=name, **others)


def comparison(**others: Any) -> Comparison:
    data = pair("data", replace(GOOD, identical=True), depth=0)
    conv, odd = pair("conv<2>", BAD, depth=2), pair("odd", None, problem="shapes differ", depth=3)
    fields: dict[str, Any] = {
        "finding": "fault",
        "tolerance": Tolerance(),
        "culprits": (
            Culprit(
                actual=(operator("conv<2>", parameters={"pads": [1, 1], "group": 1}),),
                expected=(operator("conv<2>", parameters={"pads": [0, 0], "group": 1}),),
                inputs=(data,),
                output=conv,
            ),
        ),
        "tensors": (data, pair("relu"), conv, odd),
        "unmatched": (
            UnmatchedTensor(
                side="actual", tensor=facts("alone"), fused=False, reason="no such tensor"
            ),
        ),
        "notes": ("something to know",),
        **others,
    }
    return Comparison(
        actual=SideFacts(
            source="a", tensors=5, engine="megengine", settings={"enable_nchw44": True}
        ),
        expected=SideFacts(source="b", tensors=4),
        **fields,
    )


def text_of(comparison: Comparison, everything: bool = False) -> str:
    return "\n".join(format_comparison(comparison, everything=everything))


def test_the_culprit_comes_first_with_what_goes_in_and_out() -> None:
    lines = format_comparison(comparison())
    assert lines[0] == "A: a (5 tensors, megengine, --enable-nchw44)"
    start = lines.index("culprit: Conv conv<2>")
    assert start < lines.index("tensors that differ:")
    assert lines[start + 1] == "  A: Conv conv<2> gives conv<2>; pads=1x1"
    assert lines[start + 2] == "  B: Conv conv<2> gives conv<2>; pads=0x0"
    head, given, made, worst = lines[start + 3 : start + 7]
    assert head.split() == ["operator", "type", "entire", "SNR", "dB"]
    assert given.split() == ["input", "data", "Conv", "equal"]
    assert made.split() == ["output", "conv<2>", "Conv", "1", "NaN", "or", "inf", "12.0"]
    assert worst == (
        "  worst at {1,1}: nan in A, 2.0 in B; past the tolerance: 3 of 4, 1 NaN or infinite "
        "on one side (NaN 1/0, inf 0/0)"
    )


def test_all_columns_are_printed_on_request() -> None:
    narrow = Screen(width=60)
    lines = format_comparison(comparison(), narrow, wide=True)
    start = lines.index("culprit: Conv conv<2>")
    head, _, made = lines[start + 3 : start + 6]
    assert head.split()[:6] == ["operator", "type", "data", "type", "shape", "matched"]
    for cell in ("0.5", "12.0", "3 (75.0%)", "{1,1}", "nan", "2.0", "NaN 1/0"):
        assert cell in made
    assert max(map(len, format_comparison(comparison(), narrow))) <= 60


def test_columns_that_say_something_are_added() -> None:
    """Single errors, data types where the sides differ, and the error that has a limit."""
    conv = pair("conv", BAD)
    cast = replace(conv, actual=facts("conv", dtype="float16"), single=replace(GOOD, snr_db=60.0))
    coarse = comparison(tensors=(cast,), culprits=(), tolerance=Tolerance(max_error=0.1))
    lines = format_comparison(coarse)
    head, row = lines[lines.index("tensors that differ:") + 1 :][:2]
    assert head.split() == [
        "operator",
        "type",
        "data",
        "type",
        *["entire", "single", "SNR", "dB", "error"],
    ]
    assert row.split()[2:5] == ["float16", "=", "float32"]
    assert row.split()[-3:] == ["1e-06", "12.0", "0.5"]


@pytest.mark.parametrize(
    ("dtype", "ulps", "cell"),
    [
        ("float32", 12, "12"),
        ("float32", 1 << 12, "4096"),
        ("float32", 1 << 13, ""),
        ("float16", 100, ""),
        ("int8", 1, ""),
    ],
)
def test_ulps_are_shown_where_they_say_something(dtype: str, ulps: int, cell: str) -> None:
    near = replace(GOOD, max_ulp=ulps)
    sides = facts("conv", dtype=dtype), facts("conv", dtype=dtype)
    found = replace(pair("conv", near), actual=sides[0], expected=sides[1])
    (column,) = (it for it in COLUMNS_OF_TEXT if it.title == "ulp")
    assert column.cell(Row(found)) == cell
    mixed = replace(found, actual=facts("conv", dtype="float64"))
    assert column.cell(Row(mixed)) == ""


def many(count: int) -> Comparison:
    """A comparison of so many tensors, each worse than the one before, the last of a weight."""
    wrong = replace(BAD, snr_db=20.0, worst=None, nonfinite_mismatches=0)
    tensors = [
        replace(
            pair(f"stage{number}/conv", replace(wrong, relative_l2=number / 100), depth=number),
            actual=facts(f"ADD(ConvBiasForward[{number}],{{1,64,56,56}})", dtype="float16"),
        )
        for number in range(1, count)
    ]
    weight = pair("weight", replace(GOOD, mismatches=1, relative_l2=0.5), constant=True)
    return comparison(tensors=(*tensors, weight), culprits=())


def test_the_worst_rows_are_shown_in_their_order() -> None:
    lines = format_comparison(many(25))
    start = next(place for place, it in enumerate(lines) if it.startswith("tensors that differ:"))
    assert lines[start] == ("tensors that differ: the 20 worst of 25; --all prints every tensor")
    rows = lines[start + 2 : lines.index("", start)]
    assert len(rows) == 20
    assert [row.split()[2] for row in rows[:-1]] == [f"stage{it}/conv" for it in range(6, 25)]
    assert rows[-1].startswith("weight")
    assert len(text_of(many(25), everything=True).splitlines()) == len(lines) + 5


def test_results_of_a_coarser_type_are_shown_though_none_differs() -> None:
    near, far = pair("near", GOOD), pair("far", replace(GOOD, snr_db=32.0))
    same = comparison(tensors=(near, far), culprits=(), finding="same", unmatched=())
    lines = format_comparison(same)
    rows = lines[lines.index("tensors that are least alike:") + 2 :]
    assert rows[0].startswith("far")
    assert rows[1] == ""
    assert "least alike" not in text_of(replace(same, tensors=(near,)))


def test_the_last_line_names_the_first_of_many_culprits() -> None:
    (culprit,) = comparison().culprits
    *_, last = format_comparison(comparison(culprits=(culprit,) * 5))
    assert last == "result: different; Conv conv<2>; Conv conv<2>; Conv conv<2>; and 2 more"


GOLDEN = Path(__file__).parent / "golden"


@pytest.mark.parametrize("form", ["80", "160", "wide", "markdown"])
def test_no_byte_of_the_text_changes(form: str) -> None:
    """`LAR_GOLDEN=write` writes the files anew."""
    alike = replace(many(25), culprits=comparison().culprits)
    if form == "markdown":
        text = format_markdown(alike)
    else:
        screen = Screen(int(form)) if form.isdigit() else Screen(80)
        lines = format_comparison(alike, screen, wide=form == "wide")
        assert not form.isdigit() or max(map(len, lines)) <= int(form)
        text = "".join(f"{line}\n" for line in lines)
    file = GOLDEN / f"comparison_{form}.txt"
    if os.environ.get("LAR_GOLDEN") == "write":
        file.write_text(text)
    assert text == file.read_text()


def test_the_table_has_failures_and_all_on_request() -> None:
    short, whole = text_of(comparison()), text_of(comparison(), everything=True)
    table = short.partition("tensors that differ:")[2]
    assert "relu" not in table
    assert "shapes differ" in table
    assert "relu" in whole.partition("tensors:")[2]


def test_the_summary_counts() -> None:
    *_, summary, note, result = format_comparison(comparison())
    assert summary == (
        "4 tensors compared (4 by name): 1 equal, 1 within the tolerance, 2 differ; "
        "1 without a twin"
    )
    assert note == "note: something to know"
    assert result == "result: different; Conv conv<2>"


@pytest.mark.parametrize(
    ("finding", "text"),
    [
        ("same", "the same within the tolerance"),
        ("rounding", "different; no operator stands out, the errors grow gradually"),
        ("different", "different"),
    ],
)
def test_the_result_is_told_in_words(finding: str, text: str) -> None:
    lines = format_comparison(comparison(finding=finding, culprits=()))
    assert lines[-1] == f"result: {text}"


def test_of_many_operators_of_a_culprit_the_first_are_in_its_heading() -> None:
    (culprit,) = comparison().culprits
    many = replace(culprit, actual=tuple(operator(f"part{number}") for number in range(5)))
    lines = format_comparison(comparison(culprits=(many,)))
    words = "Conv part0 + Conv part1 + Conv part2 + 2 more in A, Conv conv<2> in B"
    assert f"culprit: {words}" in lines
    assert lines[-1] == f"result: different; {words}"
    assert "  A: Conv part4 gives part4" in lines


def test_a_missing_operator_is_told() -> None:
    one = comparison().culprits[0]
    text = text_of(comparison(culprits=(replace(one, actual=()),)))
    assert "culprit: Conv conv<2> of B, which A lacks" in text
    text = text_of(comparison(culprits=(replace(one, expected=()),)))
    assert "culprit: Conv conv<2> of A, which B lacks" in text


def test_tensors_without_a_twin_are_listed_the_unexplained_first() -> None:
    unmatched = tuple(
        UnmatchedTensor(
            side="expected",
            tensor=facts(f"t{number}"),
            fused=number != 11,
            reason="within Conv that gives x",
            constant=number < 2,
        )
        for number in range(12)
    )
    lines = format_comparison(comparison(unmatched=unmatched))
    start = lines.index("without a twin in A: 12 of B")
    assert lines[start + 1].startswith("  t11:")
    assert "  and 2 more, which --all lists" in lines
    assert "  2 constants that are in another form there, or not at all: t0, t1" in lines
    assert "  t10: within" in text_of(comparison(unmatched=unmatched), everything=True)


def test_control_characters_do_not_reach_the_terminal() -> None:
    odd = replace(comparison(), tensors=(pair("a\x1b[31m\nb", BAD),), culprits=(), unmatched=())
    assert "\x1b" not in text_of(odd)


def test_csv_has_a_row_a_tensor() -> None:
    rows = list(csv.DictReader(io.StringIO(format_csv(comparison()))))
    assert list(rows[0]) == [column.heading for column in COLUMNS]
    assert [row["actual"] for row in rows] == ["data", "relu", "conv<2>", "odd", "alone"]
    conv, odd, alone = rows[2:]
    assert (conv["culprit"], conv["passed"], conv["max_error"]) == ("True", "False", "0.5")
    assert (conv["worst_index"], conv["worst_actual"], conv["nan_actual"]) == ("1x1", "nan", "1")
    assert (odd["problem"], odd["max_error"]) == ("shapes differ", "")
    assert (alone["expected"], alone["problem"]) == ("", "no such tensor")


def test_the_algorithms_of_a_culprit_are_in_every_report() -> None:
    (culprit,) = comparison().culprits
    one, other = operator("conv<2>", algorithm="WINOGRAD"), operator("conv<2>", algorithm="DIRECT")
    found = comparison(culprits=(replace(culprit, actual=(one,), expected=(other, other)),))
    lines = text_of(found).splitlines()
    assert "  A: Conv conv<2> gives conv<2>; algorithm WINOGRAD" in lines
    assert "  B: Conv conv<2> gives conv<2>; algorithm DIRECT" in lines
    assert "algorithm WINOGRAD" in format_html(found)
    assert read_comparison(format_json(found)).culprits[0].actual[0].algorithm == "WINOGRAD"
    rows = csv.DictReader(io.StringIO(format_csv(found)))
    told = [(row["actual"], row["algorithm_actual"], row["algorithm_expected"]) for row in rows]
    assert [row for row in told if row[1]] == [("conv<2>", "WINOGRAD", "DIRECT + DIRECT")]


def test_a_culprit_within_fused_operators_has_a_row_too() -> None:
    (culprit,) = comparison().culprits
    found = comparison(culprits=(replace(culprit, output=pair("within", BAD)),))
    rows = list(csv.DictReader(io.StringIO(format_csv(found))))
    assert [row["actual"] for row in rows if row["culprit"] == "True"] == ["within"]


def test_json_is_the_record() -> None:
    assert read_comparison(format_json(comparison())) == comparison()


class Page(HTMLParser):
    """Checks that tags are closed in their order, and counts them."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in ("meta", "line"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_stands_alone_and_is_well_formed() -> None:
    text = format_html(comparison())
    page = Page()
    page.feed(text)
    assert page.open == []
    assert not {tag for tag, _ in page.seen} & {"link", "img", "iframe"}
    assert set(re.findall(r"https?://[^\s\"'<]+", text)) <= {"http://www.w3.org/2000/svg"}
    assert "conv&lt;2&gt;" in text
    assert "conv<2>" not in text
    assert "something to know" in text
    figures = figures_of(text)
    # The culprit's output stands out; an error that is no number is not one.
    marks = {name: (error, mark) for _, error, name, mark in figures["depth"]}
    assert len(marks) == 4
    assert [mark for _, mark in marks.values()].count("fault") == 1
    assert marks["odd"] == (None, "differs")
    assert [depth for depth, *_ in figures["depth"]] == sorted(it[0] for it in figures["depth"])
    assert figures["all"]["marks"].count("fault") == 1
    assert len(figures["differing"]["rows"]) == 2
    titles = [column[0] for column in figures["all"]["columns"]]
    columns = dict(zip(titles, zip(*figures["all"]["rows"], strict=True), strict=True))
    assert columns["problem"] == (None, None, None, "shapes differ")
    assert columns["ulp"] == (0, 12, 12, None)  # the first is equal


def figures_of(text: str) -> Any:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', text)
    assert found
    return json.loads(found[1])


@NEEDS_BROWSER
def test_the_page_is_drawn(tmp_path: Path) -> None:
    page = format_html(comparison())
    view = opened(page, tmp_path, width=400)
    assert unreadable(view) == []
    dom, console = view.elements(), view.console()
    assert console == []
    assert 'data-drawn="yes"' in dom
    assert dom.count("<circle") == 4
    assert 'tr class="fault"' in dom


def test_a_page_of_nothing() -> None:
    empty = comparison(tensors=(), culprits=(), unmatched=(), notes=(), finding="different")
    page = Page()
    page.feed(format_html(empty))
    assert page.open == []
    assert "tensors that differ" not in text_of(empty)
