"""The rules by which tensors are twins, on graphs that are drawn, and real dumps against the truth
that their names tell."""

from __future__ import annotations

import itertools
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
from lar.dumps import Dump
from lar.dumps.index import open_dump
from lar.graphs.matching import ConstantPair, Pair, Twins, is_generic, match
from lar.graphs.signatures import Values, dequantized, elements_of
from lar.records.comparison import Comparison, TensorComparison
from tests.comparison.handmade import Step, dump_of
from tests.comparison.known_engines import Graph, compare_dumps
from tests.conftest import RunLar
from tests.dumps.blocked_tensors import to_blocked
from tests.graphs.drawn import dump_in
from tests.tables import each_row

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


@each_row("graphs/twins/twins")
def test_twins_are_found_by_these_rules(what: str, actual: str, expected: str, twins: str) -> None:
    one, other = dump_in(actual), dump_in(expected)
    values = Values(one, scales_of=other), Values(other, scales_of=one)
    found = match(Graph(one), Graph(other), values)
    pairs: list[Pair | ConstantPair] = [*found.pairs, *found.constants]
    told = "; ".join(f"{it.actual.name} = {it.expected.name} ({it.by})" for it in pairs)
    assert told == twins, what


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
        assert None not in [twins[name].actual.quantization for name in layers[:6]]
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


RUNS = {
    "mge": ("mge",),
    "nchw44": ("mge", "--enable-nchw44"),
    "basic": ("onnx", "--graph-optimization-level", "basic"),
    "extended": ("onnx", "--graph-optimization-level", "extended"),
    "all": ("onnx",),
}
INPUTS = {"mobilenet_v2": "cat.npy", "digits_cnn": "digit_7.npy"}
RealDumps = Callable[[str, str], Dump]


@pytest.fixture(scope="module")
def real_dumps(run_lar: RunLar, root: Path, tmp_path_factory: pytest.TempPathFactory) -> RealDumps:
    """Return what an engine dumps of a model: `real_dumps("mobilenet_v2", "nchw44")`."""
    folder = tmp_path_factory.mktemp("dumps")

    def make(model: str, run: str) -> None:
        suffix, *flags = RUNS[run]
        command = [f"models/{model}.{suffix}", "--input", f"inputs/{INPUTS[model]}", *flags]
        once = ["--iter", "1", "--warmup-iter", "0"]
        run_lar(*command, *once, "--bin-io-dump", str(folder / f"{model}.{run}"), cwd=root, code=0)

    for model, run in itertools.product(INPUTS, RUNS):
        make(model, run)
    return lambda model, run: open_dump(folder / f"{model}.{run}")


def without_names(dump: Dump) -> Dump:
    """The dump as another engine would have named its tensors."""
    places = {tensor.key: place for place, tensor in enumerate(dump)}
    tensors = tuple(replace(it, name=f"x{places[it.key]}") for it in dump)
    return Dump(
        dump.source, replace(dump.index, tensors=tensors), lambda tensor: dump.read(tensor.key)
    )


def match_dumps(actual: Dump, expected: Dump) -> Twins:
    return match(Graph(actual), Graph(expected), (Values(actual), Values(expected)))


def pairs_by_key(comparison: Comparison) -> dict[str, str]:
    return {it.actual.key: it.expected.key for it in comparison.tensors if not it.constant}


HEAVY = ("Conv", "FusedConv", "Gemm", "MatMul")


@pytest.mark.parametrize("named", [True, False], ids=["named", "nameless"])
@pytest.mark.parametrize("level", ["basic", "extended", "all"])
def test_convolutions_and_products_of_two_engines_find_their_twins(
    real_dumps: RealDumps, level: str, named: bool
) -> None:
    actual, expected = real_dumps("mobilenet_v2", "mge"), real_dumps("mobilenet_v2", level)
    found = compare_dumps(without_names(actual) if not named else actual, expected)
    assert found.finding == "same"
    pairs = {other: one for one, other in pairs_by_key(found).items()}
    matched = right = 0
    heavy = [it for it in expected.index.operators if it.type in HEAVY]
    assert len(heavy) == 53
    for operator in heavy:
        # Both models are made from one description: the names of its nodes are those of the
        # tensors, and of an operator in blocks the name of the last that it fuses.
        tensor = expected.tensor(operator.outputs[0])
        blocked = operator.name.partition("[")[0].removesuffix("_nchwc")
        truth = blocked if tensor.layout else tensor.name
        if operator.outputs[0] not in pairs:
            continue
        matched += 1
        twin = actual.tensor(pairs[operator.outputs[0]])
        # Of a fused sum the node's name is the convolution's.
        right += twin.name in (truth, truth.replace(".project", ".sum"))
    # One engine adds the biases of the ten sums later.
    assert matched >= len(heavy) - 10
    assert right == matched


@pytest.mark.parametrize("model", INPUTS)
@pytest.mark.parametrize("named", [True, False], ids=["named", "nameless"])
def test_layouts_line_up(real_dumps: RealDumps, model: str, named: bool) -> None:
    actual, expected = real_dumps(model, "nchw44"), real_dumps(model, "mge")
    found = compare_dumps(without_names(actual) if not named else actual, expected)
    assert (found.finding, found.culprits) == ("same", ())
    assert all(each.fused for each in found.unmatched)
    assert not any(each.constant for each in found.unmatched)
    names = {it.key: it.name for it in actual}
    for one, other in pairs_by_key(found).items():
        truth = expected.tensor(other).name
        if not is_generic(truth) and not is_generic(names[one]):
            assert names[one] == truth
    ours = {it.name for it in expected if not is_generic(it.name)} & set(names.values())
    matched = {expected.tensor(key).name for key in pairs_by_key(found).values()}
    constants = Graph(expected).constants
    computed = {it.name for it in expected if it.key not in constants}
    assert ours & computed <= matched


def test_blocked_tensors_are_compared_in_plain_axes(real_dumps: RealDumps) -> None:
    found = compare_dumps(real_dumps("digits_cnn", "nchw44"), real_dumps("digits_cnn", "all"))
    layouts = {(it.actual.layout, it.expected.layout) for it in found.tensors}
    assert ("nchw44", "nchw16c") in layouts or ("nchw44", "nchw8c") in layouts
    relu = next(it for it in found.tensors if it.actual.name == "relu3")
    assert relu.actual.shape == relu.expected.shape == (1, 32, 4, 4)


def test_equal_graphs_are_gone_through_without_reading(real_dumps: RealDumps) -> None:
    dump = real_dumps("digits_cnn", "mge")

    def refuse(tensor: object) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        raise AssertionError(tensor)

    blind = Dump("blind", dump.index, refuse)
    found = match_dumps(blind, blind)
    assert len(found.pairs) + len(found.constants) == len(dump)
    assert {pair.by for pair in found.pairs} == {"name"}


RANDOM = np.random.default_rng(0)


def draw(*shape: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    return RANDOM.standard_normal(shape).astype(np.float32)


IMAGE, WEIGHT, BIAS = draw(1, 3, 6, 6), draw(8, 3, 3, 3), draw(1, 8, 1, 1)
GIVEN = draw(1, 8, 6, 6)


def convolutions(weight: np.ndarray[Any, Any], given: np.ndarray[Any, Any]) -> Dump:
    """A convolution, its bias and its activation, each an operator."""
    return dump_of(
        Step("data", "Input", (), IMAGE),
        Step("weight", "constant", (), weight),
        Step("bias", "constant", (), BIAS),
        Step("conv", "ConvolutionForward", ("data", "weight"), given - BIAS),
        Step("sum", "Elemwise", ("conv", "bias"), given, parameters={"mode": "ADD"}),
        Step("relu", "Elemwise", ("sum",), given.clip(0), parameters={"mode": "RELU"}),
    )


def fused_convolution(given: np.ndarray[Any, Any]) -> Dump:
    """The three operators as one, in blocks of four channels, and the way back to plain axes."""
    blocked = to_blocked(given.clip(0), "nchw44")
    return dump_of(
        Step("data", "Input", (), IMAGE),
        Step("const[1]", "constant", (), to_blocked(WEIGHT, "Ohwi4o"), "Ohwi4o"),
        Step("const[2]", "constant", (), to_blocked(BIAS, "nchw44"), "nchw44"),
        Step(
            "relu[3]",
            "ConvBiasForward",
            ("data", "const[1]", "const[2]"),
            blocked,
            "nchw44",
            {"nonlineMode": "RELU"},
        ),
        Step("dimshuffle[4]", "Dimshuffle", ("relu[3]",), blocked.transpose(0, 1, 4, 2, 3)),
        Step("out", "Reshape", ("dimshuffle[4]",), given.clip(0)),
    )


def test_weights_of_fused_operators_are_compared_in_plain_axes() -> None:
    found = compare_dumps(convolutions(WEIGHT, GIVEN), fused_convolution(GIVEN))
    assert found.finding == "same"
    assert {it.actual.name: it.expected.name for it in found.tensors if it.constant} == {
        "weight": "const[1]",
        "bias": "const[2]",
    }
    assert {it.actual.shape for it in found.tensors if it.constant} == {WEIGHT.shape, BIAS.shape}


def test_the_way_back_from_blocks_at_the_end_of_a_model_is_no_difference() -> None:
    found = compare_dumps(fused_convolution(GIVEN), convolutions(WEIGHT, GIVEN))
    assert found.finding == "same"
    reasons = {it.tensor.name: it.reason for it in found.unmatched}
    assert reasons["dimshuffle[4]"] == "between relu[3] and out, a copy of it"


def test_moved_data_is_no_twin_of_its_own() -> None:
    data, x = draw(1, 8, 1, 1), draw(1, 8, 1, 1)
    plain = dump_of(Step("data", "Input", (), data), Step("pool", "MaxPool", ("data",), x))
    moved = dump_of(
        Step("data", "Input", (), data),
        Step("token", "MaxPool", ("data",), x),
        Step("pool", "ReorderOutput", ("token",), x),
    )
    found = compare_dumps(moved, plain)
    assert found.finding == "same"
    (unmatched,) = found.unmatched
    assert (unmatched.tensor.name, unmatched.fused) == ("pool", True)
    assert unmatched.reason == "the data of token"
    twin = next(it for it in found.tensors if it.expected.name == "pool")
    assert (twin.actual.name, twin.matched_by) == ("token", "name")


def test_single_tensors_are_compared_whatever_their_names() -> None:
    x = draw(3, 3)
    one, other = dump_of(Step("a", "Tanh", (), x)), dump_of(Step("b", "Exp", (), x + 1))
    assert compare_dumps(one, other).finding == "fault"
    assert compare_dumps(one, dump_of(Step("b", "Exp", (), x))).finding == "same"
