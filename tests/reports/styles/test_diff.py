"""Two commands side by side: plain iterations, operators, and what pairs of profiles show."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

import lar
from lar.profiles.differences import contrasts_of
from lar.records.profile import Cost, Machine, Profile, ProfileFacts
from lar.reports.styles import STYLES
from tests.conftest import RunLar
from tests.known import known
from tests.profiles.synthetic import profile_of_times
from tests.reports.conftest import Report
from tests.tables import each_row

TYPES = {"a": "Conv", "b": "Pool", "c": "Relu"}
FIRST = {"a": 62, "b": 22, "c": 3}
SECOND = {"a": 41, "b": 22, "c": 4}
SUMS = ("all operators", "plain iteration")

Rows = dict[str, dict[str, Any]]


def run_of(times: Mapping[str, int], *, plain_us: float = 100, **facts: Any) -> Profile:
    """A run of three iterations, of which a plain one takes so long."""
    types = {name: TYPES.get(name, "Softmax") for name in times}
    step_us = 50 + sum(times.values())
    made = profile_of_times(types, [times] * 3, step_us=step_us)
    cost = Cost(1e-6 * step_us, 1e-6 * plain_us, 3, 3)
    facts = {"lar_version": "1", "cost": cost, **facts}
    return replace(made, facts=structs.replace(made.facts, **facts))


def rows_in(printed: str) -> Rows:
    """The rows of JSON by their names, in order, each by the columns."""
    found = json.loads(printed)["tables"][0]
    return {row[0]: dict(zip(found["columns"], row, strict=True)) for row in found["rows"]}


def times_in(row: Mapping[str, Any]) -> tuple[float | None, float | None]:
    return row["A us"], row["B us"]


def test_plain_iterations_are_compared_first(report: Report) -> None:
    """Profiled, both took as long."""
    runs = run_of(FIRST, plain_us=100), run_of(FIRST, plain_us=200)
    text = report(runs)
    assert text.startswith(
        "plain iteration: A 100.000 us, B 200.000 us, +100.000 us (+100.0%): not judged (1 pair of "
        "processes, and 3 are needed)\n"
    )
    assert "three pairs of profiles or more are judged" in text
    plain = rows_in(report(runs, "--json", "-"))["plain iteration"]
    assert (times_in(plain), plain["verdict"]) == ((100, 200), "not judged")


@each_row("reports/styles/diff/operators of the plain iteration")
def test_operators_are_those_of_the_plain_iteration(
    report: Report, count: int, unknown: Sequence[int], b_us: float, said: str
) -> None:
    """Some runs are so disturbed that the cost of profiling is unknown."""
    runs = [run_of(FIRST, plain_us=(100, 50)[place % 2]) for place in range(count)]
    for place in unknown:
        cost = structs.replace(known(runs[place].facts.cost), disturbed=True)
        runs[place] = run_of(FIRST, cost=cost)
    rows, text = rows_in(report(runs, "--json", "-")), report(runs)
    assert times_in(rows["all operators"]) == pytest.approx((87, b_us), abs=0.1)
    assert times_in(rows["plain iteration"]) == pytest.approx((100, 50))
    assert re.findall(r"is not known for (.*)\. So times", text) == [said] * bool(said)


def test_without_a_plain_run_profiled_iterations_are_compared(report: Report) -> None:
    text = report([run_of(FIRST), run_of(FIRST, cost=None)])
    assert text.startswith("profiled iteration: A 137.000 us, B 137.000")


def test_three_pairs_are_judged(report: Report) -> None:
    """Processes differ by a per cent; one operator takes three times as long, another one a step
    of the clock more."""
    pairs = [
        run_of({"a": a, "b": 100 + number, "c": c}, plain_us=a + 120)
        for number, times in enumerate([(1000, 3000), (1010, 3020), (1005, 3015)])
        for a, c in zip(times, (10, 11), strict=True)
    ]
    rows = rows_in(report(pairs, "--json", "-"))
    assert {name: row["verdict"] for name, row in rows.items()} == {
        **{"a": "slower", "b": "no difference shown", "c": "not judged"},
        **{"all operators": "", "plain iteration": "slower"},
    }
    text = report(pairs)
    assert re.match(r"plain iteration: A .*: slower \(ratio 2\.\d+ to 2\.\d+\)\n", text)
    assert re.search(r"\na .* 2\.\d+ to 3\.\d+ +slower", text)
    assert "three pairs" not in text
    fewer = rows_in(report(pairs[:4], "--json", "-"))
    assert {row["verdict"] for row in fewer.values()} == {"not judged", ""}


def test_one_command_twice_shows_no_difference(report: Report) -> None:
    rows = rows_in(report([run_of(FIRST)] * 6, "--json", "-"))
    assert {row["change us"] for row in rows.values()} == {0}
    assert "slower" not in {row["verdict"] for row in rows.values()}


def test_work_of_one_side_alone(report: Report) -> None:
    rows = rows_in(report([run_of(FIRST), run_of({"a": 41, "new": 9})], "--json", "-"))
    assert list(rows) == ["b", "a", "new", "c", *SUMS]
    assert {name: row["verdict"] for name, row in rows.items()} == {
        **{"a": "not judged", "b": "only in A", "c": "only in A", "new": "only in B"},
        **{"all operators": "", "plain iteration": "not judged"},
    }
    assert times_in(rows["b"]) == (22, None)
    assert (rows["new"]["change us"], rows["new"]["change %"]) == (9, None)
    assert (rows["b"]["calls A"], rows["b"]["calls B"]) == (1, 0)
    assert times_in(rows["all operators"]) == (87, 50)


def test_what_differs_is_said_beside_the_times(report: Report) -> None:
    text = report([run_of(FIRST, batch=2, threads=1), run_of(FIRST, batch=8, threads=1)])
    assert "\nwhat differs:\n  batch: 2 -> 8\n\n" in text
    assert "are the same" in report([run_of(FIRST)] * 2)


def test_what_one_of_two_did_not_record_is_no_difference() -> None:
    machine = Machine(processor="x", cores=2)
    facts = ProfileFacts(lar_version="1", machine=machine)
    newer = structs.replace(facts, machine={**machine, "architecture": "x86_64"})
    assert contrasts_of(Profile(facts=facts), Profile(facts=newer)) == []
    other = structs.replace(newer, machine={**machine, "architecture": "aarch64"})
    found = contrasts_of(Profile(facts=newer), Profile(facts=other))
    assert found == [("machine: architecture", "x86_64", "aarch64")]


def test_of_long_lists_of_instruction_sets_those_that_differ_are_shown() -> None:
    common = [f"set{number}" for number in range(40)]
    sides = [
        Profile(facts=ProfileFacts(machine=Machine(instruction_sets=" ".join([*common, *own]))))
        for own in (["avx512f", "avx512bw"], [])
    ]
    assert contrasts_of(*sides) == [("machine: instruction sets", "avx512f avx512bw", "-")]


@each_row("reports/styles/diff/order and choice")
def test_order_and_choice(report: Report, words: Sequence[str], names: str) -> None:
    runs = run_of(FIRST), run_of({"a": 41, "b": 24, "c": 4})
    rows = rows_in(report(runs, *words, "--json", "-"))
    assert [*rows] == [*names, *SUMS]
    assert times_in(rows["all operators"]) == (87, 69)


def test_types_and_modules_are_sums(report: Report) -> None:
    def with_modules(profile: Profile, *modules: str) -> Profile:
        pairs = zip(profile.operators, modules, strict=True)
        operators = tuple(structs.replace(each, module=module) for each, module in pairs)
        return replace(profile, operators=operators)

    runs = with_modules(run_of({"x": 1, "a": 5}), "m", ""), with_modules(run_of({"x": 4}), "m")
    types = rows_in(report(runs, "--group-by", "type", "--json", "-"))
    assert {name: times_in(row) for name, row in types.items()} == {
        **{"Conv": (5, None), "Softmax": (1, 4)},
        **{"all operators": (6, 4), "plain iteration": (100, 100)},
    }
    modules = rows_in(report(runs, "--group-by", "module", "--json", "-"))
    assert {*modules} == {"m", "(no module)", *SUMS}


def test_every_key_of_the_styles_row_is_honoured(report: Report) -> None:
    style, runs = STYLES["diff"], [run_of(FIRST)] * 2
    for word, keys in (("--sort", style.sorts), ("--group-by", style.groups)):
        for key in keys:
            assert "all operators" in report(runs, word, key)
    assert "A ms" in rows_in(report(runs, "--time-unit", "ms", "--json", "-"))["a"]
    assert "known values: change, percent" in report(runs, "--sort", "delta", code=2)


@pytest.mark.parametrize("side", [0, 1])
def test_without_timed_iterations_there_is_nothing_to_compare(report: Report, side: int) -> None:
    runs = [run_of(FIRST), run_of(FIRST)]
    runs[side] = profile_of_times(TYPES, [FIRST], step_us=100, warmup=1)
    assert "model.mge has no timed iterations" in report(runs, code=2)


def test_pairs_are_of_two_commands(report: Report) -> None:
    runs = [run_of(FIRST), run_of(SECOND)]
    assert "A1.json: has no profile to compare with" in report([*runs, runs[0]], code=2)
    other = [run_of(FIRST, threads=4), run_of(SECOND)]
    assert "the same side come from different commands" in report([*runs, *other], code=2)


def test_a_page_has_the_same_tables(report: Report) -> None:
    page = report([run_of(FIRST), run_of(SECOND)], "--html", "-")
    assert "A 100.000 us, B 100.000 us" in page
    assert "A us" in page


def test_two_settings_of_a_real_model(run_lar: RunLar, root: Path, tmp_path: Path) -> None:
    """The headline has the medians of the plain runs, and operators fit into them."""
    sides = []
    for level in ("disable", "all"):
        sides.append(str(tmp_path / f"{level}.json"))
        words = ["--iter", "5", "--profile", sides[-1], "--graph-optimization-level", level]
        run_lar(str(root / "models" / "digits_cnn.onnx"), *words, code=0)
    printed = run_lar("report", *sides, "--json", "-").stdout
    costs = [lar.read_profile(path).facts.cost for path in sides]
    plain = tuple(1e6 * cost.calm[1] for cost in costs if cost)
    assert times_in(rows_in(printed)["plain iteration"]) == pytest.approx(plain)
    assert "--graph-optimization-level: disable -> all" in run_lar("report", *sides).stdout
