"""A run of a file that is no model, or no whole one, ends in one clear line."""

from __future__ import annotations

import os
import random
import shutil
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import pytest

from tests.cli.failures import check_error, check_not_started, run_limited
from tests.cli.marks import each_format, needs_megengine, needs_zero, not_root

if TYPE_CHECKING:
    from tests.conftest import RunLar

SUFFIXES = ("mge", "onnx")


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
        ("misnamed", "but its content is a model in the"),
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
    done = run_lar(command, str(tmp_path / f"model.{suffix}"))
    check_error(done, 2, f"model.{suffix}: ")


@needs_zero
@pytest.mark.parametrize("command", ["run", "info"])
@pytest.mark.parametrize("engine", ["megengine", "onnxruntime"])
def test_endless_device_as_model(root: Path, command: str, engine: str) -> None:
    # The limit is for this machine's sake, should lar try to read it whole.
    done = run_limited(root, 3_000_000, command, "/dev/zero", "--engine", engine)
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


# Bits of models/one_operator whose flip an engine notices when it loads the model, and those of
# them that make an operator one which the engine does not have.
UNKNOWN_OPERATOR = (("mge", 964), ("mge", 2372), ("onnx", 296))


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
    unknown = (suffix, bit) in UNKNOWN_OPERATOR
    pieces = (f"model.{suffix}: ", *(["has no "] if unknown else []))
    check_error(run_lar(str(model), "--iter", "1"), 4 if unknown else 2, *pieces)


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
