"""Reading .mge files: plain, optimised, with testcases, packed, of the old format, and broken."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lar.engines.megengine.graph_file import read_model
from lar.errors import UsageError
from lar.records import TensorInfo

MODELS = Path(__file__).resolve().parents[3] / "models"
DATA = np.zeros((1, 8, 12, 12), np.float32)
CONVOLUTION = 2 * 12 * 12 * 8 * 16 * 9
Dump = Callable[..., Path]


class Hostile:
    """What runs code when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (Path("was_run"),))


@pytest.fixture(scope="session")
def dump(tmp_path_factory: pytest.TempPathFactory) -> Dump:
    """Trace a function of tensors and dump it: `dump(function, inputs, **how)`."""
    from megengine import jit, tensor

    folder = tmp_path_factory.mktemp("mge")
    count = 0

    def dump_function(function: Any, inputs: dict[str, Any], **how: Any) -> Path:
        nonlocal count
        count += 1
        traced = jit.trace(function, symbolic=True, capture_as_const=True)
        traced(*map(tensor, inputs.values()))
        path = folder / f"{count}.mge"
        traced.dump(str(path), arg_names=list(inputs), **how)
        return path

    return dump_function


@pytest.fixture(scope="session")
def network() -> Any:
    """A convolution with bias and ReLU, pooling and a classifier."""
    import megengine.functional as F
    import megengine.module as M

    convolution, linear = M.Conv2d(8, 16, 3, padding=1), M.Linear(16, 5)
    for bias in (convolution.bias, linear.bias):
        M.init.normal_(bias)

    def forward(data: Any) -> Any:
        pooled = F.avg_pool2d(F.relu(convolution(data)), 12)
        return linear(F.flatten(pooled, 1))

    return forward


@pytest.fixture(scope="session")
def plain(dump: Dump, network: Any) -> Path:
    return dump(network, {"data": DATA}, output_names=["logits"], optimize_for_inference=False)


def test_a_model_is_described_whole(plain: Path) -> None:
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


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"enable_fuse_conv_bias_nonlinearity": True},
        {"enable_fuse_conv_bias_nonlinearity": True, "enable_nchw44": True},
        {"enable_fuse_conv_bias_nonlinearity": True, "enable_nchw88": True},
        {"enable_hwcd4": True},
        {"enable_ioc16": True},
    ],
    ids=str,
)
def test_optimising_changes_no_number_but_the_size(
    plain: Path, dump: Dump, network: Any, options: dict[str, bool]
) -> None:
    before = read_model(plain)
    after = read_model(dump(network, {"data": DATA}, **options))
    assert after.flops == pytest.approx(before.flops, rel=0.01)
    assert after.parameter_count == before.parameter_count
    size = 2 if "enable_ioc16" in options else 4
    assert after.weight_bytes == size * after.parameter_count
    assert after.metadata["optimized_for_inference"] == "true"
    assert set(options) <= set(after.metadata["optimize_options"].split(", "))


def test_of_a_testcase_file_the_model_inside_is_described(
    plain: Path, dump: Dump, network: Any
) -> None:
    how = {"output_names": ["logits"], "optimize_for_inference": False, "silent": True}
    one = dump(network, {"data": DATA}, input_data=["#rand(0,1)"], **how)
    info = read_model(one)
    expected = read_model(plain)
    assert info.metadata == {**expected.metadata, "testcases": "1"}
    assert (info.inputs, info.outputs) == (expected.inputs, expected.outputs)
    assert (info.operators, info.flops) == (expected.operators, expected.flops)
    assert info.parameter_count == expected.parameter_count


def test_the_old_format_and_a_packed_model_read_the_same(
    plain: Path, dump: Dump, network: Any, tmp_path: Path
) -> None:
    how = {"output_names": ["logits"], "optimize_for_inference": False}
    old = dump(network, {"data": DATA}, dump_format="FBS", **how)
    packed = tmp_path / "packed.lite"
    packed.write_bytes(b"packed_model" + bytes(40) + plain.read_bytes() + bytes(8))
    expected = read_model(plain)
    assert read_model(packed) == expected
    info = read_model(old)
    assert (info.inputs, info.outputs, info.flops) == (
        expected.inputs,
        expected.outputs,
        expected.flops,
    )


def test_inputs_keep_their_names_and_types(dump: Dump) -> None:
    zeros = np.zeros((2, 3), np.float32)
    inputs = {"z": zeros.astype(np.uint8), "a": zeros, "m": zeros.astype(np.int32)}
    path = dump(lambda z, a, m: a * z.astype("float32") + m.astype("float32"), inputs)
    info = read_model(path)
    dtypes = {it.name: it.dtype for it in info.inputs}
    assert dtypes == {"z": "uint8", "a": "float32", "m": "int32"}


def test_a_number_in_a_formula_is_no_parameter(dump: Dump) -> None:
    info = read_model(dump(lambda data: data * 2.5 + 1, {"data": np.zeros(4, np.float32)}))
    assert (info.parameter_count, info.weight_bytes) == (0, 0)
    assert info.flops == 8


def test_quantised_weights_are_parameters_of_one_byte() -> None:
    info = read_model(MODELS / "int8.mge")
    assert info.parameter_count < info.weight_bytes < 2 * info.parameter_count


def test_what_depends_on_the_data_has_no_shape_and_no_flops(dump: Dump) -> None:
    import megengine.functional as F

    def forward(data: Any) -> Any:
        return F.exp(F.cond_take(data > 0, data)[0])

    info = read_model(dump(forward, {"data": np.ones(4, np.float32)}))
    assert info.flops is None
    assert info.flops_unknown == ("Elemwise",)
    assert info.outputs[0].shape == ()


def test_an_operator_without_a_formula_is_named(dump: Dump) -> None:
    import megengine.functional as F

    inputs = {"data": DATA, "regions": np.zeros((2, 5), np.float32)}
    info = read_model(dump(lambda data, rois: F.vision.roi_align(data, rois, (3, 3)), inputs))
    assert info.flops is None
    assert info.flops_unknown == ("ROIAlignForward",)


def check_operator(dump: Dump, function: Any, shape: tuple[int, ...], flops: int) -> None:
    info = read_model(dump(function, {"data": np.ones(shape, np.float32)}))
    assert info.flops == flops


def test_operators_have_their_formulas(dump: Dump) -> None:
    import megengine.functional as F
    import megengine.module as M

    image = (2, 8, 6, 6)
    size = 2 * 8 * 6 * 6
    transposed = M.ConvTranspose2d(8, 4, 3, stride=2, bias=False)
    check_operator(dump, transposed, image, 2 * 2 * 36 * 8 * 4 * 9)
    grouped = M.Conv2d(8, 8, 3, groups=4, bias=False)
    check_operator(dump, grouped, image, 2 * 2 * 16 * 8 * 2 * 9)
    check_operator(dump, lambda it: F.max_pool2d(it, 3, 2, 1), image, 2 * 8 * 9 * 9)
    check_operator(dump, lambda it: F.adaptive_avg_pool2d(it, 1), image, size)
    check_operator(dump, lambda it: F.softmax(it, 1), (4, 10), 5 * 40)
    check_operator(dump, lambda it: F.mean(it, 1), image, size)
    check_operator(dump, M.LayerNorm(10), (4, 10), 7 * 40)
    check_operator(dump, F.relu6, image, 2 * size)
    check_operator(dump, F.gelu, image, size)
    bicubic = {"size": (9, 9), "mode": "bicubic"}
    interpolate = F.vision.interpolate
    check_operator(dump, lambda it: interpolate(it, **bicubic), image, 2 * 16 * 2 * 8 * 81)
    check_operator(dump, lambda it: F.concat([it, it], 1), image, 0)
    left = np.ones((3, 4, 5), np.float32)
    check_operator(dump, lambda it: F.matmul(it, it, transpose_a=True), left.shape, 2 * 3 * 100)
    check_operator(dump, M.RNN(4, 6), (3, 2, 4), 2 * 3 * 2 * (6 * 10 + 12))


def test_what_the_user_put_in_is_shown_but_never_run(
    dump: Dump, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    inputs = {"data": np.ones(4, np.float32)}
    noted = dump(lambda data: data + 1, inputs, user_info={"version": 3})
    hostile = dump(lambda data: data + 1, inputs, user_info=Hostile())
    silent = dump(lambda data: data + 1, inputs, enable_metadata=False)
    assert read_model(noted).metadata["user_info"] == "{'version': 3}"
    assert "not plain data" in read_model(hostile).metadata["user_info"]
    assert not (tmp_path / "was_run").exists()
    assert read_model(silent).metadata == {}


def check_refused(path: Path) -> UsageError:
    """Read a broken file; the message must be one line that names it."""
    with pytest.raises(UsageError) as caught:
        read_model(path)
    message = caught.value.message
    assert message.startswith(f"{path}: ")
    assert "\n" not in message
    assert "assert" not in message
    return caught.value


@pytest.mark.parametrize("part", [1, 7, 11, 12, 40, 0.25, 0.5, 0.9, -1])
def test_a_file_cut_short_is_refused(plain: Path, tmp_path: Path, part: float) -> None:
    data = plain.read_bytes()
    end = int(part * len(data)) if 0 < part < 1 else int(part)
    for name, whole in (("plain", data), ("case", b"mgbtest0" + struct.pack("<I", 1) + data)):
        path = tmp_path / f"{name}.mge"
        path.write_bytes(whole[:end])
        assert "cut short" in str(check_refused(path))


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.mge"
    check_refused(path)
    for content in (b"", b"hello\n" * 100, random.Random(1).randbytes(4096), b"packed_model" * 9):
        path.write_bytes(content)
        check_refused(path)
    path.write_bytes((MODELS / "digits_cnn.onnx").read_bytes())
    assert "ONNX" in str(check_refused(path))
    path.unlink()
    path.mkdir()
    check_refused(path)


def test_a_damaged_graph_is_refused_and_the_reason_kept(plain: Path, tmp_path: Path) -> None:
    data = bytearray(plain.read_bytes())
    data[:4] = struct.pack("<I", len(data) - 4)
    data[4:8] = b"\xff\xff\xff\x7f"
    path = tmp_path / "damaged.mge"
    path.write_bytes(data)
    error = check_refused(path)
    assert "damaged" in str(error)
    assert "verification failed" in str(error.__cause__)
