"""Models as exporters write them: healthy pairs are the same, and a fault is named alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import lar
from lar.dumps import Dump
from lar.reports.comparison_report import counts_of
from tests.comparison.exported_models import (
    FLOAT,
    Case,
    Change,
    Models,
    RealNetwork,
    blamed,
    compare,
    draw,
    make_network,
    model_of,
    network_of,
    node,
    rename,
    set_attribute,
    set_type,
    set_weight,
)
from tests.engines.onnx_models import needs
from tests.tables import each_row

LEVELS = ("disable", "basic", "all")


@pytest.fixture(scope="module")
def original(models: Models) -> Callable[[str], Case]:
    """Return a network of the tools, written once."""
    known: dict[str, Case] = {}

    def write(name: str) -> Case:
        if name not in known:
            known[name] = models.write(make_network(name))
        return known[name]

    return write


# What the optimiser makes of a model is the model


def make_folded(kind: str) -> RealNetwork:
    """A layer without bias, and what the optimiser folds into it."""
    layers = {
        "ConvTranspose": "z = ConvTranspose <strides = [2, 2]> (x, up)",
        "biased": "z = Conv <pads = [1, 1, 1, 1]> (x, weight, bias)",
    }
    nodes = [layers.get(kind, "z = Conv <pads = [1, 1, 1, 1]> (x, weight)")]
    weights = ["float[3,8,3,3] up", "float[8,3,3,3] weight", "float[8] bias"]
    if kind == "affine":
        weights += ["float[1,8,1,1] m", "float[1,8,1,1] s", "float[1,8,1,1] a"]
        nodes += ["z1 = Mul (z, m)", "z2 = Sub (z1, s)", "folded = Add (z2, a)"]
    else:
        weights += [f'float[8] "{role}.weight"' for role in "sbmv"]
        norm = ", ".join(f'"{role}.weight"' for role in "sbmv")
        nodes.append(f"folded = BatchNormalization (z, {norm})")
    nodes += ["r = Relu (folded)", "p = GlobalAveragePool (r)", "f = Flatten (p)"]
    weights.append('float[10,8] "head.weight"')
    nodes.append('y = Gemm <transB = 1> (f, "head.weight")')
    return network_of("float[1,3,12,12] x", "float[1,10] y", weights, nodes)


def make_moved(kind: str) -> RealNetwork:
    """Data in other axes, which the optimiser moves behind what comes after."""
    x = node("MatMul", "x w", "product"), node("Transpose", "product", "turned", perm=[0, 2, 1])
    behind = {
        "Softmax": node("Softmax", "turned", "z", axis=1),
        "Split": node("Split", "turned", "z other", axis=1),
        "ReduceMean": node("ReduceMean", "turned", "z", axes=[1], keepdims=1),
        "Concat": node("Concat", "turned turned", "z", axis=2),
    }[kind]
    ends = node("Relu", "z", "y"), node("Transpose", "y", "out", perm=[0, 2, 1])
    feeds = {"x": draw(1, 6, 16)}
    return model_of([*x, behind, *ends], feeds, {"out": FLOAT}, {"w": draw(16, 8, seed=1)})


OPTIMISED: dict[str, Callable[[], RealNetwork]] = {
    **{
        f"folded {kind}": lambda kind=kind: make_folded(kind)  # type: ignore[misc]
        for kind in ("Conv", "biased", "ConvTranspose", "affine")
    },
    **{
        f"moved {kind}": lambda kind=kind: make_moved(kind)  # type: ignore[misc]
        for kind in ("Softmax", "Split", "ReduceMean", "Concat")
    },
    "attention_paddle": lambda: make_network("attention_paddle"),
    "attention_timm": lambda: make_network("attention_timm"),
    "mobile": lambda: make_network("mobile"),
    "lstm": lambda: make_network("lstm"),
}


@pytest.mark.parametrize("name", OPTIMISED)
def test_all_levels_of_optimisation_are_the_same(models: Models, name: str) -> None:
    network = OPTIMISED[name]()
    case = models.write(network)
    dumps: dict[str, Dump] = {}
    for level in LEVELS:
        place = models.folder / f"{name}.{level}".replace(" ", "_")
        once: dict[str, Any] = {"iter": 1, "warmup_iter": 0, "bin_io_dump": str(place)}
        done = lar.run(case.path, network.feeds, graph_optimization_level=level, **once)
        assert done.status == "ok", done.failure
        dumps[level] = lar.open_dump(place)
    for one, other in (*itertools.pairwise(LEVELS), (LEVELS[0], LEVELS[-1])):
        found = lar.compare(dumps[one], dumps[other])
        assert (found.finding, found.culprits) == ("same", ()), (one, other)
        assert any(it.is_output for it in found.tensors)
        assert not [it.problem for it in found.tensors if it.problem], (one, other)


# Names that say nothing


@pytest.mark.parametrize(
    ("name", "recipe"),
    [("residual", "moved 1"), ("mobile_running", "rotated"), ("attention_running", "moved 1")],
)
def test_running_numbers_are_no_names(
    models: Models, original: Callable[[str], Case], name: str, recipe: str
) -> None:
    network = make_network(name)
    moved = models.write(RealNetwork(rename(network.model, recipe), network.feeds))
    found = compare(moved, original(name))
    assert (found.finding, found.culprits) == ("same", ())
    assert all(it.passed for it in found.tensors)


@pytest.mark.parametrize(
    ("name", "recipe", "fault", "kind"),
    [
        ("residual", "moved 2", set_weight("layer1.0.conv2.weight", lambda it: it * 1.2), "Conv"),
        ("attention_running", "rotated", set_attribute("Softmax", axis=-2), "Softmax"),
        (
            "mobile_running",
            "moved 2",
            set_type("GlobalAveragePool", "GlobalMaxPool"),
            "GlobalMaxPool",
        ),
    ],
)
def test_a_fault_is_named_though_all_names_have_moved(
    models: Models,
    original: Callable[[str], Case],
    name: str,
    recipe: str,
    fault: Change,
    kind: str,
) -> None:
    network = make_network(name)
    moved = models.write(RealNetwork(rename(network.model, recipe), network.feeds), fault)
    assert blamed(compare(moved, original(name))) == [kind]


@each_row("comparison/cases/twins of other exporters")
def test_the_twin_of_another_exporter_is_the_same_and_a_fault_of_it_is_named(
    models: Models, original: Callable[[str], Case], name: str, other: str, weight: str
) -> None:
    assert compare(original(name), original(other)).finding == "same"
    wrong = models.write(make_network(name), set_weight(weight, lambda it: it * 1.2))
    found = compare(wrong, original(other))
    assert blamed(found) == ["Conv"]
    assert found.culprits[0].proven
    assert found.culprits[0].kind.endswith("scale: A is 1.2 times B")


# Other shapes and axes


def make_heads(*shape: int) -> RealNetwork:
    """Attention of so many heads of such a size."""
    weights: dict[str, Any] = {"heads": np.array([0, 0, *shape]), "flat": np.array([0, 0, 32])}
    nodes = []
    for number, name in enumerate("qkv"):
        weights[f"w{name}"] = draw(32, 32, seed=number, spread=0.2)
        axes = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
        nodes += [
            node("MatMul", f"x w{name}", name),
            node("Reshape", f"{name} heads", f"{name}r"),
            node("Transpose", f"{name}r", f"{name}t", perm=axes),
        ]
    nodes += [
        node("MatMul", "qt kt", "qk"),
        node("Softmax", "qk", "p"),
        node("MatMul", "p vt", "ctx"),
        node("Transpose", "ctx", "ct", perm=[0, 2, 1, 3]),
        node("Reshape", "ct flat", "out"),
    ]
    return model_of(nodes, {"x": draw(1, 8, 32)}, {"out": FLOAT}, weights)


def test_heads_that_were_swapped_are_named_where_they_are_made(models: Models) -> None:
    found = compare(models.write(make_heads(8, 4)), models.write(make_heads(4, 8)))
    assert all(it.actual.name == it.expected.name for it in found.tensors)
    faults = {it.output.expected.name: it.output.problem for it in found.culprits}
    assert [*faults] == ["qr", "kr", "vr"]
    assert all(problem.startswith("shapes differ") for problem in faults.values())


def make_channels_last(rank: int, *, last: bool, behind: bool = False) -> RealNetwork:
    """A convolution of 1 to 3 dimensions, fed with the channels last and turned first; `behind`
    turns back what it gives."""
    sizes = (12, 10, 6)[:rank]
    to_last, to_first = [0, *range(2, rank + 2), 1], [0, rank + 1, *range(1, rank + 1)]
    x = draw(1, 3, *sizes)
    nodes = [
        *([node("Transpose", "x", "turned", perm=to_first)] if last else ()),
        node("Conv", "turned w" if last else "x w", "conv"),
        node("Tanh", "conv", "tanh"),
        *([node("Transpose", "tanh", "out", perm=to_last)] if behind else ()),
    ]
    feeds = {"x": np.ascontiguousarray(x.transpose(to_last)) if last else x}
    weight = {"w": draw(8, 3, *[3] * rank, seed=1, spread=0.3)}
    return model_of(nodes, feeds, {"out" if behind else "tanh": FLOAT}, weight)


@pytest.mark.parametrize(("rank", "behind"), [(1, True), (2, False), (2, True), (3, False)])
def test_a_twin_with_its_channels_last_is_the_same(models: Models, rank: int, behind: bool) -> None:
    last = models.write(make_channels_last(rank, last=True, behind=behind))
    first = models.write(make_channels_last(rank, last=False))
    found = compare(last, first)
    assert (found.finding, counts_of(found)[0]) == ("same", 1)
    assert not any("other data" in note for note in found.notes)
    wrong = models.write(
        make_channels_last(rank, last=True, behind=behind), set_type("Tanh", "Sigmoid")
    )
    found = compare(wrong, first, "--graph-optimization-level basic")
    assert blamed(found)[0] == "Sigmoid"  # and the Transpose that one side alone has


# Coarser types


@each_row("comparison/cases/converted models")
def test_a_converted_model_is_the_same_as_its_type_rounds(
    models: Models, original: Callable[[str], Case], name: str, form: str
) -> None:
    found = compare(models.write(make_network(name, form)), original(name))
    assert (found.finding, found.culprits) == ("same", ())
    assert found.precision == (form if form in ("float16", "int4") else "int8")


@needs("openvino")
def test_packed_weights_are_the_same_on_another_engine(models: Models) -> None:
    packed = models.write(make_network("attention_paddle", "int4"))
    found = lar.compare(packed.side("--engine openvino"), packed.side())
    assert (found.finding, found.culprits) == ("same", ())


def make_steps(kind: str, zero: int) -> RealNetwork:
    """A network of integers with their scales: one is read with a zero point that is off."""
    dtype, middle = (np.uint8, 128) if kind == "uint8" else (np.int8, 0)
    weights = {
        "w": draw(8, 3, 3, 3, spread=0.3),
        "v": draw(8, 8, 3, 3, seed=1, spread=0.15),
        "scale": np.float32(0.05),
        "zero": dtype(middle),
        "off": dtype(middle + zero),
    }
    nodes = [
        node("Conv", "x w", "conv1"),
        node("QuantizeLinear", "conv1 scale zero", "integers"),
        node("DequantizeLinear", "integers scale off", "numbers"),
        node("MaxPool", "numbers", "pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("Conv", "pool v", "conv2"),
        node("QuantizeLinear", "conv2 scale zero", "integers2"),
        node("DequantizeLinear", "integers2 scale zero", "out"),
    ]
    return model_of(nodes, {"x": draw(1, 3, 16, 16, seed=2)}, {"out": FLOAT}, weights)


@pytest.mark.parametrize(
    ("kind", "zero", "level"),
    [("uint8", 1, "disable"), ("int8", -1, "disable"), ("uint8", -1, "all"), ("int8", 1, "all")],
)
def test_a_zero_point_that_is_off_by_one_is_named(
    models: Models, kind: str, zero: int, level: str
) -> None:
    sides = models.write(make_steps(kind, zero)), models.write(make_steps(kind, 0))
    found = compare(*sides, f"--graph-optimization-level {level}")
    assert level == "all" or blamed(found) == ["DequantizeLinear"]
    assert found.culprits[0].kind.startswith("zero point: A is B")
