"""Inputs that cannot be fed are refused in one clear line that names them."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cli.failures import check_error
from tests.cli.marks import each_format, needs_megengine, not_root
from tests.command_lines import ROOT, run_lar
from tests.conftest import WriteScript

ONE = [{"name": "data", "dtype": "float32", "shape": [4]}]


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


def check_bad_file(model: str, place: Path, tensor: str = "") -> None:
    content, piece = BAD_FILES[place.name]
    place.write_bytes(content)
    done = run_lar(model, "--input", tensor + str(place))
    check_error(done, 2, f"--input: {place}: ", piece)
    assert "iter " not in done.stdout


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_input_file(write_script: WriteScript, tmp_path: Path, name: str) -> None:
    check_bad_file(write_script(inputs=ONE), tmp_path / name)


@each_format
@pytest.mark.parametrize("name", PROMISED)
def test_bad_input_file_on_each_engine(tmp_path: Path, suffix: str, name: str) -> None:
    check_bad_file(str(ROOT / f"models/one_operator.{suffix}"), tmp_path / name, "data:")


@not_root
def test_unreadable_input(write_script: WriteScript, tmp_path: Path) -> None:
    (tmp_path / "data.npy").write_bytes(FOUR)
    (tmp_path / "data.npy").chmod(0)
    done = run_lar(write_script(inputs=ONE), "--input", str(tmp_path / "data.npy"))
    check_error(done, 2, "data.npy: cannot be read: permission denied")


@needs_megengine
def test_shape_that_only_megengine_itself_can_refuse() -> None:
    # Its models take other shapes than the traced one, as long as their operators can.
    for driver in ("lite", "graph"):
        done = run_lar(
            *("models/dynamic_batch.mge", "--driver", driver, "--input", "{3,17}"), cwd=ROOT
        )
        assert done.returncode in (2, 4)
        check_error(done, done.returncode)
        assert "object has no attribute" not in done.stderr
        assert "A1 == B0" in done.stderr or "shape" in done.stderr


@each_format
def test_not_finite_input_is_a_warning(tmp_path: Path, suffix: str) -> None:
    np.save(tmp_path / "data.npy", np.array([np.nan, np.inf, 1, 2], np.float32))
    model = str(ROOT / f"models/one_operator.{suffix}")
    done = run_lar(model, "--iter", "1", "--input", str(tmp_path / "data.npy"), code=0)
    line, *hints = done.stderr.splitlines()
    assert all(hint.startswith("hint: MKL") for hint in hints)
    assert line.startswith("lar: warning: --input: ")
    assert line.endswith("data.npy: 2 of 4 values are NaN or infinite")
