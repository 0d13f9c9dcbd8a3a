from __future__ import annotations

import json
import re
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
from lar.records.run import FedInput, ImageSettings, RunSpec, TensorInfo, format_shape
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


def infos_in(text: str) -> list[TensorInfo]:
    """Inputs such as `a float32 1x?xn optional; b int64 -`, whose axes may have names."""
    found = []
    for part in text.split("; ") if text else ():
        name, dtype, sizes, *facts = part.split()
        axes = re.findall(r"[^x]+", sizes.strip("-"))
        found.append(
            TensorInfo(
                name=name,
                dtype=dtype,
                shape=tuple(int(axis) if axis.isdecimal() else None for axis in axes),
                axes=tuple("" if axis == "?" or axis.isdecimal() else axis for axis in axes),
                **dict.fromkeys(facts, True),
            )
        )
    return found


@pytest.fixture
def files() -> None:
    """Arrays and images of some shapes and types."""
    for dtype in ("float32", "float64", "int64", "bool", "complex64", "str"):
        np.save(f"{dtype}.npy", np.zeros((1, 3), dtype))
    for shape in ((2, 3, 9, 9), (0, 3, 9, 9), (1, 3, 4, 5), (3, 3), (1, 3, 0, 5), (3, 4, 5)):
        np.save(f"{'x'.join(map(str, shape))}.npy", np.zeros(shape, np.float32))
    row = np.array([[1, 2, 3]], np.float32)
    np.savez("x.npz", row)
    np.savez("ab.npz", a=row, b=row.astype(np.int64))
    for name, told in {"x": "", "input_1": "", "input_2": "", "named": "b"}.items():
        proto = numpy_helper.from_array(row, told)
        Path(f"{name}.pb").write_bytes(proto.SerializeToString())
    Path("x.bin").write_bytes(row.tobytes())
    cv2.imwrite("cat.png", np.arange(216, dtype=np.uint8).reshape(8, 9, 3))
    Path("cat.pgm").write_bytes(b"P5 5 4 255\n" + bytes(20))
    Path("set").mkdir()
    Path("set/input_0.pb").write_bytes(proto.SerializeToString())


@each_row("inputs/feed/refused")
@pytest.mark.usefixtures("files")
def test_what_does_not_fit_is_refused_with_a_hint(
    texts: list[str], infos: str, settings: dict[str, Any], message: str, hint: str
) -> None:
    if "shape" in settings:
        spec = replace(spec_with(), shape=settings["shape"])
        error = refused("", feed_of, texts, infos_in(infos), spec)
    else:
        error = refused("", feed, *texts, infos=infos_in(infos), **settings)
    assert (error.message, error.hint) == (message, hint)


@each_row("inputs/feed/fed")
@pytest.mark.usefixtures("files")
def test_what_fits_is_fed(
    texts: list[str], infos: str, shape: dict[str, int], told: list[str], warnings: list[str]
) -> None:
    spec = replace(spec_with(), shape=shape)
    result = feed_of(texts, infos_in(infos), spec)
    found = [f"{it.name} {it.dtype} {format_shape(it.shape)} {it.source}" for it in result.fed]
    assert (found, [*result.warnings, *result.guessed]) == (told, warnings)


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
