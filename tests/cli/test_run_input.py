"""Each form of input feeds a run the same numbers, on both engines."""

from __future__ import annotations

import functools
import json
from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.cli.marks import each_format
from tests.cli.runs import outputs_of, result_of
from tests.command_lines import ROOT, run_lar
from tests.conftest import WriteScript
from tests.engines.onnx_models import save_model
from tests.tables import each_row

TABLES = json.loads(Path(__file__).with_name("input_kinds.json").read_text())


@functools.cache
def cat_outputs(suffix: str) -> list[tuple[str, str]]:
    """What mobilenet_v2 answers to inputs/cat.npy, by format of the model."""
    return outputs_of(f"models/mobilenet_v2.{suffix}", "--input", "inputs/cat.npy", cwd=ROOT)


CAT_FORMS: dict[str, list[str]] = TABLES["forms of the cat"]


@each_format
@pytest.mark.parametrize("form", CAT_FORMS)
def test_all_forms_of_the_cat_give_the_same(suffix: str, form: str) -> None:
    if (suffix, form) == ("mge", "jpg, --bgr"):
        pytest.skip("forms do not know the engine, and this model is slow to start on it")
    model = f"models/mobilenet_v2.{suffix}"
    assert outputs_of(model, *CAT_FORMS[form], cwd=ROOT) == cat_outputs(suffix)


@each_format
@each_row("cli/cases/image settings")
def test_other_image_settings_give_something_else(suffix: str, flags: list[str]) -> None:
    if suffix == "mge" and flags != ["--rgb"]:
        pytest.skip("the settings do not know the engine, and this model is slow to start on it")
    words = (f"models/mobilenet_v2.{suffix}", "--input", "inputs/cat.ppm", "--input-layout", "nchw")
    assert outputs_of(*words, *flags, cwd=ROOT) != cat_outputs(suffix)


def save_relu(folder: Path, shape: str) -> str:
    text = f"(float{shape} data) => (float{shape} output) {{ output = Relu(data) }}"
    return str(save_model(folder / "relu.onnx", text))


def test_mean_and_scale_are_applied_in_this_order(tmp_path: Path) -> None:
    pixels = np.arange(48, dtype=np.float32).reshape(1, 3, 4, 4)
    mean, scale = (np.array(x, np.float32)[:, None, None] for x in ([1, -2, 3], [0.5, 2, -1]))
    np.save(tmp_path / "raw.npy", pixels)
    np.save(tmp_path / "ready.npy", (pixels - mean) * scale)
    model = save_relu(tmp_path, "[1, 3, 4, 4]")
    raw, ready = (("--input", str(tmp_path / f"{name}.npy")) for name in ("raw", "ready"))
    flags = ("--mean=1,-2,3", "--scale", "0.5,2,-1")
    expected = outputs_of(model, *ready)
    assert outputs_of(model, *raw, *flags) == expected
    # A negative first number needs no equals sign.
    assert outputs_of(model, *raw, "--mean", "-1,2,3") != expected


@each_format
def test_images_feed_a_uint8_model_as_they_are(tmp_path: Path, suffix: str) -> None:
    pixels = np.load(ROOT / "inputs/cat.npy").transpose(0, 2, 3, 1).astype(np.uint8)
    np.save(tmp_path / "cat.npy", pixels)
    words = (f"models/uint8_input.{suffix}", "--input")
    expected = outputs_of(*words, str(tmp_path / "cat.npy"), cwd=ROOT)
    for image, *flags in (("cat.ppm", "--bgr"), ("cat.jpg",), ("cat.jpg", "--bgr")):
        assert outputs_of(*words, f"inputs/{image}", *flags, cwd=ROOT) == expected, image


def test_gray_image(write_script: WriteScript) -> None:
    gray = [{"name": "data", "dtype": "uint8", "shape": [1, 224, 224, 1]}]
    script = write_script(inputs=gray, outputs={"prob": [1.0]})
    (fed,) = result_of(script, "--input", "inputs/cat.pgm", cwd=ROOT).fed
    assert (fed.name, fed.dtype, fed.shape) == ("data", "uint8", (1, 224, 224, 1))


def forms_of_four(folder: Path) -> dict[str, str]:
    """The numbers 1.5, -2, 3, 4 in each form that `--input` takes."""
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


def test_all_forms_give_the_same(tmp_path: Path) -> None:
    model = str(ROOT / "models/one_operator.onnx")
    for form, text in forms_of_four(tmp_path).items():
        result = result_of(model, "--input", text, "--iter", "1")
        (fed,), (output,) = result.fed, result.outputs
        assert (fed.name, fed.dtype, fed.shape) == ("data", "float32", (4,)), form
        assert (output.minimum, output.maximum, output.mean) == (0, 4, 2.125), form
        assert (fed.generated, result.warnings) == (False, ()), form


def test_inline_values_may_begin_with_a_minus() -> None:
    model = str(ROOT / "models/one_operator.onnx")
    assert outputs_of(model, "--input", "-1,0,1,2") == outputs_of(model, "--input=-1,0,1,2")


@each_format
def test_several_inputs(tmp_path: Path, suffix: str) -> None:
    arrays = {
        name: np.array(tensor["raw"], np.float32).reshape(tensor["shape"])
        for name, tensor in json.loads((ROOT / "inputs/multi_input.json").read_text()).items()
    }
    np.savez(tmp_path / "both.npz", **arrays)
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    a, b = (f"{name}:{tmp_path / name}.npy" for name in "ab")
    inline = f"a:{arrays['a'].tolist()};b:{arrays['b'].tolist()}"
    model = f"models/multi_input.{suffix}"
    expected = outputs_of(model, "--input", "inputs/multi_input.json", cwd=ROOT)
    assert dict(expected).keys() == {"product", "rectified"}
    for words in (
        ["--input", f"{a};{b}"],
        ["--input", b, "--input", a],
        ["--input", str(tmp_path / "both.npz")],
        ["--input", inline],
    ):
        assert outputs_of(model, *words, cwd=ROOT) == expected, words


def test_number_for_an_input_without_axes(tmp_path: Path) -> None:
    model = save_relu(tmp_path, "")
    for text in ("3", "{}"):
        assert result_of(model, "--iter", "1", "--input", text).fed[0].shape == ()


@each_format
def test_generated_data(suffix: str) -> None:
    answers = {}
    for flags in ("", "--seed 0", "--seed 1", "--fill normal", "--fill zeros", "--fill=ones"):
        words = (*flags.split(), "--input", "data:{3,16}")
        result = result_of(f"models/dynamic_batch.{suffix}", *words, "--iter", "1", cwd=ROOT)
        (fed,), (output,) = result.fed, result.outputs
        assert fed.generated
        assert (fed.shape, output.shape) == ((3, 16), (3, 8))
        answers[flags] = output.sha256
    assert answers[""] == answers["--seed 0"]
    assert len(set(answers.values())) == 5


def test_generated_data_is_announced() -> None:
    done = run_lar("models/multi_input.onnx", "--seed", str(10**30), "--iter", "0", cwd=ROOT)
    (line,) = done.stderr.splitlines()
    assert line.startswith("lar: note: no --input: data is generated (uniform, seed 1000")
    assert "a float32 (2, 3), b float32 (3, 4)" in line
    done = run_lar("models/dynamic_batch.onnx", "--input", "{2,16}", "--iter", "0", cwd=ROOT)
    assert "no --input" not in done.stderr
