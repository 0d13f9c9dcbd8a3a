"""The tool that compares what reports print and write before and after a change."""

from __future__ import annotations

import gzip
import importlib
import json
import sys
from pathlib import Path

import pytest

from lar.profiles.trace_file import write_profile
from lar.reports.model import PLAIN
from lar.reports.styles import STYLES
from tests.profiles.layers import profile_of_layers

TOOLS = Path(__file__).resolve().parents[2] / "tools"
sys.path.append(str(TOOLS))
report_bytes = importlib.import_module("report_bytes")


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bytes")
    for name in ("first", "second"):
        write_profile(profile_of_layers(2, 3, seed=len(name)), folder / f"{name}.json")
    names = [str(folder / f"{name}.json") for name in ("first", "second")]
    assert report_bytes.main(["record", str(folder / "kept"), *names]) == 0
    return folder / "kept"


def test_every_style_and_option_is_recorded(kept: Path) -> None:
    with gzip.open(kept / report_bytes.KEPT, "rt") as file:
        outputs = [report_bytes.Output(*json.loads(line)) for line in file]
    words = {word for output in outputs for word in output.words}
    assert set(STYLES) <= words
    options = {key for style in STYLES.values() for key in style.options}
    assert {"--" + key.replace("_", "-") for key in options} - words == {"--aggregate"} - words
    assert all(output.text for output in outputs if output.code == 0)


def test_the_same_code_makes_the_same_bytes(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report_bytes.main(["compare", str(kept), "torch"]) == 0
    assert capsys.readouterr().out.endswith(", 0 different outputs\n")


def test_a_byte_that_differs_is_printed(
    kept: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lar.reports.styles.torch.LAYOUT", PLAIN)
    assert report_bytes.main(["compare", str(kept), "torch", "--top", "1"]) == 1
    assert "--style torch --top 1: text" in capsys.readouterr().out


def test_without_a_folder_its_use_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert report_bytes.main(["record"]) == 2
    assert "compare FOLDER" in capsys.readouterr().out
