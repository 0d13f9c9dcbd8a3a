"""Each form of input feeds a run the same numbers, on both engines."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

from tests.cli.marks import each_format, needs_megengine
from tests.cli.runs import outputs_of, result_of, save_model

if TYPE_CHECKING:
    from tests.conftest import RunLar, WriteScript


@pytest.fixture(scope="module")
def cat_outputs(run_lar: RunLar, root: Path) -> Callable[[str], list[tuple[str, str]]]:
    """What mobilenet_v2 answers to inputs/cat.npy, by format of the model."""
    known: dict[str, list[tuple[str, str]]] = {}

    def outputs(suffix: str) -> list[tuple[str, str]]:
        if suffix not in known:
            words = (f"models/mobilenet_v2.{suffix}", "--input", "inputs/cat.npy")
            known[suffix] = outputs_of(run_lar, *words, cwd=root)
        return known[suffix]

    return outputs


CAT_FORMS: dict[str, list[str]] = {
    "json": ["--input", "data:inputs/cat.json"],
    "ppm": ["--input", "inputs/cat.ppm", "--input-layout", "nchw", "--bgr"],
    "jpg": ["--input", "inputs/cat.jpg", "--input_layout=nchw"],
    "jpg, --bgr": ["--input=data:inputs/cat.jpg", "--input-layout=nchw", "--bgr"],
    "resized to its own size": [
        *("--input", "inputs/cat.ppm", "--input-layout", "nchw", "--bgr"),
        *("--resize", "224x224", "--mean", "0", "--scale", "1,1,1"),
    ],
}


@each_format
@pytest.mark.parametrize("form", CAT_FORMS)
def test_all_forms_of_the_cat_give_the_same(
    run_lar: RunLar, root: Path, cat_outputs: Any, suffix: str, form: str
) -> None:
    if (suffix, form) == ("mge", "jpg, --bgr"):
        pytest.skip("forms do not know the engine, and this model is slow to start on it")
    model = f"models/mobilenet_v2.{suffix}"
    assert outputs_of(run_lar, model, *CAT_FORMS[form], cwd=root) == cat_outputs(suffix)


@each_format
@pytest.mark.parametrize(
    "flags",
    [
        ["--rgb"],
        ["--bgr", "--mean", "1"],
        ["--bgr", "--scale", "0.5"],
        ["--bgr", "--resize", "112x112", "--resize", "224,224", "--mean=1,2,3"],
    ],
)
def test_other_image_settings_give_something_else(
    run_lar: RunLar, root: Path, cat_outputs: Any, suffix: str, flags: list[str]
) -> None:
    if suffix == "mge" and flags != ["--rgb"]:
        pytest.skip("the settings do not know the engine, and this model is slow to start on it")
    words = (f"models/mobilenet_v2.{suffix}", "--input", "inputs/cat.ppm", "--input-layout", "nchw")
    assert outputs_of(run_lar, *words, *flags, cwd=root) != cat_outputs(suffix)


def test_mean_and_scale_are_applied_in_this_order(run_lar: RunLar, tmp_path: Path) -> None:
    pixels = np.arange(48, dtype=np.float32).reshape(1, 3, 4, 4)
    mean, scale = (np.array(x, np.float32)[:, None, None] for x in ([1, -2, 3], [0.5, 2, -1]))
    np.save(tmp_path / "raw.npy", pixels)
    np.save(tmp_path / "ready.npy", (pixels - mean) * scale)
    model = save_model(tmp_path / "relu.onnx", "Relu", [1, 3, 4, 4])
    raw, ready = (("--input", str(tmp_path / f"{name}.npy")) for name in ("raw", "ready"))
    flags = ("--mean=1,-2,3", "--scale", "0.5,2,-1")
    expected = outputs_of(run_lar, model, *ready)
    assert outputs_of(run_lar, model, *raw, *flags) == expected
    # A negative first number needs no equals sign.
    assert outputs_of(run_lar, model, *raw, "--mean", "-1,2,3") != expected


@pytest.fixture(scope="module")
def uint8_cat_outputs(
    run_lar: RunLar, root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], list[tuple[str, str]]]:
    """What uint8_input answers to the pixels of the cat, by format of the model."""
    path = tmp_path_factory.mktemp("pixels") / "cat.npy"
    np.save(path, np.load(root / "inputs/cat.npy").transpose(0, 2, 3, 1).astype(np.uint8))

    @functools.cache
    def outputs(suffix: str) -> list[tuple[str, str]]:
        model = str(root / f"models/uint8_input.{suffix}")
        return outputs_of(run_lar, model, "--input", str(path))

    return outputs


@each_format
@pytest.mark.parametrize(
    ("image", "flags"), [("cat.ppm", ["--bgr"]), ("cat.jpg", []), ("cat.jpg", ["--bgr"])]
)
def test_images_feed_a_uint8_model_as_they_are(
    run_lar: RunLar, root: Path, uint8_cat_outputs: Any, suffix: str, image: str, flags: list[str]
) -> None:
    words = (f"models/uint8_input.{suffix}", "--input", f"inputs/{image}")
    assert outputs_of(run_lar, *words, *flags, cwd=root) == uint8_cat_outputs(suffix)


def test_gray_image(run_lar: RunLar, root: Path, write_script: WriteScript) -> None:
    gray = [{"name": "data", "dtype": "uint8", "shape": [1, 224, 224, 1]}]
    script = write_script(inputs=gray, outputs={"prob": [1.0]})
    (fed,) = result_of(run_lar, script, "--input", "inputs/cat.pgm", cwd=root).fed
    assert (fed.name, fed.dtype, fed.shape) == ("data", "uint8", (1, 224, 224, 1))


@pytest.fixture(scope="module")
def forms_of_four(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The numbers 1.5, -2, 3, 4 in each form that `--input` takes."""
    folder = tmp_path_factory.mktemp("forms")
    four = np.array([1.5, -2, 3, 4], np.float32)
    np.save(folder / "four.npy", four)
    np.save(folder / "big_endian.npy", four.astype(">f4"))
    np.savez(folder / "four.npz", data=four)
    np.savez(folder / "two.npz", data=four, other=four[:2])
    four.tofile(folder / "four.bin")
    tensor = onnx.numpy_helper.from_array(four, "data")
    (folder / "four.pb").write_bytes(tensor.SerializeToString())
    (folder / "test_data_set_0").mkdir()
    (folder / "test_data_set_0/input_0.pb").write_bytes(tensor.SerializeToString())
    entry = {"shape": [4], "type": "float32", "raw": four.tolist()}
    (folder / "four.json").write_text(json.dumps({"data": entry}))
    return {
        "npy": f"{folder}/four.npy",
        "npy, big-endian": f"{folder}/big_endian.npy",
        "npz": f"{folder}/four.npz",
        "npz, of several": f"data:{folder}/two.npz",
        "json": f"{folder}/four.json",
        "pb": f"{folder}/four.pb",
        "folder of pb": f"{folder}/test_data_set_0",
        "bin": f"{folder}/four.bin",
        "bin, spelled out": f"{folder}/four.bin,float32,4",
        "inline": "1.5,-2,3,4",
        "inline, named": "data:1.5,-2,3,4",
        "inline, in brackets": "[1.5,-2,3,4]",
        "inline, spaced": " data : 1.5, -2, 3, 4 ;",
    }


FORMS_OF_FOUR = (
    *("npy", "npy, big-endian", "npz", "npz, of several", "json", "pb", "folder of pb", "bin"),
    *("bin, spelled out", "inline", "inline, named", "inline, in brackets", "inline, spaced"),
)


@pytest.mark.parametrize("form", FORMS_OF_FOUR)
def test_all_forms_give_the_same(
    run_lar: RunLar, root: Path, forms_of_four: dict[str, str], form: str
) -> None:
    model = str(root / "models/one_operator.onnx")
    result = result_of(run_lar, model, "--input", forms_of_four[form], "--iter", "1")
    (fed,), (output,) = result.fed, result.outputs
    assert (fed.name, fed.dtype, fed.shape, fed.generated) == ("data", "float32", (4,), False)
    assert (output.minimum, output.maximum, output.mean) == (0, 4, 2.125)
    assert result.warnings == ()


@needs_megengine
def test_forms_give_the_same_on_megengine(
    run_lar: RunLar, root: Path, forms_of_four: dict[str, str]
) -> None:
    model = str(root / "models/one_operator.mge")
    answers = [
        outputs_of(run_lar, model, "--input", forms_of_four[form])
        for form in ("npy", "npz", "json", "pb", "inline")
    ]
    assert all(answer == answers[0] for answer in answers)


def test_inline_values_may_begin_with_a_minus(run_lar: RunLar, root: Path) -> None:
    model = str(root / "models/one_operator.onnx")
    expected = outputs_of(run_lar, model, "--input=-1,0,1,2")
    assert outputs_of(run_lar, model, "--input", "-1,0,1,2") == expected


@each_format
def test_several_inputs(run_lar: RunLar, root: Path, tmp_path: Path, suffix: str) -> None:
    tensors = json.loads((root / "inputs/multi_input.json").read_text())
    arrays = {
        name: np.array(tensor["raw"], np.float32).reshape(tensor["shape"])
        for name, tensor in tensors.items()
    }
    np.savez(tmp_path / "both.npz", **arrays)
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    a, b = (f"{name}:{tmp_path / name}.npy" for name in "ab")
    inline = f"a:{arrays['a'].tolist()};b:{arrays['b'].tolist()}"
    model = f"models/multi_input.{suffix}"
    expected = outputs_of(run_lar, model, "--input", "inputs/multi_input.json", cwd=root)
    assert dict(expected).keys() == {"product", "rectified"}
    for words in (
        ["--input", f"{a};{b}"],
        ["--input", b, "--input", a],
        ["--input", str(tmp_path / "both.npz")],
        ["--input", inline],
    ):
        assert outputs_of(run_lar, model, *words, cwd=root) == expected, words


def test_number_for_an_input_without_axes(run_lar: RunLar, tmp_path: Path) -> None:
    model = save_model(tmp_path / "model.onnx", "Relu", [])
    for text in ("3", "{}"):
        assert result_of(run_lar, model, "--iter", "1", "--input", text).fed[0].shape == ()


@each_format
def test_generated_data(run_lar: RunLar, root: Path, suffix: str) -> None:
    model = f"models/dynamic_batch.{suffix}"
    answers = {}
    for flags in ("", "--seed 0", "--seed 1", "--fill normal", "--fill zeros", "--fill=ones"):
        words = (*flags.split(), "--input", "data:{3,16}")
        result = result_of(run_lar, model, *words, "--iter", "1", cwd=root)
        (fed,), (output,) = result.fed, result.outputs
        assert fed.generated
        assert (fed.shape, output.shape) == ((3, 16), (3, 8))
        answers[flags] = output.sha256
    assert answers[""] == answers["--seed 0"]
    assert len(set(answers.values())) == 5


def test_generated_data_is_announced(run_lar: RunLar, root: Path) -> None:
    done = run_lar("models/multi_input.onnx", "--seed", str(10**30), "--iter", "0", cwd=root)
    (line,) = done.stderr.splitlines()
    assert line.startswith("lar: note: no --input: data is generated (uniform, seed 1000")
    assert "a float32 (2, 3), b float32 (3, 4)" in line
    done = run_lar("models/dynamic_batch.onnx", "--input", "{2,16}", "--iter", "0", cwd=root)
    assert "no --input" not in done.stderr
