"""A run of a file that is no model, or no whole one, ends in one clear line."""

from __future__ import annotations

import random
import shutil
from hashlib import sha256
from pathlib import Path

import onnx
import pytest

from tests.cli.failures import check_error, check_not_started
from tests.cli.marks import each_format, needs_megengine, not_root
from tests.command_lines import ROOT, run_lar
from tests.tables import each_row

SUFFIXES = ("mge", "onnx")


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with each model file of SUFFIXES in all stages of decay."""
    folder = tmp_path_factory.mktemp("damaged")
    for suffix in SUFFIXES:
        whole = (ROOT / f"models/dynamic_batch.{suffix}").read_bytes()
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
        shutil.copy(ROOT / f"models/dynamic_batch.{other}", folder / f"misnamed.{suffix}")
        (folder / f"folder.{suffix}").mkdir()
    return folder


@each_format
@each_row("cli/cases/files that are no models")
def test_model_file_that_cannot_be_one(damaged: Path, suffix: str, name: str, piece: str) -> None:
    done = run_lar(str(damaged / f"{name}.{suffix}"))
    check_error(done, 2, f"{name}.{suffix}: ", piece)
    check_not_started(done)


@each_format
@pytest.mark.parametrize(
    "name", ["one_byte", "cut_in_header", "cut_in_half", "cut_at_end", "garbage", "zeros", "text"]
)
def test_damaged_model(damaged: Path, suffix: str, name: str) -> None:
    for command in ("run", "info"):
        done = run_lar(command, str(damaged / f"{name}.{suffix}"))
        check_error(done, 2, f"{name}.{suffix}: ", "hint: copy or export the model again")
        assert "load model" not in done.stdout


@not_root
@each_format
def test_unreadable_model(tmp_path: Path, suffix: str) -> None:
    model = tmp_path / f"model.{suffix}"
    shutil.copy(ROOT / f"models/one_operator.{suffix}", model)
    model.chmod(0)
    check_error(run_lar(str(model)), 2, f"model.{suffix}: cannot be read: permission denied")


@each_format
def test_bit_flipped_model_with_a_checksum(tmp_path: Path, suffix: str) -> None:
    data = bytearray((ROOT / f"models/digits_cnn.{suffix}").read_bytes())
    model = tmp_path / f"model.{suffix}"
    checksum = f"{sha256(data).hexdigest()}  model.{suffix}\n"
    (tmp_path / f"model.{suffix}.sha256").write_text(checksum)
    data[len(data) // 2] ^= 0x10  # in the weights: no engine notices
    model.write_bytes(data)
    for command in (("run",), ("run", "--in-process"), ("info",)):
        done = run_lar(*command, str(model))
        check_error(done, 2, f"model.{suffix}: the file is damaged", f"model.{suffix}.sha256")
        assert "iter " not in done.stdout
    data[len(data) // 2] ^= 0x10
    model.write_bytes(data)
    assert run_lar(str(model), "--iter", "1").returncode == 0


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
def test_bit_flipped_structure(tmp_path: Path, suffix: str, bit: int) -> None:
    data = bytearray((ROOT / f"models/one_operator.{suffix}").read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    model = tmp_path / f"model.{suffix}"
    model.write_bytes(data)
    unknown = (suffix, bit) in UNKNOWN_OPERATOR
    pieces = (f"model.{suffix}: ", *(["has no "] if unknown else []))
    check_error(run_lar(str(model), "--iter", "1"), 4 if unknown else 2, *pieces)


def test_bit_flip_that_makes_a_name_no_text(tmp_path: Path) -> None:
    data = bytearray((ROOT / "models/one_operator.onnx").read_bytes())
    data[data.index(b"Relu")] ^= 0x80
    (tmp_path / "model.onnx").write_bytes(data)
    check_error(run_lar(str(tmp_path / "model.onnx"), "--iter", "1"), 2, "model.onnx: ")


@pytest.mark.parametrize("command", ["run", "info"])
@pytest.mark.parametrize("weights", [None, b"123"])
def test_external_data(tmp_path: Path, command: str, weights: bytes | None) -> None:
    model = onnx.load(ROOT / "models/digits_cnn.onnx")
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="numbers.bin", size_threshold=0)
    assert run_lar(command, str(path)).returncode == 0
    if weights is None:
        (tmp_path / "numbers.bin").unlink()
    else:
        (tmp_path / "numbers.bin").write_bytes(weights)
    file = ["numbers.bin"] if command == "info" else []
    check_error(run_lar(command, str(path)), 2, "model.onnx: ", "weights", *file)
