"""MegEngine's own profile file: one that it wrote of `models/int8.mge`, and what may go wrong."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from lar.engines.megengine.profile import (
    device_of,
    executions_of,
    flops_of_operator,
    memory_plan_of,
    module_of,
    operators_of,
    profile_of_raw,
    threads_of,
)
from lar.engines.profile_files import decode_any
from lar.errors import UsageError
from lar.profiles.megengine_file import RawFootprint, RawProfile, decode_raw
from lar.profiles.trace_file import encode_profile
from lar.records.profile import TensorFact
from tests.engines.megengine.raw_profiles import CONVOLUTION, DATA, raw_after


@pytest.fixture(scope="module")
def raw() -> RawProfile:
    return decode_raw(DATA.read_bytes())


def places_of(raw: RawProfile) -> dict[str, int]:
    return {key: index for index, key in enumerate(raw.graph_exec.comp_seq)}


def test_an_operator_has_what_the_engine_tells(raw: RawProfile) -> None:
    (operator,) = (each for each in operators_of(raw) if each.id == CONVOLUTION)
    assert (operator.type, operator.module) == ("ConvBiasForward", "conv2")
    assert operator.name == "conv_bias(conv1,conv2.weight,conv2.bias)[19]"
    assert operator.inputs == (
        TensorFact((1, 16, 8, 8), "QuantizedS8"),
        TensorFact((32, 16, 3, 3), "QuantizedS8"),
        TensorFact((1, 32, 1, 1), "QuantizedS32"),
    )
    assert operator.outputs == (TensorFact((1, 32, 8, 8), "QuantizedS8"),)  # not the workspace
    # Two for each multiply-add, and two for each result: its bias and the ReLU.
    assert operator.flops == 2 * 16 * 9 * 32 * 64 + 2 * 32 * 64
    assert operator.size_bytes == 7808
    assert operator.workspace_bytes is not None
    assert operator.parameters["stride_h"] == 1
    assert operator.source == "derived"
    assert operator.algorithm is None


def test_operations_that_nobody_knows_are_none(raw: RawProfile) -> None:
    operators = operators_of(raw)
    unknown = {each.type for each in operators if each.flops is None}
    assert unknown == {"ComputingGraphImpl::CallbackCaller"}
    # What moves or converts values computes nothing.
    assert {each.type for each in operators if each.flops == 0} == {
        *("ImmutableTensor", "Host2DeviceCopy", "TypeCvt", "Reshape")
    }


@pytest.mark.parametrize(
    ("type", "parameters", "flops"),
    [
        ("PowC", {"exp": 2.0}, 30),
        ("ElemwiseMultiType", {"mode": "QFUSE_ADD_RELU"}, 60),
        ("Reduce", {"mode": "SUM"}, 60),
        ("Reduce", {"mode": "SUM_SQR"}, 120),
        ("SoftmaxForward", {"axis": 1}, 150),
        ("PoolingForward", {}, None),  # whose window is not known
        ("Subtensor", {}, 0),
        ("ExternCOprRunner", {}, None),
    ],
)
def test_operations_come_from_shapes(
    type: str, parameters: dict[str, Any], flops: int | None
) -> None:
    inputs, outputs = [TensorFact((3, 20), "float32")], [TensorFact((3, 10), "float32")]
    known = RawFootprint(param=parameters)
    assert flops_of_operator(type, inputs, outputs, known) == flops


def test_a_shape_that_only_the_host_reads_is_known(raw: RawProfile) -> None:
    (reshape,) = (each for each in operators_of(raw) if each.type == "Reshape")
    assert [fact.shape for fact in reshape.inputs] == [(1, 32, 2, 2), (2,)]
    assert [fact.dtype for fact in reshape.inputs] == ["float32", ""]


def test_an_operator_without_footprint_has_the_shapes_of_its_variables(raw: RawProfile) -> None:
    bare = raw_after(lambda document: document["profiler"]["opr_footprint"].pop(CONVOLUTION))
    assert len(operators_of(bare)) == 20
    (operator,) = (each for each in operators_of(bare) if each.id == CONVOLUTION)
    (known,) = (each for each in operators_of(raw) if each.id == CONVOLUTION)
    assert (operator.inputs, operator.outputs) == (known.inputs, known.outputs)
    assert (operator.flops, operator.size_bytes, operator.source) == (None, None, "none")


def test_what_picks_elements_is_read_with_its_list_and_without_a_layout() -> None:
    def pick(document: Any) -> None:
        footprint = document["profiler"]["opr_footprint"][CONVOLUTION]
        footprint["in_layouts"] = [[1, 16, 8, 8], None, [1]]
        footprint["param"] = [{"axis": 1, "begin": 1}]

    (operator,) = (each for each in operators_of(raw_after(pick)) if each.id == CONVOLUTION)
    assert [fact.layout for fact in operator.inputs] == ["1,16,8,8", "", "1"]
    assert operator.parameters == {"items": [{"axis": 1, "begin": 1}]}


@pytest.mark.parametrize(
    ("inputs", "outputs", "module"),
    [
        (["relu", "layer1.0.conv.weight"], ["layer1.0.sum"], "layer1.0.conv"),
        (["relu"], ["layer1.0.sum"], "layer1.0"),
        (["relu"], ["conv(a.b,c)[1]"], ""),
        ([], [], ""),
    ],
)
def test_the_layer_comes_from_names(inputs: list[str], outputs: list[str], module: str) -> None:
    assert module_of(inputs, outputs) == module


def test_times_are_nanoseconds_on_the_clocks_they_are_brought_to(raw: RawProfile) -> None:
    places = places_of(raw)
    times = raw.profiler
    (device,), (host,) = (each[CONVOLUTION].values() for each in (times.device, times.host))
    (plain,) = (each for each in executions_of(raw, places) if each.operator == places[CONVOLUTION])
    assert plain.start_ns == round(device.start * 1e6) * 1000
    assert plain.duration_ns == round((device.end - device.start) * 1e6) * 1000
    assert plain.wait_ns == round((device.kern - device.start) * 1e6) * 1000
    assert plain.dispatch_ns == round((host.end - host.start) * 1e6) * 1000
    assert (plain.thread, plain.dispatch_thread) == (2, 1)
    later = executions_of(raw, places, step=3, warmup=True)[0]
    assert (later.step, later.warmup) == (3, True)


def test_threads_are_the_dispatching_one_and_one_for_each_computing_node(raw: RawProfile) -> None:
    assert threads_of(raw) == {1: "host", 2: "cpu0:0"}

    def compute_twice(document: Any) -> None:
        for section, other in (("device", 'CompNode("gpu1:0" from "gpu1:0")'), ("host", "second")):
            of_operator = document["profiler"][section][CONVOLUTION]
            (times,) = of_operator.values()
            of_operator[other] = {**times, "end": times["end"] + 1}

    twice = raw_after(compute_twice)
    assert threads_of(twice) == {1: "host", 2: "cpu0:0", 3: "gpu1:0", 4: "host 3"}
    places = places_of(twice)
    found = [each for each in executions_of(twice, places) if each.operator == places[CONVOLUTION]]
    assert [(each.thread, each.dispatch_thread) for each in found] == [(2, 4), (3, 4)]


def test_what_is_computed_in_place_is_on_the_thread_that_dispatches() -> None:
    text = DATA.read_text().replace("cpu0:0", "cpu:default")
    raw = decode_raw(text.encode())
    assert threads_of(raw) == {1: "host"}
    assert {each.thread for each in executions_of(raw, places_of(raw))} == {1}


@pytest.mark.parametrize(
    ("node", "device"),
    [("cpu0:0", "cpu"), ("cpu:default", "cpu"), ("multithread2:0", "cpu"), ("gpu0:0", "cuda")],
)
def test_a_computing_node_is_on_a_cpu_or_a_device(node: str, device: str) -> None:
    raw = decode_raw(DATA.read_text().replace("cpu0:0", node).encode())
    assert device_of(raw) == device


def test_the_memory_plan_is_what_lives_while_it_runs(raw: RawProfile) -> None:
    plan = memory_plan_of(raw, places_of(raw))
    assert plan.static_bytes == 34816  # as the engine has it in its log
    names = [operator.name for operator in operators_of(raw)]
    chunks = {chunk.owner: chunk for chunk in plan.chunks}
    weight = chunks["conv2.weight"]
    assert (weight.size_bytes, weight.first_operator, weight.last_operator) == (4608, None, None)
    result = chunks["conv1"]
    assert result.first_operator is not None
    assert result.last_operator is not None
    assert names[result.first_operator].endswith("conv1.bias)[10]")
    assert names[result.last_operator].endswith("conv2.bias)[19]")
    # What lives at the same time lies apart.
    living = [chunk for chunk in plan.chunks if chunk.first_operator is not None]
    for one in living:
        for other in living:
            if one is not other and one.address < other.address < one.address + one.size_bytes:
                first, second = sorted((one, other), key=lambda each: each.first_operator or 0)
                assert (first.last_operator or 0) < (second.first_operator or 0)


def test_a_file_is_a_profile_of_one_iteration() -> None:
    data = DATA.read_bytes()
    profile = profile_of_raw(data)
    (step,) = profile.timed_steps()
    assert (step.start_ns, step.end_ns) == (
        min(each.start_ns for each in profile.executions),
        max(each.end_ns for each in profile.executions),
    )
    assert (profile.facts.engine, profile.on_device) == ("megengine", False)
    assert profile.engine_raw == data
    again = decode_any(encode_profile(profile), "profile")
    assert (again.executions, again.operators) == (profile.executions, profile.operators)
    assert json.loads(again.engine_raw) == json.loads(data)


def break_variable(document: Any) -> None:
    document["graph_exec"]["operator"][CONVOLUTION]["input"].append("9999")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (DATA.read_bytes()[:5000], "is not a profile, or was cut short"),
        (b'{"profiler":{"device":{},"host":{}},"graph_exec":0}', "is damaged, or no profile"),
        (
            b'{"profiler":{"device":{"7":{}},"host":{}},"graph_exec":{"operator":{},"var":{}}}',
            "is damaged: operator 7 is not in it",
        ),
    ],
)
def test_what_is_no_profile_is_told_in_one_line(content: bytes, said: str) -> None:
    with pytest.raises(UsageError) as caught:
        decode_any(content, "some.json")
    assert caught.value.message.startswith(f"some.json: {said}")
    assert "\n" not in caught.value.message


def test_a_missing_variable_is_told() -> None:
    with pytest.raises(ValueError, match="variable 9999 is not in it"):
        raw_after(break_variable)


def test_a_profile_without_operators_is_one_without_steps() -> None:
    empty = {
        "profiler": {"device": {}, "host": {}},
        "graph_exec": {"operator": {}, "var": {}, "comp_seq": [], "mem_chunk": {}},
    }
    profile = profile_of_raw(msgspec.json.encode(empty))
    assert (profile.steps, profile.executions, profile.operators) == ((), (), ())
    assert profile.memory_plan.static_bytes is None


def test_the_graph_is_recorded(raw: RawProfile) -> None:
    operators = {each.name: each for each in operators_of(raw)}
    (conv,) = (each for each in operators.values() if each.id == CONVOLUTION)
    data, *weights = conv.reads
    assert conv.weights == tuple(weights)
    assert [each.type for each in operators.values() if data in each.writes]
    assert len({key for each in operators.values() for key in each.writes}) == 19


# A convolution of 8 channels to 48 and a depthwise one, with a bias: the shapes of the data, the
# filter and the result in each layout, and what the engine counts.
POINTWISE, DEPTHWISE = 2 * 16 * 8 * 48 + 16 * 48, 2 * 16 * 9 * 48 + 16 * 48
LAYOUTS = {
    "NCHW": ((1, 8, 4, 4), (48, 8, 1, 1), (1, 48, 4, 4), POINTWISE),
    "NCHW44": ((1, 2, 4, 4, 4), (12, 2, 1, 1, 4, 4), (1, 12, 4, 4, 4), POINTWISE),
    "NCHW88": ((1, 1, 4, 4, 8), (6, 1, 1, 1, 8, 8), (1, 6, 4, 4, 8), 2 * 16 * 48 + 16 * 48),
}
DEPTHWISE_LAYOUTS = {
    "NCHW": ((1, 48, 4, 4), (48, 1, 1, 3, 3), (1, 48, 4, 4), DEPTHWISE),
    "NCHW44": ((1, 12, 4, 4, 4), (12, 1, 1, 3, 3, 4), (1, 12, 4, 4, 4), DEPTHWISE),
    "NCHW88": ((1, 6, 4, 4, 8), (6, 1, 1, 3, 3, 8), (1, 6, 4, 4, 8), DEPTHWISE),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(
    ("shapes", "flops"), [(LAYOUTS, POINTWISE), (DEPTHWISE_LAYOUTS, DEPTHWISE)]
)
def test_a_convolution_has_the_same_operations_in_every_layout(
    layout: str, shapes: dict[str, tuple[Any, Any, Any, int]], flops: int
) -> None:
    data, filter, result, counted = shapes[layout]
    bias = (1, *result[1:2], 1, 1, *result[4:])
    inputs = [TensorFact(each, "float32") for each in (data, filter, bias)]
    known = RawFootprint(computation=counted, param={"format": layout})
    outputs = [TensorFact(result, "float32")]
    assert flops_of_operator("ConvBiasForward", inputs, outputs, known) == flops
