"""The end of measuring and the pace of iterations, on the command line and from Python."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import lar
from lar.errors import UsageError
from lar.records.run import read_result
from lar.running.variants import parse_vary
from tests.command_lines import ROOT, run_lar
from tests.conftest import WriteScript
from tests.running.isolated_runs import finished, known

# Milliseconds that scatter by some per cent; the clock of the script plays them in no time.
SCATTERED = [[0.010 + 0.0001 * (index * 37 % 11), 0.001, None] for index in range(97)]


@pytest.fixture
def script(write_script: WriteScript) -> str:
    return write_script(times=SCATTERED)


def lines_of(text: str, beginning: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(beginning)]


# The end of measuring


def test_a_duration_is_measured_for(script: str) -> None:
    done = run_lar(script, "--duration", "0.5", code=0)
    assert "=== going to run input for 0.5 s" in done.stdout
    assert "measured: 48 iterations in 0.50" in done.stdout
    assert len(lines_of(done.stdout, "warmup ")) == 1
    iterations = lines_of(done.stdout, "iter ")
    assert len(iterations) == 48
    assert iterations[0].startswith("iter 0: ")
    assert done.stderr == ""


def test_a_median_that_is_known_ends_a_run(script: str, tmp_path: Path) -> None:
    done = run_lar(script, "--target-ci", "2%", "--json", str(tmp_path / "r.json"), code=0)
    assert "until the median is known to +-2%, for 60 s at most" in done.stdout
    assert "the median is known to +-" in lines_of(done.stdout, "measured: ")[0]
    assert done.stderr == ""
    result = read_result((tmp_path / "r.json").read_bytes())
    stopped = known(result.stopped)
    assert (stopped.ending, stopped.met, stopped.settled) == ("target", True, True)
    assert known(stopped.reached) <= 0.02
    assert len(result.warmup.end_to_end) >= 10
    assert len(lines_of(done.stdout, "warmup ")) == len(result.warmup.end_to_end)
    assert len(lines_of(done.stdout, "iter ")) == len(result.samples.end_to_end)
    assert sum(result.samples.end_to_end) == pytest.approx(stopped.seconds)
    assert stopped.seconds >= 0.5
    assert result.spec.stopping.max_seconds == 60.0


def test_a_median_that_is_not_known_in_time_is_a_warning(script: str) -> None:
    done = run_lar(script, "--target-ci", "0.0001", "--max-time", "0.3", "--warmup-iter", "3")
    assert done.returncode == 0
    assert "lar: warning: --target-ci 0.01% is not reached: the median was known to +-" in (
        done.stderr
    )
    assert len(lines_of(done.stdout, "warmup ")) == 3
    assert not lines_of(done.stdout, "measured: ")


def test_a_warmup_that_does_not_settle_is_a_warning(write_script: WriteScript) -> None:
    slower = [[0.02 * 1.02**index, 0.001, None] for index in range(400)]
    result = finished(lar.run(write_script(times=slower), target_ci=0.01, max_time=2))
    assert (known(result.stopped).settled, known(result.stopped).met) == (False, False)
    assert [text.partition(":")[0] for text in result.warnings] == [
        "the warm-up did not settle in a quarter of --max-time",
        "--target-ci 1% is not reached",
    ]
    assert 0.5 <= sum(result.warmup.end_to_end) < 0.75


def test_too_few_samples_are_no_known_median(write_script: WriteScript) -> None:
    result = lar.run(write_script(times=[[0.5, 0.1, None]]), target_ci="1%", max_time=2)
    assert (known(result.stopped).reached, known(result.stopped).ending) == (None, "max_time")
    assert "the samples were too few after 2 s" in result.warnings[1]


def test_a_run_with_room_for_no_more_ends_and_says_so(write_script: WriteScript) -> None:
    result = lar.run(write_script(times=[[1e-7, 1e-8, None]]), duration=1e-4)
    assert (known(result.stopped).ending, known(result.stopped).met) == ("room", False)
    assert "there is no room for more iterations" in result.warnings[0]
    assert result.status == "ok"


def test_an_end_that_may_not_come_needs_no_iterations(script: str) -> None:
    result = lar.run(script, duration=0.2, warmup_iter=0)
    assert (len(result.warmup.end_to_end), result.status) == (0, "ok")
    assert known(result.stopped).seconds == pytest.approx(sum(result.samples.end_to_end))


def test_an_interrupted_run_says_how_far_it_came(write_script: WriteScript) -> None:
    script = write_script(
        times=[[0.01, 0.001, None]], faults=[{"at": "start", "index": 5, "do": "abort"}]
    )
    result = lar.run(script, duration=5)
    assert result.status == "crashed"
    assert "phase iterations (iteration 4)" in known(result.failure).message
    assert len(result.samples.end_to_end) == 4


# The pace of iterations


def test_a_rest_before_each_iteration_is_no_part_of_it(script: str) -> None:
    done = run_lar(script, "--idle-ms", "250", "--iter", "3", "--json", "-")
    result = read_result(done.stdout)
    assert result.spec.pacing.idle_seconds == 0.25
    assert result.samples.end_to_end == pytest.approx([times[0] for times in SCATTERED[1:4]])
    first, second, _ = result.samples.began
    assert (second or 0) - (first or 0) == pytest.approx(0.26 + 0.0004)
    assert "throughput: N/A\n" in done.stderr
    assert known(result.summary).iterations_per_second is None


def test_requests_arrive_at_a_rate(script: str) -> None:
    served = lar.run(script, rate=50, duration=4, arrivals="fixed")
    assert (known(served.stopped).ending, known(served.stopped).offered) == ("duration", 199)
    assert known(served.stopped).load == pytest.approx(50 * 0.0105, rel=0.01)
    queue = known(known(served.summary).queue)
    assert (queue.offered_per_second, queue.waiting_maximum) == pytest.approx((50, 0), abs=1e-9)
    assert queue.served_per_second == pytest.approx(50, rel=0.02)
    assert queue.latency_median == pytest.approx(known(served.summary).median)
    nearly_full = lar.run(script, rate=94, duration=1, arrivals="fixed")
    assert (served.warnings, nearly_full.warnings) == ((), ())


def test_the_summary_of_requests_names_each_figure(script: str) -> None:
    done = run_lar(script, "--rate", "60", "--iter", "200", code=0)
    assert [line.partition(":")[0] for line in done.stdout.splitlines()[-5:]] == [
        "service time",
        "waiting",
        "latency from arrival",
        "load",
        "peak memory",
    ]
    load = lines_of(done.stdout, "load: ")[0]
    found = re.match(r"load: 60 requests/s asked for, (\S+) arrived, (\S+) served$", load)
    assert found
    assert float(found[1]) == pytest.approx(float(found[2]), rel=0.02)
    assert abs(float(found[1]) / 60 - 1) > 0.02  # as the times between are drawn
    assert "=== going to run input for 200 times" in done.stdout
    again = run_lar(script, "--rate", "60", "--iter", "200")
    assert lines_of(again.stdout, "waiting: ") == lines_of(done.stdout, "waiting: ")
    other = run_lar(script, "--rate", "60", "--iter", "200", "--seed", "1")
    assert lines_of(other.stdout, "waiting: ") != lines_of(done.stdout, "waiting: ")


@pytest.mark.parametrize("end", [{"iter": 100}, {"duration": 1}])
def test_more_requests_than_can_be_served_end_and_are_a_warning(
    script: str, end: dict[str, Any]
) -> None:
    result = finished(lar.run(script, rate=200, **end))
    assert not known(result.stopped).met
    assert "the queue grew: 200 requests/s are asked for and 95." in result.warnings[0]
    assert ("still waited in the end" in result.warnings[0]) == ("duration" in end)
    assert (result.samples.queueing[-1] or 0.0) > 0.3


def test_a_queue_that_nobody_comes_to_is_a_warning(script: str) -> None:
    done = run_lar(script, "--rate", "1", "--duration", "0.01", code=0)
    assert "lar: warning: no request arrived while measuring: " in done.stderr


def test_large_rates_and_one_iteration_are_printed_in_full(script: str) -> None:
    done = run_lar(script, "--rate", "12345678", "--duration", "0.001")
    assert "load: 12345678 requests/s asked for, " in done.stdout
    assert "the queue grew: 12345678 requests/s are asked for and " in done.stderr
    assert "measured: 1 iteration in " in done.stdout


def test_several_runners_serve_one_queue(write_script: WriteScript) -> None:
    script = write_script(times=[[0.02, 0.001, None]], real_time=True)
    result = lar.run(script, rate=75, iter=30, arrivals="fixed", runners=2)
    assert len(result.samples.end_to_end) == 30
    assert set(result.samples.runner) == {0, 1}
    assert result.stopped is not None
    assert known(result.stopped.load) >= 75 * 0.02 / 2
    assert result.stopped.offered == 30


def test_a_runner_that_sleeps_for_long_is_alive(write_script: WriteScript) -> None:
    script = write_script(times=[[0.001, 0.001, None]], real_time=True)
    finished(lar.run(script, idle_ms=2300, iter=1, warmup_iter=0, stall_timeout=2))


def test_requests_that_were_not_served_are_counted_once(write_script: WriteScript) -> None:
    script = write_script(faults=[{"at": "start", "index": 3, "do": "abort"}])
    done = run_lar(script, "--rate", "50", "--iter", "9", "--runners", "2", code=4)
    (note,) = [line for line in done.stdout.splitlines() if line.endswith(" were run")]
    assert re.fullmatch(r"note: \d iterations were run", note)


# From Python


def test_an_alias_is_the_same_option(script: str) -> None:
    assert lar.run(script, runners=2, iter=1).spec.settings == {"thread": 2}
    with pytest.raises(UsageError, match="thread and runners set the same option"):
        lar.run(script, runners=2, thread=2)
    assert parse_vary("runners=1,2") == parse_vary("thread=1,2")


def test_a_result_reads_back(script: str) -> None:
    result = lar.run(script, target_ci="5%", max_time=3, idle_ms=2)
    assert read_result(result.to_json()) == result


# What cannot be


def test_percentiles_are_those_asked_for(script: str, tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    done = run_lar(script, "--iter", "20", "--percentile", "99.9,50,90", "--json", str(file))
    (line,) = lines_of(done.stdout, "latency: ")
    assert re.search(r" p50=\S+ p90=\S+ \(p99\.9 needs 1000 iterations\)$", line)
    assert list(lar.read_result(file.read_bytes()).latency.percentiles) == [50, 90]
    assert list(lar.run(script, iter=20, percentile="75").latency.percentiles) == [75]


def test_a_run_warms_up_for_a_time(script: str) -> None:
    """An iteration of the script takes 10 ms on its clock, and most 1 ms more."""
    result = lar.run(script, iter=3, warmup="200ms")
    assert sum(result.warmup.end_to_end) == pytest.approx(0.2, abs=0.02)
    assert len(result.samples.end_to_end) == 3
    result = lar.run(script, iter=3, warmup="1ms", warmup_iter=5)
    assert len(result.warmup.end_to_end) == 6


def test_a_run_is_a_page(tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    words = ["models/digits_cnn.onnx", "--iter", "30", "--thread", "2", "--html", str(page)]
    assert run_lar(*words, cwd=ROOT).returncode == 0
    text = page.read_text()
    assert "<title>lar: digits_cnn.onnx</title>" in text
    assert "<h2>Iterations</h2>" in text
    assert "<th scope=row>throughput</th>" in text
    done = run_lar(words[0], "--html", "-", "--json", "-", cwd=ROOT)
    assert "both go to standard output" in done.stderr
