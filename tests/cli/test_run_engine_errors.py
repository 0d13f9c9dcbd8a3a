"""Devices and engines that are not there are told, and how to get them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.failures import broken, check_error, check_not_started, shim
from tests.cli.marks import each_format, needs_megengine
from tests.command_lines import ROOT, run_lar
from tests.tables import each_row


@each_format
@pytest.mark.parametrize("flag", ["--cuda", "--cuda=77"])
def test_device_that_is_not_there(suffix: str, flag: str) -> None:
    hidden = {"CUDA_VISIBLE_DEVICES": "-1"}
    done = run_lar(f"models/one_operator.{suffix}", flag, "--iter", "1", cwd=ROOT, env=hidden)
    check_error(done, 2, "--cuda", "lar engines")
    assert "iter " not in done.stdout


@each_row("cli/cases/engines that are not installed")
@pytest.mark.parametrize("command", ["run", "info"])
def test_engine_that_is_not_installed(
    tmp_path: Path, suffix: str, pieces: list[str], command: str
) -> None:
    environment = shim(tmp_path, "megengine", "megenginelite", "onnxruntime")
    done = run_lar(command, f"models/one_operator.{suffix}", cwd=ROOT, env=environment)
    check_error(done, 3, *pieces)
    check_not_started(done)


@each_row("cli/cases/libraries that do not load")
@needs_megengine
def test_library_that_does_not_load(
    tmp_path: Path, words: list[str], module: str, piece: str
) -> None:
    check_error(run_lar(*words, cwd=ROOT, env=broken(tmp_path, module)), 3, piece)
