"""The page of a search: its course, drawn by a browser."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lar.reports.tune_html import format_html
from tests.profiles.browser import NEEDS_BROWSER, opened, unreadable
from tests.tuning.made_tune import made_tune


def figures_of(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', page)
    assert found
    return json.loads(found[1])


def test_the_course_has_each_ratio_when_its_trial_ended() -> None:
    course = figures_of(format_html(made_tune()))["course"]
    lanes = {lane["name"]: lane for lane in course["lanes"]}
    assert lanes["nchw88"]["points"] == [
        [14.0, pytest.approx(0.079 / 0.268)],
        [24.0, pytest.approx(0.079 / 0.268)],
    ]
    assert lanes["recorded"]["points"] == [[14.0, None]]
    kinds = {name: lane["kind"] for name, lane in lanes.items()}
    assert kinds["nchw88 + 2 threads"] == "best"
    assert (kinds["nchw44"], kinds["recorded"], kinds["2 threads"]) == (
        *("wrong numbers", "failed", "ok"),
    )
    assert [bar["kind"] for bar in course["trials"]].count("search") == 1
    assert [name for _, _, name in course["best"]] == [
        "nchw88",
        *["nchw88 + 2 threads"] * 4,
    ]
    assert all(math.isfinite(ratio) for _, ratio, _ in course["best"])


@NEEDS_BROWSER
def test_the_page_is_drawn(tmp_path: Path) -> None:
    result = made_tune()
    hostile = replace(result.ranking[1], name="</script><b>")
    ranking = (result.ranking[0], hostile, *result.ranking[2:])
    page = format_html(replace(result, ranking=ranking))
    view = opened(page, tmp_path, width=400)
    assert unreadable(view) == []
    elements, messages = view.elements(), view.console()
    assert messages == []
    assert 'data-drawn="yes"' in elements
    assert '<p class="error">' not in elements
    for name in ("result", "course", "ratios", "contributions"):
        assert f'<section id="{name}">' in elements
    assert "trial 3, search: nchw88 + 2 threads + fast-run, 31.0 s" in elements
    # An axis of ratios is as readable where a candidate takes 67 times as long.
    lane = '{name: "a", kind: "ok", points: [[1, 67], [2, 0.9]]}'
    best = "[[1, 67, 'a']]"
    trials = '[{kind: "screen", name: "a", from: 0, to: 2}]'
    drawn = {
        "course": f"drawCourse({{lanes: [{lane}], best: {best}, trials: {trials}}}, 400)[0]",
        "lanes": 'makeLanes(["a"], "a", {from: 0.9, to: 67, log: true, label: "b"}, 9, 400).svg',
    }
    for name, svg in drawn.items():
        texts = view.value(f"[...({svg}).querySelectorAll('text')].map((it) => it.textContent)")
        assert {"1", "2", "5", "10", "20", "50"} <= set(texts), name
    assert "nchw88 + 2 threads: 0.2041, best" in elements
    assert "recorded: failed" in elements


def test_a_search_that_found_nothing_has_a_page() -> None:
    empty = replace(made_tune(), ranking=(), trials=(), contributions=(), ending="failed")
    assert "<h2>Result</h2>" in format_html(empty)
