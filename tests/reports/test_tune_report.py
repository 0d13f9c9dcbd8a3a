"""The report of a search: text, CSV, JSON, Markdown and a page of one table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lar.cli.report_files import render
from lar.records.run import Failure
from lar.records.tuning import Ending, RankedCandidate, read_tune
from lar.reports.text import Screen
from lar.reports.tune_report import describe_best, report_space, report_tuning, verdict_of
from tests.reports.csv_rows import csv_rows
from tests.reports.golden_files import check_golden, describe_columns

TUNE = read_tune((Path(__file__).parents[1] / "data" / "tune_v2.json").read_text())
SEARCHED, TWO_THREADS, PLAIN = TUNE.ranking[1:4]
BEST_PLAIN = replace(PLAIN, is_best=True)


def test_searches_and_spaces_print_their_golden_file() -> None:
    """Of one model and of two, for several objectives, on paper and on a narrow screen."""
    spaces = TUNE.request.spaces[0], replace(TUNE.request.spaces[0], dimensions=())
    request = replace(TUNE.request, spaces=spaces, objective="memory")
    likely = replace(SEARCHED, is_best=True, verdict="likely best", ratio_low=None, outputs="")
    two = replace(TUNE, request=request, ranking=(likely, PLAIN), ending="interrupted")
    reports = (
        *(report_tuning(TUNE), report_tuning(two), report_space([request])),
        report_tuning(replace(TUNE, ranking=(), machine=None, engines=())),
        report_tuning(two, caches={"fast_run_algo_policy": "best.cache"}),
    )
    parts = [report.text_for(Screen(width)) for report in reports for width in (None, 70)]
    columns = ("\n".join(describe_columns(report)) for report in reports)
    check_golden("tune.txt", "\n\n".join([*parts, *columns]))


def test_records_hold_plain_values() -> None:
    report = report_tuning(TUNE)
    rows = csv_rows(report)
    assert [each["candidate"] for each in rows][-2:] == ["nchw44", "nchw88"]
    assert float(rows[0]["median ms"]) == pytest.approx(54.7)
    assert float(rows[0]["ratio_low"]) == pytest.approx(0.196, abs=1e-3)
    assert rows[4]["status"] == "wrong"
    assert read_tune(render(report, "json", to_stdout=False)) == TUNE
    assert "| nchw88 + 2 threads | 54.700 | 0.204 |" in render(report, "markdown", to_stdout=False)
    page = render(report, "html", to_stdout=False)
    assert "<title>lar tune</title>" in page
    assert "4.9 times as fast" in page


@pytest.mark.parametrize(
    ("ranking", "ending", "sentence"),
    [
        ((BEST_PLAIN,), "settled", "the plain run: measured alone"),
        ((TWO_THREADS, BEST_PLAIN), "budget", "the plain run: none was shown to be better"),
        ((), "failed", "none: no such file"),
    ],
)
def test_the_last_sentence_says_what_won(
    ranking: tuple[RankedCandidate, ...], ending: Ending, sentence: str
) -> None:
    failure = Failure(problem="no such file")
    found = replace(TUNE, ranking=ranking, ending=ending, failure=failure)
    assert verdict_of(found) == f"fastest: {sentence}"


def test_a_candidate_is_told_in_a_line() -> None:
    assert describe_best(TWO_THREADS, "latency") == "2 threads, 152.000 ms, ratio 0.567"
    large = replace(PLAIN, value=3 << 20)
    assert describe_best(large, "memory").startswith("plain, 3.0 MiB, ratio ")
