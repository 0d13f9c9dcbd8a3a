"""What the options change in Paddle's summaries, and what is told of a CPU."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lar.errors import UsageError
from lar.profiles.trace_file import write_profile
from lar.records.profile import Allocation, Execution, Profile, Span
from lar.reports.styles import STYLES
from lar.reports.styles.paddle import SECTIONS, build
from tests.profiles.layers import profile_of_layers
from tests.profiles.synthetic import HOST, WORKER, operator_of, profile_of_times
from tests.reports.styles.paddle_sample import profile_on_device, rows_of, span_at

RunLar = Callable[..., subprocess.CompletedProcess[str]]

TIMES = [
    {"wide": 900, "narrow": 100, "act": 300},
    {"wide": 40, "narrow": 40, "act": 31},
    {"wide": 40, "narrow": 40, "act": 32},
]
TYPES = {"wide": "Conv", "narrow": "Conv", "act": "Relu"}


@pytest.fixture
def profile() -> Profile:
    return profile_of_times(TYPES, TIMES, step_us=2000, warmup=1, dispatch_us=5)


def text_of(profile: Profile, view: str, **options: object) -> str:
    return build(profile, {"view": [view], **options}).text


def names_of(profile: Profile, view: str = "operator", **options: object) -> list[str]:
    """Return the names of the rows that have no parent."""
    lines = text_of(profile, view, **options).split("\n")
    return [row.name for row in rows_of(lines) if row.level == 0]


def test_times_are_in_the_unit_asked_for(profile: Profile) -> None:
    # Two executions of two convolutions, of 40 us each.
    for unit, total in {"s": "0.00", "ms": "0.16", "us": "160.00", "ns": "160000.00"}.items():
        lines = text_of(profile, "kernel", time_unit=unit).split("\n")
        assert lines[1] == f"Time unit: {unit}"
        assert next(rows_of(lines)).cells[0][0] == total


def test_rows_are_sorted_by_the_key() -> None:
    times = [{"a": 9, "b": 4, "c": 1}, {"a": 1, "b": 4, "c": 7}, {"a": 1, "b": 4, "c": 1}]
    types = {"a": "A", "b": "B", "c": "C"}
    cpu = profile_of_times(types, times, step_us=30)
    device = profile_of_times(types, times, step_us=30, device="cuda:0")
    for profile, where in ((cpu, "cpu"), (device, "gpu")):
        orders = {
            None: "BAC",
            f"{where}_total": "BAC",
            f"{where}_avg": "BAC",
            f"{where}_max": "ACB",
            f"{where}_min": "ACB",
            f"+{where}_total": "CAB",
            f"-{where}_min": "BAC",
        }
        for view in ("operator", "kernel"):
            found = {key: "".join(names_of(profile, view, sort=key)) for key in orders}
            assert found == orders, view


def test_the_first_rows_and_the_matching_ones_keep_their_ratios(profile: Profile) -> None:
    whole = {
        row.name: row.cells
        for row in rows_of(text_of(profile, "operator").split("\n"))
        if row.level == 0
    }
    assert list(whole) == ["Conv", "Relu"]
    for options in ({"filter": "^act$"}, {"filter": "Rel"}, {"top": 1, "sort": "+cpu_total"}):
        rows = list(rows_of(text_of(profile, "operator", **options).split("\n")))
        assert {row.name: row.cells for row in rows if row.level == 0} == {"Relu": whole["Relu"]}
        assert [row.name for row in rows if row.level] == [
            "Relu dispatch",
            "Relu wait",
            "Relu compute",
        ]
    assert names_of(profile, "kernel", top=1) == ["Conv"]


def test_a_filter_takes_the_kernels_of_matching_operators_and_those_of_that_name() -> None:
    profile = profile_of_layers()
    every = {row.name: row.cells[0][4] for row in rows_of(lines_of_kernels(profile))}
    for pattern, name in (("Convolution", "IM2COL:X86_F32:192"), ("^IM2COL", "IM2COL:X86_F32:192")):
        (row,) = rows_of(lines_of_kernels(profile, filter=pattern))
        assert (row.name, row.cells[0][4]) == (name, every[name])


def lines_of_kernels(profile: Profile, **options: object) -> list[str]:
    return text_of(profile, "kernel", **options).split("\n")


def test_a_filter_takes_the_matching_operators_of_a_type_alone(profile: Profile) -> None:
    rows = list(rows_of(text_of(profile, "operator", filter="^wide$").split("\n")))
    assert [(row.name, row.calls) for row in rows if row.level == 0] == [("Conv", 2)]


def test_operators_are_grouped_by_name(profile: Profile) -> None:
    assert names_of(profile, group_by="name") == ["narrow", "wide", "act"]
    assert names_of(profile, group_by="type") == ["Conv", "Relu"]


def test_each_thread_has_a_block_of_its_own(profile: Profile) -> None:
    moved = tuple(
        msgspec.structs.replace(each, thread=5) if each.operator == 2 else each
        for each in profile.executions
    )
    marks = tuple(
        Span(category="user_annotation", name=name, start_ns=1, end_ns=9, step=1, thread=thread)
        for name, thread in (("mine", HOST), ("theirs", 5))
    )
    split = replace(profile, executions=moved, spans=(*profile.spans, *marks))
    text = build(split, {"group_by": "thread"}).text
    titles = [line.strip("-") for line in text.split("\n") if "Thread:" in line]
    assert titles == ["Thread: 2 (worker)", "Thread: 5", "Thread: 1 (host)", "Thread: 5"]
    ratios = [
        row.cells[0][4]
        for row in rows_of(text_of(split, "operator", group_by="thread").split("\n"))
        if row.level == 0
    ]
    assert ratios == ["100.00", "100.00"]
    merged = build(split, {}).text
    assert merged.count("Thread: All threads merged") == 2


def test_views_are_printed_alone_in_their_order(profile: Profile) -> None:
    every = build(profile, {}).text
    parts = {view: text_of(profile, view) for view in ("device", "model", "operator", "perf")}
    assert all(part in every for part in parts.values())
    asked = build(profile, {"view": ["perf", "operator"]}).text
    assert asked == parts["operator"] + parts["perf"]
    log = text_of(profile, "log")
    assert log.count("batch_cost") == 2
    assert log not in every
    assert {view for view, _ in SECTIONS} == set(STYLES["paddle"].views)


def test_on_a_cpu_no_time_is_that_of_a_device(profile: Profile) -> None:
    report = build(profile, {})
    assert "\nGPU0" not in report.text
    for row in rows_of(text_of(profile, "operator").split("\n")):
        assert row.cells[1] == ("0.00",) * 5
    kernels = text_of(profile, "kernel")
    assert "CPU Total / Avg / Max / Min / Ratio(%)" in kernels
    assert "GPU" not in kernels
    assert "There is no device" in kernels


def test_what_is_not_known_is_a_dash(profile: Profile) -> None:
    assert [line.split()[1:] for line in text_of(profile, "device").split("\n")[4:6]] == [["-"]] * 2
    assert text_of(profile, "operator").split("\n")[6].split()[-1] == "-"
    perf = text_of(profile, "perf").split("\n")
    assert not any(line.startswith("Reader Ratio") for line in perf)
    assert [cell.strip() for cell in perf[3].split("|")[2:5]] == ["-"] * 3
    tables = {table.name: table for table in build(profile, {}).tables}
    assert tables["device"].records == (("CPU(Process)", None), ("CPU(System)", None))
    assert tables["operator"].records[0][-1] is None


def test_operations_are_summed_where_all_are_known() -> None:
    report = build(profile_of_layers(layers=2, iterations=3), {"view": ["operator"]})
    at = report.tables[0].headings.index("FLOPs")
    flops = {row[2]: row[at] for row in report.tables[0].records if row[1] == 0}
    assert flops["Convolution"] == 3 * (300 + 600) * 120_000
    assert flops["RelayoutFormat"] is None


def test_algorithms_stand_below_the_computation() -> None:
    rows = list(rows_of(text_of(profile_of_layers(), "operator").split("\n")))
    place = next(place for place, row in enumerate(rows) if row.level == 2)
    assert rows[place].name == "IM2COL:X86_F32:192"
    assert rows[place - 1].name == "Convolution compute"
    assert rows[place].cells == (
        (*rows[place - 1].cells[0][:4], "100.00"),
        ("-",) * 5,
    )


def test_copies_are_those_of_the_host_the_phases_and_the_operators() -> None:
    profile = profile_of_layers()
    copy = Span(
        category="memcpy",
        name="[CPU memcpy HtoH]",
        start_ns=profile.timed_steps()[0].start_ns,
        end_ns=profile.timed_steps()[0].start_ns + 9000,
        step=1,
        source_kind="host",
        destination_kind="host",
    )
    profile = replace(profile, spans=(*profile.spans, copy))
    assert names_of(profile, "memory")[:4] == [
        "[CPU memcpy HtoH]",
        "InputCopy",
        "RelayoutFormat",
        "OutputCopy",
    ]
    overview = text_of(profile, "overview").split("\n")
    row = next(line for line in overview if line.startswith("  UserDefined"))
    assert row.split()[1:3] == ["1", "0.01"]


def test_a_range_around_several_steps_has_no_ratio(profile: Profile) -> None:
    first, last = profile.steps[0], profile.steps[-1]
    around = Span(
        category="user_annotation",
        name="all",
        start_ns=first.start_ns - 10**9,
        end_ns=last.end_ns,
        thread=0,
    )
    profile = replace(profile, spans=(*profile.spans, around))
    row = next(rows_of(text_of(profile, "userdefined").split("\n")))
    assert (row.name, row.calls, row.cells[0][4]) == ("all", 1, "-")
    assert row.cells[0][0] == "1006.00"
    overview = text_of(profile, "overview").split("\n")
    found = next(line for line in overview if line.startswith("  PythonUserDefined"))
    assert found.split()[1:] == ["1", "4.00", "100.00"]


def test_a_range_on_a_stream_is_the_devices_time() -> None:
    profile = profile_of_times({"a": "A"}, [{"a": 20}], step_us=50, dispatch_us=4, device="cuda:0")
    step = profile.steps[0]
    marks = [
        Span(
            category="user_annotation",
            name=name,
            start_ns=step.start_ns + start,
            end_ns=step.start_ns + end,
            thread=thread,
            step=0,
        )
        for name, start, end, thread in (
            ("stream", 1000, 40_000, WORKER),  # the execution begins after 2000
            ("host", 0, 1000, HOST),  # the dispatch begins at once
            ("late", 4500, 9000, HOST),
        )
    ]
    profile = replace(profile, spans=(*profile.spans, *marks))
    cells = {row.name: row.cells for row in rows_of(text_of(profile, "userdefined").split("\n"))}
    assert {name: (cpu[0], gpu[0]) for name, (cpu, gpu) in cells.items()} == {
        "stream": ("-", "0.02"),
        "host": ("0.00", "0.02"),
        "late": ("0.00", "0.00"),
    }


def test_phases_outside_the_steps_have_no_ratio(profile: Profile) -> None:
    load = Span(category="phase", name="load", start_ns=0, end_ns=5_000_000, thread=HOST)
    rows = {
        row.name: row
        for row in rows_of(
            text_of(replace(profile, spans=(load, *profile.spans)), "model").split("\n")
        )
    }
    assert list(rows) == ["ProfileStep", "Forward", "Others", "Load", "Warmup"]
    assert rows["Load"].cells == (("5.00", "5.00", "5.00", "5.00", "-"), ("-",) * 5)
    assert rows["Warmup"].calls == 1


def test_only_memory_that_was_measured_is_told(profile: Profile) -> None:
    taken = [
        Allocation(1, 4096, 0, source="engine"),
        Allocation(2, 1024, 2, source="engine"),
        Allocation(3, -4096, 0, source="engine"),
        Allocation(4, 9999, 1, source="estimate"),
        Allocation(5, 512, None, source="engine"),
    ]
    assert "Memory Summary" not in build(profile, {}).text
    lines = text_of(replace(profile, allocations=tuple(taken)), "memory").split("\n")
    assert lines[0].strip("-") == "Memory Summary - CPU"
    assert lines[1:3] == ["Peak Allocated Memory: 5120", "Peak Reserved Memory: -"]
    assert [line.rsplit(maxsplit=6)[0::1] for line in lines[6:9]] == [
        ["Relu", "Allocated", "1", "0", "1024", "0", "1024"],
        ["(no operator)", "Allocated", "1", "0", "512", "0", "512"],
        ["Conv", "Allocated", "1", "1", "4096", "4096", "0"],
    ]
    assert lines[9:] == ["", "", ""]


def test_what_cannot_be_told_is_refused(profile: Profile) -> None:
    with pytest.raises(UsageError, match="no timed iteration"):
        build(replace(profile, steps=profile.steps[:1]), {})
    with pytest.raises(UsageError, match="--view userdefined: the profile has nothing"):
        text_of(profile, "userdefined")
    with pytest.raises(UsageError, match="--filter nix: no operator"):
        text_of(profile, "operator", filter="nix")


@given(
    times=st.lists(
        st.fixed_dictionaries({name: st.integers(0, 500) for name in TYPES}), min_size=1, max_size=4
    ),
    dispatch=st.none() | st.integers(0, 200),
    device=st.sampled_from(["cpu0", "cuda:1"]),
)
def test_what_holds_of_any_profile(
    times: list[dict[str, int]], dispatch: int | None, device: str
) -> None:
    profile = profile_of_times(TYPES, times, step_us=1600, dispatch_us=dispatch, device=device)
    tables = {table.name: table for table in build(profile, {"group_by": "name"}).tables}
    parents = [row for row in tables["operator"].records if row[1] == 0]
    assert {row[2] for row in parents} == set(TYPES)
    for ratio in (8, 13):
        total = sum(float(row[ratio] or 0) for row in parents)
        assert total == pytest.approx(100) or total == 0
    model = {row[0]: row for row in tables["model"].records}
    for column in (2, 7):
        whole, *parts = (float(row[column] or 0) for row in model.values())
        assert whole == pytest.approx(sum(parts), abs=1e-9)
    overview = {row[1]: row for row in tables["overview"].records}
    merged = float(overview["Operator"][3] or 0) if "Operator" in overview else 0.0
    assert merged <= sum(float(row[4] or 0) for row in parents) + 1e-9
    kernels = sum(float(row[6] or 0) for row in tables["kernel"].records)
    assert kernels == pytest.approx(100) or kernels == 0
    text = build(profile, {}).text
    assert ("\nGPU1 " in text) == (device == "cuda:1")


def test_more_operations_than_the_column_is_wide_for_keep_the_columns_apart() -> None:
    operator = operator_of("big", "Conv", flops=12_345_678_901_234)
    profile = profile_on_device(
        [span_at("kernel", "k", 0, 5000, operator=0)],
        operators=[operator],
        executions=[Execution(0, 0, WORKER, 0, 9000)],
    )
    lines = text_of(profile, "operator").split("\n")
    assert len({len(line) for line in lines[2:8] if not line.startswith("-")}) == 1


def test_the_command_prints_what_is_asked_for(
    run_lar: RunLar, tmp_path: Path, profile: Profile
) -> None:
    path = tmp_path / "profile.json"
    write_profile(profile, path)
    given = ["--view", "operator", "--sort=-cpu_min", "--group-by", "name", "--time-unit", "us"]
    done = run_lar("report", str(path), "--style", "paddle", *given, "--top", "2")
    assert (done.returncode, done.stderr) == (0, "")
    rows = [row for row in rows_of(done.stdout.split("\n")) if row.level == 0]
    assert [(row.name, row.cells[0][0]) for row in rows] == [("narrow", "90.00"), ("wide", "84.00")]
    refused = run_lar("report", str(path), "--style", "paddle", "--sort", "nix")
    assert refused.returncode == 2
    assert "cpu_total" in refused.stderr
