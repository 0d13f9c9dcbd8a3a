"""A long preparation is told while it goes on, on the console as one line."""

from __future__ import annotations

import io
import re

import pytest

from lar.cli.outlet import ProgressLine
from lar.engines.listener import Listener
from lar.records.run import RunContext
from lar.running import isolation
from lar.running.plan import plan_run
from lar.running.steps import make_run
from tests.cli.failures import printed_on_terminal
from tests.conftest import WriteScript

TEXT = "searching: 3 operators measured"


class Told(Listener):
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.times: list[float] = []

    def on_progress(self, text: str, elapsed: float) -> None:
        self.texts.append(text)
        self.times.append(elapsed)


@pytest.fixture
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tell after a tenth of a second, and ten times a second."""
    monkeypatch.setattr(isolation, "PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(isolation, "INTERVAL_SECONDS", 0.1)


def told_of(model: str) -> Told:
    spec, told = plan_run(model, {"iter": 2}), Told()
    assert make_run(spec, RunContext(), told).status == "ok"
    return told


@pytest.mark.usefixtures("hurry")
@pytest.mark.parametrize("where", ["load", "first iteration"])
def test_progress_is_told_until_the_first_iteration_ends(
    write_script: WriteScript, where: str
) -> None:
    for seconds in (0.4, 5.0):  # a busy machine may come to look at it once in half a second
        slow = {"times": [[seconds, 0.1, None], [0.001, 0.001, None]]}
        times = {"load_seconds": seconds} if where == "load" else slow
        told = told_of(write_script(real_time=True, progress=TEXT, **times))
        if len(told.texts) >= 2:
            break
    assert 2 <= len(told.texts) <= told.times[-1] / 0.1 + 3
    assert set(told.texts) == {TEXT}
    assert told.times == sorted(told.times)
    assert told.times[0] >= 0.1


@pytest.mark.usefixtures("hurry")
def test_an_engine_with_nothing_to_tell_is_not_told_of(write_script: WriteScript) -> None:
    assert told_of(write_script(real_time=True, load_seconds=0.4)).texts == []


def test_what_is_soon_over_is_not_told(
    write_script: WriteScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(isolation, "PATIENCE_SECONDS", 30)
    assert told_of(write_script(real_time=True, progress=TEXT, load_seconds=0.3)).texts == []


# The line


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminals_line_is_rewritten_and_cleared() -> None:
    file = Terminal()
    line = ProgressLine(file)
    line.show(TEXT + "!", 9.7)
    line.show(TEXT, 11)
    line.clear()
    line.clear()
    width = len(TEXT + ", 11 s")
    assert file.getvalue() == f"\r{TEXT}!, 10 s\r{TEXT}, 11 s \r{' ' * width}\r"


def test_a_line_is_no_longer_than_the_terminal_is_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    file = Terminal()
    line = ProgressLine(file)
    line.show("trial 2: 1 thread, " + "2 threads, " * 20 + "6 s left", 12)
    assert file.getvalue() == "\rtrial 2: 1 thre...reads, 6 s left, 12 s"
    line.show(TEXT, 13)
    assert file.getvalue().endswith(f"\r{TEXT}, 13 s".ljust(40))


def test_elsewhere_a_line_is_added_now_and_then() -> None:
    file = io.StringIO()
    line = ProgressLine(file)
    for second in [*range(2, 32), 47]:
        line.show(TEXT, second)
    for second in (2, 10):  # of something else
        line.show(TEXT, second)
    shown = [text.rpartition(", ")[2] for text in file.getvalue().splitlines()]
    assert shown == ["10 s", "20 s", "30 s", "47 s", "10 s"]


def test_a_search_shows_on_a_terminal_and_makes_room(write_script: WriteScript) -> None:
    model = write_script(real_time=True, progress=TEXT, load_seconds=2.4)
    shown = printed_on_terminal(model, "--iter", "1")
    # A busy machine shows a third second too.
    assert re.search(rf"\(script\)\r\n(\r{TEXT}, [2-9] s)+\r +\rload model: 2", shown), shown
    # The engine may search until its first iteration has ended.
    assert TEXT not in shown.partition("warmup 0")[2]
