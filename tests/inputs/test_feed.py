from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from onnx import numpy_helper

from lar.errors import UsageError
from lar.inputs import feed as feed_module
from lar.inputs.feed import Feed, feed_of
from lar.inputs.grammar import PathItem
from lar.records.run import FedInput, ImageSettings, RunSpec, TensorInfo
from tests.refusals import refused
from tests.tables import each_row

IMAGE = TensorInfo(name="data", dtype="float32", shape=(1, 3, 4, 5))
FREE_IMAGE = TensorInfo(name="data", dtype="float32", shape=(1, 3, 4, 5), resizable=True)
VALUES = np.random.default_rng(0).normal(size=(1, 3, 4, 5)).astype(np.float32)


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def spec_with(**settings: Any) -> RunSpec:
    """A spec with these settings of images."""
    return RunSpec(model="m", engine="", driver="", image=ImageSettings(**settings))


def vector(name: str = "data", dtype: str = "float32", size: int | None = 3) -> TensorInfo:
    return TensorInfo(name=name, dtype=dtype, shape=(1, size))


def feed(
    *texts: str,
    infos: Any = (IMAGE,),
    fill: Any = "uniform",
    generates: bool = True,
    **settings: Any,
) -> Feed:
    spec = replace(spec_with(**settings), fill=fill)
    result = feed_of(texts, infos, spec, generates=generates)
    assert list(result.arrays) == [info.name for info in infos]
    for info, fed in zip(infos, result.fed, strict=True):
        array = result.arrays[info.name]
        assert array.dtype == info.dtype
        assert array.dtype.isnative
        assert array.flags.c_contiguous
        assert array.flags.aligned
        assert array.flags.writeable
        assert (fed.name, fed.dtype, fed.shape) == (info.name, info.dtype, array.shape)
    return result


def refusal(*texts: str, infos: Any = (IMAGE,), **settings: Any) -> UsageError:
    caught = refused("", feed, *texts, infos=infos, **settings)
    assert caught.message.startswith("--")
    assert "\n" not in caught.message + caught.hint
    return caught


def test_the_array_of_a_file_is_fed() -> None:
    np.save("cat.npy", VALUES)
    for text in ("cat.npy", "data:cat.npy"):
        result = feed(text)
        np.testing.assert_array_equal(result.arrays["data"], VALUES)
        assert result.fed == (
            FedInput(name="data", dtype="float32", shape=(1, 3, 4, 5), source="cat.npy"),
        )
        assert result.warnings == ()


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("byte_order", ["<", ">"])
def test_order_and_byte_order_of_the_file_do_not_count(order: Any, byte_order: str) -> None:
    np.save("cat.npy", np.asarray(VALUES, byte_order + "f4", order=order))
    result = feed("cat.npy")
    np.testing.assert_array_equal(result.arrays["data"], VALUES)
    assert result.warnings == ()


def test_without_texts_everything_is_generated() -> None:
    infos = (vector("a", size=None), vector("b", "int64"), vector("c", "bool"))
    result = feed(infos=infos)
    assert all(fed.generated and fed.source == "uniform, seed 0" for fed in result.fed)
    assert result.fed[0].shape == (1, 1)
    turned = feed(infos=infos[::-1])
    for name, array in result.arrays.items():
        np.testing.assert_array_equal(array, turned.arrays[name])
    assert feed(infos=()).arrays == {}


def test_a_shape_is_generated() -> None:
    result = feed("data:{1,3,7,9}", infos=(FREE_IMAGE,), fill="ones")
    assert result.fed[0].generated
    assert result.fed[0].source == "ones"
    assert (result.arrays["data"] == np.ones((1, 3, 7, 9))).all()
    assert "axis 2 must be 4" in refusal("{1,3,7,9}").message
    assert "memory" in refusal("{1,3,99999999,99999999}", infos=(FREE_IMAGE,)).message


def test_inline_numbers_take_the_dtype_of_the_model() -> None:
    for dtype in ("float32", "float64", "float16", "int32", "int64", "uint8"):
        result = feed("[1,2.0,3]", infos=(vector(dtype=dtype),))
        assert result.arrays["data"].tolist() == [[1, 2, 3]]
        assert result.warnings == ()
    assert "not whole" in refusal("[1,2.5,3]", infos=(vector(dtype="int32"),)).message
    assert "holds 256" in refusal("[1,2,256]", infos=(vector(dtype="uint8"),)).message
    assert "float32" in refusal("[1,2,1e39]", infos=(vector(),)).message
    assert len(feed("[" + ",".join(["1"] * 99) + "]", infos=(vector(size=99),)).fed[0].source) == 60


@each_row("inputs/feed/converted")
def test_dtypes_of_one_kind_are_converted(source: str, model: str, is_warned: bool) -> None:
    np.save("a.npy", np.array([[1, 0, 1]], source))
    result = feed("a.npy", infos=(vector(dtype=model),))
    assert result.arrays["data"].tolist() == [[1, 0, 1]]
    warning = f"--input: a.npy: converted from {source} to {model}"
    assert result.warnings == ((warning,) if is_warned else ())


@each_row("inputs/feed/kinds")
def test_dtypes_of_different_kinds_are_refused(source: str, model: str) -> None:
    np.save("a.npy", np.array([[1, 0, 1]], source))
    error = refusal("a.npy", infos=(vector(dtype=model),))
    assert error.message == f"--input: a.npy: holds {source}, the model takes {model}"
    assert f"astype('{model}')" in error.hint


@pytest.mark.parametrize(
    ("value", "source", "model"),
    [(300, "int64", "uint8"), (-1, "int8", "uint64"), (1e39, "float64", "float32")],
)
def test_values_that_do_not_fit_are_refused(value: float, source: str, model: str) -> None:
    np.save("a.npy", np.array([[0, 0, value]], source))
    assert "out of the range" in refusal("a.npy", infos=(vector(dtype=model),)).message


def test_numbers_that_are_not_finite_are_warned_of() -> None:
    np.save("a.npy", np.array([[1, np.nan, np.inf]], np.float32))
    result = feed("a.npy", infos=(vector(),))
    assert result.warnings == ("--input: a.npy: 2 of 3 values are NaN or infinite",)


def test_names_are_checked() -> None:
    np.save("a.npy", np.zeros((1, 3), np.float32))
    two = (vector("a"), vector("b"))
    error = refusal("c:a.npy", infos=two)
    assert (error.message, error.hint) == (
        "--input: a.npy: the model has no input 'c'",
        "its inputs are a, b",
    )
    assert "does not say which" in refusal("a.npy", infos=two).message
    assert "two items feed a" in refusal("a:a.npy;a:[1,2,3]", infos=two).message
    missing = refused("--input: nothing feeds b", feed, "a:a.npy", infos=two, generates=False)
    assert missing.hint == "b:{1,3} generates data that fits"
    assert "no inputs" in refusal("a.npy", infos=()).message
    assert feed("a.npy;b:{1,3}", infos=(vector("data"), vector("b"))).fed[0].source == "a.npy"
    assert feed("a:a.npy", "b:[1,2,3]", infos=two).fed[1].source == "[1,2,3]"


@each_row("inputs/feed/shapes")
def test_shapes_are_checked(shape: list[int], problem: str) -> None:
    np.save("a.npy", np.zeros(shape, np.float32))
    assert problem in refusal("a.npy").message


def test_a_resizable_input_fixes_rank_and_channels() -> None:
    np.save("a.npy", np.zeros((2, 3, 9, 9), np.float32))
    feed("a.npy", infos=(FREE_IMAGE,))
    np.save("none.npy", np.zeros((0, 3, 9, 9), np.float32))
    assert "an axis of 0" in refusal("none.npy", infos=(FREE_IMAGE,)).message
    last = TensorInfo(name="x", dtype="float32", shape=(1, 6, 5, 3), resizable=True)
    assert "axis 3 must be 3" in refusal("a.npy", infos=(last,)).message
    assert "axes" in refusal("a.npy", infos=(vector(),)).message
    feed("a.npy", infos=(TensorInfo(name="x", dtype="float32", shape=(None, 3, None, None)),))


def test_named_arrays_of_a_file_go_by_their_names() -> None:
    two = (vector("a"), vector("b", "int64"))
    arrays = {"b": np.array([[4, 5, 6]]), "a": np.array([[1, 2, 3]], np.float32)}
    np.savez("ab.npz", **arrays)
    document = {
        name: {"shape": [1, 3], "type": array.dtype.name, "raw": array.ravel().tolist()}
        for name, array in arrays.items()
    }
    Path("ab.json").write_text(json.dumps(document))
    Path("set").mkdir()
    for position, name in enumerate("ab"):
        proto = numpy_helper.from_array(arrays[name], name)
        Path(f"set/input_{position}.pb").write_bytes(proto.SerializeToString())
    for texts in (["ab.npz"], ["ab.json"], ["set"], ["a:ab.npz", "b:ab.json"]):
        result = feed(*texts, infos=two)
        assert result.arrays["a"].tolist() == [[1, 2, 3]]
        assert result.arrays["b"].tolist() == [[4, 5, 6]]
    for text in ("ab.npz", "ab.json"):
        assert "no input 'b'" in refusal(text, infos=two[:1]).message
        feed(f"a:{text}", infos=two[:1])


def test_one_unnamed_array_of_a_file_feeds_the_only_input() -> None:
    np.savez("x.npz", np.zeros((1, 3), np.float32))
    feed("x.npz", infos=(vector(),))
    feed("data:x.npz", infos=(vector(),))
    Path("x.json").write_text('{"other": {"shape": [1, 3], "raw": [1, 2, 3]}}')
    assert "no input 'other'" in refusal("x.json", infos=(vector(),)).message
    assert feed("data:x.json", infos=(vector(),)).warnings == ()


def test_onnx_tensors_go_by_name_then_position() -> None:
    two = (vector("a"), vector("b"))
    proto = numpy_helper.from_array(np.zeros((1, 3), np.float32), "").SerializeToString()
    Path("input_1.pb").write_bytes(proto)
    Path("x.pb").write_bytes(proto)
    assert feed("input_1.pb;a:x.pb", infos=two).fed[1].source == "input_1.pb"
    assert "does not say which" in refusal("x.pb", infos=two).message
    assert "number 1" in refusal("input_1.pb", infos=two[:1]).message
    feed("x.pb", infos=two[:1])


def test_raw_bytes_take_the_dtype_and_shape_of_the_model() -> None:
    VALUES.tofile("x.bin")
    np.testing.assert_array_equal(feed("x.bin").arrays["data"], VALUES)
    np.testing.assert_array_equal(feed("data:x.bin,float32,1x3x4x5").arrays["data"], VALUES)
    any_size = TensorInfo(name="data", dtype="float32", shape=(None, 3, 4, 5))
    for info in (any_size, TensorInfo(name="data", dtype="float32", shape=(), any_rank=True)):
        error = refusal("x.bin", infos=(info,))
        assert "needs a shape: input data is" in error.message
        assert "file.bin,float32" in error.hint
    feed("x.bin,float,1x3x4x5", infos=(any_size,))
    assert "holds 240 bytes" in refusal("x.bin", infos=(vector(),)).message


def test_an_image_of_the_models_form_needs_no_flags() -> None:
    pixels = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    Path("cat.ppm").write_bytes(b"P6 5 4 255\n" + pixels.tobytes())
    info = TensorInfo(name="data", dtype="uint8", shape=(1, 4, 5, 3))
    np.testing.assert_array_equal(feed("cat.ppm", infos=(info,)).arrays["data"][0], pixels)
    turned = feed("cat.ppm", layout="nchw", channels="bgr").arrays["data"]
    np.testing.assert_array_equal(turned[0], pixels[..., ::-1].transpose(2, 0, 1))


def test_an_image_of_another_form_names_the_flags() -> None:
    cv2.imwrite("cat.png", np.zeros((8, 9, 3), np.uint8))
    error = refusal("cat.png")
    assert error.message == (
        "--input: cat.png: is an image of uint8 {1,8,9,3}, input data takes float32 {1,3,4,5}"
    )
    for flag in ("--input-layout nchw", "--resize 4x5", "--mean", "--scale", "--bgr", "--rgb"):
        assert flag in error.hint
    assert "--resize 4x5" in refusal("cat.png", layout="nchw").hint
    assert "add --input-layout nchw" in refusal("cat.png", layout="nhwc", size=(4, 5)).hint
    assert "4 axes" in refusal("cat.png", infos=(vector(),)).hint
    feed("cat.png", layout="nchw", size=(4, 5))
    feed("cat.png", layout="nchw", infos=(FREE_IMAGE,))


def test_a_gray_image_is_no_colour_image() -> None:
    Path("cat.pgm").write_bytes(b"P5 5 4 255\n" + bytes(20))
    assert "has 1 channel" in refusal("cat.pgm").message
    assert "has 1 channel" in refusal("cat.pgm", layout="nchw").message
    gray = TensorInfo(name="data", dtype="float32", shape=(1, 1, 4, 5))
    assert feed("cat.pgm", layout="nchw", infos=(gray,)).fed[0].shape == (1, 1, 4, 5)


def test_image_settings_leave_other_inputs_alone() -> None:
    cv2.imwrite("cat.png", np.full((4, 5, 3), 9, np.uint8))
    np.save("mask.npy", VALUES)
    mask = TensorInfo(name="mask", dtype="float32", shape=(1, 3, 4, 5))
    sizes = vector("sizes")
    texts = ("data:cat.png", "mask:mask.npy", "sizes:[1,2,3]")
    result = feed(*texts, infos=(IMAGE, mask, sizes), layout="nchw", mean=(9.0,))
    assert not result.arrays["data"].any()
    np.testing.assert_array_equal(result.arrays["mask"], VALUES)
    only = feed("mask:mask.npy", "sizes:[1,2,3]", infos=(mask, sizes), mean=(1.0,))
    np.testing.assert_allclose(only.arrays["mask"], VALUES - 1)
    assert only.arrays["sizes"].tolist() == [[1, 2, 3]]


def test_image_settings_without_an_image_are_refused() -> None:
    for texts in ((), ("data:{1,3}",), ("[1,2,3]",)):
        error = refusal(*texts, infos=(vector(),), scale=(2.0,))
        assert error.message.startswith("--scale: the flag changes images")


def test_a_dtype_that_numpy_lacks_is_refused() -> None:
    info = TensorInfo(name="data", dtype="int4", shape=(1,))
    for texts in ((), ("1",), ("{1}",)):
        assert "int4, which lar cannot feed" in refusal(*texts, infos=(info,)).message


def test_libraries_are_imported_only_by_the_reader_that_needs_them() -> None:
    code = "import sys, lar.inputs.feed; print({'cv2', 'onnx', 'msgspec'} & sys.modules.keys())"
    root = Path(feed_module.__file__).parents[2]
    run = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, check=True)
    assert run.stdout == b"set()\n"


def test_running_out_of_memory_is_an_error_of_use(monkeypatch: pytest.MonkeyPatch) -> None:
    def run_out(*_: Any, **__: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(feed_module, "generate_array", run_out)
    assert "memory" in refusal().message


def test_the_outer_axis_of_inline_values_is_kept_where_it_fits_and_dropped_where_not() -> None:
    assert feed("[1.5,2,3]", infos=(vector(),)).arrays["data"].shape == (1, 3)
    flat = TensorInfo(name="data", dtype="float32", shape=(3,))
    assert feed("[1.5,2,3]", infos=(flat,)).arrays["data"].shape == (3,)
    assert "2 axes" in refusal("[[1.5],[2]]", infos=(flat,)).message


def test_expected_outputs_that_nobody_judges_are_a_warning() -> None:
    Path("set").mkdir()
    tensor = numpy_helper.from_array(VALUES).SerializeToString()
    Path("set/input_0.pb").write_bytes(tensor)
    assert feed("set").warnings == ()
    for name in ("output_0.pb", "output_1.pb"):
        Path("set", name).write_bytes(tensor)
    (warning,) = feed("set").warnings
    assert warning.startswith("--input: set: its expected outputs (output_0.pb, output_1.pb) are")
    # Testcases give items, and are judged.
    assert feed_of([PathItem("", "set")], (IMAGE,), spec_with()).warnings == ()


def test_the_name_of_an_axis_may_be_a_long_sum() -> None:
    name = "n * 2" + " + n" * 3000
    info = TensorInfo(name="data", dtype="float32", shape=(None,), axes=(name,))
    assert feed(infos=[info]).arrays["data"].shape == (3002,)
    spec = replace(spec_with(), shape={"n": 2})
    assert feed_of([], [info], spec).arrays["data"].shape == (6004,)
