"""Devices and engines that are not there are told, and how to get them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import lar
from tests.cli.failures import check_error, check_not_started, shim
from tests.cli.marks import each_format, needs_megengine

if TYPE_CHECKING:
    from tests.conftest import RunLar


@each_format
@pytest.mark.parametrize("flag", ["--cuda", "--cuda:0", "--cuda=77"])
def test_device_that_is_not_there(run_lar: RunLar, root: Path, suffix: str, flag: str) -> None:
    hidden = {"CUDA_VISIBLE_DEVICES": "-1"}
    done = run_lar(f"models/one_operator.{suffix}", flag, "--iter", "1", cwd=root, env=hidden)
    check_error(done, 2, "--cuda", "lar engines")
    assert "iter " not in done.stdout


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
