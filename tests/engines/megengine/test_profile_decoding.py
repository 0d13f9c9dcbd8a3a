"""MegEngine's own profile file: one that it wrote of `models/int8.mge`, and changed ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lar.dumps import Kernel
from lar.engines.megengine.algorithms import algorithms_in
from lar.engines.megengine.profile import (
    ProfiledGraphs,
    allocations_of,
    device_of,
    executions_of,
    flops_of_operator,
    kernel_of,
    module_of,
    operators_of,
    profile_of_raw,
    spans_of,
    threads_of,
)
from lar.engines.operator_times import decode_any
from lar.profiles.megengine_file import RawFootprint, RawProfile, decode_raw
from lar.profiles.trace_file import encode_profile
from lar.records.profile import Execution, MemoryChunk, MemoryPlan, TensorFact
from tests.tables import each_row

DATA = Path(__file__).resolve().parents[2] / "data" / "megengine_profile.json"
CONVOLUTION = "19"


def raw_after(change: Callable[[Any], object] = lambda document: None) -> RawProfile:
    """The profile after a change of its JSON."""
    document = json.loads(DATA.read_bytes())
    change(document)
    return decode_raw(json.dumps(document).encode())


@pytest.fixture(scope="module")
def raw() -> RawProfile:
    return decode_raw(DATA.read_bytes())


def places_of(raw: RawProfile) -> dict[str, int]:
    return {key: index for index, key in enumerate(raw.graph_exec.comp_seq)}


def test_all_that_the_engine_tells_is_read() -> None:
    """Operators, times, memory and threads, without fields that are empty.

    A product counts two operations for each multiply-add, and two for each bias with its ReLU.
    """
    expected = json.loads(Path(__file__).with_name("profile_of_int8.json").read_text())
    content = json.loads(msgspec.json.encode(profile_of_raw(DATA.read_bytes())))
    content["operators"] = [
        {field: it for field, it in row.items() if it or it == 0} for row in content["operators"]
    ]
    assert {name: content[name] for name in expected} == expected


@each_row("engines/megengine/profiled_operators/flops")
def test_operations_come_from_shapes(
    type: str, parameters: dict[str, Any], flops: int | None
) -> None:
    inputs, outputs = [TensorFact((3, 20), "float32")], [TensorFact((3, 10), "float32")]
    assert flops_of_operator(type, inputs, outputs, RawFootprint(param=parameters)) == flops


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


@each_row("engines/megengine/profiled_operators/modules")
def test_the_layer_comes_from_names(inputs: list[str], outputs: list[str], module: str) -> None:
    assert module_of(inputs, outputs) == module


def test_executions_belong_to_the_iteration_that_is_given(raw: RawProfile) -> None:
    later = executions_of(raw, places_of(raw), step=3, warmup=True)
    assert {(each.step, each.warmup) for each in later} == {(3, True)}


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
    assert [each.end_ns - found[0].end_ns for each in found] == [0, 1_000_000_000]


@each_row("engines/megengine/cases/devices of nodes")
def test_a_computing_node_is_on_a_cpu_or_a_device(node: str, device: str) -> None:
    assert device_of(decode_raw(DATA.read_text().replace("cpu0:0", node).encode())) == device


def test_a_file_is_a_profile_of_one_iteration() -> None:
    data = DATA.read_bytes()
    profile = profile_of_raw(data)
    assert (profile.facts.engine, profile.on_device) == ("megengine", False)
    assert profile.engine_raw == data
    again = decode_any(encode_profile(profile), "profile")
    assert (again.executions, again.operators) == (profile.executions, profile.operators)
    assert json.loads(again.engine_raw) == json.loads(data)


def test_a_missing_variable_is_told() -> None:
    with pytest.raises(ValueError, match="variable 9999 is not in it"):
        raw_after(lambda it: it["graph_exec"]["operator"][CONVOLUTION]["input"].append("9999"))


def test_a_profile_without_operators_is_one_without_steps() -> None:
    empty = {
        "profiler": {"device": {}, "host": {}},
        "graph_exec": {"operator": {}, "var": {}, "comp_seq": [], "mem_chunk": {}},
    }
    profile = profile_of_raw(msgspec.json.encode(empty))
    assert (profile.steps, profile.executions, profile.operators) == ((), (), ())
    assert profile.memory_plan.static_bytes is None


def test_variables_of_one_name_have_keys_with_their_numbers() -> None:
    def rename(document: Any) -> None:
        for number in document["graph_exec"]["operator"][CONVOLUTION]["input"][1:]:
            document["graph_exec"]["var"][number]["name"] = "w"

    (conv,) = (each for each in operators_of(raw_after(rename)) if each.id == CONVOLUTION)
    assert conv.reads == ("conv1", *conv.weights) == ("conv1", "w#16", "w#18")


@each_row("engines/megengine/profiled_operators/convolutions")
def test_a_convolution_has_the_same_operations_in_every_layout(
    layout: str, data: list[int], filter: list[int], result: list[int], counted: int, flops: int
) -> None:
    """One of 8 channels to 48 and a depthwise one, with a bias; `counted` is by the engine."""
    bias = [1, *result[1:2], 1, 1, *result[4:]]
    inputs = [TensorFact(tuple(each), "float32") for each in (data, filter, bias)]
    known = RawFootprint(computation=counted, param={"format": layout})
    outputs = [TensorFact(tuple(result), "float32")]
    assert flops_of_operator("ConvBiasForward", inputs, outputs, known) == flops


# Graphs of a profiled run: what their operators move, and the memory in use


LOG = (
    "ConvBiasForward: tensor layouts({1(1024),16(64),8(8),8(1) QuantizedS8} , "
    "{32(144),16(9),3(3),3(1) QuantizedS8} , {1(32),32(1),1(1),1(1) QuantizedS32} , { } ) -> "
    "({1(2048),32(64),8(8),8(1) QuantizedS8} )): algo=IM2COL workspace=0.02MiB attribute=1\n"
)


def test_algorithms_are_found_by_type_and_shapes() -> None:
    graphs = ProfiledGraphs()
    graphs.places_in(raw_after())
    algorithms = algorithms_in(LOG + LOG.replace("IM2COL", "DIRECT"))
    named = {each.name: each.algorithm for each in graphs.operators_with(algorithms)}
    known = {name for name, algorithm in named.items() if algorithm}
    assert known == {"conv_bias(conv1,conv2.weight,conv2.bias)[19]"}
    assert set(filter(None, named.values())) == {"IM2COL or DIRECT"}
    shapes = ((1, 16, 8, 8), (32, 16, 3, 3), (1, 32, 1, 1), (1, 32, 8, 8))
    assert Kernel("ConvBiasForward", shapes) in map(kernel_of, graphs.operators)


# The engine computes on the model's input and on a view of a tensor where they are.


def moved(device: str, change: Callable[[Any], object]) -> list[tuple[object, ...]]:
    graphs, raw = ProfiledGraphs(), raw_after(change)
    executions = executions_of(raw, graphs.places_in(raw), step=3)
    return [
        (
            span.category,
            span.name,
            graphs.operators[span.operator or 0].type,
            span.size_bytes,
            (span.source_kind, span.destination_kind),
            span.device,
            span.duration_ns >= 0 and span.step,
        )
        for span in spans_of(graphs.operators, executions, device)
        if span.category != "kernel"
    ]


def copy_everything(document: Any) -> None:
    """Have the input copied, and the reshaped tensor at a place of its own."""
    graph = document["graph_exec"]
    for variable in graph["var"].values():
        variable["flag"] = []
    (reshape,) = (each for each in graph["operator"].values() if each["type"] == "Reshape")
    plan = graph["var"][reshape["output"][0]]["mem_plan"]
    graph["mem_chunk"]["own"] = {**graph["mem_chunk"][plan["mem_chunk_id"]], "id": "own"}
    plan["mem_chunk_id"] = "own"


def sizes_of(change: Callable[[Any], object] = lambda document: None) -> dict[str, set[int | None]]:
    """The bytes that operators of each type move."""
    found: dict[str, set[int | None]] = {}
    for each in operators_of(raw_after(change)):
        found.setdefault(each.type, set()).add(each.size_bytes)
    return found


def test_what_is_copied_is_read_and_written() -> None:
    moved = sizes_of(copy_everything)
    assert moved["Host2DeviceCopy"] == {2 * 256}  # read on the host, and written
    assert moved["Reshape"] == {2 * 512}


def operator_named(document: Any, type: str) -> Any:
    return next(it for it in document["graph_exec"]["operator"].values() if it["type"] == type)


def test_a_tensor_that_is_read_twice_counts_once() -> None:
    def read_twice(document: Any) -> None:
        operator = operator_named(document, "Elemwise")
        operator["input"] = [operator["input"][1]] * 2

    assert (sizes_of()["Elemwise"], sizes_of(read_twice)["Elemwise"]) == ({120}, {80})


def test_a_broadcast_tensor_counts_as_it_is_stored() -> None:
    def broadcast(document: Any) -> None:
        operator = operator_named(document, "Elemwise")
        plan = document["graph_exec"]["var"][operator["input"][1]]["mem_plan"]
        assert plan["layout"]["shape"] == [1, 10]
        plan["layout"]["stride"] = [1, 0]

    assert sizes_of(broadcast)["Elemwise"] == {40 + 4 + 40}


def test_what_picks_some_elements_reads_no_more_than_it_gives() -> None:
    def pick(document: Any) -> None:
        for operator in document["graph_exec"]["operator"].values():
            if operator["type"] in ("PoolingForward", "MatrixMul"):
                operator["type"] = "IndexingOneHot"

    sizes = sizes_of()
    assert sizes["PoolingForward"] | sizes["MatrixMul"] == {2560, 640, 512 + 5120 + 40}
    # All of the second tensor, which has the places, is read.
    assert sizes_of(pick)["IndexingOneHot"] == {2 * 512, 2 * 128, 2 * 40 + 5120}


def test_copies_and_conversions_are_spans_of_their_operators() -> None:
    copy, relayout = ("Host2DeviceCopy", 256), ("Reshape", 512, (None, None))
    assert moved("cpu", lambda document: None) == []
    assert moved("cpu", copy_everything) == [
        ("memcpy", "[CPU memcpy HtoH]", *copy, ("host", "host"), None, 3),
        ("relayout", "[relayout]", *relayout, None, 3),
    ]
    # The input of a device comes from the host.
    assert moved("cuda:0", copy_everything) == [
        ("memcpy", "[CUDA memcpy HtoD]", *copy, ("host", "device"), "cuda:0", 3),
        ("relayout", "[relayout]", *relayout, "cuda:0", 3),
    ]


def test_what_computes_on_a_device_is_a_span_with_the_name_of_its_algorithm() -> None:
    def shorten(document: Any) -> None:
        copy_everything(document)
        times = document["profiler"]["device"]
        for key, seconds in (("22", 0.0), ("32", 1e-9), ("47", 1e-6)):  # pooling, Reshape
            (own,) = times[key].values()
            own["end"] = own["kern"] + seconds

    graphs, raw = ProfiledGraphs(), raw_after(shorten)
    executions = executions_of(raw, graphs.places_in(raw), step=3)
    found = spans_of(graphs.operators_with(algorithms_in(LOG)), executions, "cuda:0")
    spans = [span for span in found if span.category == "kernel"]
    convolutions = ["ConvBiasForward", "IM2COL", "ConvBiasForward"]
    assert [span.name for span in spans] == [
        *(*["ImmutableTensor"] * 3, "TypeCvt", *convolutions),
        *("PoolingForward", "Reshape", "ImmutableTensor"),
    ]
    assert {(span.device, span.stream, span.thread) for span in spans} == {("cuda:0", 2, 2)}


# Memory


def test_memory_is_taken_by_the_first_operator_and_given_back_by_the_last() -> None:
    executions = [Execution(index, 0, 1, index * 100, index * 100 + 90) for index in range(3)]
    chunks = [MemoryChunk(200, 100, "b", 1, 2), MemoryChunk(0, 200, "a", 0, 1)]
    chunks += [MemoryChunk(900, 50, "weight"), MemoryChunk(0, 200, "not executed", 7, 8)]
    chunks += [MemoryChunk(300, 9, "half executed", 1, 8), MemoryChunk(400, 7, "same", 0, 1)]
    taken = allocations_of(MemoryPlan(300, tuple(chunks)), executions, "cpu")
    assert [(each.at_ns, each.size_bytes, each.operator, each.address) for each in taken] == [
        (0, 200, 0, 0),
        (0, 7, 0, 400),
        (100, 100, 1, 200),
        (190, -200, 1, 0),
        (190, -7, 1, 400),
        (290, -100, 2, 200),
    ]
    assert {each.source for each in taken} == {"static plan"}


def test_an_operator_that_writes_over_its_input_takes_its_place() -> None:
    executions = [Execution(index, 0, 1, index * 100, index * 100 + 90) for index in range(3)]
    plan = MemoryPlan(64, (MemoryChunk(0, 64, "b", 1, 2), MemoryChunk(0, 64, "a", 0, 1)))
    taken = allocations_of(plan, executions, "cpu")
    events = [(each.at_ns, each.size_bytes) for each in taken]
    assert events == [(0, 64), (100, -64), (100, 64), (290, -64)]
