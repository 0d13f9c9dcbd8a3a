"""Tables are as wide as the terminal or COLUMNS, and in colour on a terminal alone."""

from __future__ import annotations

import os

import pytest

from lar.cli.screen import screen_of_output
from lar.profiles.trace_file import write_profile
from lar.reports.text import Screen
from tests.cli.failures import printed_on_terminal
from tests.command_lines import ROOT, run_lar
from tests.profiles.layers import profile_of_layers
from tests.tables import each_row

STYLES = ("megengine", "paddle", "torch", "nsys", "ncu")


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("screen") / "p.json"
    write_profile(profile_of_layers(), path)
    return str(path)


def printed(*words: str, columns: int | None = None) -> str:
    """What a command line prints on a terminal of so many columns, or into a file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("COLUMNS", raising=False)
        if columns:
            patch.setenv("COLUMNS", str(columns))
        return run_lar(*words, cwd=ROOT, code=0).stdout


def width_of(text: str) -> int:
    return max(len(line.rstrip()) for line in text.splitlines())


@pytest.mark.parametrize("style", STYLES)
def test_a_reports_tables_are_no_wider_than_columns(style: str, profile: str) -> None:
    words = ("report", profile, "--style", style)
    assert width_of(printed(*words)) > 100
    narrow = printed(*words, columns=100)
    assert width_of(narrow) <= 100
    if style != "nsys":  # whose columns have room to spare
        assert "(too narrow to show: " in narrow


def test_sentences_are_wrapped_and_lines_for_programs_are_not(profile: str) -> None:
    wide, narrow = (printed("report", profile, profile, columns=it) for it in (None, 64))
    assert width_of(narrow) <= 64 < width_of(wide)
    end = wide[wide.index("operators that both have") :].split()
    assert narrow.split()[-len(end) :] == end
    words = ("report", profile, "--style", "tensorboard")
    assert printed(*words, columns=64) == printed(*words)


def test_columns_that_are_no_width_change_nothing(
    profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("report", profile, "--style", "ncu")
    for text in ("0", "", "-5", "wide", "1000000"):
        monkeypatch.setenv("COLUMNS", text)
        assert run_lar(*words).stdout == printed(*words)


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


@each_row("cli/cases/lists")
def test_lists_are_no_wider_than_columns(words: str, columns: int) -> None:
    assert max(map(len, printed(*words.split(), columns=columns).splitlines())) <= columns


@pytest.mark.parametrize(
    ("environment", "is_colored"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False), ({"NO_COLOR": ""}, True)],
)
def test_colours_are_for_a_terminal(
    environment: dict[str, str], is_colored: bool, profile: str
) -> None:
    inherited = {key: it for key, it in os.environ.items() if key not in ("NO_COLOR", "COLUMNS")}
    environment = {**inherited, "TERM": "xterm", **environment}
    printed = printed_on_terminal("report", profile, "--style", "ncu", env=environment)
    assert ("\x1b[1m" in printed) is is_colored
    assert "Peak measured with 2 threads" in printed


def test_a_pipe_has_any_width_and_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert screen_of_output() == Screen(None, False)
