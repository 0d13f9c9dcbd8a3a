"""A model that was quantised against the float model: which tensors are twins, and how far off.

The figures of ONNX Runtime's own tool (`qdq_loss_debug`) are what they must be.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from planted_faults import NETWORKS

import lar
from lar.dumps.dump import Dump
from lar.graphs.elements import dequantized, elements_of
from lar.records.comparison import Comparison, TensorComparison
from tests.comparison.known_engines import compare_dumps

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
