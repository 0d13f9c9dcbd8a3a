"""Inputs that cannot be fed are refused in one clear line that names them."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.cli.failures import check_error
from tests.cli.marks import each_format, needs_megengine, needs_zero, not_root

if TYPE_CHECKING:
    from tests.conftest import RunLar, WriteScript

ONE = [{"name": "data", "dtype": "float32", "shape": [4]}]
PHOTO = [{"name": "data", "dtype": "float32", "shape": [1, 3, 224, 224]}]


def npy_bytes(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def json_of(**entry: Any) -> bytes:
    return json.dumps({"data": entry}).encode()


FOUR = npy_bytes(np.arange(4, dtype=np.float32))
BAD_FILES: dict[str, tuple[bytes, str]] = {
    "empty.npy": (b"", "is empty"),
    "cut.npy": (FOUR[:-4], "truncated"),
    "cut_header.npy": (FOUR[:10], "is not a .npy file"),
    "garbage.npy": (b"\xff" * 200, "is not a .npy file"),
    "objects.npy": (npy_bytes(np.array([{"a": 1}, None])), "holds Python objects"),
    "text.npy": (npy_bytes(np.array([*"abcd"])), "holds string, the model takes float32"),
    "records.npy": (npy_bytes(np.zeros(4, [("a", "f4")])), "elements of dtype"),
    "huge.npy": (FOUR.replace(b"(4,)", b"(99999999999999999,)"), "truncated"),
    "negative.npy": (FOUR.replace(b"(4,)", b"(-4,)"), "impossible"),
    "no_rows.npy": (npy_bytes(np.zeros((0, 4), np.float32)), "its shape {0,4} has 2 axes"),
    "complex.npy": (npy_bytes(np.ones(4, np.complex64)), "complex64"),
    "integers.npy": (npy_bytes(np.ones(4, np.int32)), "holds int32, the model takes float32"),
    "no_zip.npz": (b"no archive", "is damaged, or not a .npz archive"),
    "garbage.ppm": (b"hello", "is not a P5 or P6 image"),
    "cut.ppm": (b"P6\n224 224\n255\n" + bytes(100), "truncated"),
    "cut_header.ppm": (b"P6\n224\n", "broken header"),
    "cut.jpg": (b"\xff\xd8\xff\xe0" + bytes(50), "truncated"),
    "garbage.png": (b"no image", "cannot be decoded as an image"),
    "broken.json": (b"{", "is not JSON"),
    "binary.json": (b"\xff\xfe\x00", "is not JSON"),
    "deep.json": (b"[" * 100_000, "nested too deeply"),
    "list.json": (b"[1,2]", "is not an object of named tensors"),
    "nothing.json": (b"{}", "holds no arrays"),
    "count.json": (json_of(shape=[4], type="float32", raw=[1, 2, 3]), "the 3 numbers of raw"),
    "type.json": (json_of(shape=[4], type="complex", raw=[1, 2, 3, 4]), "'complex'"),
    "words.json": (json_of(shape=[4], type="float32", raw=[1, "2", 3, 4]), '"2" is not a number'),
    "range.json": (json_of(shape=[4], type="uint8", raw=[1, 300, 3, 4]), "holds 300"),
    "shape.json": (json_of(shape=["4"], raw=[1, 2, 3, 4]), "its shape is not a list of sizes"),
    "name.json": (json.dumps({"x": {"shape": [1], "raw": [1]}}).encode(), "no input 'x'"),
    "garbage.pb": (b"no message", "cannot be read"),
    "short.bin": (b"abc", "holds 3 bytes, float32 of shape {4} takes 16"),
    "unknown.xyz": (b"abc", "has an unknown format"),
}
# The readers are the same for all engines: those that the promise names run on each.
PROMISED = ("cut.npy", "objects.npy", "cut.ppm", "broken.json", "count.json")


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_input_file(
    run_lar: RunLar, write_script: WriteScript, tmp_path: Path, name: str
) -> None:
    content, piece = BAD_FILES[name]
    (tmp_path / name).write_bytes(content)
    done = run_lar(write_script(inputs=ONE), "--input", str(tmp_path / name))
    check_error(done, 2, f"--input: {tmp_path / name}: ", piece)
    assert "iter " not in done.stdout


@each_format
@pytest.mark.parametrize("name", PROMISED)
def test_bad_input_file_on_each_engine(
    run_lar: RunLar, root: Path, tmp_path: Path, suffix: str, name: str
) -> None:
    content, piece = BAD_FILES[name]
    (tmp_path / name).write_bytes(content)
    model = str(root / f"models/one_operator.{suffix}")
    done = run_lar(model, "--input", f"data:{tmp_path / name}")
    check_error(done, 2, f"--input: {tmp_path / name}: ", piece)
    assert "iter " not in done.stdout


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("", ["--input", "empty"]),
        (";", ["--input", "empty"]),
        (":", ["--input", "has no name before the colon"]),
        ("data:", ["--input", "has no value"]),
        ("{,}", ["{,}: is not a shape", "{1,3,224,224}"]),
        ("{-1}", ["{-1}: is not a shape"]),
        ("{0}", ["its shape {0} is not {4} of input data"]),
        ("{9999999999999}", ["{9999999999999}"]),
        ("{" + "9" * 30 + "}", ["is not a shape"]),
        ("[[1],[2,3]]", ["is ragged"]),
        ("[]", ["its shape {0} is not {4} of input data"]),
        ("[", ["is not a list of numbers"]),
        ("1,2,,3", ["is not a list of numbers"]),
        ('["a","b","c","d"]', ["holds string, the model takes float32"]),
        ("[" * 5000 + "]" * 5000, ["has more than 32 levels of brackets"]),
        ("1,2,3", ["its shape {3} is not {4} of input data"]),
        ("{4,1}", ["its shape {4,1} has 2 axes, {4} of input data has 1"]),
        (";".join(["data:1,2,3,4"] * 900), ["two items feed data"]),
        ("nope.npy", ["nope.npy: no such file"]),
        ("/dev/null", ["/dev/null: is not a regular file"]),
        ("data:file.bin,float32", ["has no dtype and shape", "file.bin,float32,1x3x224x224"]),
    ],
)
def test_bad_input_text(
    run_lar: RunLar, write_script: WriteScript, text: str, pieces: list[str]
) -> None:
    done = run_lar(write_script(inputs=ONE), "--iter", "0", "--input", text)
    check_error(done, 2, *pieces)
    assert max(map(len, done.stderr.splitlines())) < 500


@needs_zero
def test_endless_device_or_fifo_as_input(
    run_lar: RunLar, write_script: WriteScript, tmp_path: Path
) -> None:
    os.symlink("/dev/zero", tmp_path / "zero.npy")
    os.mkfifo(tmp_path / "fifo.npy")
    for name in ("zero.npy", "fifo.npy"):
        done = run_lar(write_script(inputs=ONE), "--input", str(tmp_path / name))
        check_error(done, 2, f"{name}: is not a regular file")


@not_root
def test_unreadable_input(run_lar: RunLar, write_script: WriteScript, tmp_path: Path) -> None:
    (tmp_path / "data.npy").write_bytes(FOUR)
    (tmp_path / "data.npy").chmod(0)
    done = run_lar(write_script(inputs=ONE), "--input", str(tmp_path / "data.npy"))
    check_error(done, 2, "data.npy: cannot be read: permission denied")


@each_format
@pytest.mark.parametrize(
    ("model", "text", "pieces"),
    [
        ("one_operator", "image:1,2,3,4", ["no input 'image'", "its inputs are data"]),
        ("multi_input", "{2,3}", ["does not say which of the model's inputs", "NAME:"]),
        ("one_operator", "{2,2}", ["its shape {2,2} has 2 axes, {4} of input data has 1"]),
        ("digits_cnn", "{1,2,8,8}", ["its shape {1,2,8,8}", "axis 1 must be 1"]),
        ("mobilenet_v2", "inputs/digits.npy", ["its shape {32,1,8,8} is not {1,3,224,224}"]),
        ("uint8_input", "inputs/cat.pgm", ["cat.pgm: has 1 channel", "takes 3"]),
        ("uint8_input", "inputs/cat.npy", ["cat.npy: its shape", "--input-layout nhwc"]),
        ("mobilenet_v2", "inputs/cat.ppm", ["uint8", "float32", "--input-layout nchw", "--mean"]),
        ("multi_input", "a:{2,3};b:inputs/digits_labels.npy", ["digits_labels.npy"]),
    ],
)
def test_input_that_does_not_fit_the_model(
    run_lar: RunLar, root: Path, suffix: str, model: str, text: str, pieces: list[str]
) -> None:
    done = run_lar(f"models/{model}.{suffix}", "--iter", "1", "--input", text, cwd=root)
    check_error(done, 2, "--input: ", *pieces)
    assert "iter " not in done.stdout


@each_format
def test_input_of_the_wrong_dtype(run_lar: RunLar, root: Path, tmp_path: Path, suffix: str) -> None:
    np.save(tmp_path / "data.npy", np.ones(4, np.int32))
    model = str(root / f"models/one_operator.{suffix}")
    done = run_lar(model, "--input", str(tmp_path / "data.npy"))
    check_error(done, 2, "holds int32, the model takes float32", "astype('float32')")


@needs_megengine
def test_shape_that_only_megengine_itself_can_refuse(run_lar: RunLar, root: Path) -> None:
    # Its models take other shapes than the traced one, as long as their operators can.
    for driver in ("lite", "graph"):
        done = run_lar(
            *("models/dynamic_batch.mge", "--driver", driver, "--input", "{3,17}"), cwd=root
        )
        assert done.returncode in (2, 4)
        check_error(done, done.returncode)
        assert "object has no attribute" not in done.stderr
        assert "A1 == B0" in done.stderr or "shape" in done.stderr


@pytest.mark.parametrize(
    ("flags", "pieces"),
    [
        (["--rgb"], ["--rgb", "array, whose channel order is unknown"]),
        (["--mean", "1,2"], ["--mean has 2 values for 3 channels"]),
        (["--resize", "10x10"], ["{1,3,10,10}"]),
    ],
)
def test_image_settings_that_do_not_fit(
    run_lar: RunLar,
    root: Path,
    write_script: WriteScript,
    flags: list[str],
    pieces: list[str],
) -> None:
    script = write_script(inputs=PHOTO)
    check_error(run_lar(script, "--input", "inputs/cat.npy", *flags, cwd=root), 2, *pieces)


def test_image_settings_without_an_image(run_lar: RunLar, write_script: WriteScript) -> None:
    for flags in (["--bgr"], ["--resize", "5x5"], ["--mean", "1"], ["--input-layout", "nchw"]):
        done = run_lar(write_script(inputs=ONE), "--input", "1,2,3,4", *flags)
        check_error(done, 2, f"{flags[0]}: no image is fed")


@each_format
def test_not_finite_input_is_a_warning(
    run_lar: RunLar, root: Path, tmp_path: Path, suffix: str
) -> None:
    np.save(tmp_path / "data.npy", np.array([np.nan, np.inf, 1, 2], np.float32))
    model = str(root / f"models/one_operator.{suffix}")
    done = run_lar(model, "--iter", "1", "--input", str(tmp_path / "data.npy"))
    assert done.returncode == 0
    line, *hints = done.stderr.splitlines()
    assert all(hint.startswith("hint: MKL") for hint in hints)
    assert line.startswith("lar: warning: --input: ")
    assert line.endswith("data.npy: 2 of 4 values are NaN or infinite")
