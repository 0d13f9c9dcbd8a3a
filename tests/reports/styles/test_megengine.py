"""Reports in MegEngine's style: the text is that of `megengine.tools.profile_analyze`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lar.cli.arguments import parser_of
from lar.engines import engine_named
from lar.engines.megengine.profile import profile_of_raw
from lar.errors import UsageError
from lar.records.profile import Correction, Execution, Profile, ProfiledOperator, ProfileFacts, Step
from lar.reports.formats import format_json
from lar.reports.styles import STYLES, collect_report_options
from lar.reports.styles.megengine import ON_HOST, build, is_single, sum_pairwise
from tests.engines.megengine.probe import say_with_tool
from tests.profiles.synthetic import changed, profile_of_times, rows_in, with_facts

DATA = Path(__file__).resolve().parents[2] / "data" / "megengine_profile.json"

# What MegEngine's tool is asked for, on its own file and on one with copies.
COMMANDS = (DATA.parent / "megengine_commands.txt").read_text().splitlines()
COPY_COMMANDS = ("--copy-time", "--copy-time --type Copy", "--copy-time --confluence")


def options_of(words: list[str]) -> dict[str, Any]:
    """The options that a command line of the tool gives `lar report`."""
    parser = parser_of("report")
    words = ["999" if word == "0" else word for word in words]
    given = vars(parser.parse_args(["profile.json", *words]))
    return collect_report_options(given, "megengine", STYLES["megengine"])


def with_copies() -> bytes:
    return DATA.read_bytes().replace(b'"PoolingForward"', b'"Copy"')


@pytest.fixture(scope="module")
def said_by_tool(
    elsewhere: Callable[..., list[str]], tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, str]:
    """What the tool prints, by the command."""
    pytest.importorskip("tabulate")
    if not engine_named("megengine").is_installed:
        pytest.skip("MegEngine is not installed")
    copies = tmp_path_factory.mktemp("profiles") / "copies.json"
    copies.write_bytes(with_copies())
    asked = dict.fromkeys(COMMANDS, str(DATA)) | dict.fromkeys(COPY_COMMANDS, str(copies))
    lines = [[path, *command.split()] for command, path in asked.items()]
    return dict(zip(asked, elsewhere(say_with_tool, "profile_analyze", *lines), strict=True))


@pytest.mark.parametrize("command", [*COMMANDS, *COPY_COMMANDS])
def test_the_text_is_that_of_the_tool(said_by_tool: Mapping[str, str], command: str) -> None:
    data = with_copies() if command in COPY_COMMANDS else DATA.read_bytes()
    assert build(profile_of_raw(data), options_of(command.split())).text == said_by_tool[command]


@example([1 / number for number in range(1, 701)])
@given(st.lists(st.floats(0, 1), max_size=700))
def test_sums_have_the_last_digit_of_numpy(values: list[float]) -> None:
    assert sum_pairwise(values) == float(np.sum(values))


def test_rows_stand_in_the_order_of_the_time_that_they_show() -> None:
    """They stood in that of the median, which the table does not have."""
    times = [{"conv": 50, "relu": 30}, {"conv": 50, "relu": 30}, {"conv": 50, "relu": 300}]
    table = build(profile_of_times(TYPES, times, step_us=500), {}).tables[1]
    assert [row["time_seconds"] for row in rows_in(table)] == pytest.approx([120e-6, 50e-6])


def test_an_operator_that_runs_others_has_its_own_time() -> None:
    profile = profile_of_times({"loop": "Loop", "body": "MatMul"}, TIMES[:0], step_us=1)
    executions = (Execution(0, 0, 1, 0, 100_000), Execution(1, 0, 1, 5_000, 95_000))
    made = replace(profile, steps=(Step(0, 0, 100_000),), executions=executions)
    table = build(made, {}).tables[1]
    assert [row["time_seconds"] for row in rows_in(table)] == pytest.approx([90e-6, 10e-6])


def lines_of(profile: Profile, **options: Any) -> list[str]:
    return build(profile, options).text.splitlines()


def names_of(profile: Profile, **options: Any) -> list[str]:
    """The operators that are shown, in their order."""
    given = {"top": 99, "dump_only_opr": True, "print_only": "device", **options}
    return build(profile, given).text.strip("\n").splitlines()


def with_change(change: Callable[[Any], object]) -> Profile:
    document = json.loads(DATA.read_bytes())
    change(document)
    return profile_of_raw(json.dumps(document).encode())


@pytest.fixture
def own() -> Profile:
    """The engine's own file."""
    return profile_of_raw(DATA.read_bytes())


def test_without_copies_their_time_is_not_available(own: Profile) -> None:
    lines = lines_of(own, copy_time=True, print_only="summary")
    assert lines[3:5] == ["copy time          N/A", "copy wait time     N/A"]


@pytest.mark.parametrize("order", ["flops", "+flops", "computation", "+computation"])
def test_operators_of_unknown_computation_come_last(own: Profile, order: str) -> None:
    # The tool prints the engine's count, which has some for copies.
    unknown = {
        f"{each.name} {each.type} {each.id}"
        for each in own.operators
        if not each.flops and each.type != "Host2DeviceCopy"
    }
    names = names_of(own, sort=order)
    assert len(names) == 20
    assert set(names[-len(unknown) :]) == unknown
    known = [name for name in names if name not in unknown]
    opposite = order[1:] if order[0] == "+" else f"+{order}"
    assert known != [name for name in names_of(own, sort=opposite) if name not in unknown]


def test_unknown_figures_are_no_part_of_what_is_put_together(own: Profile) -> None:
    (row,) = rows_in(build(own, {"aggregate": "max"}).tables[1])
    assert row["computation_flo"] == 591872  # as the engine counts, without the fused ReLU
    assert (row["type"], row["count"], row["id"]) == ("all", 20, None)
    assert "all 20 N/A" in names_of(own, aggregate="max")


def test_operators_can_be_chosen_by_dtype_where_an_input_has_none(own: Profile) -> None:
    names = names_of(own, input_dtype="QuantizedS8")
    assert len(names) == 6
    assert names == names_of(own, input_dtype="quantizeds8")
    assert not any("Reshape" in name for name in names)


def test_confluence_has_bars_only_for_what_is_known(own: Profile) -> None:
    lines = lines_of(own, type=["ImmutableTensor"], confluence=True, print_only="device")
    assert len(lines) == 2 + 3
    assert [cell.strip() for cell in lines[2].split("|")][10:13] == ["N/A", "N/A", ""]
    header = lines_of(own, type=["Nothing"], confluence=True, print_only="device")
    assert len(header) == 2
    assert header[0].startswith("| #   | time   | ratio   | time bar   |")


def test_no_time_at_all_has_no_shares() -> None:
    def stop_the_clock(document: Any) -> None:
        for section in ("device", "host"):
            for entry in document["profiler"][section].values():
                for times in entry.values():
                    times.update(kern=times["start"], end=times["start"])

    profile = with_change(stop_the_clock)
    text = build(profile, {"type": ["ConvBiasForward"]}).text
    assert "%" not in text
    assert "inf" in text  # as the tool prints the speed of what took no time
    row = rows_in(build(profile, {}).tables[1])[0]
    assert row["flo_per_second"] is row["time_percent"] is None
    assert build(profile, {"confluence": True}).text.count("#") == 1


@pytest.mark.parametrize("order", ["flops", "+flops", "bandwidth", "+bandwidth"])
def test_the_speed_of_what_took_no_time_is_not_known(order: str) -> None:
    profile = profile_of_times(TYPES, [{"conv": 0, "relu": 20}], step_us=50)
    operators = changed(profile.operators, flops=5000, size_bytes=8)
    profile = with_facts(replace(profile, operators=operators), lar_version="0.1.0")
    assert names_of(profile, sort=order) == ["relu Relu relu", "conv Convolution conv"]
    for options in ({}, {"confluence": True}, {"aggregate": "sum", "type": ["Convolution"]}):
        text = build(profile, options).text
        assert "inf" not in text.replace("operator info", "")
        assert "N/A" in text


def test_in_the_engines_own_file_it_is_infinite_as_its_tool_has_it(own: Profile) -> None:
    told = json.loads(own.engine_raw)["profiler"]["device"]
    still = {key for key in told for it in told[key].values() if it["end"] == it["start"]}
    assert still
    assert {name.split()[-1] for name in names_of(own, sort="bandwidth")[: len(still)]} == still


def test_the_filter_looks_at_name_and_type(own: Profile) -> None:
    assert len(names_of(own, filter="^Pooling")) == 2
    assert len(names_of(own, filter="logits")) == 3
    assert len(names_of(own, opr_name="logits")) == 0  # it has to match from the beginning


def test_tables_have_plain_values(own: Profile) -> None:
    report = build(own, {"top": 1, "type": ["ConvBiasForward"], "show_host": True})
    assert [table.name for table in report.tables] == ["summary", "device", "host"]
    device = report.tables[1]
    row = rows_in(device)[0]
    assert row["name"] == "conv_bias(data.int8,conv1.weight,conv1.bias)[10]"
    assert row["time_seconds"] == pytest.approx(121e-6)
    assert row["computation_flo"] == 19456
    assert row["flo_per_second"] == pytest.approx(19456 / 121e-6)
    assert row["memory_bytes"] == 1296
    assert row["bytes_per_second"] == pytest.approx(1296 / 121e-6)
    assert row["in_shapes"] == "{1,1,8,8}, {16,1,3,3}, {1,16,1,1}"
    assert "the device is where the engine computes: here the CPU" in device.notes
    assert json.loads(format_json(report))["tables"][0]["rows"][0][0] == ("total device time")


def test_layouts_in_the_engines_file_stand_behind_the_shapes() -> None:
    def lay_out(document: Any) -> None:
        for footprint in document["profiler"]["opr_footprint"].values():
            footprint["in_layouts"] = [[64, "n"], None]

    profile = with_change(lay_out)
    row = rows_in(build(profile, {"top": 1, "type": ["ConvBiasForward"]}).tables[1])[0]
    assert row["in_shapes"] == "{1,1,8,8}\n -[64,n], {16,1,3,3}, {1,16,1,1}"


MEANS = "times, computation and memory are the mean of 2 iterations"
TYPES = {"conv": "Convolution", "relu": "Relu"}
TIMES = [{"conv": 900, "relu": 100}, {"conv": 30, "relu": 6}, {"conv": 20, "relu": 4}]


def test_several_iterations_are_averaged_without_the_warm_up() -> None:
    profile = profile_of_times(TYPES, TIMES, step_us=2000, warmup=1, dispatch_us=3)
    assert lines_of(profile)[:6] == [
        MEANS,
        "",
        "-----------------  -----",
        "total device time  3e-05",
        "total host time    6e-06",
        "-----------------  -----",
    ]
    table = build(profile, {}).tables[1]
    assert [row["time_seconds"] for row in rows_in(table)] == pytest.approx([25e-6, 5e-6])
    assert MEANS in table.notes
    assert names_of(profile) == ["conv Convolution conv", "relu Relu relu"]


def test_an_operator_that_is_not_in_every_iteration_counts_with_its_share() -> None:
    profile = profile_of_times(TYPES, TIMES[1:], step_us=100)
    profile = replace(profile, executions=profile.executions[:3])
    table = build(profile, {"sort": "time"}).tables[1]
    assert [row["time_seconds"] for row in rows_in(table)] == pytest.approx([25e-6, 3e-6])


def test_its_speed_is_that_of_the_iterations_in_which_it_ran() -> None:
    """On two threads at once it runs once."""
    profile = profile_of_times(TYPES, TIMES[1:], step_us=100)
    operators = changed(profile.operators, flops=3_000_000, size_bytes=24_000)
    first, _, second, _ = profile.executions
    beside = msgspec.structs.replace(first, thread=9)
    for ran, runs, flops in (((first, beside), 1, 1e11), ((first, second), 2, 1.2e11)):
        (row,) = rows_in(build(replace(profile, operators=operators, executions=ran), {}).tables[1])
        assert row["flo_per_second"] == pytest.approx(flops)
        assert row["bytes_per_second"] == pytest.approx(flops * 24_000 / 3_000_000)
        assert row["computation_flo"] == 3_000_000 * runs // 2


def test_an_operator_on_two_threads_takes_the_longer_time_on_one_their_sum() -> None:
    (operator,) = (ProfiledOperator(id="1", type="Conv", name="conv"),)
    for thread, total in ((2, 50), (3, 30)):
        executions = (
            Execution(0, 0, 2, 0, 20, 0, 0, 5, 1),
            Execution(0, 0, thread, 20, 50, 10, 0, 5, 1),
        )
        profile = Profile(operators=(operator,), steps=(Step(0, 0, 50),), executions=executions)
        assert build(profile, {}).tables[0].records == (
            ("total device time", total / 1e9, None),
            ("total host time", 5 / 1e9, None),  # one dispatch for both
        )


def test_one_iteration_of_megengine_prints_what_the_engines_file_does(own: Profile) -> None:
    moved = tuple(
        msgspec.structs.replace(each, step=1, start_ns=each.start_ns + 77, end_ns=each.end_ns + 77)
        for each in own.executions
    )
    early = changed(own.executions, step=0, warmup=True)
    steps = (Step(0, 0, 1, True), Step(1, 1, 2))
    profile = replace(own, steps=steps, executions=(*early, *moved), correction=Correction(1.0, 9))
    for options in ({}, {"show_host": True, "top_end_key": "kern"}):
        assert build(profile, options).text == build(own, options).text


def test_a_damaged_file_of_the_engine_within_is_told(own: Profile) -> None:
    with pytest.raises(UsageError, match="MegEngine's part of the profile is damaged: "):
        build(replace(own, engine_raw=b'{"graph_exec":0}'), {})


def test_what_onnx_runtime_does_not_tell_is_not_available() -> None:
    profile = profile_of_times(TYPES, TIMES[1:2], step_us=50)
    profile = replace(
        profile,
        facts=ProfileFacts(engine="onnxruntime"),
        executions=changed(profile.executions, wait_ns=None),
        engine_raw=b"[]",
    )
    lines = lines_of(profile, show_host=True)
    assert lines[1:3] == ["total device time  3.6e-05", "total host time    N/A"]
    assert "│ N/A           │ N/A     │ N/A" in lines[8]
    assert not names_of(profile, print_only="host")
    of_host = with_facts(profile, device="cuda:0", dispatch_only=True)
    assert lines_of(of_host)[:2] == [ON_HOST, ""]
    assert not names_of(profile, top_end_key="kern")
    copies = changed(profile.operators, type="MemcpyToHost")
    assert lines_of(replace(profile, operators=copies), copy_time=True)[3:5] == [
        "copy time          tot=0.0000 avg=0.0000",
        "copy wait time     N/A",
    ]


def test_a_profile_without_executions_has_no_times() -> None:
    lines = lines_of(Profile())
    assert lines[1:3] == ["total device time  N/A", "total host time    N/A"]
    assert len(lines) == 5 + 4


def test_the_engines_own_file_is_of_the_only_timed_iteration() -> None:
    times = [{"a": 1}, {"a": 1}, {"a": 1}]
    of_one, of_two = (
        profile_of_times({"a": "Relu"}, times, step_us=10, warmup=warmup) for warmup in (2, 1)
    )
    assert is_single(of_one)
    assert not is_single(of_two)
    assert is_single(replace(of_two, steps=()))
