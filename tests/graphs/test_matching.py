"""The rules by which tensors are twins, on graphs that are drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from planted_faults import NETWORKS

import lar
from lar.dumps.dump import Dump
from lar.graphs.elements import dequantized, elements_of
from lar.graphs.signatures import Values
from lar.graphs.twins import match
from lar.records.comparison import Comparison, TensorComparison
from tests.comparison.handmade import Step, dump_of
from tests.comparison.known_engines import Graph, compare_dumps

Array = npt.NDArray[Any]

FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    "Tanh": np.tanh,
    "Sin": np.sin,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Add": lambda x, y: (x + y) * np.float32(1),
    "Sub": lambda x, y: x - y,
}

JOINING = ("Add", "Sub")
DATA = np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)


class Made(NamedTuple):
    """An operator of a drawn graph, which takes what some before it give."""

    kind: str
    inputs: tuple[int, ...]


@st.composite
def graphs(draw: st.DrawFn) -> list[Made]:
    """Draw operators, of which no two do the same; 0 is the data, 1 the first one's result."""
    found = [Made("Tanh", (0,))]
    for _ in range(draw(st.integers(1, 9))):
        kind = draw(st.sampled_from([*FUNCTIONS]))
        near = st.integers(max(0, len(found) - 2), len(found))
        count = 2 if kind in JOINING else 1
        inputs = draw(st.lists(near, min_size=count, max_size=count, unique=True))
        made = Made(kind, tuple(sorted(inputs) if kind == "Add" else inputs))
        if made not in found:
            found.append(made)
    return found


def steps_of(made: Sequence[Made], names: Sequence[str]) -> list[Step]:
    """Compute a graph whose tensors have these names, after the data."""
    steps = [Step("data", "Input", (), DATA)]
    for (kind, inputs), name in zip(made, names, strict=True):
        taken = [steps[place] for place in inputs]
        array = FUNCTIONS[kind](*(step.array for step in taken)).astype(np.float32)
        steps.append(Step(name, kind, tuple(step.name for step in taken), array))
    return steps


def pairs_of(actual: Dump, expected: Dump) -> dict[str, str]:
    sides = Graph(actual), Graph(expected)
    found = match(*sides, (Values(actual), Values(expected)))
    return {it.actual.name: it.expected.name for it in found.pairs}


def letters(count: int) -> list[str]:
    return [f"layer.{chr(97 + place)}" for place in range(count)]


@given(graphs(), st.randoms(use_true_random=False), st.integers(1, 3))
def test_one_structure_is_gone_through_in_step_whatever_names_say(
    made: list[Made], random: Any, first: int
) -> None:
    shuffled = letters(len(made))
    random.shuffle(shuffled)
    for names in (
        shuffled,
        [f"t{number + first}" for number in range(len(made))],
        [str(number + first) for number in range(len(made))],
    ):
        ours = [f"t{number}" for number in range(len(made))]
        actual, expected = steps_of(made, names), steps_of(made, ours)
        found = pairs_of(dump_of(*actual), dump_of(*expected))
        assert found == {"data": "data", **dict(zip(names, ours, strict=True))}


@given(graphs(), st.integers(0, 8), st.sampled_from([*FUNCTIONS]))
def test_behind_an_operator_more_numbers_count_on(made: list[Made], place: int, kind: str) -> None:
    """One side computes one tensor more, of which nothing is computed."""
    ours = [f"t{number}" for number in range(len(made))]
    expected = steps_of(made, ours)
    moved = [name if number <= place else f"t{number + 1}" for number, name in enumerate(ours)]
    actual = steps_of(made, moved)
    more = Step(f"t{place + 1}", "Exp", ("data",), np.exp(DATA))
    found = pairs_of(dump_of(*actual, more), dump_of(*expected))
    values = {step.name: step.array for step in (*actual, more)}
    theirs = {step.name: step.array for step in expected}
    assert all(np.array_equal(values[one], theirs[other]) for one, other in found.items()), found
    assert len(found) == len(expected)


@given(graphs(), st.randoms(use_true_random=False))
def test_branches_in_another_order_are_paired_by_their_names(made: list[Made], random: Any) -> None:
    names = letters(len(made))
    expected = steps_of(made, names)
    # What is not computed from one another changes places, and so do summands.
    order = [*range(len(expected))]
    random.shuffle(order)
    turned = [
        replace(step, inputs=step.inputs[::-1]) if step.type == "Add" else step
        for step in (expected[place] for place in order)
    ]
    found = pairs_of(dump_of(*turned), dump_of(*expected))
    assert found == {step.name: step.name for step in expected}


def test_outputs_are_twins_by_their_names_then_by_their_places() -> None:
    """Whatever their shapes are."""

    def net(kinds: Sequence[str], names: Sequence[str]) -> Dump:
        ends = [
            Step(name, kind, ("data",), FUNCTIONS[kind](DATA)[:size])
            for kind, name, size in zip(kinds, names, (2, 3, 4), strict=True)
        ]
        return dump_of(Step("data", "Input", (), DATA), *ends, outputs=(*names,))

    one = net(("Tanh", "Sin", "Sigmoid"), ("boxes", "scores", "out"))
    other = net(("Sin", "Sigmoid", "Tanh"), ("scores", "labels", "kinds"))
    assert pairs_of(one, other) == {
        "data": "data",
        "scores": "scores",
        "boxes": "labels",
        "out": "kinds",
    }


def test_the_one_end_of_a_dump_without_outputs_is_its_output() -> None:
    """Of several ends nothing says which is which."""

    def net(kind: str, size: int, *names: str) -> Dump:
        end = FUNCTIONS[kind](DATA)[:size]
        return dump_of(
            Step("data", "Input", (), DATA), *(Step(name, kind, ("data",), end) for name in names)
        )

    found = pairs_of(net("Tanh", 2, "out"), net("Sin", 3, "result"))
    assert found == {"data": "data", "out": "result"}
    found = pairs_of(net("Tanh", 2, "out", "more"), net("Sin", 3, "result", "others"))
    assert found == {"data": "data"}


Dumps = Callable[[str, str], Dump]
FORMS = {"qdq": "qdq channels", "qoperator": "qoperator", "dynamic": "dynamic"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small network as it is, and quantised in three forms."""
    import conversions
    from onnx_twin import onnx_of

    folder = tmp_path_factory.mktemp("quantised")
    feed = np.random.RandomState(0).normal(0, 3, (1, 4, 12, 12)).astype(np.float32)
    np.save(folder / "x.npy", feed)
    model = onnx_of(NETWORKS["plain_cnn"]())
    onnx.save(model, folder / "float.onnx")
    for form, recipe in FORMS.items():
        quantised = conversions.quantize(recipe, model, {"data": feed})
        onnx.save(quantised, folder / f"{form}.onnx")
    return folder


@pytest.fixture(scope="module")
def dumps(folder: Path) -> Dumps:
    """Return the dump of a model at a level of optimisation."""

    def dump(name: str, level: str) -> Dump:
        place = folder / f"{name}.{level}"
        if not place.exists():
            model, flags = folder / f"{name}.onnx", {"graph_optimization_level": level}
            once = {"iter": 1, "warmup_iter": 0, "bin_io_dump": str(place), **flags}
            assert lar.run(model, folder / "x.npy", **once).status == "ok"  # type: ignore[arg-type]
        return lar.open_dump(place)

    return dump


def by_twin(comparison: Comparison) -> dict[str, TensorComparison]:
    return {it.expected.name: it for it in comparison.tensors}


def test_the_figures_are_those_of_the_quantisers_own_tool(folder: Path, dumps: Dumps) -> None:
    from onnxruntime.quantization import qdq_loss_debug as tool

    feeds = [{"data": np.load(folder / "x.npy")}]
    activations = []
    for name in ("qdq", "float"):
        augmented = folder / f"{name}.augmented.onnx"
        tool.modify_model_output_intermediate_tensors(folder / f"{name}.onnx", augmented)
        activations.append(tool.collect_activations(str(augmented), iter(feeds)))
    errors = tool.compute_activation_error(tool.create_activation_matching(*activations))
    twins = by_twin(compare_dumps(dumps("qdq", "disable"), dumps("float", "disable")))
    known = {name: error["xmodel_err"] for name, error in errors.items() if name in twins}
    known.pop("data")  # the input itself is what both were fed with
    assert len(known) == 8
    for name, decibels in known.items():
        figures = twins[name].figures
        assert figures
        if name != "features":  # moved, and rounded once more
            assert figures.snr_db == pytest.approx(decibels, abs=0.01), name


@pytest.mark.parametrize("level", ["disable", "all"])
@pytest.mark.parametrize("form", FORMS)
def test_every_layer_has_its_twin(dumps: Dumps, form: str, level: str) -> None:
    """Whatever the quantiser and the engine call it, and whichever layout they put it in."""
    comparison = compare_dumps(dumps(form, level), dumps("float", "disable"))
    twins = by_twin(comparison)
    layers = ["relu1", "relu2", "pool2", "relu3", "relu4", "average", "features", "logits"]
    for name in layers:
        figures = twins[name].figures
        assert figures, name
        assert figures.snr_db is not None
        assert figures.snr_db > 30, name
    if form != "dynamic":
        quantized = [twins[name].actual.quantization for name in layers[:6]]
        assert None not in quantized
    assert not [it.tensor.name for it in comparison.unmatched if not it.fused and not it.constant]


def test_the_twin_of_a_folded_activation_is_what_is_rounded(dumps: Dumps) -> None:
    twins = by_twin(compare_dumps(dumps("qdq", "disable"), dumps("float", "disable")))
    assert twins["relu2"].actual.name == "relu2_QuantizeLinear_Output"
    # What the quantised model calls relu2 has not been rectified.
    assert twins["conv2"].actual.name == "relu2"


@pytest.mark.parametrize("form", FORMS)
def test_integers_with_their_scales_are_what_the_engine_makes_of_them(
    dumps: Dumps, form: str
) -> None:
    """Of a scale that the run computes, too: integers times it are what it gives."""
    dump = dumps(form, "disable")
    count = 0
    for operator in dump.index.operators:
        taken = [key for key in operator.inputs if key in dump and dump.tensor(key).quantization]
        real = operator.outputs[0]
        scaled = operator.type == "Mul" and real in dump
        if not taken or not (operator.type == "DequantizeLinear" or scaled):
            continue
        quantization = dump.tensor(taken[0]).quantization
        assert quantization
        integers = elements_of(dump.read_stored(taken[0]))
        blocks = [*dequantized(integers, quantization).blocks()]
        assert np.allclose(np.concatenate(blocks), dump.read(real).ravel(), rtol=1e-6, atol=0)
        count += 1
    assert count >= {"qdq": 8, "qoperator": 2, "dynamic": 5}[form]
