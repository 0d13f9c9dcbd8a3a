"""Two runs in the style `html`: what the view of the comparison shows."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lar.cli.main import main
from lar.errors import UsageError
from lar.profiles.trace_file import write_profile
from lar.records.profile import Profile
from lar.reports.report import Report
from lar.reports.styles.html import VIEWS, build
from tests.profiles.browser import NEEDS_BROWSER, open_page
from tests.profiles.layers import profile_of_layers
from tests.profiles.synthetic import profile_of_times

TYPES = {"a": "Conv", "b": "Pool", "c": "Relu"}
FIRST = [{"a": 60, "b": 20, "c": 3}, {"a": 62, "b": 24, "c": 3}, {"a": 64, "b": 22, "c": 3}] * 2
SECOND = [{"a": 40, "b": 23, "c": 4}, {"a": 42, "b": 21, "c": 4}] * 3
EVIL = "</script><script>document.title='taken'</script><img src=x onerror=boom()>"

# Sorts the table by what this run took, then filters it.
ACTIONS = """
<script>
const view = document.querySelector("#comparison");
const names = () => [...view.querySelectorAll(".data tbody tr")].map((row) => row.cells[0].title);
const seen = { first: names()[0], bars: view.querySelectorAll(".difference").length };
view.querySelectorAll(".data th button")[4].click();
seen.sorted = names()[0];
view.querySelector("input").value = "added";
view.querySelector("input").dispatchEvent(new Event("input"));
seen.filtered = names();
document.title = JSON.stringify(seen);
</script>
"""


def run_of(
    times: Sequence[Mapping[str, int]] = FIRST, types: Mapping[str, str] = TYPES, **fields: Any
) -> Profile:
    return profile_of_times(types, times, **{"step_us": 100, **fields})


def compared(baseline: Profile, experiment: Profile, **options: Any) -> Report:
    return build(experiment, options, baseline)


def figures_of(report: Report) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', report.page)
    assert found
    figures: dict[str, Any] = json.loads(found[1])
    return figures


def table_of(report: Report, name: str) -> dict[str, dict[str, Any]]:
    """The rows of a table by their first cells, each by its columns."""
    table = figures_of(report)["tables"][name]
    columns = [" ".join(filter(None, column[:2])) for column in table["columns"]]
    return {row[0]: dict(zip(columns, row, strict=True)) for row in table["rows"]}


def other_layers() -> Profile:
    """Slower elementwise operators, quicker convolutions, and one of another name and type."""
    profile = profile_of_layers(iterations=7, seed=3)
    scales = {"Convolution": 0.7, "Elemwise": 1.4}
    executions = []
    for each in profile.executions:
        scale = scales.get(profile.operators[each.operator].type, 1)
        end_ns = each.start_ns + round(each.duration_ns * scale)
        executions.append(msgspec.structs.replace(each, end_ns=end_ns))
    operators = list(profile.operators)
    operators[5] = msgspec.structs.replace(operators[5], name="new", type="Softmax")
    return replace(profile, operators=tuple(operators), executions=tuple(executions))


def evil_layers() -> Profile:
    profile = profile_of_layers()
    rename = msgspec.structs.replace
    operators = tuple(rename(it, name=EVIL + it.name, type=EVIL) for it in profile.operators)
    facts = rename(profile.facts, engine=EVIL, model=rename(profile.facts.model, path=EVIL))
    return replace(profile, operators=operators, facts=facts)


def test_the_page_is_that_of_the_second_profile() -> None:
    one, two = run_of(), run_of(SECOND, step_us=70)
    report, alone = compared(one, two), build(two, {})
    found = re.findall(r'<section id="(\w+)"', report.page)
    assert found == [view.name for view in VIEWS]
    assert re.findall(r'<section id="(\w+)"', alone.page) == [n for n in found if n != "comparison"]
    ours, theirs = figures_of(report), figures_of(alone)
    assert theirs.pop("comparison") is None
    assert ours.pop("comparison")["about"] == [
        "Model, options, versions and machine are the same.",
    ]
    added = {"what differs", "compared iterations", "compared operators"}
    assert ours["tables"].keys() - theirs["tables"].keys() == added
    ours["tables"] = {k: v for k, v in ours["tables"].items() if k not in added}
    assert ours == theirs


def test_what_differs_is_a_table() -> None:
    two = run_of(SECOND, device="cuda0")
    report = compared(run_of(), two)
    rows = figures_of(report)["tables"]["what differs"]["rows"]
    assert ["device", "cpu", "cuda0"] in rows
    assert figures_of(report)["comparison"]["about"] == []


def test_the_median_iteration() -> None:
    table = table_of(compared(run_of(), run_of(SECOND, step_us=70)), "compared iterations")
    assert table["median"] == {
        "of an iteration": "median",
        "baseline ms": 0.1,
        "this run ms": 0.07,
        "delta ms": -0.03,
        "delta %": -30,
    }
    assert list(table) == ["median"]


def test_operators_with_the_largest_difference_first() -> None:
    other = run_of(SECOND)
    other = replace(other, facts=msgspec.structs.replace(other.facts, driver="lite"))
    table = table_of(compared(run_of(), other), "compared operators")
    assert list(table) == ["a", "c", "b"]
    row = table["a"]
    assert (row["baseline µs"], row["this run µs"], row["delta µs"]) == (62, 41, -21)
    assert row["delta %"] == pytest.approx(-33.871, abs=1e-3)


def test_operators_of_one_run_alone() -> None:
    two = run_of([{"a": 60, "new": 9}] * 3, {"a": "Conv", "new": "Softmax"})
    table = table_of(compared(run_of(), two), "compared operators")
    assert {name: row["in"] for name, row in table.items()} == {
        "b": "removed",
        "new": "added",
        "c": "removed",
        "a": "both",
    }
    assert (table["new"]["baseline µs"], table["new"]["delta %"]) == (0, None)
    assert table["b"]["delta %"] == -100


def test_bars_are_the_largest_differences() -> None:
    comparison = figures_of(compared(run_of(), run_of(SECOND)))["comparison"]
    bars = {name: rest for name, *rest in comparison["bars"]}
    assert list(bars) == ["a", "c"]  # the other took as long in the mean
    assert bars["a"][:2] == ["both", -21]
    many = figures_of(compared(profile_of_layers(layers=9), profile_of_layers(layers=9, seed=2)))
    assert len(many["comparison"]["bars"]) == 15
    assert figures_of(compared(run_of(), run_of()))["comparison"]["bars"] == []


def test_on_devices_the_devices_times_are_compared() -> None:
    given: dict[str, Any] = {"device": "cuda0", "dispatch_us": 5}
    report = compared(run_of(**given), run_of(SECOND, **given))
    assert table_of(report, "compared operators")["a"]["baseline µs"] == 62
    assert ", on the device." in figures_of(report)["comparison"]["notes"][0]
    mixed = figures_of(compared(run_of(), run_of(SECOND, **given)))["comparison"]["notes"]
    assert any(note.startswith("One run was on a device and the other was not") for note in mixed)


def test_top_cuts_the_table() -> None:
    table = figures_of(compared(run_of(), run_of(SECOND), top=1))["tables"]["compared operators"]
    assert ([row[0] for row in table["rows"]], table["total"]) == (["a"], 3)
    assert table["order"] == "difference"


@pytest.mark.parametrize("nothing", [0, 1])
def test_without_timed_iterations_there_is_nothing_to_compare(nothing: int) -> None:
    runs = [run_of(), run_of()]
    runs[nothing] = run_of(warmup=6)
    with pytest.raises(UsageError, match=f"the {('first', 'second')[nothing]} profile has no"):
        compared(*runs)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = [tmp_path / "a.json", tmp_path / "b.json"]
    write_profile(run_of(), paths[0])
    write_profile(run_of(SECOND), paths[1])
    words = ["report", *map(str, paths), "--style", "html", "--view", "comparison"]
    page = tmp_path / "page.html"
    assert main([*words, "--html", str(page)]) == 0
    assert capsys.readouterr().out.endswith(" with comparison; --html FILE writes it\n")
    assert re.findall(r'<section id="(\w+)"', page.read_text()) == ["comparison"]
    assert main([*words[:1], *words[2:]]) == 2
    assert capsys.readouterr().err == (
        "lar: error: --view comparison: compares two profiles\nhint: give its baseline before it\n"
    )


@NEEDS_BROWSER
@pytest.mark.parametrize(
    ("baseline", "experiment", "parts"),
    [
        (profile_of_layers(), other_layers(), {"svg", "tbody"}),
        (evil_layers(), profile_of_layers(), {"svg", "tbody"}),
        (run_of(FIRST[:1]), run_of(SECOND, device="cuda0"), {"svg", "tbody"}),
        (profile_of_layers(), profile_of_layers(), {"tbody"}),
    ],
    ids=["layers", "evil", "one iteration", "the same"],
)
def test_a_browser_draws_it(
    baseline: Profile, experiment: Profile, parts: set[str], tmp_path: Path
) -> None:
    dom, console = open_page(compared(baseline, experiment).page, tmp_path)
    assert console == []
    assert 'class="error"' not in dom
    assert "<title>taken" not in dom
    found = re.search(r'<section id="comparison">(.*?)</section>', dom, re.DOTALL)
    assert found
    assert set(re.findall(r"<(svg|tbody)\b", found[1])) == parts
    assert "NaN" not in found[1]


@NEEDS_BROWSER
def test_a_browser_sorts_and_filters_it(tmp_path: Path) -> None:
    report = compared(profile_of_layers(), other_layers())
    table = table_of(report, "compared operators")
    dom, console = open_page(report.page.replace("</body>", f"{ACTIONS}</body>"), tmp_path)
    assert console == []
    title = re.search(r"<title>(.*?)</title>", dom)
    assert title
    assert json.loads(title[1]) == {
        "first": max(table, key=lambda name: abs(table[name]["delta µs"])),
        "bars": 15,
        "sorted": max(table, key=lambda name: table[name]["this run µs"]),
        "filtered": ["new"],
    }
