"""Pairs of flags are recorded from the command line, and two recordings are compared."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import option_pairs
import pytest
from option_pairs import Case

from tests.command_lines import run_python

RUN = Case(
    model="m.mge",
    flags=("--cpu", "--json"),
    exit_code=0,
    stderr="lar: note: no --input\n",
    stdout=("lar 0.2.0: using MegEngine 1.13.0 (lite)", "load model: 10.3ms"),
    files=("result.json",),
    workers=1,
    seconds=0.2,
)
REFUSAL = replace(
    RUN,
    exit_code=2,
    stderr="lar: error: --cpu and --json exclude each other\nhint: give one of them\n",
    stdout=(),
    files=(),
    workers=0,
)


def write_recording(file: Path, *cases: Case) -> Path:
    file.write_text("".join(json.dumps(asdict(case)) + "\n" for case in cases))
    return file


def test_every_pair_is_planned_once_with_no_flag_and_each_alone() -> None:
    cases = option_pairs.plan_cases(["--a", "--b", "--json"])
    assert cases[:4] == [(), ("--a",), ("--b",), ("--json",)]
    pairs = {("--a", "--b"), ("--a", "--json"), ("--b", "--json")}
    assert len(cases) == 7
    assert {*cases[4:]} == pairs


def test_every_flag_of_a_run_has_a_value_to_be_given() -> None:
    flags = option_pairs.flags_of_run()
    assert len(flags) > 80
    for flag, metavar in flags.items():
        for suffix in (".mge", ".onnx"):
            assert option_pairs.words_of(flag, metavar, suffix)[0] == flag


def test_a_recording_has_what_each_command_line_did(
    tmp_path: Path, write_script: Callable[..., str]
) -> None:
    file = tmp_path / "pairs.jsonl"
    words = [str(file), write_script(), "--flags=--json,--bgr,--rgb", "--jobs", "1"]
    run_python("tools/option_pairs.py", "record", *words, code=0)
    cases = {case.flags: case for case in option_pairs.read_cases(file)}
    assert len(cases) == 1 + 3 + 3
    assert cases["--json",].exit_code == 0
    assert cases["--json",].files == ("result.json",)
    assert cases["--json",].workers == 1
    refused = cases["--bgr", "--rgb"]
    assert refused.exit_code == 2
    assert "--bgr" in refused.stderr
    assert refused.workers == 0


@pytest.mark.parametrize(
    "new",
    [
        replace(RUN, seconds=9.0),
        replace(RUN, stdout=(RUN.stdout[0], "load model: 99.1ms")),
        replace(RUN, stderr=RUN.stderr + "note: 1 of 1 iterations were disturbed: by 2ms\n"),
    ],
)
def test_time_alone_is_no_difference(
    new: Case, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [write_recording(tmp_path / "old", RUN), write_recording(tmp_path / "new", new)]
    assert option_pairs.main(["compare", *map(str, files)]) == 0
    assert "1 cases in both" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        (RUN, REFUSAL, "exit code"),
        (REFUSAL, replace(REFUSAL, stderr="lar: error: no\nhint: other\n"), "message"),
        (RUN, replace(RUN, files=()), "files"),
        (REFUSAL, replace(REFUSAL, stdout=("lar 0.2.0",)), "output before a refusal"),
        (REFUSAL, replace(REFUSAL, stderr="lar: error: no\n"), "refusal without a hint"),
        (RUN, replace(RUN, stdout=("lar 0.2.0: using MegEngine 1.13.0 (graph)",)), "first lines"),
    ],
)
def test_what_else_differs_is_listed(
    old: Case, new: Case, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [write_recording(tmp_path / "old", old), write_recording(tmp_path / "new", new)]
    assert option_pairs.main(["compare", *map(str, files)]) == 1
    assert f"## {kind}: 1 cases, 1 kinds" in capsys.readouterr().out
