"""`lar engines`: what is installed, on which devices it runs, which options it honours."""

from __future__ import annotations

import importlib.util
import re
from importlib.metadata import version
from pathlib import Path

import pytest

from lar import engines as lar_engines
from tests.cli.failures import broken, shim
from tests.cli.marks import needs_megengine
from tests.command_lines import run_lar

ENGINES = {"megengine": "uv run --python 3.10", "onnxruntime": "pip install onnxruntime"}


def rows_of(text: str) -> dict[str, list[str]]:
    """The cells of all tables in a text, by the first of a row."""
    rows = [re.split(r"\s{2,}", line) for line in text.splitlines() if line]
    return {row[0]: row[1:] for row in rows}


@pytest.mark.usefixtures("own_engines")
def test_installed_engines() -> None:
    done = run_lar("engines")
    assert (done.returncode, done.stderr) == (0, "")
    rows = rows_of(done.stdout)
    assert rows["engine"] == ["version", "devices", "drivers", "models"]
    for name in ENGINES:
        if importlib.util.find_spec(name):
            assert rows[name][0] == version(name)
            assert rows[name][1].startswith("cpu")
        else:
            assert rows[name][0] == "not installed"
    assert rows["megengine"][-2:] == ["lite, graph", ".mge .mgb .mdl .lite"]
    assert rows["onnxruntime"][-2:] == ["session", ".onnx .ort"]


@pytest.mark.usefixtures("own_engines")
def test_options() -> None:
    rows = rows_of(run_lar("engines").stdout)
    assert rows["option"] == [engine.name for engine in lar_engines.ENGINES]
    for flag in ("--cpu", "--cuda", "--verbose"):
        assert len(rows[flag]) == len(rows["option"])
    assert rows["--cuda"][0].endswith("(lite)")
    # lar's own flags work everywhere and need no row.
    assert not {"--iter", "--input", "--json"} & rows.keys()


def test_engines_that_are_not_installed(tmp_path: Path) -> None:
    done = run_lar("engines", env=shim(tmp_path, *ENGINES))
    assert (done.returncode, done.stderr) == (0, "")
    rows = rows_of(done.stdout)
    for missing, way in ENGINES.items():
        assert rows[missing][0] == "not installed"
        assert way in rows[missing][1]


@needs_megengine
def test_engine_that_does_not_load(tmp_path: Path) -> None:
    done = run_lar("engines", env=broken(tmp_path, "megenginelite", "onnxruntime"))
    assert (done.returncode, done.stderr) == (0, "")
    rows = rows_of(done.stdout)
    assert "cannot be imported" in rows["megengine"][1]
    assert "cannot be imported" in rows["onnxruntime"][1]


@needs_megengine
def test_no_gpu_is_no_device() -> None:
    rows = rows_of(run_lar("engines", env={"CUDA_VISIBLE_DEVICES": "-1"}).stdout)
    assert rows["megengine"][1] == "cpu"


def test_quirks_of_an_engine_that_is_not_installed_are_not_here(tmp_path: Path) -> None:
    done = run_lar("engines", "--quirks", env=shim(tmp_path, "megengine"))
    header, first, *_ = done.stdout.splitlines()
    words = ["effect, how it is detected, and the way round"]
    assert re.split(r"\s{2,}", header) == ["quirk", "here", *words]
    assert re.split(r"\s{2,}", first)[:2] == ["mkl-generic-path", "not installed"]
    # Those of another engine may be.
    assert "  yes" not in done.stdout.partition("openvino-")[0]


@needs_megengine
def test_quirks_are_shown_with_how_they_are_detected_and_the_way_round() -> None:
    header, *lines = run_lar("engines", "--quirks").stdout.splitlines()
    assert header.endswith("here  effect, how it is detected, and the way round")
    assert re.fullmatch(r"mkl-generic-path    (yes|no ) +MKL runs generic code.*", lines[0])
    assert lines[1].startswith(" " * 26 + "AuthenticAMD with AVX2, no MKL_DEBUG_CPU_TYPE")
    assert lines[2] == " " * 26 + "-> --engine-env MKL_DEBUG_CPU_TYPE=5"
    assert max(map(len, lines)) <= 100
