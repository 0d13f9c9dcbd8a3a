"""Tables are as wide as the terminal or COLUMNS, and in colour on a terminal alone."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from lar.cli.main import main
from lar.cli.screen import parse_columns, screen_of_output
from lar.profiles.trace_file import write_profile
from lar.reports.text import Screen
from tests.profiles.layers import profile_of_layers

STYLES = ("megengine", "paddle", "torch", "nsys", "ncu")


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("screen") / "p.json"
    write_profile(profile_of_layers(), path)
    return str(path)


@pytest.mark.parametrize(
    ("text", "width"), [("80", 80), ("0", None), ("", None), ("-5", None), ("wide", None)]
)
def test_columns_is_a_width(text: str, width: int | None) -> None:
    assert parse_columns(text) == width


@pytest.mark.parametrize("style", STYLES)
def test_a_reports_tables_are_no_wider_than_columns(
    style: str, profile: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(["report", profile, "--style", style]) == 0
    wide = capsys.readouterr().out
    assert max(map(len, wide.splitlines())) > 100
    monkeypatch.setenv("COLUMNS", "100")
    assert main(["report", profile, "--style", style]) == 0
    narrow = capsys.readouterr().out
    assert max(len(line.rstrip()) for line in narrow.splitlines()) <= 100
    if style != "nsys":  # whose columns have room to spare
        assert "(too narrow to show: " in narrow


@pytest.mark.parametrize("style", ["diff", "tensorboard"])
def test_sentences_are_wrapped_and_lines_for_programs_are_not(
    style: str, profile: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["report", profile, *([profile] if style == "diff" else []), "--style", style]
    assert main(words) == 0
    wide = capsys.readouterr().out
    monkeypatch.setenv("COLUMNS", "64")
    assert main(words) == 0
    narrow = capsys.readouterr().out
    if style == "tensorboard":
        assert narrow == wide
    else:
        assert max(len(line.rstrip()) for line in narrow.splitlines()) <= 64 < len(wide)
    if style == "diff":
        end = wide[wide.index("operators that both have") :].split()
        assert narrow.split()[-len(end) :] == end


def test_a_line_is_wrapped_between_words() -> None:
    screen = Screen(20)
    assert screen.wrap("   of some words, a--long-option") == [
        "   of some words,",
        "   a--long-option",
    ]
    assert screen.wrap("- an item of a long list", "  ") == ["- an item of a long", "  list"]
    assert screen.wrap("a/path/that/is/longer/than/it") == ["a/path/that/is/longer/than/it"]
    assert screen.wrap(" " * 30) == [""]
    assert Screen().wrap("any " * 9) == ["any " * 9]


def test_the_engines_are_listed_within_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    assert main(["engines"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 90


@pytest.mark.parametrize("columns", ["60", "80"])
@pytest.mark.parametrize(
    "words",
    [
        "engines --quirks",
        "cache show tests/data/digits_cnn.cache",
        "info models/mobilenet_v2.onnx",
    ],
    ids=["quirks", "cache", "info"],
)
def test_defects_caches_and_models_are_listed_within_columns(
    words: str,
    columns: str,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.chdir(root)
    assert main(words.split()) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= int(columns)


@pytest.mark.parametrize(
    ("environment", "is_colored"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({"NO_COLOR": ""}, True)],
)
def test_colours_are_for_a_terminal(
    environment: dict[str, str], is_colored: bool, profile: str, tmp_path: Path
) -> None:
    words = [sys.executable, "-m", "lar", "report", profile, "--style", "ncu"]
    inherited = {key: it for key, it in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
    leader, follower = pty.openpty()
    with (
        os.fdopen(leader, "rb", buffering=0) as terminal,
        subprocess.Popen(words, stdout=follower, env={**inherited, "TERM": "xterm", **environment}),
    ):
        os.close(follower)
        printed = b""
        try:
            while piece := terminal.read(1 << 16):
                printed += piece
        except OSError:  # the other end is closed
            pass
    assert (b"\x1b[1m" in printed) is is_colored
    assert b"Peak measured with 2 threads" in printed


def test_a_pipe_has_any_width_and_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert screen_of_output() == Screen(None, False)
