"""Times lar against its peers, side by side, and settings of MegEngine against its default.

    uv run python tools/bench.py [--count N] [FIGURE ...]

prints the first table of `lar help benchmarks`, and that of settings. A figure is the median over
the rounds of the ratio (or the difference) of the two runs of a round. OpenVINO and MNN have one
thread.
"""

from __future__ import annotations

import re
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
    LARGE,
    MIB,
    MOBILENET,
    MODELS,
    ONE_OPERATOR,
    PEERS,
    PYTHON,
    RESNET50,
    Times,
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
ONE_OPERATOR_ONNX = str(MODELS / "one_operator.onnx")
RESNET18_ONNX = str(LARGE / "resnet18.onnx")
APP = str(Path(LAR).with_name("benchmark_app"))
ASKED_OF_APP = ("-d", "CPU", "-api", "sync", "-hint", "none", "-nstreams", "1", "-nthreads", "1")
# In the type of the model; else it puts a conversion in front.
TYPES = ("-infer_precision", "f32", "-ip", "f32")
# Untimed and timed iterations, of one operator too.
COUNTS, MANY = (10, 100), (1000, 20_000)
KEPT = tempfile.TemporaryDirectory()
FIGURES = Figures("bench")


def search_seconds() -> float:
    """Return the seconds of the first iteration of `lar --fast-run`, which searches."""
    return run_model(MOBILENET, fill="ones", fast_run=True, iter=1).warmup.end_to_end[0]


def bare_search_seconds() -> float:
    return float(run_quietly([*PEERS, "search", MOBILENET]).stdout)


def times_of_app(model: str) -> Times:
    """Return the times that `benchmark_app` prints, in hundredths of a millisecond."""
    asked = (*ASKED_OF_APP, *TYPES, "-niter", str(COUNTS[1]))
    printed = run_well(APP, "-m", model, *asked).stdout
    found = (re.search(rf"{name}:\s+([0-9.]+) ms", printed) for name in ("Median", "Min"))
    return Times(*(float(each[1]) / 1e3 for each in found if each))


@cache
def file_for(engine: str, model: str) -> str:
    """Return the file of an `.onnx` that an engine takes: MNN has a format of its own."""
    if engine != "mnn":
        return model
    place = str(Path(KEPT.name, f"{Path(model).stem}.mnn"))
    run_well(LAR, model, "--engine", engine, "--model-dump", place, "--iter", "1")
    return place


def add_times(name: str, field: str, model: str, counts: tuple[int, int], engine: str = "") -> None:
    """Append a comparison of one of the `Times`, with untimed and with timed iterations."""
    options: dict[str, Any] = {"engine": engine, "multithread": 1} if engine else {}

    def read_ours() -> Times:
        return times_of_lar(file_for(engine, model), *counts, **options)

    def read_theirs() -> Times:
        if engine == "openvino" and counts == COUNTS:
            return times_of_app(model)
        return times_of_loop(file_for(engine, model), *counts, engine)

    FIGURES.versus(name, lambda: getattr(read_ours(), field), lambda: getattr(read_theirs(), field))


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

add_times("added-lite", "median", ONE_OPERATOR, MANY)
add_times("added-onnx", "median", ONE_OPERATOR_ONNX, MANY)
add_times("median", "median", RESNET50, (1, 10))
for engine in ("openvino", "mnn"):
    for field in Times._fields:
        add_times(f"{engine}-{field}", field, RESNET18_ONNX, COUNTS, engine)
    add_times(f"added-{engine}", "median", ONE_OPERATOR_ONNX, MANY, engine)
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
