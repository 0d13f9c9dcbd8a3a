"""A comparison as text, CSV, JSON and HTML: all say the same."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from lar.records.comparison import (
    Comparison,
    Culprit,
    Element,
    Figures,
    LeftOut,
    OperatorFacts,
    SideFacts,
    TensorComparison,
    TensorFacts,
    Tolerance,
    UnmatchedTensor,
    read_comparison,
    read_comparison_of_sides,
)
from lar.reports.comparison_report import describe_operators, report_comparison, report_sides
from lar.reports.formats import format_csv, format_json, format_markdown
from lar.reports.html import format_html
from lar.reports.report import Report
from lar.reports.text import PAPER, Screen
from tests.browser import NEEDS_BROWSER, opened, unreadable
from tests.reports.csv_rows import csv_rows
from tests.reports.golden_files import check_golden, describe_columns
from tests.reports.test_rendering import figures_of
from tests.tables import each_row

GOOD = Figures(
    elements=4,
    identical=False,
    max_error=1e-6,
    max_absolute=2e-6,
    mean_absolute=1e-6,
    max_relative=3e-6,
    relative_l2=1e-6,
    scale=1.0,
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
                kind="padding",
                proven=True,
                alone=replace(GOOD, relative_l2=0.031, worst=BAD.worst),
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
    return report_comparison(comparison, everything=everything).text


def lines_of(comparison: Comparison, screen: Screen = PAPER, **options: bool) -> list[str]:
    return report_comparison(comparison, **options).lines_for(screen)


def test_culprits_are_proven_or_seen_and_those_that_read_alike_are_one() -> None:
    (culprit,) = comparison().culprits
    odd = replace(culprit, alone=None, output=pair("odd\x1b[31m", None, problem="shapes differ"))
    text = text_of(comparison(culprits=(odd,)))
    assert "  alone, on the same inputs, not comparable either: shapes differ\n" in text
    assert "\x1b" not in text
    coarse = replace(culprit, proven=False, alone=None, is_coarse=True)
    assert text_of(comparison(culprits=(coarse, coarse))).count("\nculprit: Conv conv<2>\n") == 1
    tuned = replace(culprit, actual=(operator("conv<2>", algorithm="WINOGRAD"),))
    assert "algorithm WINOGRAD" in page_of(comparison(culprits=(tuned,)))
    several = [replace(culprit, actual=(), expected=(operator(name),)) for name in "abcde"]
    assert lines_of(comparison(culprits=tuple(several)))[-1] == (
        "result: different; culprits: Conv a of B, which A lacks; Conv b of B, which A lacks; "
        "Conv c of B, which A lacks; 2 more"
    )


@each_row("reports/comparisons/names of operators")
def test_operators_are_called_as_in_the_model(given: dict[str, Any], said: str) -> None:
    assert describe_operators([OperatorFacts(key="", type="Conv", **given)]) == said


def test_rows_that_read_alike_are_one_the_worst() -> None:
    """What an engine makes of one operator may be several."""
    wrong = replace(BAD, nonfinite_mismatches=0)
    alike = [pair("conv", replace(wrong, relative_l2=error)) for error in (0.1, 0.3, 0.2)]
    keyed = [
        replace(it, expected=facts("conv", operator_type=f"Reorder{place}"))
        for place, it in enumerate(alike)
    ]
    found = comparison(tensors=tuple(keyed), culprits=())
    assert [line.split()[2] for line in lines_of(found) if line.startswith("conv ")] == ["0.3"]
    assert text_of(found, everything=True).count("\nconv ") == 3


def reports_of(document: str) -> list[Report]:
    """The report of a comparison, and that of all its tensors."""
    if '"sides"' in document:
        several = read_comparison_of_sides(document)
        return [report_sides(several, everything=it) for it in (False, True)]
    return [report_comparison(read_comparison(document), everything=it) for it in (False, True)]


def test_rich_comparisons_print_their_golden_file() -> None:
    """Of comparisons that have nearly all that a comparison may have, of two sides and of four."""
    parts = []
    for document in json.loads(Path(__file__).with_name("rich_comparisons.json").read_text()):
        short, whole = reports_of(json.dumps(document))
        parts += [short.text_for(Screen(width)) for width in (None, 120, 80)]
        parts += [whole.text, "\n".join(describe_columns(whole)), format_csv(whole)]
        parts.append(format_markdown(short))
    check_golden("rich_comparisons.txt", "\n\n".join(parts))


SEQUENCE = LeftOut(side="actual", name="boxes", reason="a sequence", is_output=True)


def tensors_of(texts: list[str]) -> Iterator[TensorComparison]:
    """Tensors as the table tells them: whether they are good, an output, an input; their names."""
    for state, role, name in map(str.split, texts):
        figures = GOOD if state == "good" else BAD
        yield pair(name, figures, is_output=role == "output", is_input=role == "input")


@each_row("reports/comparisons/results")
def test_the_result_is_told_in_words(
    finding: Any, tensors: list[str], others: dict[str, Any], text: str
) -> None:
    told = comparison().tensors if tensors == ["all"] else tuple(tensors_of(tensors))
    given = {**others, "left_out": (SEQUENCE,) if "left_out" in others else ()}
    found = comparison(finding=finding, tensors=told, culprits=(), **given)
    assert lines_of(found)[-1] == f"result: {text}"


def test_csv_has_a_row_a_tensor() -> None:
    rows = csv_rows(report_comparison(comparison()))
    assert [row["actual_name"] for row in rows] == ["data", "relu", "conv<2>", "odd"]
    conv, odd = rows[2:]
    assert (conv["matched_by"], conv["passed"], conv["max_error"]) == ("name", "False", "0.5")
    assert (conv["relative_l2"], conv["mismatches"]) == ("", "3")
    assert (conv["actual_shape"], conv["worst_element"]) == ("2x2", "{1,1}: nan in A, 2.0 in B")
    assert (odd["problem"], odd["max_error"]) == ("shapes differ", "")
    assert not [name for name in rows[0] if name.startswith(("all_", "truth_", "single_"))]


def test_json_is_the_record() -> None:
    text = format_json(report_comparison(comparison()))
    assert read_comparison(text) == comparison()
    assert text.count("\n") == 1


def page_of(found: Comparison) -> str:
    return format_html(report_comparison(found, everything=True))


@NEEDS_BROWSER
def test_the_page_is_drawn(tmp_path: Path) -> None:
    view = opened(page_of(comparison()), tmp_path, width=400)
    assert unreadable(view) == []
    dom, console = view.elements(), view.console()
    assert console == []
    assert 'data-drawn="yes"' in dom
    assert dom.count("<circle") == 4
    assert 'tr class="red"' in dom


def test_the_page_of_a_comparison() -> None:
    text = page_of(comparison())
    assert "conv&lt;2&gt;" in text
    assert "conv<2>" not in text
    assert "something to know" in text
    titles = re.findall(r"<h2>(.*?)</h2>", text)
    assert titles == ["Result", "Culprit", "Tensors", "Tensors without a twin", "Error over depth"]
    _, tensors, _, depth = (
        part for (part,) in (it["parts"] for it in figures_of(text)["sections"])
    )
    # The culprit's output stands out; an error that is no number is not one.
    ((_, points),) = (curve.values() for curve in depth["figures"])
    marks = {name: (error, mark) for _, error, name, mark in points}
    assert len(marks) == 4
    assert [mark for _, mark in marks.values()].count("fault") == 1
    assert marks["odd"] == (None, "differs")
    assert [place for place, *_ in points] == sorted(it[0] for it in points)
    assert tensors["table"]["marks"] == ["", "", "red", "red"]
    nothing = comparison(tensors=(), culprits=(), finding="nothing")
    assert "<title>lar compare: nothing compared</title>" in page_of(nothing)
