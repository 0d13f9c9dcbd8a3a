"""The measured peak of a machine."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest

from lar.measurement import peak
from lar.measurement.peak import choose_cpus, measure_peak, siblings_of
from lar.records.profile import Peak


def test_a_machine_computes_and_copies() -> None:
    start = time.perf_counter()
    found = measure_peak(1)
    seconds = time.perf_counter() - start
    assert found is not None
    assert found.threads == 1
    assert found.source
    # Any machine of the last twenty years lies between these.
    assert 1e9 < found.flops_per_second < 1e15
    assert 1e8 < found.bytes_per_second < 1e13
    assert seconds < 10  # 0.5 on an idle machine


@pytest.mark.parametrize("threads", [0, -1])
def test_a_failing_measurement_is_none(threads: int) -> None:
    assert measure_peak(threads) is None


@pytest.mark.parametrize(
    "outcome",
    [
        OSError("no such program"),
        subprocess.TimeoutExpired("python", 1),
        subprocess.CalledProcessError(-4, "python"),
        b"",
        b"no JSON",
        b'{"flops_per_second": "fast"}',
    ],
)
def test_whatever_the_process_does_nothing_is_raised(
    monkeypatch: pytest.MonkeyPatch, outcome: BaseException | bytes
) -> None:
    def run(arguments: list[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
        if isinstance(outcome, BaseException):
            raise outcome
        return subprocess.CompletedProcess(arguments, 0, outcome)

    monkeypatch.setattr(subprocess, "run", run)
    assert measure_peak(2) is None


def test_the_process_may_use_as_many_threads_as_are_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: dict[str, Any] = {}

    def run(arguments: list[str], **options: Any) -> subprocess.CompletedProcess[bytes]:
        seen.update(options, arguments=arguments)
        text = b'{"flops_per_second": 1e9, "bytes_per_second": 2e9, "threads": 3, "source": "x"}'
        return subprocess.CompletedProcess(arguments, 0, text)

    monkeypatch.setattr(subprocess, "run", run)
    assert measure_peak(3) == Peak(1e9, 2e9, 3, "x")
    assert seen["arguments"][-1] == "3"
    assert {seen["env"][f"{name}_NUM_THREADS"] for name in ("OMP", "OPENBLAS", "MKL")} == {"3"}


def pairs(cpu: int) -> list[int]:
    """CPUs of which two share a core: 0 and 1, 2 and 3, ..."""
    return [cpu // 2 * 2, cpu // 2 * 2 + 1]


@pytest.mark.parametrize(
    ("cpus", "count", "siblings", "chosen"),
    [
        (range(8), 1, pairs, [0]),
        (range(8), 3, pairs, [0, 2, 4]),
        (range(8), 5, pairs, [0, 2, 4, 6, 1]),
        (range(2), 4, pairs, [0, 1]),
        (range(4), 2, lambda cpu: [cpu], [0, 1]),
    ],
)
def test_each_thread_gets_a_core_of_its_own(
    cpus: range, count: int, siblings: Callable[[int], list[int]], chosen: list[int]
) -> None:
    assert choose_cpus(cpus, count, siblings) == chosen


def test_a_cpu_is_among_those_of_its_core() -> None:
    cpu = min(os.sched_getaffinity(0))
    assert cpu in siblings_of(cpu)
    assert siblings_of(10**6) == [10**6]


def test_importing_it_loads_no_numpy() -> None:
    code = f"import sys, {peak.__name__}; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
