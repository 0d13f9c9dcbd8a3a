"""Every flag and positional argument that reads a file refuses what is not a regular file."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

import pytest

from lar.cli.main import main
from lar.options.table import OPTIONS
from tests.cli.marks import needs_zero

MODEL = "models/one_operator.mge"
CACHE_MODEL = "models/one_operator.onnx"

# FILE stands for what is not a regular file.
COMMANDS = [
    "run FILE",
    "run FILE.mge",
    "run FILE.onnx",
    "run MODEL --input FILE.npy",
    "run MODEL --input FILE.txt",
    "run MODEL --input FILE.npz",
    "run MODEL --input data:FILE.ppm",
    "run MODEL --input data:FILE.bin,float32,4",
    "run MODEL --input models --labels FILE",
    "run MODEL --fast-run-algo-policy FILE",
    "run MODEL --fast-run --fast-run-algo-policy FILE",
    "run ONNX --fast-run-algo-policy FILE",
    "info FILE",
    "info FILE.mge",
    "info FILE.onnx",
    "pack FILE -d #rand(0,1) -o OUT",
    "pack FILE.onnx -d #rand(0,1) -o OUT",
    "pack MODEL -d @FILE -o OUT",
    "pack MODEL -d FILE.npy -o OUT",
    "compare FILE FILE",
    "compare FILE.index.json FILE",
    "compare FILE.mge ONNX",
    "report FILE",
    "report FILE FILE",
    "report FILE --export perfetto -o OUT",
    "cache show FILE",
    "cache diff FILE FILE",
    "cache merge FILE -o OUT",
    "cache merge OLD -o FILE",
    "cache pick FILE 0 a -o OUT",
]
FLAGS = [option.flag for option in OPTIONS if option.reads and option.by_engine]
CACHES = {option.flag for option in OPTIONS if option.purpose == "cache"}


@pytest.fixture(autouse=True)
def alarm() -> Iterator[None]:
    """Fail a test whose command waits for a pipe or reads without an end."""

    def fail(number: int, frame: FrameType | None) -> None:
        raise AssertionError("lar waits for a pipe, or reads a device")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def refused(command: str, root: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what `lar` prints when it refuses a command line."""
    (folder / "old").write_bytes(bytes(4))
    (folder / "set").mkdir()
    (folder / "set" / "one.npy").write_bytes(b"")
    words = {
        "MODEL": str(root / MODEL),
        "ONNX": str(root / CACHE_MODEL),
        "OUT": str(folder / "out"),
        "OLD": str(folder / "old"),
        "models": str(folder / "set"),
    }
    line = [words.get(word, word.replace("FILE", str(folder / "file"))) for word in command.split()]
    code = main(line)
    printed = capsys.readouterr()
    assert (code, printed.out) == (2, ""), shlex.join(line)
    assert not (folder / "out").exists()
    return printed.err


def make_special(kind: str, folder: Path) -> None:
    for suffix in ("", ".mge", ".onnx", ".npy", ".npz", ".txt", ".ppm", ".bin", ".index.json"):
        if kind == "pipe":
            os.mkfifo(folder / f"file{suffix}")
        else:
            os.symlink("/dev/zero", folder / f"file{suffix}")


@pytest.mark.parametrize("kind", ["pipe", pytest.param("device", marks=needs_zero)])
@pytest.mark.parametrize("command", [*COMMANDS, *(f"run MODEL {flag} FILE" for flag in FLAGS)])
def test_a_pipe_or_device_is_refused(
    kind: str, command: str, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_special(kind, tmp_path)
    assert "is not a regular file" in refused(command, root, tmp_path, capsys)


@pytest.mark.parametrize("flag", FLAGS)
def test_a_folder_is_refused(
    flag: str, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").mkdir()
    printed = refused(f"run MODEL {flag} FILE", root, tmp_path, capsys)
    assert f"{flag}: {tmp_path / 'file'}: is a folder" in printed


@pytest.mark.parametrize("flag", sorted({*FLAGS} - CACHES))
def test_a_missing_file_is_refused(
    flag: str, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed = refused(f"run MODEL {flag} FILE", root, tmp_path, capsys)
    assert f"{flag}: {tmp_path / 'file'}: no such file" in printed


def test_the_flags_are_those_known() -> None:
    assert {"--c-opr-lib", "--pack-info-json", "--pack-cache", "--tensorrt-cache"} < set(FLAGS)


@pytest.mark.parametrize("name", ["", "data:"])
def test_a_misspelt_form_of_raw_bytes_is_refused(
    name: str, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = f"run MODEL --input {name}FILE.bin,float32,1x3x224X224"
    printed = refused(command, root, tmp_path, capsys)
    assert f"--input: {name}{tmp_path}/file.bin,float32,1x3x224X224: has no dtype" in printed
