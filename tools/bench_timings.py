"""Measures how far lar's timings can be trusted, beside other work that it makes itself.

    uv run python tools/bench_timings.py [--count N] [--seed N] [FIGURE ...]

prints the table of `lar help benchmarks`. All figures as promised take some hours; `--count` makes
fewer repetitions of each.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bench import BARE_LOOP, LAR, MOBILENET, PYTHON, ROOT, run_quietly
from disturbance import disturbed

import lar
from lar.measurement.differences import compare_pairs

MOBILENET_ONNX = str(ROOT / "models" / "mobilenet_v2.onnx")
ONNXRUNTIME_TEST = [PYTHON, "-m", "onnxruntime.tools.onnxruntime_test"]


class Outcome(NamedTuple):
    """What a figure came out as."""

    measured: str
    holds: bool


class Figure(NamedTuple):
    """One line of the table: `measure` takes the number of repetitions and a seed."""

    what: str
    wanted: str
    count: int
    measure: Callable[[int, int], Outcome]


def run_json(*words: str) -> dict[str, Any]:
    """Run a command of lar that prints JSON on its standard output."""
    done = run_quietly([LAR, *words])
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        raise SystemExit(f"lar {' '.join(words)}: {done.stderr or done.stdout}") from None
    return answer


# Noise, seen


def measure_spread(count: int, seed: int) -> Outcome:
    """Compare how the reported median varies between runs with how their raw mean does."""
    reported, means = [], []
    with disturbed(seed):
        for _ in range(count):
            result = lar.run(MOBILENET_ONNX, fill="ones", iter=100)
            assert result.summary is not None, result.failure
            reported.append(reported_median(result))
            means.append(statistics.fmean(result.samples.end_to_end))
    share = relative_spread(reported) / relative_spread(means)
    return Outcome(f"{share:.2f}", share < 0.25)


def reported_median(result: lar.RunResult) -> float:
    """Return the median that the summary trusts."""
    raise NotImplementedError


def relative_spread(values: Sequence[float]) -> float:
    """Return the standard deviation as a part of the mean."""
    return statistics.stdev(values) / statistics.fmean(values)
