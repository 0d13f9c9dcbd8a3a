"""A run that goes wrong ends in one clear line, the right exit code, and nothing half-written."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import lar

RunLar = Callable[..., "subprocess.CompletedProcess[str]"]
WriteScript = Callable[..., str]
Done = subprocess.CompletedProcess[str]

SUFFIXES = ("mge", "onnx")
needs_megengine = pytest.mark.skipif(
    importlib.util.find_spec("megengine") is None, reason="MegEngine is not installed"
)
each_format = pytest.mark.parametrize(
    "suffix", [pytest.param("mge", marks=needs_megengine), "onnx"]
)
not_root = pytest.mark.skipif(
    hasattr(os, "geteuid") and os.geteuid() == 0, reason="root may read and write everything"
)
needs_proc = pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="there is no /proc")
needs_zero = pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="there is no /dev/zero")


def check_error(done: Done, code: int, *pieces: str) -> None:
    """The command failed with `code`, and its one error line with its hint holds the pieces."""
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    lines = done.stderr.splitlines()
    errors = [line for line in lines if line.startswith("lar: error: ")]
    assert len(errors) == 1, done.stderr
    place = lines.index(errors[0])
    assert len(lines) - place <= 2, done.stderr
    assert all(line.startswith("hint: ") for line in lines[place + 1 :]), done.stderr
    notes = ("lar: note: ", "lar: warning: ")
    words = ("the engine's last words:", "  | ") if code in (4, 124) else ()
    assert all(line.startswith((*notes, *words)) for line in lines[:place]), done.stderr
    text = "\n".join(lines[place:])
    for piece in pieces:
        assert piece.lower() in text.lower(), text


def check_not_started(done: Done) -> None:
    """No engine was started for what could be known before."""
    assert done.stdout == ""


# Model files


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """A folder with each model file of SUFFIXES in all stages of decay."""
    folder = tmp_path_factory.mktemp("damaged")
    for suffix in SUFFIXES:
        whole = (root / f"models/dynamic_batch.{suffix}").read_bytes()
        contents = {
            "empty": b"",
            "one_byte": whole[:1],
            "cut_in_header": whole[:16],
            "cut_in_half": whole[: len(whole) // 2],
            "cut_at_end": whole[:-1],
            "garbage": random.Random(1).randbytes(4000),
            "zeros": bytes(4000),
            "text": b"this is no model, it is a text\n" * 20,
        }
        for name, content in contents.items():
            (folder / f"{name}.{suffix}").write_bytes(content)
        other = SUFFIXES[1 - SUFFIXES.index(suffix)]
        shutil.copy(root / f"models/dynamic_batch.{other}", folder / f"misnamed.{suffix}")
        (folder / f"folder.{suffix}").mkdir()
    return folder


@each_format
@pytest.mark.parametrize(
    ("name", "piece"),
    [
        ("missing", "no such model file"),
        ("folder", "is a folder"),
        ("empty", "the model file is empty"),
        ("misnamed", "but its content is a model for"),
    ],
)
def test_model_file_that_cannot_be_one(
    run_lar: RunLar, damaged: Path, suffix: str, name: str, piece: str
) -> None:
    done = run_lar(str(damaged / f"{name}.{suffix}"))
    check_error(done, 2, f"{name}.{suffix}: ", piece)
    check_not_started(done)


@each_format
@pytest.mark.parametrize(
    "name", ["one_byte", "cut_in_header", "cut_in_half", "cut_at_end", "garbage", "zeros", "text"]
)
def test_damaged_model(run_lar: RunLar, damaged: Path, suffix: str, name: str) -> None:
    done = run_lar(str(damaged / f"{name}.{suffix}"), "--iter", "1")
    check_error(done, 2, f"{name}.{suffix}: ", "hint: copy or export it again")
    assert "load model" not in done.stdout


@pytest.mark.parametrize(
    ("name", "content"), [("model.txt", b"hello"), ("model", b"hello"), ("model.png", b"\x89PNG")]
)
def test_file_that_is_no_model(run_lar: RunLar, tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    check_error(run_lar(str(tmp_path / name)), 2, f"{name}: not a model that lar knows", ".onnx")


@each_format
def test_missing_model_with_a_near_name(run_lar: RunLar, root: Path, suffix: str) -> None:
    done = run_lar(f"models/one_operater.{suffix}", cwd=root)
    check_error(done, 2, "no such model file", f"did you mean models/one_operator.{suffix}?")


def test_empty_model_name(run_lar: RunLar) -> None:
    done = run_lar("")
    check_error(done, 2, "model")
    assert "error: .:" not in done.stderr


@not_root
@each_format
def test_unreadable_model(run_lar: RunLar, root: Path, tmp_path: Path, suffix: str) -> None:
    model = tmp_path / f"model.{suffix}"
    shutil.copy(root / f"models/one_operator.{suffix}", model)
    model.chmod(0)
    check_error(run_lar(str(model)), 2, f"model.{suffix}: cannot be read: permission denied")


@each_format
@pytest.mark.parametrize("command", ["run", "info"])
def test_fifo_as_model(run_lar: RunLar, tmp_path: Path, suffix: str, command: str) -> None:
    os.mkfifo(tmp_path / f"model.{suffix}")
    done = run_lar(command, str(tmp_path / f"model.{suffix}"), timeout=10)
    check_error(done, 2, f"model.{suffix}: ")


@needs_zero
@pytest.mark.parametrize("command", ["run", "info"])
@pytest.mark.parametrize("engine", ["megengine", "onnxruntime"])
def test_endless_device_as_model(root: Path, command: str, engine: str) -> None:
    # The limit is for this machine's sake, should lar try to read it whole.
    done = run_limited(root, 3_000_000, command, "/dev/zero", "--engine", engine, timeout=15)
    check_error(done, 2, "/dev/zero: ")
    check_not_started(done)


@each_format
def test_bit_flipped_model_with_a_checksum(
    run_lar: RunLar, root: Path, tmp_path: Path, suffix: str
) -> None:
    data = bytearray((root / f"models/digits_cnn.{suffix}").read_bytes())
    model = tmp_path / f"model.{suffix}"
    checksum = f"{sha256(data).hexdigest()}  model.{suffix}\n"
    (tmp_path / f"model.{suffix}.sha256").write_text(checksum)
    data[len(data) // 2] ^= 0x10  # in the weights: no engine notices
    model.write_bytes(data)
    for command in (("run",), ("run", "--in-process"), ("info",)):
        done = run_lar(*command, str(model))
        check_error(done, 2, f"model.{suffix}: its content is damaged", f"model.{suffix}.sha256")
        assert "iter " not in done.stdout
    data[len(data) // 2] ^= 0x10
    model.write_bytes(data)
    assert run_lar(str(model), "--iter", "1").returncode == 0


def test_checksum_file_of_another_form(run_lar: RunLar, root: Path, tmp_path: Path) -> None:
    shutil.copy(root / "models/one_operator.onnx", tmp_path / "model.onnx")
    for content in ("not a checksum\n", "SHA256 (model.onnx) = 0123\n", "x" * 100):
        (tmp_path / "model.onnx.sha256").write_text(content)
        done = run_lar(str(tmp_path / "model.onnx"), "--iter", "0")
        assert "its content is damaged" not in done.stderr, content


# Bits of models/one_operator whose flip an engine notices when it loads the model.
@pytest.mark.parametrize(
    ("suffix", "bit"),
    [
        *(
            pytest.param("mge", bit, marks=needs_megengine)
            for bit in (166, 743, 964, 2372, 2813, 3676, 4150)
        ),
        *(("onnx", bit) for bit in (6, 102, 134, 154, 296, 623, 790)),
    ],
)
def test_bit_flipped_structure(
    run_lar: RunLar, root: Path, tmp_path: Path, suffix: str, bit: int
) -> None:
    data = bytearray((root / f"models/one_operator.{suffix}").read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    model = tmp_path / f"model.{suffix}"
    model.write_bytes(data)
    check_error(run_lar(str(model), "--iter", "1"), 2, f"model.{suffix}: ")


def test_bit_flip_that_makes_a_name_no_text(run_lar: RunLar, root: Path, tmp_path: Path) -> None:
    data = bytearray((root / "models/one_operator.onnx").read_bytes())
    data[data.index(b"Relu")] ^= 0x80
    (tmp_path / "model.onnx").write_bytes(data)
    check_error(run_lar(str(tmp_path / "model.onnx"), "--iter", "1"), 2, "model.onnx: ")


@pytest.mark.parametrize("command", ["run", "info"])
@pytest.mark.parametrize("weights", [None, b"123"])
def test_external_data(
    run_lar: RunLar, root: Path, tmp_path: Path, command: str, weights: bytes | None
) -> None:
    model = onnx.load(root / "models/digits_cnn.onnx")
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="numbers.bin", size_threshold=0)
    assert run_lar(command, str(path)).returncode == 0
    if weights is None:
        (tmp_path / "numbers.bin").unlink()
    else:
        (tmp_path / "numbers.bin").write_bytes(weights)
    file = ["numbers.bin"] if command == "info" else []
    check_error(run_lar(command, str(path)), 2, "model.onnx: ", "weights", *file)


# Flags


@pytest.mark.parametrize(
    ("flags", "pieces"),
    [
        (["--iters", "5"], ["unknown flag --iters", "did you mean --iter?"]),
        (["--itr=5"], ["unknown flag --itr", "did you mean --iter?"]),
        (["-iter", "5"], ["unknown flag -iter", "did you mean --iter?"]),
        (["--warmup", "5"], ["unknown flag --warmup", "did you mean --warmup-iter?"]),
        (["--frobnicate"], ["unknown flag --frobnicate", "--help"]),
        (["another.onnx"], ["another.onnx", "too many"]),
        (["--iter"], ["--iter: expected one argument"]),
        (["--iter", "-1"], ["--iter: -1 is negative"]),
        (["--iter=-1"], ["--iter: -1 is negative"]),
        (["--iter", "ten"], ["--iter: 'ten' is not a whole number"]),
        (["--iter", "1.5"], ["--iter: '1.5' is not a whole number"]),
        (["--iter", ""], ["--iter: '' is not a whole number"]),
        (["--iter", "nan"], ["--iter: 'nan' is not a whole number"]),
        (["--iter", "99999999999999999999"], ["--iter: ", "too many", "at most"]),
        (["--iter", "9" * 5000], ["--iter: "]),
        (["--warmup-iter", "-1"], ["--warmup-iter: -1 is negative"]),
        (["--warmup_iter", "x"], ["--warmup-iter: 'x' is not a whole number"]),
        (["--timeout", "0"], ["--timeout: 0 is not a time limit"]),
        (["--timeout", "nan"], ["--timeout: nan is not a time limit"]),
        (["--timeout", "soon"], ["--timeout: 'soon' is not a number"]),
        (["--stall-timeout=-1"], ["--stall-timeout: -1 is not a time limit"]),
        (["--seed", "-1"], ["--seed: '-1' is not a seed"]),
        (["--seed", "9" * 5000], ["--seed: "]),
        (["--cuda:x"], ["--cuda: 'x' is not a device number"]),
        (["--cuda:"], ["--cuda: '' is not a device number"]),
        (["--cuda:300"], ["--cuda: '300' is not a device number"]),
        (["--cpu", "--cuda"], ["--cpu and --cuda exclude each other"]),
        (["--rgb", "--bgr"], ["--bgr and --rgb exclude each other"]),
        (["--rgb=1"], ["--rgb: "]),
        (["--resize", "0x0"], ["--resize: '0x0' is not a size"]),
        (["--resize", "224"], ["--resize: '224' is not a size", "224x224"]),
        (["--resize", "999999x1"], ["--resize: '999999x1' is not a size"]),
        (["--scale", "nan"], ["--scale: 'nan' is not finite"]),
        (["--mean", "1,,2"], ["--mean: '1,,2' is not a number"]),
        (["--input-layout", "nhcw"], ["--input-layout: ", "'nhcw'", "nchw"]),
        (["--fill", "noise"], ["--fill: ", "'noise'", "uniform"]),
        (["--engine", "onnx"], ["--engine: there is no engine 'onnx'", "onnxruntime"]),
        (["--engine", "megengin"], ["--engine: ", "did you mean megengine?"]),
        (["--engine", "megengine"], ["is a model for ONNX Runtime, not for MegEngine"]),
        (["--driver", "graph"], ["--driver: ONNX Runtime has no driver 'graph'", "session"]),
        (["--json", ""], ["--json"]),
    ],
)
def test_bad_flag(run_lar: RunLar, root: Path, flags: list[str], pieces: list[str]) -> None:
    done = run_lar("models/one_operator.onnx", *flags, cwd=root)
    check_error(done, 2, *pieces)
    assert "parse_" not in done.stderr  # no names of functions
    assert max(map(len, done.stderr.splitlines())) < 1000
    check_not_started(done)


@needs_megengine
def test_option_that_the_engine_or_driver_cannot_do(
    run_lar: RunLar, root: Path, write_script: WriteScript
) -> None:
    check_error(run_lar(write_script(), "--cuda"), 2, "--cuda", "cannot do this", "megengine")
    done = run_lar("models/one_operator.mge", "--driver", "graph", "--cuda:1", cwd=root)
    check_error(done, 2, "--driver graph cannot do --cuda", "lite")
    done = run_lar("models/one_operator.mge", "--driver", "graph", "--cuda", cwd=root)
    check_error(done, 2, "--driver graph cannot do --cuda", "lite")


@pytest.mark.parametrize("words", [["--iter", "5"], ["run"], ["run", "--iter=3"], ["--"]])
def test_no_model(run_lar: RunLar, words: list[str]) -> None:
    check_error(run_lar(*words), 2, "no model is given")


@pytest.mark.parametrize("letters", ["\x1b[31mred", "two\nlines", "\x07bell"])
def test_control_characters_never_reach_the_terminal(run_lar: RunLar, letters: str) -> None:
    for words in ([f"{letters}.onnx"], ["model.onnx", f"--{letters}"]):
        done = run_lar(*words)
        check_error(done, 2)
        assert not any(ord(letter) < 32 for letter in done.stderr.replace("\n", ""))


# Inputs


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
    "cut_header.npy": (FOUR[:10], "is no .npy file"),
    "garbage.npy": (b"\xff" * 200, "is no .npy file"),
    "objects.npy": (npy_bytes(np.array([{"a": 1}, None])), "holds Python objects"),
    "text.npy": (npy_bytes(np.array(["a", "b"])), "<U1"),
    "records.npy": (npy_bytes(np.zeros(4, [("a", "f4")])), "elements of dtype"),
    "huge.npy": (FOUR.replace(b"(4,)", b"(99999999999999999,)"), "truncated"),
    "negative.npy": (FOUR.replace(b"(4,)", b"(-4,)"), "impossible"),
    "no_rows.npy": (npy_bytes(np.zeros((0, 4), np.float32)), "holds no data"),
    "complex.npy": (npy_bytes(np.ones(4, np.complex64)), "complex64"),
    "integers.npy": (npy_bytes(np.ones(4, np.int32)), "holds int32, the model takes float32"),
    "no_zip.npz": (b"no archive", "not a zip file"),
    "garbage.ppm": (b"hello", "is no P5 or P6 image"),
    "cut.ppm": (b"P6\n224 224\n255\n" + bytes(100), "truncated"),
    "cut_header.ppm": (b"P6\n224\n", "broken header"),
    "cut.jpg": (b"\xff\xd8\xff\xe0" + bytes(50), "truncated"),
    "garbage.png": (b"no image", "cannot be decoded as an image"),
    "broken.json": (b"{", "is no JSON"),
    "binary.json": (b"\xff\xfe\x00", "is no JSON"),
    "deep.json": (b"[" * 100_000, "nested too deeply"),
    "list.json": (b"[1,2]", "is no object of named tensors"),
    "nothing.json": (b"{}", "holds no arrays"),
    "count.json": (json_of(shape=[4], type="float32", raw=[1, 2, 3]), "the 3 numbers of raw"),
    "type.json": (json_of(shape=[4], type="complex", raw=[1, 2, 3, 4]), "'complex'"),
    "words.json": (json_of(shape=[4], type="float32", raw=[1, "2", 3, 4]), '"2" is no number'),
    "range.json": (json_of(shape=[4], type="uint8", raw=[1, 300, 3, 4]), "holds 300"),
    "shape.json": (json_of(shape=["4"], raw=[1, 2, 3, 4]), "its shape is no list of sizes"),
    "name.json": (json.dumps({"x": {"shape": [1], "raw": [1]}}).encode(), "no input 'x'"),
    "garbage.pb": (b"no message", "cannot be read"),
    "short.bin": (b"abc", "holds 3 bytes, float32 of shape (4) takes 16"),
    "unknown.xyz": (b"abc", "is of no format known"),
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
        ("{,}", ["{,}: is no shape", "{1,3,224,224}"]),
        ("{-1}", ["{-1}: is no shape"]),
        ("{0}", ["holds no data"]),
        ("{9999999999999}", ["{9999999999999}"]),
        ("{" + "9" * 30 + "}", ["is no shape"]),
        ("[[1],[2,3]]", ["is ragged"]),
        ("[]", ["holds no numbers"]),
        ("[", ["is no list of numbers"]),
        ("1,2,,3", ["is no list of numbers"]),
        ('["a"]', ['"a" is no number']),
        ("[" * 5000 + "]" * 5000, ["has more than 32 levels of brackets"]),
        ("1,2,3", ["its shape (3) is not (4) of input data"]),
        ("{4,1}", ["its shape (4,1) has 2 axes, (4) of input data has 1"]),
        (";".join(["data:1,2,3,4"] * 9000), ["two items feed data"]),
        ("nope.npy", ["nope.npy: no such file"]),
        ("/dev/null", ["/dev/null: is no regular file"]),
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
        done = run_lar(write_script(inputs=ONE), "--input", str(tmp_path / name), timeout=15)
        check_error(done, 2, f"{name}: is no regular file")


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
        ("multi_input", "a:{2,3}", ["nothing feeds b", "b:{3,4}"]),
        ("multi_input", "{2,3}", ["does not say which of the model's inputs", "NAME:"]),
        ("one_operator", "{2,2}", ["its shape (2,2) has 2 axes, (4) of input data has 1"]),
        ("digits_cnn", "{1,2,8,8}", ["its shape (1,2,8,8)", "axis 1 must be 1"]),
        ("mobilenet_v2", "inputs/digits.npy", ["its shape (32,1,8,8) is not (1,3,224,224)"]),
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
        (["--resize", "10x10"], ["(1,3,10,10)"]),
    ],
)
def test_image_settings_that_do_not_fit(
    run_lar: RunLar, root: Path, write_script: WriteScript, flags: list[str], pieces: list[str]
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


# Outputs


@pytest.fixture
def good(write_script: WriteScript) -> str:
    """A script that runs to its end."""
    return write_script(inputs=ONE, outputs={"prob": [0.25, 0.75]})


@pytest.mark.parametrize("flag", ["--json", "--csv"])
@pytest.mark.parametrize(
    ("name", "piece"),
    [
        ("folder", "is a folder"),
        ("missing/file", "no such file or directory"),
        ("script_0.fake/file", "not a directory"),
        ("x" * 300, "file name too long"),
    ],
)
def test_output_that_cannot_be_written(
    run_lar: RunLar, tmp_path: Path, good: str, flag: str, name: str, piece: str
) -> None:
    (tmp_path / "folder").mkdir()
    done = run_lar(good, flag, str(tmp_path / name))
    check_error(done, 2, f"{flag}: {tmp_path / name}: ", piece)
    check_not_started(done)
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "script_0.fake"}


@not_root
@pytest.mark.parametrize("flag", ["--json", "--csv"])
def test_output_that_may_not_be_written(
    run_lar: RunLar, tmp_path: Path, good: str, flag: str
) -> None:
    (tmp_path / "old").write_text("old")
    (tmp_path / "old").chmod(0o400)
    (tmp_path / "folder").mkdir(mode=0o500)
    for name in ("old", "folder/new"):
        done = run_lar(good, flag, str(tmp_path / name))
        check_error(done, 2, f"{flag}: {tmp_path / name}: cannot be written: permission denied")
        check_not_started(done)
    assert (tmp_path / "old").read_text() == "old"


@pytest.mark.parametrize("flag", ["--json", "--csv"])
@pytest.mark.parametrize("how", ["same", "symlink"])
def test_output_never_replaces_what_is_read(
    run_lar: RunLar, tmp_path: Path, good: str, flag: str, how: str
) -> None:
    np.save(tmp_path / "data.npy", np.ones(4, np.float32))
    for victim in (Path(good), tmp_path / "data.npy"):
        before = victim.read_bytes()
        target = victim
        if how == "symlink":
            target = tmp_path / f"link_to_{victim.name}"
            target.symlink_to(victim)
        done = run_lar(good, "--input", str(tmp_path / "data.npy"), flag, str(target))
        assert victim.read_bytes() == before
        check_error(done, 2, f"{flag}: {target}: ")
        check_not_started(done)


def test_info_never_replaces_the_model(run_lar: RunLar, good: str) -> None:
    before = Path(good).read_bytes()
    done = run_lar("info", good, "--json", good)
    assert Path(good).read_bytes() == before
    check_error(done, 2, "--json: ")


def test_two_reports_in_one_place(run_lar: RunLar, tmp_path: Path, good: str) -> None:
    for name in ("-", str(tmp_path / "report")):
        done = run_lar(good, "--json", name, "--csv", name)
        check_error(done, 2, "--json", "--csv")
        check_not_started(done)


@pytest.mark.parametrize("reader", [False, True])
def test_fifo_as_output(run_lar: RunLar, tmp_path: Path, good: str, reader: bool) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    received: list[str] = []
    thread = threading.Thread(target=lambda: received.append(fifo.read_text()), daemon=True)
    if reader:
        thread.start()
    done = run_lar(good, "--json", str(fifo), timeout=10)
    if done.returncode:  # refused, before the run
        check_error(done, 2, "--json: ")
        check_not_started(done)
    else:
        thread.join(5)
        assert json.loads(received[0])["status"] == "ok"


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="there is no /dev/full")
def test_full_disk(run_lar: RunLar, good: str) -> None:
    done = run_lar(good, "--json", "/dev/full")
    check_error(done, done.returncode, "--json: /dev/full", "no space left on device")
    assert done.returncode in (2, 4)


def test_folder_of_the_report_goes_away(
    run_lar: RunLar, write_script: WriteScript, tmp_path: Path
) -> None:
    folder = tmp_path / "reports"
    folder.mkdir()
    script = write_script(real_time=True, times=[[0.2, 0.1, None]])
    thread = threading.Timer(1.0, shutil.rmtree, [folder])
    thread.start()
    done = run_lar(script, "--iter", "10", "--json", str(folder / "x.json"))
    thread.join()
    check_error(done, done.returncode, "--json: ", "no such file or directory")
    assert "=== finished test #0" in done.stdout


def test_what_stood_in_the_report_survives_a_refused_run(
    run_lar: RunLar, tmp_path: Path, good: str
) -> None:
    (tmp_path / "report.json").write_text("old")
    files = {path.name for path in tmp_path.iterdir()}
    for arguments in (["--iter", "-1"], ["--csv", str(tmp_path)], ["--bogus"]):
        done = run_lar(good, "--json", str(tmp_path / "report.json"), *arguments)
        assert done.returncode == 2
        assert (tmp_path / "report.json").read_text() == "old"
        assert {path.name for path in tmp_path.iterdir()} == files


# Devices and engines


@each_format
@pytest.mark.parametrize("flag", ["--cuda", "--cuda:0", "--cuda=77"])
def test_device_that_is_not_there(run_lar: RunLar, root: Path, suffix: str, flag: str) -> None:
    hidden = {"CUDA_VISIBLE_DEVICES": "-1"}
    done = run_lar(f"models/one_operator.{suffix}", flag, "--iter", "1", cwd=root, env=hidden)
    check_error(done, 2, "--cuda", "lar engines")
    assert "iter " not in done.stdout


def shim(folder: Path, *modules: str) -> dict[str, str]:
    """An environment in which Python does not find some modules."""
    lines = ["import sys", *(f"sys.modules[{name!r}] = None" for name in modules)]
    (folder / "sitecustomize.py").write_text("\n".join(lines))
    return {"PYTHONPATH": os.pathsep.join([str(folder), str(Path(lar.__file__).parents[1])])}


@pytest.mark.parametrize(
    ("suffix", "pieces"),
    [
        ("mge", ["needs MegEngine, which is not installed", "uv run --python 3.10"]),
        ("onnx", ["needs ONNX Runtime, which is not installed", "pip install onnxruntime"]),
    ],
)
@pytest.mark.parametrize("command", ["run", "info"])
def test_engine_that_is_not_installed(
    run_lar: RunLar, root: Path, tmp_path: Path, suffix: str, pieces: list[str], command: str
) -> None:
    environment = shim(tmp_path, "megengine", "megenginelite", "onnxruntime")
    done = run_lar(command, f"models/one_operator.{suffix}", cwd=root, env=environment)
    check_error(done, 3, *pieces)
    check_not_started(done)


def broken(folder: Path, *modules: str) -> dict[str, str]:
    """An environment in which Python finds some modules, and they do not load."""
    for name in modules:
        (folder / f"{name}.py").write_text("raise ImportError('broken')\n")
    return {"PYTHONPATH": os.pathsep.join([str(folder), str(Path(lar.__file__).parents[1])])}


@pytest.mark.parametrize(
    ("words", "module", "piece"),
    [
        (["run", "models/one_operator.mge"], "megenginelite", "MegEngine cannot be imported"),
        (["info", "models/one_operator.mge"], "megengine", "MegEngine cannot be imported"),
        (["info", "models/one_operator.onnx"], "onnx", "import"),
    ],
)
@needs_megengine
def test_library_that_does_not_load(
    run_lar: RunLar, root: Path, tmp_path: Path, words: list[str], module: str, piece: str
) -> None:
    done = run_lar(*words, cwd=root, env=broken(tmp_path, module))
    check_error(done, 3, piece)


# Workers that die


@pytest.mark.parametrize(
    ("do", "pieces"),
    [
        ("raise", ["the engine failed: scripted failure"]),
        ("exit", ["ended the process in phase iterations (iteration 1)", "exit code 7"]),
        ("abort", ["crashed in phase iterations (iteration 1)", "SIGABRT"]),
        ("segfault", ["crashed in phase iterations (iteration 1)", "SIGSEGV"]),
        ("kill", ["crashed in phase iterations (iteration 1)", "SIGKILL", "out of memory?"]),
        ("memory", ["out of memory", "smaller batch"]),
    ],
)
def test_worker_that_dies(
    run_lar: RunLar, write_script: WriteScript, tmp_path: Path, do: str, pieces: list[str]
) -> None:
    script = write_script(
        prints="engine: my last words", faults=[{"at": "start", "index": 2, "do": do}]
    )
    report = tmp_path / "report.json"
    done = run_lar(script, "--iter", "5", "--json", str(report))
    check_error(done, 4, *pieces)
    assert "the engine's last words:\n  | engine: my last words\n" in done.stderr
    assert "engine: my" not in done.stdout
    assert "iter 0/5: " in done.stdout
    result = lar.read_result(report.read_bytes())
    assert result.status == ("failed" if do in ("raise", "memory") else "crashed")
    assert len(result.samples.end_to_end) == 1
    # What did not finish is not called finished.
    assert "=== finished test" not in done.stdout


@pytest.mark.parametrize("at", ["load", "feed", "outputs"])
def test_worker_that_dies_in_another_phase(
    run_lar: RunLar, write_script: WriteScript, at: str
) -> None:
    phase = {"load": "load", "feed": "prepare", "outputs": "finish"}[at]
    done = run_lar(write_script(faults=[{"at": at, "do": "abort"}]))
    check_error(done, 4, f"the engine crashed in phase {phase}: killed by SIGABRT")


@pytest.mark.parametrize(
    ("do", "flags", "pieces"),
    [
        ("hang", ["--timeout", "1.5"], ["timed out after 1.5 s in phase iterations", "--timeout"]),
        ("spin", ["--timeout", "1.5"], ["timed out after 1.5 s in phase iterations", "--timeout"]),
        ("hang", ["--stall-timeout", "1"], ["hangs", "for 1 s", "--stall-timeout"]),
    ],
)
def test_worker_that_hangs(
    run_lar: RunLar, write_script: WriteScript, do: str, flags: list[str], pieces: list[str]
) -> None:
    script = write_script(faults=[{"at": "start", "index": 2, "do": do}])
    done = run_lar(script, *flags, timeout=20)
    check_error(done, 124, *pieces)
    assert "iter 0/10: " in done.stdout


def test_worker_that_floods(run_lar: RunLar, write_script: WriteScript) -> None:
    faults = [{"at": "start", "index": 1, "do": "flood"}]
    done = run_lar(write_script(faults=faults), "--iter", "2")
    assert done.returncode == 0
    assert "noise" not in done.stdout + done.stderr
    faults += [{"at": "start", "index": 1, "do": "abort"}]
    done = run_lar(write_script(faults=faults), "--iter", "2")
    check_error(done, 4, "SIGABRT")
    assert 0 < done.stderr.count("engine noise") < 200


@each_format
@needs_proc
def test_real_worker_killed(root: Path, suffix: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "lar", f"models/dynamic_batch.{suffix}", "--iter", "1000000"],
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("iter "):
                break
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGKILL)
        stdout, stderr = process.communicate(timeout=30)
    done = subprocess.CompletedProcess([], process.returncode, stdout, stderr)
    check_error(done, 4, "crashed in phase iterations", "SIGKILL")


@each_format
def test_interrupted_run(root: Path, tmp_path: Path, suffix: str) -> None:
    report = tmp_path / "report.json"
    for interruption in (signal.SIGINT, signal.SIGTERM):
        with subprocess.Popen(
            [
                *(sys.executable, "-m", "lar", f"models/dynamic_batch.{suffix}"),
                *("--iter", "1000000", "--json", str(report)),
            ],
            cwd=root,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("iter "):
                    break
            process.send_signal(interruption)
            stdout, stderr = process.communicate(timeout=30)
        done = subprocess.CompletedProcess([], process.returncode, stdout, stderr)
        assert done.returncode == 130
        assert [line for line in stderr.splitlines() if "error" in line] == [
            "lar: error: interrupted"
        ]
        assert "Traceback" not in stderr
        result = lar.read_result(report.read_bytes())
        assert result.status == "interrupted"
        assert result.samples.end_to_end


# Memory


def run_limited(root: Path, kibibytes: int, *words: str, timeout: float = 60) -> Done:
    """Run lar in a shell that may not have more than so much address space."""
    command = f'ulimit -v {kibibytes} && exec "$0" -m lar "$@"'
    return subprocess.run(
        ["bash", "-c", command, sys.executable, *words],
        cwd=root,
        # One thread: each takes address space for its stack and its heap.
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(root)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


@pytest.mark.skipif(sys.platform != "linux", reason="address space is not limited elsewhere")
@pytest.mark.parametrize(
    ("suffix", "kibibytes", "rows", "fill"),
    [
        ("onnx", 2_500_000, 12_000_000, "zeros"),  # in the engine
        ("onnx", 2_500_000, 50_000_000, "uniform"),  # while data is generated
        pytest.param("mge", 2_800_000, 4_000_000, "zeros", marks=needs_megengine),
        pytest.param("mge", 2_800_000, 50_000_000, "uniform", marks=needs_megengine),
    ],
)
def test_memory_that_runs_out(
    root: Path, suffix: str, kibibytes: int, rows: int, fill: str
) -> None:
    began = time.monotonic()
    model, shape = f"models/dynamic_batch.{suffix}", f"{{{rows},16}}"
    done = run_limited(root, kibibytes, model, "--input", shape, "--fill", fill)
    assert done.returncode in (2, 4)
    check_error(done, done.returncode, "memory")
    assert time.monotonic() - began < 30


@each_format
def test_input_larger_than_the_machine(run_lar: RunLar, root: Path, suffix: str) -> None:
    for rows in (10**12, 10**17):
        done = run_lar(f"models/dynamic_batch.{suffix}", "--input", f"{{{rows},16}}", cwd=root)
        check_error(done, 2, "--input: ", "memory")


# --debug, and lar's own breakdowns


def test_debug_shows_the_traceback(run_lar: RunLar, write_script: WriteScript) -> None:
    scripts = {
        "nope.fake": 2,
        write_script(faults=[{"at": "load", "do": "raise"}]): 2,
        write_script(faults=[{"at": "feed", "do": "raise"}]): 4,
        write_script(faults=[{"at": "load", "do": "memory"}]): 4,
    }
    for script, code in scripts.items():
        done = run_lar(script, "--debug")
        assert done.returncode == code
        assert "Traceback (most recent call last):" in done.stderr
        errors = [line for line in done.stderr.splitlines() if line.startswith("lar: error: ")]
        assert len(errors) == 1
        check_error(run_lar(script), code)


def test_debug_of_the_worker(run_lar: RunLar, write_script: WriteScript) -> None:
    script = write_script(faults=[{"at": "start", "do": "raise"}])
    assert "in fail\n" in run_lar(script, "--debug").stderr
    broken = Path(script)
    broken.write_text("{")
    assert "in read_script\n" in run_lar("info", script, "--debug").stderr


@pytest.mark.parametrize("words", [["run"], ["info"]])
def test_error_in_lar_itself(
    run_lar: RunLar, tmp_path: Path, write_script: WriteScript, words: list[str]
) -> None:
    environment = shim(tmp_path)
    with (tmp_path / "sitecustomize.py").open("a") as file:
        file.write(
            "\nimport lar.worker_process\nlar.worker_process.start_worker = lambda *a: 1 / 0\n"
        )
    done = run_lar(*words, write_script(), env=environment)
    check_error(done, 4, "division by zero", "--debug")
    done = run_lar(*words, write_script(), "--debug", env=environment)
    assert done.returncode == 4
    assert "Traceback" in done.stderr
