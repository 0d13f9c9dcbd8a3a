"""Times lar against its peers, side by side, and settings of MegEngine against its default.

    uv run python tools/bench.py [--count N] [FIGURE ...]

prints the first table of `lar help benchmarks`, and that of settings. A figure is the median over
the rounds of the ratio (or the difference) of the two runs of a round.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

from figures import Figures, Outcome, Settings, measure_in_turns
from processes import (
    LAR,
    MIB,
    MOBILENET,
    MODELS,
    ONE_OPERATOR,
    PEERS,
    PYTHON,
    RESNET50,
    memory_peak_of,
    run_model,
    run_quietly,
    run_well,
    seconds_of,
    times_of_lar,
    times_of_loop,
)

import lar

LOAD_AND_RUN = (PYTHON, "-m", "megengine.tools.load_network_and_run")
KEPT = tempfile.TemporaryDirectory()
FIGURES = Figures("bench")


def search_seconds() -> float:
    """Return the seconds of the first iteration of `lar --fast-run`, which searches."""
    return run_model(MOBILENET, fill="ones", fast_run=True, iter=1).warmup.end_to_end[0]


def bare_search_seconds() -> float:
    return float(run_quietly([*PEERS, "search", MOBILENET]).stdout)


def add_medians(name: str, *asked: Any) -> None:
    """Append a comparison of medians, of a model with untimed and with timed iterations."""
    FIGURES.versus(name, lambda: times_of_lar(*asked).median, lambda: times_of_loop(*asked).median)


# Whole processes

NOTHING = seconds_of(PYTHON, "-c", "pass")
FIGURES.versus("help", seconds_of(LAR, "--help"), NOTHING)
FIGURES.versus("run-help", seconds_of(LAR, "run", "--help"), NOTHING)
FIGURES.versus("usage", seconds_of(LAR, ONE_OPERATOR, "--json", "no/such/folder"), NOTHING)
SMALL_RUN = (ONE_OPERATOR, "--iter", "10")
OURS = seconds_of(LAR, *SMALL_RUN)
FIGURES.versus("one-operator", OURS, seconds_of(*LOAD_AND_RUN, *SMALL_RUN))
FIGURES.versus("one-operator-bare", OURS, seconds_of(*PEERS, "run", ONE_OPERATOR, "10"))
LARGE_RUN = (
    (LAR, RESNET50, "--iter", "1", "--warmup-iter", "0"),
    (*LOAD_AND_RUN, RESNET50, "--iter", "1", "--warm-up", "0"),
)
FIGURES.versus("resnet50", *(seconds_of(*words) for words in LARGE_RUN))
FIGURES.versus("resnet50-memory", *(memory_peak_of(*words) for words in LARGE_RUN))

# Iterations

add_medians("added-lite", ONE_OPERATOR, 1000, 20000)
add_medians("added-onnx", str(MODELS / "one_operator.onnx"), 1000, 20000)
add_medians("median", RESNET50, 1, 10)
FIGURES.versus("search", search_seconds, bare_search_seconds)

# Settings of MegEngine


def run_with(*flags: str) -> lar.RunResult:
    done = run_well(LAR, RESNET50, "--iter", "5", "--json", "-", *flags)
    return lar.read_result(done.stdout)


def median_of(result: lar.RunResult) -> float:
    return statistics.median(result.samples.end_to_end)


@cache
def search_once() -> tuple[lar.RunResult, str]:
    """Search the algorithms of ResNet50 once; return the run, and the file of what it found."""
    cache = str(Path(KEPT.name, "resnet50.cache"))
    return run_with("--fast-run", "--fast-run-algo-policy", cache), cache


def measure_setting(flags: Sequence[str], settings: Settings) -> Outcome:
    """Measure a setting: latency in relation to the default, warm-up, peak memory."""
    asked = [search_once()[1] if word == "FILE" else word for word in flags]
    runs = []

    def run_once() -> float:
        runs.append(search_once()[0] if asked == ["--fast-run"] else run_with(*asked))
        return median_of(runs[-1])

    pairs = measure_in_turns(run_once, lambda: median_of(run_with()), settings.repetitions)
    ratio = statistics.median(ours / theirs for ours, theirs in pairs)
    warmup = statistics.median(sum(each.warmup.end_to_end) for each in runs)
    peak = statistics.median(each.peak_memory_bytes or 0 for each in runs)
    return Outcome(f"{ratio:.2f}x, warm-up {warmup:.2f} s, {peak / MIB:.0f} MiB")


for name, (what, *_) in FIGURES.declared.items():
    if name.startswith("setting-"):
        _, _, *flags = what.replace("`", "").split()
        FIGURES.row(name)(partial(measure_setting, flags))

if __name__ == "__main__":
    sys.exit(FIGURES.main(__doc__))
