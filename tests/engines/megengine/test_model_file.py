"""Reading .mge files: plain, optimised, with testcases, packed, of the old format, and broken."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lar.engines.megengine import model_file
from lar.engines.megengine.packed_model import write_packed
from lar.errors import UsageError
from lar.records.run import ModelInfo, TensorInfo
from tests.engines.megengine.traced import dump_traced
from tests.tables import each_row

DATA = np.zeros((1, 8, 12, 12), np.float32)
CONVOLUTION = 2 * 12 * 12 * 8 * 16 * 9
Read = Callable[[Path], ModelInfo]

# How the network is optimised when it is dumped.
CASES = json.loads(Path(__file__).with_name("cases.json").read_text())
OPTIMIZATIONS: Mapping[str, dict[str, bool]] = dict(CASES["optimizations"])


IMAGE, ROWS = (2, 8, 6, 6), (4, 10)
BICUBIC = {"size": (9, 9), "mode": "bicubic"}
# What makes an operator of MegEngine's functions and modules, what it is fed with, and its FLOPs.
FORMULAS: Mapping[str, tuple[Callable[[Any, Any], Any], tuple[int, ...], int]] = {
    "transposed convolution": (
        *(lambda F, M: M.ConvTranspose2d(8, 4, 3, stride=2, bias=False), IMAGE),
        2 * 2 * 36 * 8 * 4 * 9,
    ),
    "grouped convolution": (
        *(lambda F, M: M.Conv2d(8, 8, 3, groups=4, bias=False), IMAGE),
        2 * 2 * 16 * 8 * 2 * 9,
    ),
    "max-pooling": (lambda F, M: lambda it: F.max_pool2d(it, 3, 2, 1), IMAGE, 2 * 8 * 9 * 9),
    "adaptive pooling": (
        *(lambda F, M: lambda it: F.adaptive_avg_pool2d(it, 1), IMAGE),
        2 * 8 * 6 * 6,
    ),
    "softmax": (lambda F, M: lambda it: F.softmax(it, 1), ROWS, 5 * 40),
    "mean": (lambda F, M: lambda it: F.mean(it, 1), IMAGE, 2 * 8 * 6 * 6),
    "layer norm": (lambda F, M: M.LayerNorm(10), ROWS, 7 * 40),
    "relu6": (lambda F, M: F.relu6, IMAGE, 2 * 2 * 8 * 6 * 6),
    "gelu": (lambda F, M: F.gelu, IMAGE, 2 * 8 * 6 * 6),
    "interpolation": (
        *(lambda F, M: lambda it: F.vision.interpolate(it, **BICUBIC), IMAGE),
        2 * 16 * 2 * 8 * 81,
    ),
    "concatenation": (lambda F, M: lambda it: F.concat([it, it], 1), IMAGE, 0),
    "matrix product": (
        *(lambda F, M: lambda it: F.matmul(it, it, transpose_a=True), (3, 4, 5)),
        2 * 3 * 100,
    ),
    "recurrence": (lambda F, M: M.RNN(4, 6), (3, 2, 4), 2 * 3 * 2 * (6 * 10 + 12)),
}


class Hostile:
    """What runs code when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("was_run"),))


def dump_models(folder: str) -> None:
    """Trace a function of tensors for each test and dump it, as NAME.mge."""
    import megengine.functional as F
    import megengine.module as M

    def dump(name: str, function: Any, inputs: dict[str, Any], **how: Any) -> None:
        dump_traced(Path(folder, f"{name}.mge"), function, inputs, **how)

    # A convolution with bias and ReLU, pooling and a classifier.
    convolution, linear = M.Conv2d(8, 16, 3, padding=1), M.Linear(16, 5)
    for bias in (convolution.bias, linear.bias):
        M.init.normal_(bias)

    def network(data: Any) -> Any:
        return linear(F.flatten(F.avg_pool2d(F.relu(convolution(data)), 12), 1))

    as_it_is: dict[str, Any] = {"output_names": ["logits"], "optimize_for_inference": False}
    dump("plain", network, {"data": DATA}, **as_it_is)
    dump("testcase", network, {"data": DATA}, input_data=["#rand(0,1)"], silent=True, **as_it_is)
    dump("old", network, {"data": DATA}, dump_format="FBS", **as_it_is)
    for name, options in OPTIMIZATIONS.items():
        dump(name, network, {"data": DATA}, **options)

    zeros, ones = np.zeros((2, 3), np.float32), np.ones(4, np.float32)
    inputs = {"z": zeros.astype(np.uint8), "a": zeros, "m": zeros.astype(np.int32)}
    dump("three_types", lambda z, a, m: a * z.astype("float32") + m.astype("float32"), inputs)
    dump("formula", lambda data: data * 2.5 + 1, {"data": ones})
    dump("of_data", lambda data: F.exp(F.cond_take(data > 0, data)[0]), {"data": ones})
    inputs = {"data": DATA, "regions": np.zeros((2, 5), np.float32)}
    dump("regions", lambda data, rois: F.vision.roi_align(data, rois, (3, 3)), inputs)
    dump("hostile", lambda data: data + 1, {"data": ones}, user_info=Hostile())
    dump("silent", lambda data: data + 1, {"data": ones}, enable_metadata=False)

    for name, (make, shape, _) in FORMULAS.items():
        dump(name, make(F, M), {"data": np.ones(shape, np.float32)})


@pytest.fixture(scope="module")
def dumped(elsewhere: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder with the dumped models."""
    folder = tmp_path_factory.mktemp("mge")
    elsewhere(dump_models, str(folder))
    return folder


@pytest.fixture
def plain(dumped: Path) -> Path:
    return dumped / "plain.mge"


@pytest.fixture(scope="module")
def read_model(elsewhere: Callable[..., ModelInfo]) -> Read:
    return lambda path: elsewhere(model_file.read_model, path)


def test_a_model_is_described_whole(read_model: Read, plain: Path) -> None:
    info = read_model(plain)
    assert info.engine == "megengine"
    assert info.inputs == (
        TensorInfo(name="data", dtype="float32", shape=(1, 8, 12, 12), resizable=True),
    )
    assert info.outputs == (TensorInfo(name="logits", dtype="float32", shape=(1, 5)),)
    assert info.operators["Elemwise"] == 3
    assert info.operators["ConvolutionForward"] == info.operators["MatrixMul"] == 1
    assert list(info.operators.values()) == sorted(info.operators.values(), reverse=True)
    assert not {"ImmutableTensor", "SharedDeviceTensor", "Host2DeviceCopy"} & set(info.operators)
    assert info.parameter_count == 16 * 8 * 9 + 16 + 16 * 5 + 5
    assert info.weight_bytes == 4 * info.parameter_count
    bias, relu, pooling, classifier = 144 * 16, 144 * 16, 144 * 16, 2 * 16 * 5 + 5
    assert info.flops == CONVOLUTION + bias + relu + pooling + classifier
    assert info.metadata == {"optimized_for_inference": "false"}


@pytest.mark.parametrize("name", OPTIMIZATIONS)
def test_optimising_changes_no_number_but_the_size(
    read_model: Read, dumped: Path, plain: Path, name: str
) -> None:
    before, after = read_model(plain), read_model(dumped / f"{name}.mge")
    options = OPTIMIZATIONS[name]
    assert after.flops == pytest.approx(before.flops, rel=0.01)
    assert after.parameter_count == before.parameter_count
    size = 2 if "enable_ioc16" in options else 4
    assert after.weight_bytes == size * after.parameter_count
    assert after.metadata["optimized_for_inference"] == "true"
    assert set(options) <= set(after.metadata["optimize_options"].split(", "))


def test_of_a_testcase_file_the_model_inside_is_described(
    read_model: Read, dumped: Path, plain: Path
) -> None:
    info = read_model(dumped / "testcase.mge")
    expected = read_model(plain)
    assert info.metadata == {**expected.metadata, "testcases": "1"}
    assert (info.inputs, info.outputs) == (expected.inputs, expected.outputs)
    assert (info.operators, info.flops) == (expected.operators, expected.flops)
    assert info.parameter_count == expected.parameter_count


def test_the_old_format_and_a_packed_model_read_the_same(
    read_model: Read, dumped: Path, plain: Path, tmp_path: Path
) -> None:
    packed = tmp_path / "packed.lite"
    write_packed(packed, plain.read_bytes(), "plain", b"{}", bytes(4))
    expected = read_model(plain)
    metadata = {**expected.metadata, "packed": "plain, with settings, with a fast-run cache"}
    assert read_model(packed) == replace(expected, metadata=metadata)
    info = read_model(dumped / "old.mge")
    assert (info.inputs, info.outputs) == (expected.inputs, expected.outputs)
    assert info.flops == expected.flops


def test_inputs_keep_their_names_and_types(read_model: Read, dumped: Path) -> None:
    dtypes = {it.name: it.dtype for it in read_model(dumped / "three_types.mge").inputs}
    assert dtypes == {"z": "uint8", "a": "float32", "m": "int32"}


def test_a_number_in_a_formula_is_no_parameter(read_model: Read, dumped: Path) -> None:
    info = read_model(dumped / "formula.mge")
    assert (info.parameter_count, info.weight_bytes) == (0, 0)
    assert info.flops == 8


def test_what_depends_on_the_data_has_no_shape_and_no_flops(read_model: Read, dumped: Path) -> None:
    info = read_model(dumped / "of_data.mge")
    assert info.flops is None
    assert info.flops_unknown == ("Elemwise",)
    assert info.outputs[0].shape == ()


@pytest.mark.parametrize("shape", [None, (1, None, 4, 4)])
def test_what_has_no_whole_shape_has_no_channels(shape: tuple[int | None, ...] | None) -> None:
    assert model_file.channels_first(shape, "NCHW") is None


def test_an_operator_without_a_formula_is_named(read_model: Read, dumped: Path) -> None:
    info = read_model(dumped / "regions.mge")
    assert info.flops is None
    assert info.flops_unknown == ("ROIAlignForward",)


@pytest.mark.parametrize("name", FORMULAS)
def test_operators_have_their_formulas(read_model: Read, dumped: Path, name: str) -> None:
    assert read_model(dumped / f"{name}.mge").flops == FORMULAS[name][2]


def test_what_the_user_put_in_is_never_run(read_model: Read, dumped: Path) -> None:
    assert "user_info" not in read_model(dumped / "hostile.mge").metadata
    # The process that reads shares this one's folder.
    assert not Path("was_run").exists()
    assert read_model(dumped / "silent.mge").metadata == {}


def check_refused(read_model: Read, path: Path) -> UsageError:
    """Read a broken file; the message must be one line that names it."""
    with pytest.raises(UsageError) as caught:
        read_model(path)
    message = caught.value.message
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert "assert" not in message
    return caught.value


def test_a_damaged_graph_is_refused_and_the_reason_kept(
    read_model: Read, plain: Path, tmp_path: Path
) -> None:
    data = bytearray(plain.read_bytes())
    data[:4] = struct.pack("<I", len(data) - 4)
    data[4:8] = b"\xff\xff\xff\x7f"
    path = tmp_path / "damaged.mge"
    path.write_bytes(data)
    error = check_refused(read_model, path)
    assert "damaged" in str(error)
    assert "verification failed" in str(error.__cause__)


@each_row("engines/megengine/cases/constants")
def test_constants_of_several_numbers_are_weights(
    dtype: str, quantised: str, shape: list[int], size_bytes: int, counts: bool
) -> None:
    facts: Any = {"metadata": {"mgb_dtype": {"name": quantised}}} if quantised else {}
    owner = SimpleNamespace(type="ImmutableTensor")
    constant = SimpleNamespace(dtype=np.dtype(dtype, **facts), shape=tuple(shape), owner=owner)
    assert (model_file.bytes_of(constant), model_file.is_weight(constant)) == (size_bytes, counts)


@each_row("engines/megengine/cases/operations of modes")
def test_operations_of_an_elementwise_mode(mode: str, count: int) -> None:
    assert model_file.operations_in(mode) == count
