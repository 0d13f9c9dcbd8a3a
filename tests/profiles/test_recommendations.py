"""What a profile suggests, the figure it rests on, and flags that exist."""

from __future__ import annotations

from typing import Any

import pytest

from lar.engines import ENGINES, engine_named, recommendations_for
from lar.options.option import flag_of
from lar.options.table import OPTIONS
from lar.records.profile import CpuUse, DeviceFacts, MemoryPlan, Profile
from tests.profiles.synthetic import operator_of
from tests.profiles.timelines import WORKER, execution_of, profile_of, span_of, step_of

CONV, RELU, COPY = (
    operator_of("conv", "Convolution"),
    operator_of("relu", "Relu"),
    operator_of("copy", "RelayoutFormat"),
)
STEPS = (step_of(0, 0, 100),)


def rules_of(profile: Profile) -> list[str]:
    return [each.rule for each in recommendations_for(profile)]


@pytest.mark.parametrize("engine", [each.name for each in ENGINES])
def test_the_flags_are_those_of_the_engine(engine: str) -> None:
    rows = engine_named(engine).rows
    known = {option for option in OPTIONS if not option.by_engine or option.key in rows}
    advice = engine_named(engine).advice
    assert {key for keys in advice.flags.values() for key in keys} <= known
    assert {*advice.of_cpus, *advice.of_devices, *advice.values} <= known


def test_a_profile_of_an_unknown_engine_gets_no_flags() -> None:
    loading = [span_of("phase", "dataloader", 0, 60)]
    profile = profile_of([CONV], STEPS, [], loading, facts={"engine": "of somebody else"})
    (found,) = recommendations_for(profile)
    assert (found.rule, found.flags) == ("data input", ())


@pytest.mark.parametrize(("until", "found"), [(5, False), (6, True)])
def test_data_input_of_more_than_5_percent(until: float, found: bool) -> None:
    loading = [
        span_of("phase", "dataloader", 0, until - 2),
        span_of("phase", "input_copy", until - 2, until),
    ]
    profile = profile_of([CONV], STEPS, [], loading)
    assert rules_of(profile) == (["data input"] if found else [])
    for each in recommendations_for(profile):
        assert "takes 6.0% of the iterations" in each.text
        assert "--input" in each.flags


@pytest.mark.parametrize(("alone", "found"), [(10, False), (11, True)])
def test_dispatch_while_nothing_computes(alone: float, found: bool) -> None:
    dispatched = execution_of(0, alone, 90, thread=WORKER, dispatch=(0, 50))
    profile = profile_of([CONV], STEPS, [dispatched])
    assert rules_of(profile) == (["dispatch"] if found else [])
    for each in recommendations_for(profile):
        assert "for 11.0% of the iterations while none computes" in each.text


def test_a_dispatch_around_its_own_execution_counts_without_it() -> None:
    inside = execution_of(0, 12, 90, dispatch=(10, 91))
    assert rules_of(profile_of([CONV], STEPS, [inside])) == []


def test_copies_and_changes_of_layout_count_once() -> None:
    executions = [execution_of(0, 0, 80), execution_of(2, 80, 91)]
    relayout = span_of("relayout", "[relayout]", 80, 91, operator=2)
    profile = profile_of([CONV, RELU, COPY], STEPS, executions, [relayout], facts={"engine": ""})
    (found,) = recommendations_for(profile)
    assert (found.rule, found.flags) == ("copies", ())
    assert found.share == pytest.approx(0.11)
    assert found.text == (
        "copies and changes of layout take 11.0% of the iterations; "
        "keep the operators in one layout"
    )


@pytest.mark.parametrize(
    ("threads", "percent", "found"),
    [(4, 199.0, True), (4, 200.0, False), (1, 20.0, False), (4, None, False)],
)
def test_threads_that_stand_idle(threads: int, percent: float | None, found: bool) -> None:
    facts = {"threads": threads, "cpu": CpuUse(8, percent, 10.0)}
    profile = profile_of([CONV], STEPS, facts=facts)
    assert rules_of(profile) == (["threads"] if found else [])
    if found:
        (each,) = recommendations_for(profile)
        assert "uses 199% of a CPU, and its 4 threads could use 400%" in each.text


@pytest.mark.parametrize(("busy", "found"), [(95.0, False), (30.0, True), (None, True)])
def test_threads_that_wait_for_other_processes_do_not_stand_idle(
    busy: float | None, found: bool
) -> None:
    facts = {"threads": 2, "cpu": CpuUse(2, 50.0, busy)}
    assert rules_of(profile_of([CONV], STEPS, facts=facts)) == (["threads"] if found else [])


@pytest.mark.parametrize(("end", "found"), [(60, False), (59, True)])
def test_a_device_that_computes_less_than_half_the_time(end: float, found: bool) -> None:
    profile = profile_of([CONV], STEPS, [execution_of(0, 10, end)], device="cuda0")
    assert rules_of(profile) == (["utilization"] if found else [])


def test_one_type_that_dominates() -> None:
    executions = [execution_of(0, 0, 60), execution_of(1, 60, 100)]
    (found,) = recommendations_for(profile_of([CONV, RELU], STEPS, executions))
    assert found.rule == "dominating type"
    assert "type Convolution take 60.0% of the operators' time" in found.text
    assert found.flags[0] == "--fast-run"


def test_a_flag_that_is_set_is_not_suggested() -> None:
    executions = [execution_of(0, 0, 60), execution_of(1, 60, 100)]

    def flags(**options: Any) -> tuple[str, ...]:
        profile = profile_of([CONV, RELU], STEPS, executions, facts={"options": options})
        return recommendations_for(profile)[0].flags

    assert "--fast-run" not in flags(fast_run=True)
    assert "--enable-nchw44" in flags()
    assert "--enable-nchw44" not in flags(enable_nchw88=True)  # one layout at a time


def test_no_layout_of_a_cpu_is_suggested_on_a_device() -> None:
    executions = [execution_of(0, 0, 60), execution_of(1, 60, 100)]
    (found,) = recommendations_for(profile_of([CONV, RELU], STEPS, executions, device="cuda0"))
    assert flag_of("enable_nchw44") not in found.flags


@pytest.mark.parametrize(
    ("engine", "device", "threads", "flags"),
    [
        ("megengine", "cpu", 1, {"--fast-run", "--enable-nchw44", "--multithread"}),
        ("megengine", "cpu", 4, {"--fast-run", "--enable-nchw44"}),
        ("megengine", "cuda0", 1, {"--fast-run"}),
        ("onnxruntime", "cpu", 1, {"--multithread"}),
        ("onnxruntime", "cuda0", 1, {"--fast-run"}),
    ],
)
def test_what_changes_nothing_is_not_suggested(
    engine: str, device: str, threads: int, flags: set[str]
) -> None:
    facts = {"engine": engine, "threads": threads, "cpu": CpuUse(4, None, None)}
    executions = [execution_of(0, 0, 60), execution_of(1, 60, 100)]
    (found,) = recommendations_for(
        profile_of([CONV, RELU], STEPS, executions, facts=facts, device=device)
    )
    assert set(found.flags) - {"--weight-preprocess", "--enable-ioc16"} == flags


def test_no_type_is_blamed_where_no_flag_would_help() -> None:
    facts = {"engine": "onnxruntime", "threads": 4, "cpu": CpuUse(4, None, None)}
    executions = [execution_of(0, 0, 60), execution_of(1, 60, 100)]
    assert recommendations_for(profile_of([CONV, RELU], STEPS, executions, facts=facts)) == ()


def test_conversions_of_onnx_runtimes_layout_can_be_turned_off() -> None:
    facts = {"engine": "onnxruntime"}
    reorder = operator_of("reorder", "ReorderOutput")
    executions = [execution_of(0, 0, 80), execution_of(1, 80, 100)]
    (found,) = recommendations_for(profile_of([CONV, reorder], STEPS, executions, facts=facts))
    assert found.text.endswith("keep the operators in one layout: " + found.flags[0])
    assert found.flags == ("--disable-optimizer NchwcTransformer",)


def test_memory_near_the_machines() -> None:
    facts = {"peak_memory_bytes": 95 << 20, "machine": {"memory_bytes": 100 << 20}}
    (found,) = recommendations_for(profile_of([CONV], STEPS, facts=facts))
    assert found.rule == "memory"
    assert "95.0% of the machine's memory" in found.text


def test_the_memory_of_a_device_is_told_by_the_plan_not_by_the_process() -> None:
    device = DeviceFacts(0, "cuda", "a device", 100 << 30)
    busy = [execution_of(0, 0, 100)]

    def rules(static_bytes: int | None) -> list[str]:
        return rules_of(
            profile_of(
                [CONV],
                STEPS,
                busy,
                device="cuda0",
                facts={"peak_memory_bytes": 99 << 30},
                devices=(device,),
                memory_plan=MemoryPlan(static_bytes),
            )
        )

    assert rules(None) == []
    assert rules(91 << 30) == ["memory"]


def test_nothing_timed_suggests_nothing() -> None:
    assert recommendations_for(profile_of([CONV])) == ()


@pytest.mark.parametrize(("end", "found"), [(90, False), (91, True)])
def test_copies_of_more_than_10_percent(end: float, found: bool) -> None:
    executions = [execution_of(0, 0, 60), execution_of(1, 60, 80), execution_of(2, 80, end)]
    facts = {"engine": ""}
    profile = profile_of([CONV, RELU, COPY], STEPS, executions, facts=facts)
    assert ("copies" in rules_of(profile)) == found


def test_what_a_copy_waits_is_no_copying() -> None:
    executions = [execution_of(0, 0, 50), execution_of(2, 50, 65, wait=5)]
    profile = profile_of([CONV, RELU, COPY], STEPS, executions, facts={"engine": ""})
    assert rules_of(profile) == []


@pytest.mark.parametrize(("end", "found"), [(50, False), (51, True)])
def test_a_type_of_more_than_half_the_time(end: float, found: bool) -> None:
    executions = [execution_of(0, 0, end), execution_of(1, end, 100)]
    profile = profile_of([CONV, RELU], STEPS, executions)
    assert rules_of(profile) == (["dominating type"] if found else [])


def test_one_type_alone_dominates_nothing() -> None:
    assert rules_of(profile_of([CONV, RELU], STEPS, [execution_of(0, 0, 100)])) == []


@pytest.mark.parametrize(("used", "found"), [(90, False), (91, True)])
def test_memory_beyond_90_percent(used: int, found: bool) -> None:
    facts = {"peak_memory_bytes": used << 30, "machine": {"memory_bytes": 100 << 30}}
    profile = profile_of([CONV], STEPS, facts=facts)
    assert rules_of(profile) == (["memory"] if found else [])
    for each in recommendations_for(profile):
        assert each.text.startswith("the run takes 91.0 GiB, 91.0% of the machine's memory; ")
        assert (each.share, each.limit) == (0.91, 0.9)


@pytest.mark.parametrize(
    ("threads", "use", "text"),
    [
        (2, CpuUse(4, 99.0, None), "uses 99% of a CPU, and its 2 threads could use 200%"),
        (2, CpuUse(4, 10.0, 95.0), "uses 10% of a CPU, and its 2 threads could use 30%"),
        (3, CpuUse(0, 100.0, 95.0), "uses 100% of a CPU, and its 3 threads could use 300%"),
        (2, CpuUse(2, 0.0, 100.0), ""),  # no thread could have run: none stood idle
        (2, CpuUse(2, 100.0, 0.0), ""),
        (1, CpuUse(2, 1.0, 0.0), ""),
    ],
)
def test_the_share_of_what_threads_could_use(threads: int, use: CpuUse, text: str) -> None:
    profile = profile_of([CONV], STEPS, facts={"threads": threads, "cpu": use})
    found = recommendations_for(profile)
    assert [text in each.text for each in found] == [True] * bool(text)
    assert rules_of(
        profile_of([CONV], STEPS, facts={"threads": threads, "cpu": use}, device="x")
    ) != ["threads"]
