"""What ONNX Runtime tells of a profiled run: operators, their times, work and memory."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest

from lar.engines.onnx_file.contents import read_model
from lar.engines.onnx_file.fields import Message
from lar.engines.onnxruntime.kernels import VIEWS, OptimizedGraph, kernel_kind
from lar.engines.onnxruntime.profile import NO_PARTS, SessionProfiler, module_of
from lar.engines.onnxruntime.profile_file import events_in, runs_in
from lar.engines.onnxruntime.saving import save_optimized
from lar.engines.operator_times import decode_any, read_profile
from lar.errors import LarError
from lar.measurement.loop import take_samples
from lar.measurement.rows import SampleRows
from lar.records.profile import Profile, TensorFact
from lar.worker.recorder import Recorder
from tests.conftest import RunLar
from tests.engines.onnx_models import save_model, text_of
from tests.engines.onnxruntime.drivers import (
    DIGITS,
    EACH,
    LEVELS,
    MOBILENET,
    MODELS,
    MakeDriver,
    feed_driver,
)
from tests.tables import each_row

ProfileModel = Callable[..., Profile]


@pytest.fixture
def profile_model(make_driver: MakeDriver, tmp_path: Path) -> ProfileModel:
    """Profile one warm-up and some timed iterations of a model, and read the profile."""

    def profile(model: Path, iterations: int = 2, *, feeds: Any = None, **settings: Any) -> Profile:
        place = str(tmp_path / "profile.json")
        driver = make_driver(model, profile=place, **settings)
        rows, recorder = SampleRows.anonymous(9), Recorder()
        recorder.attach(driver)
        driver.load()
        for index, feed in enumerate(feeds or [feed_driver]):
            feed(driver)
            if index == 0:
                with recorder.warming_up():
                    take_samples(driver, 1, rows, None)
            take_samples(driver, iterations, rows, None)
        recorder.write(1)
        return read_profile(place)

    return profile


def feed_ones(batch: int) -> Callable[[Any], None]:
    """Return what feeds a driver with ones, so many items at once."""

    def feed(driver: Any) -> None:
        (info,) = driver.inputs()
        driver.feed({info.name: np.ones([size or batch for size in info.shape], info.dtype)})

    return feed


def flops_in(profile: Profile) -> int:
    """The operations of the first timed iteration."""
    places = [each.operator for each in profile.executions if each.step == 0]
    return sum(profile.operators[place].flops or 0 for place in places)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("model", EACH, ids=lambda path: path.stem)
def test_every_operator_of_the_graph_that_runs_is_told_once_in_each_iteration(
    profile_model: ProfileModel, make_driver: MakeDriver, tmp_path: Path, model: Path, level: str
) -> None:
    """One after the other within the call."""
    found = profile_model(model, graph_optimization_level=level)
    other = make_driver(model, graph_optimization_level=level)
    other.fire_hooks("before_load")
    save_optimized(other, tmp_path / "optimized.onnx", "weights")
    graph = onnx.load(tmp_path / "optimized.onnx", load_external_data=False).graph
    expected = sorted((node.op_type, node.name) for node in graph.node)
    for step in found.steps:
        ran = [
            found.operators[each.operator] for each in found.executions if each.step == step.number
        ]
        assert sorted((operator.type, operator.name) for operator in ran) == expected
    assert [step.warmup for step in found.steps] == [True, False, False]
    assert {each.warmup for each in found.executions if each.step < 0} == {True}
    calls = {each.step: each for each in found.spans if each.name == "forward"}
    last = 0
    for each in found.executions:
        call = calls[each.step]
        assert max(call.start_ns, last) <= each.start_ns <= each.end_ns <= call.end_ns
        assert (each.thread, each.wait_ns, each.dispatch) == (1, None, None)
        last = each.end_ns
    (alignment,) = found.facts.clock.align
    assert alignment.domain == "onnxruntime"
    assert alignment.error_ns is not None
    assert alignment.error_ns < 1e9
    assert NO_PARTS in found.facts.dropped


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize(
    "name", ["digits_cnn", "dynamic_batch", "int8", "mobilenet_v2", "uint8_input"]
)
def test_flops_are_those_of_the_model_however_it_is_optimised(
    profile_model: ProfileModel, name: str, level: str
) -> None:
    model = MODELS / f"{name}.onnx"
    found = profile_model(model, 1, feeds=[feed_ones(1)], graph_optimization_level=level)
    # Of one item; a batch normalisation that is folded away takes no work of its own any more.
    assert flops_in(found) == pytest.approx(read_model(model).flops, rel=0.04)
    assert all(operator.source == "derived" for operator in found.operators)
    assert all(operator.size_bytes or operator.type in VIEWS for operator in found.operators)


def test_weights_that_are_rearranged_at_load_count(profile_model: ProfileModel) -> None:
    found = profile_model(DIGITS, feeds=[feed_ones(1)])
    (gemm,) = [operator for operator in found.operators if operator.type == "Gemm"]
    facts = [(1, 128), (10, 128), (10,)]
    assert gemm.inputs == tuple(TensorFact(shape, "float32") for shape in facts)
    assert gemm.outputs == (TensorFact((1, 10), "float32"),)
    assert gemm.flops == 2 * 128 * 10 + 10
    assert gemm.size_bytes == 4 * (128 + 1280 + 10 + 10)
    assert gemm.module == "logits"
    assert gemm.provider == "CPUExecutionProvider"
    assert gemm.parameters["transB"] == 1


def test_the_blocked_layout_is_told(profile_model: ProfileModel) -> None:
    blocked = profile_model(DIGITS)
    layouts = {fact.layout for each in blocked.operators for fact in each.outputs}
    if "ReorderOutput" not in {each.type for each in blocked.operators}:
        pytest.skip("ONNX Runtime has no blocked layout for this processor")
    (layout,) = layouts - {""}
    assert re.fullmatch(r"NCHW\d+c", layout)
    plain = profile_model(DIGITS, disable_optimizer="NchwcTransformer")
    assert {fact.layout for each in plain.operators for fact in each.outputs} == {""}
    assert "FusedConv" in {each.type for each in plain.operators}


def test_what_the_engine_does_to_load_is_within_the_load(profile_model: ProfileModel) -> None:
    named = {span.name: span for span in profile_model(DIGITS).spans if span.category == "runtime"}
    inner = named["session_initialization"]
    assert inner.step is None
    assert inner.duration_ns > 0
    assert named["model_loading_uri"].end_ns <= inner.start_ns + 1000
    assert named["InferenceSession.run_with_iobinding"].step == 1


def test_nodes_without_names_are_found(profile_model: ProfileModel, tmp_path: Path) -> None:
    weights = {"w": np.ones((3, 5), np.float32), "v": np.ones((5, 7), np.float32)}
    model = save_model(tmp_path / "unnamed.onnx", text_of("without_names"), weights)
    found = profile_model(model, graph_optimization_level="disable")
    assert {operator.name: operator.flops for operator in found.operators} == {
        "MatMul_0": 2 * 2 * 3 * 5,
        "MatMul_1": 2 * 2 * 5 * 7,
        "Sigmoid_2": 2 * 5,
        "Concat_3": 0,
    }


def test_an_operator_counts_anew_for_other_shapes(profile_model: ProfileModel) -> None:
    found = profile_model(MODELS / "dynamic_batch.onnx", 1, feeds=[feed_ones(1), feed_ones(3)])
    logits = [operator for operator in found.operators if operator.name == "logits"]
    assert [operator.outputs[0].shape for operator in logits] == [(1, 8), (3, 8)]
    first, second = (operator.flops for operator in logits)
    assert first is not None
    assert second == 3 * first
    assert len({operator.id for operator in found.operators}) == len(found.operators)
    last = [each.operator for each in found.executions if each.step == 1]
    assert [found.operators[index].outputs[0].shape[0] for index in last] == [3, 3]


def test_memory_is_estimated_from_tensors_and_their_last_use(
    profile_model: ProfileModel, tmp_path: Path
) -> None:
    model = save_model(tmp_path / "memory.onnx", text_of("view_between"))
    settings: dict[str, Any] = {"graph_optimization_level": "disable"}
    assert profile_model(model, **settings).allocations == ()
    found = profile_model(model, profile_memory=True, **settings)
    step = found.steps[1]
    told = [
        (found.operators[each.operator or 0].name, each.size_bytes)
        for each in found.allocations
        if step.start_ns <= each.at_ns <= step.end_ns
    ]
    # The view takes nothing, and holds what it shows until `last` has read it.
    assert Counter(told) == Counter(
        {("first", 400): 1, ("second", 400): 1, ("last", 800): 1}
        | {("last", -400): 2, ("last", -800): 1}
    )
    assert {each.source for each in found.allocations} == {"estimate"}
    held = 0
    for each in found.allocations:
        held += each.size_bytes
        assert 0 <= held <= 1600
    assert held == 0


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_of_a_session_share_the_work(profile_model: ProfileModel, threads: int) -> None:
    wanted = ["host", *["intra-op 1"] * (threads - 1)]
    for _ in range(5):  # beside other work a thread may come too late for its part
        found = profile_model(MOBILENET, multithread=threads)
        if list(found.threads.values()) == wanted:
            break
    assert found.facts.threads == threads
    assert list(found.threads.values()) == wanted
    uses = [it.threads for it in found.operators if it.type == "Conv"]
    known = [use for use in uses if use is not None]
    assert len(known) == (len(uses) if threads > 1 else 0)
    assert {use.executions for use in known} == ({2} if known else set())
    # Beside other work the engine counts what the caller computes as handing out.
    assert (sum(use.computing_ns + use.handing_out_ns for use in known) > 0) == (threads > 1)


def test_a_cached_model_is_profiled_as_it_runs(profile_model: ProfileModel, tmp_path: Path) -> None:
    expected = profile_model(DIGITS)
    settings = {"fast_run": True, "fast_run_algo_policy": str(tmp_path / "model.cache")}
    for _ in range(2):  # built, then read
        found = profile_model(DIGITS, **settings)
        for mine, theirs in zip(found.operators, expected.operators, strict=True):
            assert (mine.name, mine.type, mine.flops) == (theirs.name, theirs.type, theirs.flops)
        assert len(found.executions) == len(expected.executions)


def test_sessions_besides_the_driver_s_write_no_profile(
    profile_model: ProfileModel, tmp_path: Path
) -> None:
    assert len(profile_model(DIGITS, range=1e6).steps) == 3
    assert len([*tmp_path.glob("onnxruntime_*.json")]) == 1


def test_a_graph_that_cannot_be_saved_leaves_work_unknown(
    profile_model: ProfileModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, level: str) -> None:
        raise RuntimeError("[ONNXRuntimeError] : 1 : FAIL : contains compiled nodes")

    monkeypatch.setattr("lar.engines.onnxruntime.profile.save_optimized", refuse)
    found = profile_model(DIGITS, profile_memory=True)
    assert {(operator.source, operator.flops) for operator in found.operators} == {("none", None)}
    assert found.operators[0].outputs  # the shapes are the engine's own
    assert any("contains compiled nodes" in line for line in found.facts.dropped)
    assert found.allocations == ()


def test_a_run_writes_both_profiles_and_tells_the_cost(run_lar: RunLar, tmp_path: Path) -> None:
    profile, raw = tmp_path / "p.json", tmp_path / "raw.json"
    ended = run_lar(
        *(str(DIGITS), "--iter", "3", "--copy-to-host", "--profile", str(profile)),
        *("--profile-raw", str(raw), "--profile-memory", "--range-by", "relu=activations"),
        code=0,
    )
    line = rf"^profile: {re.escape(str(profile))}; .*ms with the profiler, "
    assert re.search(line, ended.stdout, re.MULTILINE)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.json", "raw.json"]
    found = read_profile(profile)
    assert found.facts.cost is not None
    assert found.facts.cost.profiled_iterations == 3
    assert {"output_copy", "forward"} <= {span.name for span in found.spans_of("phase")}
    assert {span.name for span in found.spans_of("user_annotation")} == {"activations"}
    # The raw file is the engine's, and can be reported by itself.
    assert Counter(event["name"] for event in json.loads(raw.read_bytes()))["model_run"] == 4
    plain = decode_any(raw.read_bytes(), "raw.json")
    assert [each.name for each in plain.operators] == [each.name for each in found.operators]
    assert len(plain.steps) == 4
    assert {operator.source for operator in plain.operators} == {"none"}


def test_the_raw_profile_alone_is_made_without_a_second_run(
    run_lar: RunLar, tmp_path: Path
) -> None:
    run_lar(str(DIGITS), "--iter", "2", "--profile-raw", "raw.json", cwd=tmp_path, code=0)
    assert len([*runs_in(events_in(str(tmp_path / "raw.json")), [])]) == 3


@each_row("engines/onnxruntime/profile/modules")
def test_the_module_is_the_path_in_the_names(
    name: str, known: dict[str, Any], main: dict[str, Any], module: str
) -> None:
    assert module_of(name, known, Message("Node", **main) if main else None) == module


def test_a_profile_that_the_engine_could_not_write_is_told(tmp_path: Path) -> None:
    file = tmp_path / "onnxruntime.json"
    file.write_text('[{"cat" : "Session","pid" :1,')
    session = SimpleNamespace(
        get_profiling_start_time_ns=lambda: 0, end_profiling=lambda: str(file)
    )
    driver: Any = SimpleNamespace(session=session, drop_session=lambda: None)
    profiler = SessionProfiler(driver)
    with pytest.raises(LarError, match="could not write the whole of its profile"):
        profiler.end()


def test_operators_have_the_kinds_of_their_kernels(profile_model: ProfileModel) -> None:
    found = profile_model(MOBILENET, 1, graph_optimization_level="basic")
    kinds = Counter(operator.algorithm for operator in found.operators if operator.algorithm)
    assert kinds["Conv 3x3/2 NCHW"] == kinds["Gemm one row by weights"] == 1
    # Layouts do not hide what a convolution is.
    for profile in (found, profile_model(MOBILENET, 1)):
        told = [it.algorithm or "" for it in profile.operators if it.type == "Conv"]
        assert sum("depthwise 3x3" in kind for kind in told) == 17
        assert sum("pointwise 1x1" in kind for kind in told) == 34


@pytest.mark.parametrize("settings", [{}, {"multithread": 2}])
def test_threads_without_work_count_too(
    profile_model: ProfileModel, settings: dict[str, int]
) -> None:
    """A session computes on all cores if no option says otherwise."""
    found = profile_model(MODELS / "one_operator.onnx", 1, **settings)
    assert found.facts.threads == settings.get("multithread", len(os.sched_getaffinity(0)))


def test_of_another_provider_no_threads_are_known(make_driver: MakeDriver) -> None:
    """Without --cuda too, where the run names no device."""
    other, own = (make_driver(DIGITS, provider=each) for each in ("cuda", "cpu"))
    assert (other.spec.device, other.thread_count(), other.facts().threads) == ("cpu", None, None)
    assert own.thread_count() == own.facts().threads == len(os.sched_getaffinity(0))


# The kind of kernel that a convolution or a product has, from the optimised graph


Shape = Sequence[int]
X = (1, 8, 9, 9)


def kind_of(
    operator: str,
    shape: Shape,
    weights: Shape,
    made: Shape = (1, 8, 9, 9),
    *,
    layouts: Sequence[str] = ("", ""),
    types: Sequence[str] = ("float32", "float32"),
    constant: str = "w",
    filled: Shape | None = None,
    **parameters: Any,
) -> str | None:
    """The kind for these shapes; the weights are the second input, or the fourth of QLinear."""
    names = ["x", "s", "z", "w"] if operator.startswith(("QLinear", "QGemm")) else ["x", "w"]
    facts = {
        "x": TensorFact(tuple(shape), types[0], layouts[0]),
        "w": TensorFact(tuple(filled or weights), types[1], ""),
        "y": TensorFact(tuple(made), types[0], layouts[1]),
    }
    constants = {name: facts[name] for name in constant}
    filters = {"w": tuple(weights)} if filled else {}
    node = Message("Node", op_type=operator, input=names, output=["y"])
    return kernel_kind(node, parameters, facts, constants, filters)


@each_row("engines/onnxruntime/kernels/convolutions")
def test_convolutions(operator: str, given: dict[str, Any], kind: str) -> None:
    """Of weights that were filled up to blocks, the network's own decide."""
    found = {"shape": X, "weights": (8, 8, 3, 3), **given}
    assert kind_of(operator, **found) == f"{operator} {kind}"


@each_row("engines/onnxruntime/kernels/products")
def test_products(operator: str, shapes: list[list[int]], given: dict[str, Any], kind: str) -> None:
    assert kind_of(operator, *shapes, **given) == f"{operator} {kind}"


def test_other_operators_and_unknown_tensors_have_no_kind() -> None:
    assert kind_of("Relu", X, X) is None
    for names in (["x"], ["x", "w"]):
        conv = Message("Node", op_type="Conv", input=names, output=["y"])
        assert kernel_kind(conv, {}, {}, {}, {}) is None


@each_row("engines/onnxruntime/kernels/filled")
def test_channels_that_fill_blocks_are_no_work(
    before: list[Any], weights: Any, after: list[Any], filled: Any, known: Any, mains: Any
) -> None:
    """The engine lists neither the weights that it has rearranged nor the channels of before."""

    def model(nodes: list[Any], shapes: dict[str, Any], own: str) -> bytes:
        made = [
            Message("Node", op_type=type, name=name, input=taken.split(), output=[out], domain=own)
            for type, name, taken, out in nodes
        ]
        held = [Message("Tensor", name=it, dims=dims, data_type=1) for it, dims in shapes.items()]
        outputs = [Message("Value", name=nodes[-1][3])]
        graph = Message("Graph", node=made, initializer=held, output=outputs)
        return Message("Model", graph=graph).encode()

    optimised, plain = model(after, filled, "com.microsoft.nchwc"), model(before, weights, "")
    graph = OptimizedGraph(optimised, plain, "NCHW16c")
    first, wide = (TensorFact((1, count, 8, 8), "float32") for count in (3, 16))
    inputs = [[wide if at else first] for at in range(len(graph.nodes))]
    found = [graph.known_of(*each, [wide]) for each in zip(graph.nodes, inputs, strict=True)]
    assert msgspec.json.decode(msgspec.json.encode(found)) == known
    held = TensorFact((16, 3, 3, 3), "float32")
    assert graph.known_of(graph.nodes[0], [first, held], [wide]) == found[0]
    for given, made in (([], [wide]), ([first], []), ([first, held, wide], [wide])):
        assert "flops" not in graph.known_of(graph.nodes[0], given, made)
    assert {name: main and main.name for name, main in graph.mains.items()} == mains
