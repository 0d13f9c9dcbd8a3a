"""The style that `lar report P` has by default, and its page."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import replace

import pytest

from lar.records.profile import Profile
from lar.reports.html import format_html
from lar.reports.model import Plot
from lar.reports.profile_plots import plots_of
from lar.reports.styles.operators import build
from tests.profiles.layers import profile_of_layers
from tests.profiles.synthetic import rows_in, with_facts
from tests.refusals import refused


@pytest.fixture(scope="module")
def profile() -> Profile:
    return profile_of_layers(layers=3, iterations=4)


def names_in(profile: Profile, **options: object) -> list[object]:
    (table,) = build(profile, options).tables
    return [row[0] for row in table.records]


def test_text_has_the_first_rows_and_files_have_all(profile: Profile) -> None:
    report = build(profile, {})
    (table,) = report.tables
    assert len(table.rows) == len(profile.operators)
    cut = build(profile, {"top": 3})
    assert len(cut.tables[0].rows) == 3
    assert f"({len(profile.operators) - 3} more: --top 0 shows all)" in cut.text


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
    refused("no timed iterations", build, replace(profile, steps=(), executions=()), {})


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


def test_the_page_saves_a_trace_of_some_iterations(profile: Profile) -> None:
    figures = plot_of(profile, "Timeline").figures
    assert figures["name"] == "layers.trace.json.gz"
    trace = json.loads(gzip.decompress(base64.b64decode(figures["data"])))
    names = {event.get("name") for event in trace["traceEvents"]}
    assert {"ProfilerStep#0", "ProfilerStep#3"} <= names


def test_a_large_profile_has_a_small_page() -> None:
    profile = profile_of_layers(layers=40, iterations=60)
    assert len(format_html(build(profile, {})).encode()) < 300_000
    trace = plot_of(profile, "Timeline").figures["data"]
    assert len(trace) < 120_000
