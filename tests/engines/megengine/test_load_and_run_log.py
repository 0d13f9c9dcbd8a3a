"""Logs of C++ load_and_run: all versions of its lines, failed runs, logs that were cut short."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lar.engines.megengine.load_and_run_log import is_log, read_log
from lar.errors import UsageError
from lar.records.record import record_from_json, record_to_json
from lar.records.run import RunResult
from tests.engines.runs import failure_of
from tests.tables import each_row

LOGS = Path(__file__).resolve().parents[2] / "data" / "load_and_run"

HEADER = "mgb load-and-run: using MegBrain 8.4.1(0) and MegDNN 9.3.0\n"


def read(text: str | bytes) -> tuple[RunResult, ...]:
    return read_log(text.encode() if isinstance(text, str) else text, "log.txt")


def read_one(name: str) -> RunResult:
    (result,) = read((LOGS / f"{name}.txt").read_bytes())
    return result


def in_ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(1e3 * seconds, 3)


@each_row("engines/megengine/load_and_run_logs/said")
def test_a_log_is_read(
    name: str,
    count: int,
    median: float | None,
    load: float,
    prepare: float | None,
    warmup: list[float],
    settings: dict[str, object],
) -> None:
    """What it says: samples, the median in ms (of an odd number), load, prepare and warm-up in
    ms, and which options were set."""
    result = read_one(name)
    times = result.samples.end_to_end
    assert (result.status, result.phase, len(times)) == ("ok", "done", count)
    if median is not None:
        assert in_ms(sorted(times)[count // 2]) == median
    assert (in_ms(result.load_seconds), in_ms(result.prepare_seconds)) == (load, prepare)
    assert [*map(in_ms, result.warmup.end_to_end)] == warmup
    assert result.spec.settings == settings
    assert len(result.samples.host) == len(result.samples.device) == count
    assert result.engine is not None
    assert (result.engine.version, result.engine.driver) == ("1.13.0", "load_and_run")
    assert record_from_json(record_to_json(result), RunResult) == result


def test_a_failed_run_is_a_failed_run() -> None:
    result = read_one("missing_model")
    assert (result.status, result.phase, result.samples.end_to_end) == ("crashed", "load", ())
    problem = "failed to open models/none.mge: No such file or directory"
    assert failure_of(result, 4).message == problem
    assert "backtrace:" in result.log_tail


def test_runs_of_the_manual_are_read_with_their_command_lines() -> None:
    results = read((LOGS / "manual_8.4.txt").read_bytes())
    layout = {"enable_nchw44": True}
    cached = {**layout, "fast_run_algo_policy": "resnet50.cache"}
    searched = {**cached, "fast_run": True}
    found = [result.spec.settings for result in results]
    assert found == [{}, layout, searched, cached, {**searched, "winograd_transform": True}, {}]
    first, last = results[0], results[-1]
    assert (first.spec.model, first.spec.inputs) == ("./resnet50.mge", ("cat.npy",))
    assert all(len(result.samples.end_to_end) == 10 for result in results)
    assert first.samples.device[0] == pytest.approx(0.242226)
    assert first.engine is not None
    assert first.engine.version == "8.4.1"
    (verdict,) = last.cases[0].verdicts
    assert (verdict.error, verdict.limit) == (3.86273e-05, 1e-4)


@each_row("engines/megengine/load_and_run_logs/small")
def test_a_small_log_is_read(rule: str, lines: list[str], facts: dict[str, Any]) -> None:
    (result,) = read("".join(f"{line}\n" for line in lines).replace("HEADER\n", HEADER))
    samples, spec = result.samples, result.spec
    found = {
        "times": [*map(in_ms, samples.end_to_end)],
        "device times": [*map(in_ms, samples.device)],
        "source of them": result.sources.device,
        "load and preparation": [in_ms(result.load_seconds), in_ms(result.prepare_seconds)],
        "warmup": [*map(in_ms, result.warmup.end_to_end)],
        "runner": [*samples.runner],
        "runner of warm-ups": [*result.warmup.runner],
        "case": [*samples.case],
        "cases": [case.name for case in result.cases],
        "settings": spec.settings,
        "model": spec.model,
        "device": spec.device,
        "iterations": [spec.warmup_iterations, spec.iterations],
        "ends": [result.status, result.phase],
        "verdicts": [
            [it.id, it.error, it.limit, it.passed] for each in result.cases for it in each.verdicts
        ],
    }
    assert {fact: found[fact] for fact in facts} == facts, rule


def test_line_ends_and_encodings_of_other_systems_are_read() -> None:
    text = (LOGS / "mobilenet_default.txt").read_text()
    expected = read(text)
    assert read(text.replace("\n", "\r\n")) == expected
    assert read(text.encode("utf-16")) == expected
    assert read(b"\xef\xbb\xbf" + text.encode()) == expected


@each_row("engines/megengine/load_and_run_logs/crashes")
def test_a_crash_keeps_what_was_measured(lines: list[str], phase: str, reason: str) -> None:
    """Behind a run that did not fail."""
    first = ["=== going to run for 0 times", HEADER.strip()]
    _, result = read(HEADER + "\n".join([*first, *lines]))
    assert (result.status, result.phase) == ("crashed", phase)
    assert len(result.samples.end_to_end) == sum("iter" in line for line in lines)
    assert (failure_of(result).message, result.log_tail) == (reason, "\n".join(lines[-20:]))


def test_a_log_that_was_cut_at_any_line_is_refused() -> None:
    lines = (LOGS / "mobilenet_nchw88.txt").read_text().splitlines(keepends=True)
    finished = next(number for number, line in enumerate(lines) if "finished test" in line)
    places = []
    texts = ["".join(lines[:count]) for count in range(3, finished + 1)]
    for text in (*texts, texts[-1][:-12], texts[-1][:-12] + "\n"):
        with pytest.raises(UsageError) as error:
            read(text)
        places.append(str(error.value).removeprefix("log.txt: was cut short "))
    assert list(dict.fromkeys(places)) == [
        "before the first iteration",
        *(f"after iteration {it} of 5" for it in range(5)),
        f"in line {finished}",
        f"log.txt: line {finished} is damaged: 'iter 4/5: e2e=4.350 ms (hos'",
    ]
    assert read("".join(lines[: finished + 1]))


@each_row("engines/megengine/load_and_run_logs/damaged")
def test_a_damaged_line_is_named(old: str, new: str, problem: str) -> None:
    text = (LOGS / "mobilenet_default.txt").read_text()
    assert old in text
    with pytest.raises(UsageError) as error:
        read(text.replace(old, new))
    assert error.value.problem == problem


def test_a_log_that_ends_between_testcases_is_cut_short() -> None:
    text = HEADER + "load model: 1.0ms\n=== going to run 2 testcases; output vars: y{1}\n"
    text += "=== going to run test #0 for 1 times\niter 0/1: 4.0ms (exec=1.0,device=3.0)\n"
    with pytest.raises(UsageError, match=r"was cut short before testcase 1 of 2$"):
        read(text + "=== finished test #0: time=4.0ms avg_time=4.0ms\n")


def test_other_texts_are_no_logs() -> None:
    assert not is_log(b"lar 0.1.0: using MegEngine 1.13.0 (lite)\nload model: 1ms\n")
    assert not is_log(b"using MegBrain\n")
    assert is_log(HEADER.encode())
