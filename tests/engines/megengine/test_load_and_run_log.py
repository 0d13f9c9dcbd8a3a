"""Logs of C++ load_and_run: all versions of its lines, failed runs, logs that were cut short."""

from __future__ import annotations

from pathlib import Path

import pytest

from lar.engines.megengine.load_and_run_log import is_log, read_log
from lar.errors import UsageError
from lar.records.run import RunResult, record_from_json, record_to_json
from tests.engines.runs import failure_of
from tests.tables import each_row

LOGS = Path(__file__).resolve().parents[2] / "data" / "load_and_run"

HEADER = "mgb load-and-run: using MegBrain 8.4.1(0) and MegDNN 9.3.0\n"
LITE_HEADER = "megbrain/lite/load_and_run:\nusing MegBrain 8.9999.0(0) and MegDNN 9.3.0\n"


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
) -> None:
    """What it says: samples, the median in ms (of an odd number), load, prepare and warm-up in
    ms."""
    result = read_one(name)
    times = result.samples.end_to_end
    assert (result.status, result.phase, len(times)) == ("ok", "done", count)
    if median is not None:
        assert in_ms(sorted(times)[count // 2]) == median
    assert (in_ms(result.load_seconds), in_ms(result.prepare_seconds)) == (load, prepare)
    assert [*map(in_ms, result.warmup.end_to_end)] == warmup
    assert len(result.samples.host) == len(result.samples.device) == count
    assert result.engine is not None
    assert (result.engine.version, result.engine.driver) == ("1.13.0", "load_and_run")
    assert record_from_json(record_to_json(result), RunResult) == result


def test_a_failed_run_is_a_failed_run() -> None:
    result = read_one("missing_model")
    assert (result.status, result.phase, result.samples.end_to_end) == ("crashed", "load", ())
    assert failure_of(result).message == "failed to open models/none.mge: No such file or directory"
    assert "backtrace:" in result.log_tail


@each_row("engines/megengine/load_and_run_logs/settings")
def test_messages_say_which_options_were_set(name: str, settings: dict[str, object]) -> None:
    assert read_one(name).spec.settings == settings


def test_runners_keep_their_samples() -> None:
    samples = read_one("digits_thread2").samples
    assert samples.runner == (0, 0, 0, 1, 1, 1)
    assert in_ms(samples.of_runner(1).end_to_end[0]) == 0.182


def test_assertions_are_kept() -> None:
    (case,) = read_one("testcases").cases
    assert case.passed
    assert [(each.id, each.error) for each in case.verdicts] == [(282, 0.0)]


def test_runs_of_the_manual_are_read_with_their_command_lines() -> None:
    results = read((LOGS / "manual_8.4.txt").read_bytes())
    layout = {"enable_nchw44": True}
    cached = {**layout, "fast_run_algo_policy": "resnet50.cache"}
    searched = {**cached, "fast_run": True}
    preferred = {**searched, "winograd_transform": True}
    found = [result.spec.settings for result in results]
    assert found == [{}, layout, searched, cached, preferred, {}]
    first, last = results[0], results[-1]
    assert (first.spec.model, first.spec.inputs) == ("./resnet50.mge", ("cat.npy",))
    assert all(len(result.samples.end_to_end) == 10 for result in results)
    assert first.samples.device[0] == pytest.approx(0.242226)
    assert first.engine is not None
    assert first.engine.version == "8.4.1"
    assert last.cases[0].verdicts[0].error == pytest.approx(3.86273e-05)


def test_a_model_without_inputs_has_lines_of_its_own() -> None:
    (result,) = read(
        HEADER + "load model: 1.0ms\n=== prepare: 2.0ms; going to warmup\nwarmup 0: 3.0ms\n"
        "=== going to run for 2 times; output vars: y{1}\n"
        "=== finished run #0: time=4.000ms\n=== finished run #1: time=5.000ms\navg time: 4.500ms\n"
    )
    assert list(map(in_ms, result.samples.end_to_end)) == [4.0, 5.0]


def test_testcases_are_kept_apart() -> None:
    one = "iter 0/1: 4.0ms (exec=1.0,device=3.0)\n"
    one += "=== finished test #{0}: time=4.0ms avg_time=4.0ms\n"
    (result,) = read(
        HEADER + "load model: 1.0ms\n=== going to run 2 testcases; output vars: y{1}\n"
        "=== prepare: 2.0ms; going to warmup\nwarmup 0: 3.0ms\n"
        "=== going to run test #0 for 1 times\n" + one.format(0) + "\n"
        "=== going to run test #1 for 1 times\n" + one.format(1) + "\n=== total time: 8.0ms\n"
    )
    assert result.samples.case == (0, 1)
    assert [case.name for case in result.cases] == ["#0", "#1"]


def test_lines_of_runners_may_stand_between_each_other() -> None:
    line = "iter {}/2: {}ms (exec=1.0,device=3.0)\n"
    end = "=== finished test #0: time=4.0ms avg_time=4.0ms\n"
    lines = "".join(line.format(*each) for each in [(0, 1), (0, 5), (1, 2), (1, 6)])
    loaded = "use 2 threads\nload model: 1.0ms\nload model: 1.0ms\n"
    (result,) = read(HEADER + loaded + lines + end + end)
    assert list(map(in_ms, result.samples.end_to_end)) == [1, 2, 5, 6]
    assert result.samples.runner == (0, 0, 1, 1)
    assert result.spec.settings == {"thread": 2}


def test_line_ends_and_encodings_of_other_systems_are_read() -> None:
    text = (LOGS / "mobilenet_default.txt").read_text()
    expected = read(text)
    assert read(text.replace("\n", "\r\n")) == expected
    assert read(text.encode("utf-16")) == expected
    assert read(b"\xef\xbb\xbf" + text.encode()) == expected


@each_row("engines/megengine/load_and_run_logs/crashes")
def test_a_crash_keeps_what_was_measured(ending: str, reason: str) -> None:
    measured = "load model: 1.0ms\nwarmup 0: 3.0ms\niter 0/9: 4.0ms (exec=1.0,device=3.0)\n"
    (result,) = read(HEADER + measured + ending)
    assert (result.status, result.phase) == ("crashed", "iterations")
    assert len(result.samples.end_to_end) == 1
    assert failure_of(result).message.startswith(reason)


def test_a_log_that_was_cut_at_any_line_is_refused() -> None:
    lines = (LOGS / "mobilenet_nchw88.txt").read_text().splitlines(keepends=True)
    finished = next(number for number, line in enumerate(lines) if "finished test" in line)
    for count in range(3, finished):
        with pytest.raises(UsageError, match=r"log\.txt: was cut short"):
            read("".join(lines[:count]))
    assert read("".join(lines[: finished + 1]))


@each_row("engines/megengine/load_and_run_logs/damaged")
def test_a_damaged_line_is_named(old: str, new: str, problem: str) -> None:
    text = (LOGS / "mobilenet_default.txt").read_text()
    assert old in text
    with pytest.raises(UsageError) as error:
        read(text.replace(old, new))
    assert error.value.problem.startswith(problem)


def test_options_that_lar_lacks_are_kept_as_text() -> None:
    (result,) = read(
        "phone:/data $ ./load_and_run ./a.mge --iter=0 --new_thing 7 --cuda --multithread 4\n"
        + HEADER
        + "load model: 1.0ms\n=== going to run test #0 for 0 times\n"
    )
    assert result.spec.model == "./a.mge"
    assert result.spec.settings == {"new_thing": "7", "cuda": 0, "multithread": 4}
    assert result.spec.device == "cuda:0"


def test_values_that_lar_refuses_are_kept_as_text() -> None:
    (result,) = read(
        "load_and_run a.mge --multithread many --fast-run-algo-policy --iter 0 stray\n"
        + HEADER
        + "load model: 1.0ms\n=== going to run input for 0 times\n"
    )
    assert result.spec.settings == {"multithread": "many", "fast_run_algo_policy": True}


def test_a_run_of_no_iterations_is_whole() -> None:
    text = LITE_HEADER + "load model: 1.0ms\n=== prepare: 1.0ms; going to warmup\n"
    text += "warm up 0  2.0ms\n\n=== finished test #0: time=0.000 ms avg_time=-nan ms\n"
    (result,) = read(text)
    assert (result.status, result.spec.iterations, result.samples.end_to_end) == ("ok", 0, ())
    assert in_ms(result.warmup.end_to_end[0]) == 2.0


def test_a_log_that_ends_between_testcases_is_cut_short() -> None:
    text = HEADER + "load model: 1.0ms\n=== going to run 2 testcases; output vars: y{1}\n"
    text += "=== going to run test #0 for 1 times\niter 0/1: 4.0ms (exec=1.0,device=3.0)\n"
    with pytest.raises(UsageError, match=r"was cut short before testcase 1 of 2"):
        read(text + "=== finished test #0: time=4.0ms avg_time=4.0ms\n")


def test_sentences_about_the_program_are_no_command_lines() -> None:
    before, after = "I ran load_and_run on my phone:\n", "=== going to run input for 0 times\n"
    (result,) = read(before + HEADER + after)
    assert result.spec.model == ""


def test_other_texts_are_no_logs() -> None:
    assert not is_log(b"lar 0.1.0: using MegEngine 1.13.0 (lite)\nload model: 1ms\n")
    assert not is_log(b"using MegBrain\n")
    assert is_log(HEADER.encode())
