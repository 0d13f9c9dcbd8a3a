"""Times lar against its peers, side by side, and settings of MegEngine against its default.

    uv run python tools/bench.py [--count N] [FIGURE ...]

prints the first table of `lar help benchmarks`, and that of settings. A figure is the median over
the rounds of the ratio (or the difference) of the two runs of a round.
"""

from __future__ import annotations

import functools
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from figures import (
    Figures,
    Limit,
    Measure,
    Outcome,
    Settings,
    measure_in_turns,
    more_under,
    ratio_under,
    ratio_within,
)
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
    run_json,
    run_quietly,
    seconds_of,
)

LOAD_AND_RUN = (PYTHON, "-m", "megengine.tools.load_network_and_run")
KEPT = tempfile.TemporaryDirectory()
FIGURES = Figures()


def read_run(*words: str) -> dict[str, Any]:
    return run_json(*words, "--fill", "ones", "--json", "-")


def median_of(model: str, warmup: int, count: int) -> Measure:
    """Return what reads the median seconds of an iteration that lar reports."""
    words = (model, "--warmup-iter", str(warmup), "--iter", str(count))
    return lambda: statistics.median(read_run(*words)["samples"]["end_to_end"])


def bare_median_of(model: str, warmup: int, count: int) -> Measure:
    """Return what reads the median seconds of an iteration of a bare loop."""
    asked = f"{warmup} {count}\n"
    return lambda: float(run_quietly([*PEERS, "loop", model], asked).stdout.split()[-1])


def search_seconds() -> float:
    """Return the seconds of the first iteration of `lar --fast-run`, which searches."""
    return float(read_run(MOBILENET, "--fast-run", "--iter", "1")["warmup"]["end_to_end"][0])


def bare_search_seconds() -> float:
    return float(run_quietly([*PEERS, "search", MOBILENET]).stdout)


def add_medians(name: str, what: str, limit: Limit, model: str, warmup: int, count: int) -> None:
    medians = median_of(model, warmup, count), bare_median_of(model, warmup, count)
    FIGURES.versus(name, what, limit, *medians, 11)


# Whole processes

for name, what, words in (
    ("help", "`lar --help`", ("--help",)),
    ("run-help", "`lar run --help`", ("run", "--help")),
    (
        "usage",
        "a usage error: a report that cannot be written",
        (ONE_OPERATOR, "--json", "no/such/folder"),
    ),
):
    what += ", to `python -c pass`"
    ours, theirs = seconds_of(LAR, *words), seconds_of(PYTHON, "-c", "pass")
    FIGURES.versus(name, what, ratio_under(4), ours, theirs, 21)

SMALL_RUN = (ONE_OPERATOR, "--iter", "10")
FIGURES.versus(
    "one-operator",
    "whole process, a one-operator .mge, `--iter 10`, to `load_network_and_run`",
    ratio_under(0.4),
    seconds_of(LAR, *SMALL_RUN),
    seconds_of(*LOAD_AND_RUN, *SMALL_RUN),
    11,
)
FIGURES.versus(
    "one-operator-bare",
    "the same, to a bare script on lite's C functions",
    ratio_under(1.7),
    seconds_of(LAR, *SMALL_RUN),
    seconds_of(*PEERS, "run", ONE_OPERATOR, "10"),
    11,
)
LARGE_RUN = (
    (LAR, RESNET50, "--iter", "1", "--warmup-iter", "0"),
    (*LOAD_AND_RUN, RESNET50, "--iter", "1", "--warm-up", "0"),
)
FIGURES.versus(
    "resnet50",
    "whole process, ResNet50 .mge, `--iter 1 --warmup-iter 0`, to `load_network_and_run`",
    ratio_under(0.6),
    seconds_of(*LARGE_RUN[0]),
    seconds_of(*LARGE_RUN[1]),
    11,
)
FIGURES.versus(
    "resnet50-memory",
    "ResNet50 again, peak memory of all processes, to `load_network_and_run`",
    ratio_under(0.65),
    memory_peak_of(*LARGE_RUN[0]),
    memory_peak_of(*LARGE_RUN[1]),
    3,
)

# Iterations

ADDED = "time added to an iteration, one-operator"
LESS = more_under(1, "us", 1e-6)
what = f"{ADDED} .mge, to a bare loop on lite's C functions"
add_medians("added-lite", what, LESS, ONE_OPERATOR, 1000, 20000)
what = f"{ADDED} .onnx, to a bare loop on IOBinding"
add_medians("added-onnx", what, LESS, str(MODELS / "one_operator.onnx"), 1000, 20000)
what = "reported median of ResNet50 .mge, to a bare loop in a script"
add_medians("median", what, ratio_within(-2, 2, "within 2 %"), RESNET50, 1, 10)
FIGURES.versus(
    "search",
    "search of `--fast-run`, MobileNetV2 .mge, to the engine's own in a bare script",
    ratio_within(-5, 5, "within 5 %"),
    search_seconds,
    bare_search_seconds,
    11,
)

# Settings of MegEngine


class Run(NamedTuple):
    """What a run of ResNet50 gave."""

    median_seconds: float
    warmup_seconds: float
    peak_bytes: float


def run_with(*flags: str) -> Run:
    result = run_json(RESNET50, "--iter", "5", "--json", "-", *flags)
    return Run(
        statistics.median(result["samples"]["end_to_end"]),
        sum(result["warmup"]["end_to_end"]),
        result["peak_memory_bytes"],
    )


@functools.cache
def search_once() -> tuple[Run, str]:
    """Search the algorithms of ResNet50 once; return the run, and the file of what it found."""
    cache = str(Path(KEPT.name, "resnet50.cache"))
    return run_with("--fast-run", "--fast-run-algo-policy", cache), cache


def add_setting(name: str, *flags: str) -> None:
    """Append the row of a setting: latency in relation to the default, warm-up, peak memory."""

    @FIGURES.row(f"setting-{name}", f"ResNet50 .mge, `{' '.join(flags) or 'lar'}`", repetitions=5)
    def measure(settings: Settings) -> Outcome:
        asked = [search_once()[1] if word == "FILE" else word for word in flags]
        runs = []

        def run_once() -> float:
            runs.append(search_once()[0] if name == "search" else run_with(*asked))
            return runs[-1].median_seconds

        pairs = measure_in_turns(run_once, lambda: run_with().median_seconds, settings.repetitions)
        ratio = statistics.median(ours / theirs for ours, theirs in pairs)
        warmup = statistics.median(each.warmup_seconds for each in runs)
        peak = statistics.median(each.peak_bytes for each in runs)
        return Outcome(f"{ratio:.2f}x, warm-up {warmup:.2f} s, {peak / MIB:.0f} MiB")


add_setting("default")
add_setting("mkl", "--engine-env", "MKL_DEBUG_CPU_TYPE=5")
add_setting("nchw44", "--enable-nchw44")
add_setting("nchw88", "--enable-nchw88", "--engine-fix", "x2apic")
add_setting("threads", "--multithread-default", "2")
add_setting("searched", "--fast-run-algo-policy", "FILE")
add_setting("search", "--fast-run")

if __name__ == "__main__":
    sys.exit(FIGURES.main(__doc__))
