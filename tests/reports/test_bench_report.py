"""The table of a bench."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lar.engines.advice import Suggestion
from lar.records.bench import read_bench
from lar.records.profile import TriedSetting
from lar.records.summary import Difference, Interval
from lar.records.tuning import Choice
from lar.reports.bench_report import build_report, report_bench
from lar.reports.report import describe_difference
from lar.reports.text import Screen
from tests.reports.golden_files import check_golden, describe_columns
from tests.tables import each_row


def difference_of(ratio: float, **fields: Any) -> Difference:
    given: dict[str, Any] = {"smallest_detectable": 0.01, "interval": None, **fields}
    return Difference(ratio=ratio, processes=5, pairs=50, **given)


def test_benches_print_their_golden_file() -> None:
    """Of benches with differences, with failures, and of one variant; on paper and on screens."""
    rows = json.loads(Path(__file__).with_name("benches.json").read_text())
    rows.append(json.loads(json.dumps(rows[0]).replace("batch_size", "python")))
    reports = [report_bench(read_bench(json.dumps(row))) for row in rows]
    widths = (None, 110, 80, 60, 50)
    texts = [report.text_for(Screen(width)) for report in reports for width in widths]
    columns = ("\n".join(describe_columns(report)) for report in reports)
    check_golden("benches.txt", "\n\n".join([*texts, *columns]))


def test_advice_prints_its_golden_file() -> None:
    """A setting that is likely faster, with its search, and one that is proven faster."""
    search = Choice(name="search", search={"fast_run": True}, cache="fast_run_algo_policy")
    chosen = Choice(name="two", options={"multithread": 2})
    suggestions = [Suggestion(search, "convolutions"), Suggestion(chosen, "cores")]
    interval = Interval(0.4, 0.5, 0.95)
    found = (
        difference_of(0.8, verdict="not judged"),
        difference_of(0.45, verdict="faster", interval=interval),
    )
    tried = [
        TriedSetting(it.flags, difference=difference, outputs="equal")
        for it, difference in zip(suggestions, found, strict=True)
    ]
    first = json.loads(Path(__file__).with_name("benches.json").read_text())[0]
    benches = (read_bench(json.dumps({**first, "stopped": it})) for it in ("budget", "clear"))
    texts = [
        build_report(bench, tried[:count], suggestions, {"batch_size": 2}).text
        for bench in benches
        for count in (0, 1, 2)
    ]
    check_golden("advice.txt", "\n".join(texts))


@each_row("reports/cases/changes that may hide")
def test_a_change_that_is_seen_only_if_it_is_large_is_a_number_of_times(
    smallest: float, text: str
) -> None:
    found = difference_of(1.0, verdict="no difference shown", smallest_detectable=smallest)
    assert describe_difference(found) == f"no difference shown (smallest detectable: {text})"
