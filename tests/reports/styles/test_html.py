"""The style `html`."""

from __future__ import annotations

import base64
import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lar.cli.main import main
from lar.errors import UsageError
from lar.profiles.trace_file import write_profile
from lar.records.profile import (
    Allocation,
    MemoryChunk,
    MemoryPlan,
    ModelFacts,
    Profile,
    ProfileFacts,
    Span,
    Step,
    StepNoise,
)
from lar.reports.csv import format_csv
from lar.reports.html import format_html
from lar.reports.report import Report
from lar.reports.styles import STYLES
from lar.reports.styles.html import VIEWS, build
from lar.reports.styles.html.memory import memory_curves
from lar.reports.styles.html.series import bins_of, breakdowns_of
from lar.reports.styles.html.tables import range_table
from lar.reports.styles.html.timeline import (
    Bar,
    median_step_of,
    pack_numbers,
    place_bars,
    timelines_of,
)
from tests.profiles.browser import NEEDS_BROWSER, open_page
from tests.profiles.layers import profile_of_layers, span_of
from tests.profiles.synthetic import profile_of_times

EVIL = (
    "</script><script>document.title='taken'</script><!-- \" ' & \u2028 <img src=x onerror=boom()>"
)

ALONE = {view.name for view in VIEWS} - {"comparison"}

# What a person would do: sort, filter, choose, zoom; what comes of it goes into the title.
ACTIONS = """
<script>
const operators = document.querySelector("#operators");
const first = () => operators.querySelector("tbody td").textContent;
const press = (text) => [...document.querySelectorAll("button")]
  .filter((button) => button.textContent.startsWith(text)).forEach((button) => button.click());
const seen = { first: first() };
operators.querySelector("th button").click();
seen.sorted = first();
operators.querySelector("input").value = "pooling layer1";
operators.querySelector("input").dispatchEvent(new Event("input"));
seen.filtered = [...operators.querySelectorAll("tbody tr")].length;
press("by type");
seen.type = first();
const bars = () => document.querySelectorAll(".timeline .bar").length;
seen.bars = bars();
press("zoom in"); press("zoom in"); press("later");
seen.zoomed = bars();
press("all");
seen.again = bars();
document.title = JSON.stringify(seen);
</script>
"""


def figures_of(report: Report) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', report.page)
    assert found
    figures: dict[str, Any] = json.loads(found[1])
    return figures


def empty_profile() -> Profile:
    return Profile(facts=ProfileFacts(engine="onnxruntime", model=ModelFacts("a.onnx")))


def on_device() -> Profile:
    profile = profile_of_times({"a": "A"}, [{"a": 10}], step_us=20, device="cuda:0")
    kernel = span_of(
        "kernel", "sgemm", 1_002_000, 1_010_000, 7, step=0, operator=0, device="0", stream=3
    )
    return replace(profile, spans=(*profile.spans, kernel))


def evil_profile() -> Profile:
    profile = profile_of_layers(layers=2, iterations=2)
    rename = msgspec.structs.replace
    return replace(
        profile,
        operators=tuple(rename(it, name=EVIL + it.name, type=EVIL) for it in profile.operators),
        threads=dict.fromkeys(profile.threads, EVIL),
        facts=rename(
            profile.facts,
            model=ModelFacts(EVIL),
            options={EVIL: EVIL},
            dropped=(EVIL,),
            engine=EVIL,
        ),
    )


@pytest.fixture(scope="module")
def page() -> Report:
    return build(profile_of_layers(), {})


def test_the_page_needs_nothing_else(page: Report) -> None:
    assert not re.search(r"""(src|href)=["'](?!#)""", page.page)
    assert "@import" not in page.page
    links = set(re.findall(r"https?://[^\s\"'<]+", page.page))
    assert links == {"http://www.w3.org/2000/svg"}  # a name, which nothing is read from
    assert format_html(page) == page.page


def test_every_view_is_there_and_may_be_chosen(page: Report) -> None:
    names = [view.name for view in VIEWS]
    assert tuple(names) == STYLES["html"].views
    names.remove("comparison")  # takes two profiles
    assert re.findall(r'<section id="(\w+)"', page.page) == names
    chosen = build(profile_of_layers(), {"view": ["roofline", "overview"]}).page
    assert re.findall(r'<section id="(\w+)"', chosen) == ["overview", "roofline"]


def test_the_facts_stand_in_the_page(page: Report) -> None:
    for text in (
        "models/layers.mge (SHA-256 0123456789ab)",
        "megengine 1.13.0 (lite)",
        "multithread=2",
        "5 timed, after 1 of warm-up",
        "Profiling adds 4.0%: an iteration took 3.120 ms with it.",
        "device aligned within 210.0 µs, host aligned with an error not known",
        "the process used 151% of one core",
        "process 130.0 MiB, static plan 3.0 MiB",
        "memory 16.0 GiB",
        "the engine does not tell the algorithms of Pooling",
        "convolutions and matrix products take",
    ):
        assert text in page.page


def test_what_is_not_known_is_not_told() -> None:
    text = build(empty_profile(), {}).page
    for name in ("cost of profiling", "clocks", "peak memory", "measured peak", "batch"):
        assert f"{name}</th>" not in text
    assert "Nothing that it was asked for" in text


def test_names_are_escaped() -> None:
    report = build(evil_profile(), {})
    assert EVIL not in report.page
    assert "<img" not in report.page
    assert report.page.count("</script>") == 2
    assert EVIL in "".join(figures_of(report)["timeline"]["names"])


def test_the_tables_are_the_same_in_csv(page: Report) -> None:
    figures = figures_of(page)
    assert [table.name for table in page.tables] == ["operators", "types", "kernels", "ranges"]
    for table in page.tables:
        rows = figures["tables"][table.name]["rows"]
        assert [tuple(row) for row in rows] == list(table.records)
    assert "name,type,calls,median (µs),mean (µs)" in format_csv(page)


def test_shares_sum_to_all_and_totals_to_each_other(page: Report) -> None:
    tables = figures_of(page)["tables"]
    totals = []
    for name in ("operators", "types", "kernels"):
        names = [column[0] for column in tables[name]["columns"]]
        share, total = names.index("share"), names.index("total")
        assert sum(row[share] for row in tables[name]["rows"]) == pytest.approx(100, abs=0.01)
        totals.append(sum(row[total] for row in tables[name]["rows"]))
    assert totals == pytest.approx([totals[0]] * 3, rel=1e-4)


def test_columns_of_which_nothing_is_known_are_named(page: Report) -> None:
    tables = figures_of(build(profile_of_times({"a": "A"}, [{"a": 10}], step_us=20), {}))["tables"]
    names = [column[0] for column in tables["operators"]["columns"]]
    assert "algorithm" not in names
    assert "work" not in names
    assert {"algorithm", "work (MFLOP)"} <= set(tables["operators"]["missing"])
    rows = figures_of(page)["tables"]["operators"]["rows"]
    assert any(None in row for row in rows)  # a relayout's operations, beside those of others


def test_top_cuts_the_tables() -> None:
    table = figures_of(build(profile_of_layers(), {"top": 3}))["tables"]["operators"]
    assert (len(table["rows"]), table["total"]) == (3, 24)


def test_the_breakdown_sums_to_the_iteration(page: Report) -> None:
    steps = profile_of_layers().timed_steps()
    for figure in figures_of(page)["breakdown"]:
        assert sum(figure["shares"]) == pytest.approx(100, abs=0.001)
        for number, (step, (first, last, *parts)) in enumerate(
            zip(steps, figure["bins"], strict=True)
        ):
            assert (first, last) == (number, number)  # from 0, without the warm-up
            assert sum(parts) == pytest.approx(step.duration_ns / 1e6, rel=1e-5)


@given(
    st.lists(
        st.tuples(st.sampled_from("abc"), st.integers(-50, 150), st.integers(0, 80)), max_size=8
    )
)
def test_phases_sum_to_the_iteration_however_they_lie(spans: list[tuple[str, int, int]]) -> None:
    profile = Profile(
        steps=(Step(0, 0, 100),),
        spans=tuple(span_of("phase", name, at, at + ns, 1, step=0) for name, at, ns in spans),
    )
    for figure in breakdowns_of(profile):
        assert min(figure["means"]) >= 0
        assert sum(figure["means"]) == pytest.approx(1e-4)


@given(st.integers(0, 5000), st.integers(1, 500))
def test_bins_hold_everything_once(count: int, most: int) -> None:
    bins = bins_of(count, most)
    assert [place for part in bins for place in part] == list(range(count))
    assert len(bins) <= most


def test_many_iterations_are_put_together() -> None:
    times = [{"a": 10}] * 1000
    figures = figures_of(build(profile_of_times({"a": "A"}, times, step_us=20), {}))
    assert len(figures["latency"]["bins"]) <= 400
    assert figures["latency"]["count"] == 1000
    assert len(figures["breakdown"][0]["bins"]) <= 400


def bars_in(timeline: dict[str, Any], number: int) -> list[tuple[str, int, int, int, str, str]]:
    """The bars of an iteration: lane, row, start, duration, name, kind."""
    iteration = next(each for each in timeline["iterations"] if each["number"] == number)
    packed = base64.b64decode(iteration["bars"])
    numbers: list[int] = []
    number = weight = 0
    for byte in packed:
        number, weight = number | (byte & 127) << weight, weight + 7
        if byte < 128:
            numbers.append(number)
            number = weight = 0
    bars, start = [], 0
    for what, after, length in zip(*[iter(numbers)] * 3, strict=True):
        lane, row, name, kind = timeline["whats"][what]
        start += after * iteration["unit_ns"]
        texts = timeline["names"][name], timeline["kinds"][kind]
        bars.append((timeline["lanes"][lane], row, start, length * iteration["unit_ns"], *texts))
    return bars


def test_any_iteration_has_a_timeline_with_all_that_happened_in_it(page: Report) -> None:
    profile = profile_of_layers()
    timeline = figures_of(page)["timeline"]
    steps = dict(enumerate(profile.timed_steps()))
    assert [each["number"] for each in timeline["iterations"]] == list(steps)
    times = {number: step.duration_ns for number, step in steps.items()}
    landmarks = timeline["landmarks"]
    assert times[landmarks["median"]] == sorted(times.values())[2]
    assert times[landmarks["slowest"]] == max(times.values())
    assert times[landmarks["quickest"]] == min(times.values())
    assert timeline["lanes"] == ["host", "cpu0"]
    assert timeline["kinds"] == ["operator", "wait", "dispatch", "phase", "engine call", "range"]
    for iteration in timeline["iterations"]:
        number = iteration["number"]
        step = steps[number]
        assert iteration["total_ns"] == times[number]
        bars = bars_in(timeline, number)
        computed = {
            name: (start, length) for _, _, start, length, name, kind in bars if kind == "operator"
        }
        own = [each for each in profile.executions if each.step == step.number]
        assert len(computed) == len(own) == len(profile.operators)
        for each in own:
            start, length = computed[profile.operators[each.operator].name]
            assert start == pytest.approx(each.computation[0] - step.start_ns, abs=10)
            assert length == pytest.approx(each.compute_ns, abs=10)
        for _, _, start, length, *_ in bars:
            assert 0 <= start <= start + length <= times[number]
    assert median_step_of([Step(0, 0, 5), Step(1, 0, 9), Step(2, 0, 7)]).number == 2


def test_of_too_many_iterations_those_that_matter_have_a_timeline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lar.reports.styles.html.timeline.MOST_BARS_OF_PAGE", 700)
    timeline = timelines_of(profile_of_layers(iterations=40))
    assert timeline is not None
    numbers = [each["number"] for each in timeline["iterations"]]
    assert set(timeline["landmarks"].values()) <= set(numbers)
    assert (timeline["timed"], numbers) == (40, sorted(numbers))
    assert 5 <= len(numbers) <= 14
    other = next(number for number in range(40) if number not in numbers)
    asked = timelines_of(profile_of_layers(iterations=40), other)
    assert asked is not None
    assert asked["landmarks"]["chosen"] == other
    assert other in [each["number"] for each in asked["iterations"]]
    with pytest.raises(UsageError, match="--iteration 40: the profile has no such iteration"):
        timelines_of(profile_of_layers(iterations=40), 40)


def test_operators_are_ranked_by_their_median_and_disturbed_ones_are_marked() -> None:
    # The second is slow in one disturbed iteration of five alone.
    times = [{"a": 50, "b": 20 + 5000 * (number == 3)} for number in range(5)]
    plain = profile_of_times({"a": "A", "b": "B"}, times, step_us=6000)
    assert "disturbed (calls)" not in figures_of(build(plain, {}))["tables"]["operators"]["missing"]
    noise = tuple(
        StepNoise(number, 5_000_000 * (number == 3), ("queue delay",) * (number == 3))
        for number in range(5)
    )
    facts = msgspec.structs.replace(plain.facts, noise=noise)
    figures = figures_of(build(replace(plain, facts=facts), {}))
    table = figures["tables"]["operators"]
    names = [column[0] for column in table["columns"]]
    rows = [dict(zip(names, row, strict=True)) for row in table["rows"]]
    assert [row["name"] for row in rows] == ["a", "b"]
    assert [row["median"] for row in rows] == [50, 20]
    assert [row["disturbed"] for row in rows] == [0, 1]
    assert table["marks"] == ["", "disturbed"]
    assert figures["latency"]["disturbed"] == [3]
    assert [each["disturbed"] for each in figures["timeline"]["iterations"]] == [
        *("", "", "", "queue delay", ""),
    ]
    assert "Waiting for a CPU" in figures["breakdown"][0]["buckets"]


def test_the_page_says_what_an_operator_could_save_and_what_binds_it(page: Report) -> None:
    table = figures_of(page)["tables"]["operators"]
    names = [column[0] for column in table["columns"]]
    rows = [dict(zip(names, row, strict=True)) for row in table["rows"]]
    assert all((row["could save"] is None) == (row["work"] is None) for row in rows)
    assert {row["bound by"] for row in rows} <= {"compute", "memory", "cache", "far", None}
    assert "The time of an operator: compute," in page.page


def test_of_a_data_set_an_iteration_is_what_the_run_printed() -> None:
    plain = profile_of_times({"a": "A"}, [{"a": 50}] * 5, step_us=100)
    # Each step begins with the loading of its item, which no iteration has.
    steps = tuple(
        msgspec.structs.replace(step, start_ns=step.start_ns - 40_000, end_ns=step.end_ns)
        for step in plain.steps
    )
    profile = replace(plain, steps=steps)
    figures = figures_of(build(profile, {}))
    assert figures["latency"]["median"] == pytest.approx(0.1)
    assert figures["latency"]["loaded"] is True
    page = build(profile, {}).page
    assert "<dt>median iteration</dt><dd>0.100 ms</dd>" in page
    assert "<dt>median step, with its loading</dt><dd>0.140 ms</dd>" in page


def test_numbers_are_packed() -> None:
    assert base64.b64decode(pack_numbers([0, 127, 128, 300])) == bytes([0, 127, 128, 1, 172, 2])


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), max_size=20))
def test_no_bar_covers_another(times: list[tuple[int, int]]) -> None:
    bars = [Bar("", start, start + length, "", "") for start, length in times]
    placed, rows = place_bars(bars)
    assert len(placed) == len(bars)
    for row in range(rows):
        own = sorted((bar.start_ns, bar.end_ns) for place, bar in placed if place == row)
        assert all(a[1] <= b[0] for a, b in pairwise(own))


def test_a_stream_of_a_device_has_its_own_lane() -> None:
    timeline = timelines_of(on_device())
    assert timeline is not None
    assert "device 0, stream 3" in timeline["lanes"]
    assert figures_of(build(on_device(), {}))["kernels_reported"] is True


def test_nothing_on_a_cpu_is_called_a_device(page: Report) -> None:
    figures = figures_of(page)
    assert figures["kernels_reported"] is False
    assert "GPU" not in page.page
    assert all("device" not in lane for lane in figures["timeline"]["lanes"])


def test_the_roofline_shows_what_is_known(page: Report) -> None:
    roofline = figures_of(page)["roofline"]
    assert roofline["peak"] == {"gflops": 200, "gbytes": 40, "threads": 2}
    assert (len(roofline["points"]), roofline["left_out"]) == (18, 6)  # relayouts are not known
    unknown = figures_of(build(on_device(), {}))["roofline"]
    assert (unknown["peak"], unknown["points"]) == (None, [])


def test_memory_is_drawn_as_far_as_it_is_known() -> None:
    chunks = (
        MemoryChunk(0, 1 << 20, "a", 0, 2),
        MemoryChunk(1 << 20, 2 << 20, "b", 1, 1),
        MemoryChunk(1 << 20, 1 << 20, "b in place", 1, 1),
    )
    profile = Profile(
        allocations=(Allocation(20, -(1 << 20)), Allocation(10, 3 << 20)),
        memory_plan=MemoryPlan(3 << 20, (*chunks, MemoryChunk(0, 5, "held"))),
    )
    allocated, planned = memory_curves(profile)
    assert [y for _, y in allocated["points"]] == [3, 2]
    assert planned["points"] == [[0, 1], [1, 3], [2, 1], [3, 0]]
    assert memory_curves(empty_profile()) == []
    titles = [curve["title"] for curve in memory_curves(profile_of_layers())]
    assert titles == ["Memory allocated", "Resident memory of the process"]


def test_the_command_line_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, target = tmp_path / "profile.json", tmp_path / "page.html"
    write_profile(profile_of_layers(), path)
    assert main(["report", str(path), "--style", "html", "--html", str(target)]) == 0
    assert "\nlayers.mge on megengine: a page of " in capsys.readouterr().out
    assert target.read_text().startswith("<!doctype html>")
    assert main(["report", str(path), "--style", "html", "--view", "nothing"]) == 2
    assert "overview, comparison, latency" in capsys.readouterr().err


def test_the_page_stays_small() -> None:
    profile = profile_of_layers(layers=63, iterations=40)
    assert len(profile.timed_executions) > 10_000
    report = build(profile, {})
    assert len(figures_of(report)["timeline"]["iterations"]) == 40
    assert len(report.page.encode()) < 1 << 19


@NEEDS_BROWSER
@pytest.mark.parametrize(
    ("profile", "drawn"),
    [
        (profile_of_layers(), ALONE),
        (evil_profile(), ALONE),
        (on_device(), {"latency", "breakdown", "operators", "kernels", "timeline"}),
        (empty_profile(), set()),
    ],
    ids=["layers", "evil", "device", "empty"],
)
def test_a_browser_draws_every_view(profile: Profile, drawn: set[str], tmp_path: Path) -> None:
    text = build(profile, {}).page
    dom, console = open_page(text, tmp_path)
    assert console == []
    assert 'data-drawn="yes"' in dom
    assert 'class="error"' not in dom
    assert "<title>taken" not in dom
    sections = dict(re.findall(r'<section id="(\w+)">(.*?)</section>', dom, re.DOTALL))
    assert set(sections) == ALONE
    for name in drawn - {"overview"}:
        assert re.search(r"<(svg|tbody)\b", sections[name]), name
    for name, section in sections.items():
        assert re.search(r'<(svg|tbody|p class="note"|ul|p>|table)', section), name


@NEEDS_BROWSER
def test_what_goes_wrong_in_a_browser_is_seen(page: Report, tmp_path: Path) -> None:
    broken = page.page.replace(
        "function drawRoofline(roofline, width) {", "function drawRoofline() {"
    )
    dom, console = open_page(broken, tmp_path)
    assert len(console) == 1
    assert "This part cannot be drawn: TypeError" in dom
    assert 'class="timeline"' in dom  # the other parts are there


@NEEDS_BROWSER
def test_a_browser_sorts_filters_and_zooms(page: Report, tmp_path: Path) -> None:
    dom, console = open_page(page.page.replace("</body>", f"{ACTIONS}</body>"), tmp_path)
    assert console == []
    title = re.search(r"<title>(.*?)</title>", dom)
    assert title
    seen = json.loads(title[1])
    assert seen["first"] in ("layer2.convolution", "layer5.convolution")
    assert seen["sorted"] == "layer0.convolution"
    assert seen["filtered"] == 1
    assert seen["type"] == "Convolution"
    assert 0 < seen["zoomed"] < seen["bars"] == seen["again"]


def test_a_range_has_a_share_of_the_iterations_if_all_of_it_is_in_them() -> None:
    profile = profile_of_times({"a": "A"}, [{"a": 10}] * 2, step_us=20)
    first, second = profile.timed_steps()

    def range_of(name: str, step: Step, number: int | None) -> Span:
        end_ns = step.start_ns + 5_000
        return span_of("user_annotation", name, step.start_ns, end_ns, 1, step=number)

    inside = (range_of("inside", first, 0), range_of("inside", second, 1))
    outside, half = range_of("outside", first, None), range_of("half", first, None)
    spans = (*inside, outside, half, range_of("half", second, 1))
    figures = range_table(replace(profile, spans=spans), 9).figures()
    share = [column[0] for column in figures["columns"]].index("share")
    shares = {row[0]: row[share] for row in figures["rows"]}
    assert shares == {"inside": 25, "outside": None, "half": None}
    figures = range_table(replace(profile, steps=(), spans=inside), 9).figures()
    assert figures["missing"] == ("p90 (µs)", "share (%)")
