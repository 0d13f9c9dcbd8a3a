"""The style that `lar report P` has by default, its page, and a profile in four lines."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import replace
from typing import Any

import pytest

from lar.engines.advice import site_of
from lar.profiles.costs import fit_to_plain
from lar.profiles.rows import rows_of
from lar.profiles.times import use_of
from lar.records.profile import Cost, CounterSample, Profile, TensorFact, ThreadUse
from lar.reports.html import format_html
from lar.reports.model import Plot
from lar.reports.profile_plots import plot_points, plots_of
from lar.reports.styles.operators import build, describe_balance, summary_lines
from tests.profiles.layers import PEAK, profile_of_layers
from tests.profiles.synthetic import operator_of, profile_of_times, rows_in, with_facts
from tests.refusals import refused
from tests.tables import each_row


@pytest.fixture(scope="module")
def profile() -> Profile:
    return profile_of_layers(layers=3, iterations=4)


def names_in(profile: Profile, **options: object) -> list[object]:
    (table,) = build(profile, options).tables
    return [row[0] for row in table.records]


def test_text_has_the_first_rows_and_files_have_all(profile: Profile) -> None:
    (table,) = build(profile, {}).tables
    assert len(table.rows) == len(profile.operators)
    cut = build(profile, {"top": 3})
    assert len(cut.tables[0].rows) == 3
    assert f"({len(profile.operators) - 3} more: --top 0 shows all)" in cut.text
    assert "\n(4 more: --top 0 shows all)\n" in build(profile_of_layers(layers=6), {}).text


def test_rows_are_sorted_and_filtered(profile: Profile) -> None:
    assert names_in(profile, sort="name") == sorted(map(str, names_in(profile)))
    assert names_in(profile, sort="+time") == names_in(profile)[::-1]
    assert all("layer1" in str(name) for name in names_in(profile, filter="layer1"))
    refused("nothing matches", build, profile, {"filter": "absent"})


@pytest.mark.parametrize("group", ["type", "module", "shape", "kernel"])
def test_what_makes_a_row(profile: Profile, group: str) -> None:
    (table,) = build(profile, {"group_by": group}).tables
    assert table.headings[0] == group
    assert sum(row["share"] or 0 for row in rows_in(table)) == pytest.approx(1)


def test_a_profile_without_iterations_is_refused(profile: Profile) -> None:
    nothing = replace(profile, steps=(), executions=())
    refused("no timed iterations", build, nothing, {})
    assert summary_lines(nothing) == []


def plot_of(profile: Profile, title: str) -> Plot:
    return next(plot for plot in plots_of(profile) if plot.title == title)


def test_the_plain_iterations_are_drawn_before_the_profiled(profile: Profile) -> None:
    with_plain = with_facts(profile, plain=((0.003, False), (0.004, True)))
    plain, profiled = plot_of(with_plain, "Iterations").figures["lanes"]
    assert (plain["name"], plain["points"]) == (
        "without the profiler",
        [(0.0, 3.0, 0), (0.003, 4.0, 1)],
    )
    assert profiled["total"] == 4
    assert profiled["points"][0][0] == 0.007


def test_the_memory_of_tensors_is_a_curve(profile: Profile) -> None:
    figures = plot_of(profile, "Memory of tensors").figures
    held, most = 0, 0
    for each in sorted(profile.allocations, key=lambda it: it.at_ns):
        held += each.size_bytes
        most = max(most, held)
    assert max(size for _, size in figures["points"]) == pytest.approx(most / 2**20, abs=1e-4)


def test_a_curve_of_many_points_keeps_the_largest_of_neighbours(profile: Profile) -> None:
    counters = tuple(CounterSample("rss", at, float(at % 7 << 20)) for at in range(2001))
    plot = plot_of(replace(profile, counters=counters), "Resident memory of the process")
    sizes = [max(it % 7 for it in range(at, at + 3)) for at in range(0, 2001, 3)]
    assert [size for _, size in plot.figures["points"]] == sizes


def test_of_many_iterations_some_are_drawn_evenly() -> None:
    (lane,) = plot_points({"a": [(float(at), 1.0, 0) for at in range(6001)]}).figures["lanes"]
    assert [at for at, *_ in lane["points"]] == [*range(0, 6001, 3)]
    assert lane["total"] == 6001


def test_the_page_saves_a_trace_of_some_iterations(profile: Profile) -> None:
    figures = plot_of(profile, "Timeline").figures
    assert figures["name"] == "layers.trace.json.gz"
    trace = json.loads(gzip.decompress(base64.b64decode(figures["data"])))
    names = {event.get("name") for event in trace["traceEvents"]}
    assert {"ProfilerStep#0", "ProfilerStep#3"} <= names


def test_a_large_profile_has_a_small_page() -> None:
    profile = profile_of_layers(layers=40, iterations=60)
    assert len(format_html(build(profile, {})).encode()) < 300_000
    assert len(plot_of(profile, "Timeline").figures["data"]) < 120_000


def said(profile: Profile) -> dict[str, str]:
    lines = (line.partition(": ") for line in summary_lines(profile, "--enable-nchw88"))
    return {about: text for about, _, text in lines}


def profile_with(cost: Cost | None = None) -> Profile:
    made = profile_of_times({"conv": "Conv", "fc": "Gemm"}, [{"conv": 15, "fc": 5}] * 3, step_us=24)
    return with_facts(made, cost=cost, peak=PEAK)


def test_the_plain_time_comes_first() -> None:
    profile = fit_to_plain(profile_with(Cost(24e-6, 21e-6, 3, 3)))
    assert said(profile)["time"] == "21.0 us an iteration (median of 3 without the profiler)"
    assert said(profile)["trust"].startswith("Profiling adds 14.3%: an iteration took 24.0 us")
    assert [*said(profile)] == ["time", "slowest", "try", "trust"]
    assert said(profile)["slowest"] == "Conv conv, 75% of the operators' time"


def test_without_a_plain_run_the_profiled_time_is_named_as_such() -> None:
    assert said(profile_with())["time"] == "24.0 us an iteration with the profiler (median of 3)"


def test_a_disturbed_plain_run_is_named_as_such() -> None:
    profile = profile_with(Cost(24e-6, 21e-6, 3, 3, disturbed=True))
    assert said(profile)["time"].endswith("(median of 3 without the profiler, disturbed)")


@each_row("reports/styles/cases/causes of slow operators")
def test_a_layout_that_others_do_not_have_is_the_cause(layouts: list[str], cause: str) -> None:
    made = profile_of_times({"a": "Conv", "b": "Conv"}, [{"a": 15, "b": 5}] * 3, step_us=24)
    work: dict[str, Any] = {"flops": 1000, "size_bytes": 100, "algorithm": "GEMM"}
    facts = (TensorFact((1, 8, 4, 4), "float32", layout) for layout in layouts)
    convs = [operator_of(name, "Conv", inputs=(next(facts),), **work) for name in "ab"]
    profile = with_facts(replace(made, operators=tuple(convs)), peak=PEAK)
    assert said(profile)["slowest"].endswith(f"far from both roofs; {cause}")


def test_times_of_the_host_alone_are_said_to_be_that() -> None:
    made = profile_with(Cost(24e-6, 21e-6, 3, 3))
    profile = with_facts(made, device="cuda:0", dispatch_only=True, peak=None)
    assert not profile.on_device
    assert said(profile)["trust"].startswith(
        "The times of operators on cuda:0 are not known: the times shown are of the host, which "
        "starts the operators. Profiling adds "
    )
    # What is suggested is for the device all the same.
    assert site_of(profile).device == "cuda:0"


def test_means_are_said_to_be_that_and_have_no_spread() -> None:
    made = profile_of_layers()
    profile = with_facts(made, times="mean")
    assert said(profile)["trust"].startswith("Operator times are means over all iterations: ")
    for row, other in zip(rows_of(profile), rows_of(made), strict=True):
        times = row.times
        assert (times.median_ns, times.p90_ns, times.min_ns, times.max_ns) == (None,) * 4
        assert (times.average_ns, times.calls) == (other.times.average_ns, other.times.calls)
        assert (row.iteration_ns, row.share) == (other.iteration_ns, other.share)


def test_what_to_try_is_a_line() -> None:
    assert said(profile_of_layers())["try"] == "--enable-nchw88"


def with_uses(*uses: ThreadUse | None) -> Profile:
    return Profile(operators=tuple(operator_of("conv", "Conv", threads=use) for use in uses))


def test_waiting_for_threads_is_that_of_all_operators_together() -> None:
    profile = with_uses(ThreadUse(1, 60, 0, 20, (1,)), None, ThreadUse(2, 100, 20, 0, (3, 4)))
    assert use_of(profile.operators) == ThreadUse(3, 160, 20, 20, (4, 4))
    assert describe_balance(profile) == "the calling thread waits 10% of the time for other threads"
    for use in (ThreadUse(1, 91, 0, 9, (1,)), ThreadUse(1, 0, 0, 0, (0,)), None):
        assert describe_balance(with_uses(use)) == ""
