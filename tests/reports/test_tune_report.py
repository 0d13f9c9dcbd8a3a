"""The report of a search: text, CSV, JSON, Markdown and a page of one table."""

from __future__ import annotations

import csv
import io
from dataclasses import replace

import pytest

from lar.cli.report_files import render
from lar.records.run import Failure
from lar.records.tuning import read_tune
from lar.reports.tune_report import describe_best, report_tuning, verdict_of
from tests.tuning.made_tune import made_tune, row

TEXT = """\
resnet50.mge on megengine 1.13.0, EPYC 9B45, 2 cores, 8 GiB
goal: smallest median latency; 6 candidates in 5 rounds, 88 of 120 s

candidate                      median ms  ratio  interval        processes     memory
nchw88 + 2 threads                54.700  0.204  0.196 .. 0.212          4  300.0 MiB
nchw88 + 2 threads + fast-run     75.000  0.280  0.269 .. 0.291          4  300.0 MiB
2 threads                        152.000  0.567  0.544 .. 0.590          4  300.0 MiB
plain                            268.000  1.000                          4  300.0 MiB
nchw44
nchw88

wrong numbers: nchw44: its outputs are not the plain run's: fc off by 3.1e-01
crashed: nchw88: the engine crashed in phase load: killed by SIGSEGV
not tried: x2apic fix, which needs --allow engine-fixes
ended: nothing that is left can win by 1.0%
command: lar resnet50.mge --input 'data:{1,3,224,224}' --multithread 2 --enable-nchw88
fastest: nchw88 + 2 threads: 4.9 times as fast as the plain run (4.71 to 5.1), outputs agree \
(3.0e-06)
"""
RIGHT_COLUMNS = """\
outputs           verdict
agree (3.0e-06)   best
agree (3.0e-06)   slower than the best
agree (3.0e-06)   slower than the best
                  the plain run
differ (3.1e-01)  wrong numbers
                  crashed
"""


def test_the_text_has_the_ranking_and_what_follows() -> None:
    lines = report_tuning(made_tune()).text.splitlines()
    place = lines[3].index("outputs")
    left = [line[:place].rstrip() if 3 <= at <= 9 else line for at, line in enumerate(lines)]
    assert left == TEXT.splitlines()
    assert [line[place:] for line in lines[3:10]] == RIGHT_COLUMNS.splitlines()


def test_a_cache_is_named_where_it_stays_and_searched_anew_where_not() -> None:
    ranking = (row("2 threads + fast-run", 0.1, is_best=True), row("plain", 0.268))
    found = made_tune(ranking=ranking)
    text = report_tuning(found, caches={"fast_run_algo_policy": "best.cache"}).text
    assert " --multithread 2 --fast-run-algo-policy best.cache\n" in text
    assert " --multithread 2 --fast-run\n" in report_tuning(found).text


def test_records_hold_plain_values() -> None:
    report = report_tuning(made_tune())
    rows = list(csv.DictReader(io.StringIO(render(report, "csv", to_stdout=False))))
    assert [each["candidate"] for each in rows][-2:] == ["nchw44", "nchw88"]
    assert float(rows[0]["median ms"]) == pytest.approx(54.7)
    assert float(rows[0]["ratio_low"]) == pytest.approx(0.196, abs=1e-3)
    assert rows[4]["status"] == "wrong"
    assert read_tune(render(report, "json", to_stdout=False)) == made_tune()
    assert "| nchw88 + 2 threads | 54.700 | 0.204 |" in render(report, "markdown", to_stdout=False)
    page = render(report, "html", to_stdout=False)
    assert "<title>lar tune</title>" in page
    assert "4.9 times as fast" in page


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"ranking": (row("plain", 0.268, is_best=True),)}, "the plain run: measured alone"),
        (
            {
                "ranking": (
                    replace(row("2 threads", 0.2), processes=1),
                    row("plain", 0.268, is_best=True),
                ),
                "ending": "budget",
            },
            "the plain run: none was shown to be better",
        ),
        (
            {"ranking": (), "ending": "failed", "failure": Failure(problem="no such file")},
            "none: no such file",
        ),
    ],
)
def test_the_last_sentence_says_what_won(fields: dict[str, object], sentence: str) -> None:
    assert verdict_of(made_tune(**fields)) == f"fastest: {sentence}"


def test_a_candidate_is_told_in_a_line() -> None:
    assert describe_best(row("2 threads", 0.134), "latency") == "2 threads, 134.000 ms, ratio 0.500"
    assert describe_best(row("plain", 3 << 20), "memory").startswith("plain, 3.0 MiB, ratio ")
