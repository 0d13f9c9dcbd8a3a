"""What cannot be done is refused in one line, with a hint at what can, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from lar.engines.megengine import defects
from lar.running import worker_process
from tests.cli.failures import contents_of, refuse
from tests.cli.marks import each_of
from tests.command_lines import run_lar
from tests.tables import each_row


@each_of("refusals.txt")
def test_a_refusal_needs_no_worker(
    place: Path, command: str, parts: list[str], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object, **__: object) -> None:
        raise AssertionError("a worker is started")

    monkeypatch.setattr(worker_process, "start_python", start)
    # Where every rule can be broken.
    monkeypatch.setattr(defects, "read_instruction_sets", lambda: "AuthenticAMD avx2")
    done = refuse(place, command, [part.removesuffix(" ...") for part in parts], code)
    assert done.stdout == ""
    if parts[0].startswith("  lar: error: ") and not parts[0].endswith(" ..."):
        assert [f"  {line}" for line in done.stderr.splitlines()][-len(parts) :] == parts


@each_row("cli/cases/long values")
def test_a_long_value_is_refused_shortly(
    place: Path, flag: str, parts: list[tuple[str, int]], said: str
) -> None:
    text = "".join(part * count for part, count in parts)
    refuse(place, f"s.fake --warmup-iter 0 {flag} '{text}'", [said])


@each_row("cli/cases/interrupts")
def test_an_interrupt_is_one_line_and_nothing_is_written(
    place: Path, function: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(function, interrupt)
    before = contents_of(place)
    done = run_lar(*command.split(), cwd=place, code=130)
    assert (done.stdout, done.stderr) == ("", "lar: error: interrupted\n")
    assert contents_of(place) == before
