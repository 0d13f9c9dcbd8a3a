"""Times lar against its peers, side by side, and settings of MegEngine against its default.

    uv run python tools/bench.py [--count N] [FIGURE ...]

prints the first table of `lar help benchmarks`, and that of settings. A figure is the median over
the rounds of the ratio (or the difference) of the two runs of a round. OpenVINO and MNN have one
thread.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
import tempfile
from collections.abc import Sequence
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
from figures import Figures, Outcome, Settings, measure_in_turns
from processes import (
    LAR,
    LARGE,
    MIB,
    MOBILENET,
    ONE_OPERATOR,
    ONE_OPERATOR_ONNX,
    PEERS,
    RESNET50,
    Times,
    run_model,
    run_quietly,
    run_well,
    times_of_lar,
    times_of_loop,
)

import lar

RESNET18_ONNX = str(LARGE / "resnet18.onnx")
APP = str(Path(LAR).with_name("benchmark_app"))
ASKED_OF_APP = ("-d", "CPU", "-api", "sync", "-hint", "none", "-nstreams", "1", "-nthreads", "1")
# In the type of the model; else it puts a conversion in front.
TYPES = ("-infer_precision", "f32", "-ip", "f32")
# Untimed and timed iterations, of one operator too.
COUNTS, MANY = (10, 100), (1000, 20_000)
KEPT = tempfile.TemporaryDirectory()
ITEMS, RESULTS = 20_000, 10_000


class Made:
    """What is made for the commands of figures, once."""

    @cached_property
    def items(self) -> str:
        """Write small items into a folder, and their classes beside it."""
        folder = Path(KEPT.name, "items")
        folder.mkdir()
        for number in range(ITEMS):
            np.save(folder / f"{number}.npy", np.full(4, number / ITEMS, np.float32))
        folder.with_suffix(".labels").write_text("0\n" * ITEMS)
        return str(folder)

    @cached_property
    def results(self) -> str:
        """Write results that differ in how long they took, into a folder."""
        folder = Path(KEPT.name, "results")
        folder.mkdir()
        result = run_model(ONE_OPERATOR, iter=10).to_dict()
        for number in range(RESULTS):
            result["wall_seconds"] = number / RESULTS
            (folder / f"{number}.json").write_text(json.dumps(result))
        return str(folder)

    @cached_property
    def store(self) -> str:
        """Add those results to a store."""
        path = f"{KEPT.name}/store"
        results = map(str, Path(self.results).iterdir())
        run_well(LAR, "history", "add", "--store", path, *results)
        return path


FIGURES = Figures("bench", made=Made())


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
