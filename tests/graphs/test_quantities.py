"""A model that was quantised against the float model: which tensors are twins, and how far off.

The figures of ONNX Runtime's own tool (`qdq_loss_debug`) are what they must be.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import lar
from lar.dumps.dump import Dump
from lar.graphs.elements import dequantized, elements_of
from lar.records.comparison import Comparison, TensorComparison
from tests.comparison.known_engines import compare_dumps

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))

from planted_networks import plain_cnn

if TYPE_CHECKING:
    from tests.conftest import RunLar

LEVELS = ("disable", "all")
Dumps = Callable[[str, str], Dump]


def quantise(folder: Path) -> None:
    """Write a small network as it is, and quantised in three forms."""
    from onnx_twin import onnx_of
    from onnxruntime.quantization import (
        CalibrationDataReader,
        QuantFormat,
        QuantType,
        quantize_dynamic,
        quantize_static,
    )

    random = np.random.RandomState(0)
    feeds = [random.normal(0, 3, (1, 4, 12, 12)).astype(np.float32) for _ in range(4)]
    np.save(folder / "x.npy", feeds[0])

    class Feeds(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            self.left: Iterator[Any] = iter(feeds)

        def get_next(self) -> dict[str, Any] | None:
            return next(({"data": each} for each in self.left), None)

    source = folder / "float.onnx"
    source.write_bytes(onnx_of(plain_cnn()).SerializeToString())
    for name, form in (("qdq", QuantFormat.QDQ), ("qoperator", QuantFormat.QOperator)):
        quantize_static(
            source,
            folder / f"{name}.onnx",
            Feeds(),
            quant_format=form,
            per_channel=True,
            reduce_range=True,  # else sums may saturate on processors without VNNI
            weight_type=QuantType.QInt8,
        )
    quantize_dynamic(source, folder / "dynamic.onnx", weight_type=QuantType.QUInt8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quantised")
    quantise(folder)
    return folder


@pytest.fixture(scope="module")
def dumps(folder: Path, run_lar: RunLar) -> Dumps:
    """Return the dump of a model at a level of optimisation."""

    def dump(name: str, level: str) -> Dump:
        place = folder / f"{name}.{level}"
        if not place.exists():
            done = run_lar(
                *(f"{name}.onnx", "--input", "x.npy", "--iter", "1", "--warmup-iter", "0"),
                *("--graph-optimization-level", level, "--bin-io-dump", str(place)),
                cwd=folder,
            )
            assert done.returncode == 0, done.stderr
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


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("form", ["qdq", "qoperator", "dynamic"])
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


def test_forms_of_one_quantised_model_are_the_same(dumps: Dumps) -> None:
    comparison = compare_dumps(dumps("qoperator", "all"), dumps("qdq", "all"))
    assert (comparison.finding, comparison.culprits) == ("same", ())


def test_channels_that_come_last_are_brought_to_plain_axes(dumps: Dumps) -> None:
    tensors = {tensor.name: tensor for tensor in dumps("qdq", "all")}
    (pooled,) = (it for it in tensors.values() if it.shape == (1, 6, 6, 16))
    assert pooled.layout == "nhwc"
    twins = by_twin(compare_dumps(dumps("qdq", "all"), dumps("float", "disable")))
    assert twins["pool2"].actual.shape == (1, 16, 6, 6)


@pytest.mark.parametrize("form", ["qdq", "qoperator", "dynamic"])
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


def test_weights_are_the_twins_of_those_that_were_quantised(dumps: Dumps) -> None:
    """Whatever they are called, in blocks on the other side or not."""
    for form, level, other in (
        ("qdq", "disable", "disable"),
        ("qdq", "all", "all"),
        ("qoperator", "disable", "all"),
    ):
        comparison = compare_dumps(dumps(form, level), dumps("float", other))
        constants = [it for it in comparison.tensors if it.constant]
        assert len(constants) == 10
        assert all(it.passed and it.actual.quantization for it in constants)
        filters = [it for it in constants if len(it.actual.shape) == 4]
        assert len(filters) == 4
        for each in filters:
            assert each.actual.quantization
            assert each.actual.quantization.axis == 0
            assert each.figures
            assert each.figures.snr_db is not None
            assert each.figures.snr_db > 30


@pytest.mark.parametrize("level", LEVELS)
def test_a_wrong_scale_is_found_in_its_layer(folder: Path, dumps: Dumps, level: str) -> None:
    for name, scale, change in (
        ("turned", "conv3.weight_scale", lambda scales: np.roll(scales, 1)),
        ("halved", "relu3_scale", lambda scales: scales / 2),
    ):
        model = onnx.load(folder / "qdq.onnx")
        (constant,) = (it for it in model.graph.initializer if it.name == scale)
        changed = np.asarray(change(numpy_helper.to_array(constant)), np.float32)
        constant.CopyFrom(numpy_helper.from_array(changed, scale))
        onnx.save(model, folder / f"{name}.onnx")
        comparison = compare_dumps(dumps(name, level), dumps("float", level), only="common")
        assert comparison.finding == "fault"
        (culprit,) = comparison.culprits
        # The third layer, whatever is fused there.
        assert culprit.output.expected.shape == (1, 32, 6, 6)
        inputs = [it.actual.shape for it in culprit.inputs]
        assert inputs in ([(1, 16, 6, 6)], [(1, 32, 6, 6)])
        assert {it.passed for it in culprit.inputs} == {True}
