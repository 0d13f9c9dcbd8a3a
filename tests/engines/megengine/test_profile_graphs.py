"""Graphs of a profiled run: their operators, what those move, and the memory in use."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from lar.dumps.facts import Kernel
from lar.engines.megengine.algorithms import algorithms_in
from lar.engines.megengine.profile import (
    ProfiledGraphs,
    allocations_of,
    executions_of,
    kernel_of,
    memory_plan_of,
    operators_of,
    spans_of,
)
from lar.engines.operator_times import bytes_of
from lar.records.profile import Execution, MemoryChunk, MemoryPlan, TensorFact
from tests.engines.megengine.raw_profiles import raw_after

LOG = (
    "ConvBiasForward: tensor layouts({1(1024),16(64),8(8),8(1) QuantizedS8} , "
    "{32(144),16(9),3(3),3(1) QuantizedS8} , {1(32),32(1),1(1),1(1) QuantizedS32} , { } ) -> "
    "({1(2048),32(64),8(8),8(1) QuantizedS8} )): algo=IM2COL workspace=0.02MiB attribute=1\n"
)


def renumber(document: Any) -> None:
    """Give the operators other ids, in their keys and in their names."""
    text = json.dumps(document["graph_exec"]["operator"])
    graph = document["graph_exec"]
    ids = {key: str(int(key) + 1000) for key in graph["operator"]}
    graph["operator"] = {}
    for key, each in json.loads(text).items():
        name = each["name"].replace(f"[{key}]", f"[{ids[key]}]")
        graph["operator"][ids[key]] = {**each, "id": ids[key], "name": name}
    graph["comp_seq"] = [ids[key] for key in graph["comp_seq"]]
    times = document["profiler"]
    for part in ("device", "host", "opr_footprint"):
        times[part] = {ids[key]: each for key, each in times[part].items()}


def enlarge(document: Any) -> None:
    """Have the variables of a batch of one be of three, as a run with another shape tells it."""
    for variable in document["graph_exec"]["var"].values():
        plan = variable["mem_plan"]
        if plan and len(plan["layout"]["shape"]) > 1 and plan["layout"]["shape"][0] == 1:
            if variable["name"].endswith((".bias", ".weight")):
                continue
            plan["layout"]["shape"][0] = 3


def test_iterations_of_one_graph_have_the_same_operators() -> None:
    graphs = ProfiledGraphs()
    first, second = graphs.places_in(raw_after()), graphs.places_in(raw_after())
    assert first is second
    assert list(first.values()) == list(range(20))


def test_a_graph_that_is_compiled_again_has_the_same_operators() -> None:
    graphs = ProfiledGraphs()
    first, second = graphs.places_in(raw_after()), graphs.places_in(raw_after(renumber))
    assert len(graphs.operators) == 20
    assert set(first).isdisjoint(second)
    assert list(first.values()) == list(second.values())


def test_an_operator_in_another_shape_is_another_with_its_own_figures() -> None:
    graphs = ProfiledGraphs()
    first = graphs.places_in(raw_after())
    small = list(graphs.operators)
    places = graphs.places_in(raw_after(enlarge))
    assert graphs.operators[:20] == small
    for operator in small:
        larger = graphs.operators[places[operator.id]]
        if operator.type != "ConvBiasForward":
            continue
        assert operator.flops is not None
        assert larger.flops == 3 * operator.flops
        assert larger.outputs[0].shape == (3, *operator.outputs[0].shape[1:])
        assert larger.size_bytes == bytes_of((*larger.inputs, *larger.outputs))
    constants = [each for each in graphs.operators if each.type == "ImmutableTensor"]
    assert len(constants) == sum(each.type == "ImmutableTensor" for each in small)
    assert graphs.places_in(raw_after()) == first


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


def test_a_size_is_that_of_the_elements() -> None:
    sizes = {"float32": 24, "float16": 12, "QuantizedS8": 6, "Quantized4Asymm": 3, "bool": 6}
    for dtype, size in {**sizes, "int32": 24, "made up": None}.items():
        assert bytes_of((TensorFact((2, 3), dtype),)) == size


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


def test_views_constants_and_forwarded_pointers_have_no_bytes() -> None:
    sizes = sizes_of()
    for type in ("ImmutableTensor", "Host2DeviceCopy", "Reshape"):
        assert sizes[type] == {0}, type
    moved = sizes_of(copy_everything)
    assert moved["Host2DeviceCopy"] == {2 * 256}  # read on the host, and written
    assert moved["Reshape"] == {2 * 512}
    data = [each.flops for each in operators_of(raw_after()) if each.type == "ImmutableTensor"]
    assert set(data) == {0}


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
            if operator["type"] == "PoolingForward":
                operator["type"] = "IndexingOneHot"

    assert sizes_of()["PoolingForward"] == {2560, 640}
    assert sizes_of(pick)["IndexingOneHot"] == {2 * 512, 2 * 128}


def test_copies_and_conversions_are_spans_of_their_operators() -> None:
    assert moved("cpu", copy_everything) == [
        (
            *("memcpy", "[CPU memcpy HtoH]", "Host2DeviceCopy", 256),
            *(("host", "host"), None, 3),
        ),
        ("relayout", "[relayout]", "Reshape", 512, (None, None), None, 3),
    ]


def test_on_a_device_the_input_comes_from_the_host() -> None:
    copy, relayout = moved("cuda:0", copy_everything)
    assert copy[1:] == (
        *("[CUDA memcpy HtoD]", "Host2DeviceCopy", 256, ("host", "device"), "cuda:0", 3),
    )
    assert relayout[-2:] == ("cuda:0", 3)


def test_kernels_of_a_device_are_named_by_their_algorithms() -> None:
    graphs, raw = ProfiledGraphs(), raw_after(copy_everything)
    executions = executions_of(raw, graphs.places_in(raw), step=3)
    operators = graphs.operators_with(algorithms_in(LOG))
    found = spans_of(operators, executions, "cuda:0")
    spans = [span for span in found if span.category == "kernel"]
    names = [span.name for span in spans]
    assert names.count("IM2COL") == 1
    assert "ConvBiasForward" in names
    assert "Host2DeviceCopy" not in names
    for span in spans:
        assert (span.category, span.device, span.stream) == ("kernel", "cuda:0", span.thread)
        assert span.duration_ns > 0


# Memory


def test_memory_is_taken_by_the_first_operator_and_given_back_by_the_last() -> None:
    executions = [Execution(index, 0, 1, index * 100, index * 100 + 90) for index in range(3)]
    chunks = [MemoryChunk(0, 200, "a", 0, 1), MemoryChunk(200, 100, "b", 1, 2)]
    chunks += [MemoryChunk(900, 50, "weight"), MemoryChunk(0, 200, "not executed", 7, 8)]
    taken = allocations_of(MemoryPlan(300, tuple(chunks)), executions, "cpu")
    assert [(each.at_ns, each.size_bytes, each.operator, each.address) for each in taken] == [
        (0, 200, 0, 0),
        (100, 100, 1, 200),
        (190, -200, 1, 0),
        (290, -100, 2, 200),
    ]
    assert {each.source for each in taken} == {"static plan"}


def test_an_operator_that_writes_over_its_input_takes_its_place() -> None:
    executions = [Execution(index, 0, 1, index * 100, index * 100 + 90) for index in range(3)]
    plan = MemoryPlan(64, (MemoryChunk(0, 64, "a", 0, 1), MemoryChunk(0, 64, "b", 1, 2)))
    taken = allocations_of(plan, executions, "cpu")
    events = [(each.at_ns, each.size_bytes) for each in taken]
    assert events == [(0, 64), (100, -64), (100, 64), (290, -64)]


def test_the_plan_of_a_model_is_never_exceeded() -> None:
    graphs, raw = ProfiledGraphs(), raw_after()
    places = graphs.places_in(raw)
    plan = memory_plan_of(raw, places)
    held = most = 0
    for each in allocations_of(plan, executions_of(raw, places), "cpu"):
        held += each.size_bytes
        assert held >= 0
        most = max(most, held)
    assert held == 0
    assert plan.static_bytes is not None
    assert 0 < most <= plan.static_bytes
