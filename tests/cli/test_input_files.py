"""Every flag and positional argument that reads a file refuses what is not a regular file."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest

from lar.options.table import OPTIONS
from tests.cli.marks import needs_zero
from tests.command_lines import ROOT, run_lar

MODEL = "models/one_operator.mge"
CACHE_MODEL = "models/one_operator.onnx"

_, *COMMANDS = Path(__file__).with_name("reading.txt").read_text().splitlines()
FLAGS = [option.flag for option in OPTIONS if option.reads and option.by_engine]
CACHES = {option.flag for option in OPTIONS if option.purpose == "cache"}


def refused(command: str, folder: Path) -> str:
    """Return what `lar` prints when it refuses a command line."""
    (folder / "old").write_bytes(bytes(4))
    (folder / "set").mkdir()
    (folder / "set" / "one.npy").write_bytes(b"")
    words = {
        "MODEL": str(ROOT / MODEL),
        "ONNX": str(ROOT / CACHE_MODEL),
        "OUT": str(folder / "out"),
        "OLD": str(folder / "old"),
        "models": str(folder / "set"),
    }
    line = [words.get(word, word.replace("FILE", str(folder / "file"))) for word in command.split()]
    # It would wait for a pipe for ever, and read a device without an end.
    done = run_lar(*line, timeout=20)
    assert (done.returncode, done.stdout) == (2, ""), shlex.join(line)
    assert not (folder / "out").exists()
    return done.stderr


def make_special(kind: str, folder: Path) -> None:
    for suffix in ("", ".mge", ".onnx", ".npy", ".npz", ".txt", ".ppm", ".bin", ".index.json"):
        if kind == "pipe":
            os.mkfifo(folder / f"file{suffix}")
        else:
            os.symlink("/dev/zero", folder / f"file{suffix}")


@pytest.mark.parametrize("kind", ["pipe", pytest.param("device", marks=needs_zero)])
@pytest.mark.parametrize("command", [*COMMANDS, *(f"run MODEL {flag} FILE" for flag in FLAGS)])
def test_a_pipe_or_device_is_refused(kind: str, command: str, tmp_path: Path) -> None:
    make_special(kind, tmp_path)
    assert "is not a regular file" in refused(command, tmp_path)


@pytest.mark.parametrize("flag", FLAGS)
def test_a_folder_is_refused(flag: str, tmp_path: Path) -> None:
    (tmp_path / "file").mkdir()
    printed = refused(f"run MODEL {flag} FILE", tmp_path)
    assert f"{flag}: {tmp_path / 'file'}: is a folder" in printed


@pytest.mark.parametrize("flag", sorted({*FLAGS} - CACHES))
def test_a_missing_file_is_refused(flag: str, tmp_path: Path) -> None:
    printed = refused(f"run MODEL {flag} FILE", tmp_path)
    assert f"{flag}: {tmp_path / 'file'}: no such file" in printed


def test_the_flags_are_those_known() -> None:
    assert {"--c-opr-lib", "--pack-info-json", "--pack-cache", "--tensorrt-cache"} < set(FLAGS)
