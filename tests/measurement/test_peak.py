"""The measured peak of a machine."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lar.measurement import peak
from lar.measurement.peak import Task, measure_peak
from lar.records.profile import Peak
from tests.tables import each_row


def test_a_machine_computes_and_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peak, "TIMEOUT_SECONDS", 100.0)  # half a second on an idle machine
    found = measure_peak(1)
    assert found is not None
    assert found.threads == 1
    assert found.source
    # Any machine of the last twenty years lies between these.
    assert 1e9 < found.flops_per_second < 1e15
    assert 1e8 < found.bytes_per_second < 1e13


@pytest.mark.parametrize("threads", [0, -1])
def test_a_failing_measurement_is_none(threads: int) -> None:
    assert measure_peak(threads) is None


FAILURES = (OSError("no such program"), subprocess.TimeoutExpired("python", 1))
CRASH = subprocess.CalledProcessError(-4, "python")
NUMBERLESS = b'{"flops_per_second": "fast"}'


@pytest.mark.parametrize("outcome", [*FAILURES, CRASH, b"", b"no JSON", NUMBERLESS])
def test_whatever_the_process_does_nothing_is_raised(
    monkeypatch: pytest.MonkeyPatch, outcome: BaseException | bytes
) -> None:
    play(monkeypatch, outcome)
    assert measure_peak(2) is None


def play(monkeypatch: pytest.MonkeyPatch, outcome: BaseException | bytes) -> list[dict[str, Any]]:
    """Have the process end so; return how it was started."""
    seen: list[dict[str, Any]] = []

    def run(arguments: list[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
        seen.append(options | {"arguments": arguments})
        if isinstance(outcome, BaseException):
            raise outcome
        return subprocess.CompletedProcess(arguments, 0, outcome)

    monkeypatch.setattr(subprocess, "run", run)
    return seen


def test_the_process_may_use_as_many_threads_as_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = b'{"flops_per_second": 1e9, "bytes_per_second": 2e9, "threads": 3, "source": "x"}'
    seen = play(monkeypatch, text)
    assert measure_peak(3) == Peak(1e9, 2e9, 3, "x")
    assert seen[0]["arguments"][-1] == "3"
    assert {seen[0]["env"][f"{name}_NUM_THREADS"] for name in ("OMP", "OPENBLAS", "MKL")} == {"3"}


AVX512 = "GenuineIntel fma avx2 avx512f avx512cd avx512bw avx512dq avx512vl"


@each_row("measurement/cases/codes of cores")
def test_the_code_of_a_core_is_chosen_by_the_instruction_sets(
    sets: str, core: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peak, "read_instruction_sets", lambda: sets)
    assert peak.choose_core() == core


@pytest.mark.parametrize(
    ("sets", "given", "taken"),
    [(AVX512, "", "SkylakeX"), (AVX512, "Zen", "Zen"), ("unknown asimd", "", None)],
)
def test_openblas_takes_the_code_of_that_core_unless_the_user_says_another(
    sets: str, given: str, taken: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By itself it takes slow code for a processor that is newer than it."""
    seen = play(monkeypatch, OSError())
    monkeypatch.setattr(peak, "read_instruction_sets", lambda: sets)
    monkeypatch.delenv(peak.CORE_VARIABLE, raising=False)
    if given:
        monkeypatch.setenv(peak.CORE_VARIABLE, given)
    assert measure_peak(2) is None
    assert seen[0]["env"].get(peak.CORE_VARIABLE) == taken


def test_importing_it_loads_no_numpy() -> None:
    code = f"import sys, {peak.__name__}; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


@pytest.mark.parametrize(
    ("memory", "copied"), [(None, 1 << 25), (1 << 30, 1 << 27), (1 << 40, 1 << 28)]
)
def test_a_copy_takes_little_of_the_memory(
    memory: int | None, copied: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peak, "read_memory", lambda: memory)
    monkeypatch.setattr("numpy.ones", lambda shape, kind: [np.empty(shape[1:], kind)] * 2)
    assert peak.choose_copy(1).amount == 2 * copied


def test_all_threads_copy_a_part(monkeypatch: pytest.MonkeyPatch) -> None:
    copied: list[int] = []
    monkeypatch.setattr(peak, "COPY_BYTES", 1000)
    monkeypatch.setattr("numpy.copyto", lambda target, source: copied.append(source.size))
    task = peak.choose_copy(3)
    assert copied == []
    task.run()
    assert task.amount == 2 * 999
    assert copied == [333] * 3


@pytest.mark.parametrize(
    ("seconds", "side"), [([0.001], 512), ([0.0009, 0.1], 1024), ([0.0001] * 4, 4096)]
)
def test_the_product_is_large_enough_to_be_timed(
    seconds: list[float], side: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = iter(seconds)
    sides: list[int] = []

    def product_of(side: int) -> Callable[[], object]:
        sides.append(side)
        return lambda: None

    monkeypatch.setattr(peak, "product_of", product_of)
    monkeypatch.setattr(peak, "time_once", lambda work: next(timed))
    assert peak.choose_product().amount == 2 * side**3
    assert sides == [512 << number for number in range(len(seconds))]


@pytest.mark.parametrize(
    ("took", "speeds"),
    [([0.5, 0.25, 1.0], [2, 4, 1]), ([0.125, 0.0625, 0.0625], [8, 16, 16]), ([1.0] * 3, [1] * 3)],
)
def test_each_task_runs_for_a_moment_and_at_least_three_times(
    took: list[float], speeds: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    left = list(took)

    def work() -> None:
        now[0] += left.pop(0)

    monkeypatch.setattr(peak, "perf_counter", lambda: now[0])
    assert peak.measure_speeds(Task(1, work)) == speeds


@pytest.mark.parametrize(
    ("left", "limit"), [(None, peak.TIMEOUT_SECONDS), (5.0, 5.0), (1e6, 20.0), (-3.0, 0.0)]
)
def test_the_process_ends_by_the_deadline(
    left: float | None, limit: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = play(monkeypatch, subprocess.TimeoutExpired("python", 1))
    monkeypatch.setattr(peak, "monotonic", lambda: 100.0)
    assert measure_peak(1, None if left is None else 100.0 + left) is None
    assert seen[0]["timeout"] == limit


def test_the_best_of_all_rounds_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peak, "choose_product", lambda: Task(5, dict))
    monkeypatch.setattr(peak, "choose_copy", lambda threads: Task(7, list))
    monkeypatch.setattr(peak, "time_once", lambda work: 0.5)
    monkeypatch.setattr(peak, "SECONDS", 0.0)
    found = peak.measure_here(2)
    assert (found.flops_per_second, found.bytes_per_second) == (10.0, 14.0)
    assert (found.threads, found.source, found.spread, found.rounds) == (2, peak.SOURCE, 0, 3)
    assert found.measured_at.endswith("+00:00")
