"""Times lar and its peers in turns, and settings of MegEngine against the default settings.

    uv run python tools/bench.py [--count N] [FIGURE ...]

prints the first table of `lar help benchmarks`, and the table of settings. Each round has a run of
lar and a run of the peer. A figure is the median, over all rounds, of the ratio (or difference) of
these two runs. OpenVINO and MNN compute with one thread.
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
# The model's own dtype: for another dtype, benchmark_app adds a conversion before the model.
TYPES = ("-infer_precision", "f32", "-ip", "f32")
# Untimed and timed iterations: of a network, and of a model with a single operator.
COUNTS, MANY = (10, 100), (1000, 20_000)
KEPT = tempfile.TemporaryDirectory()
ITEMS, RESULTS = 20_000, 10_000


class Made:
    """Files that the measured commands need; each file is made when it is first used."""

    @cached_property
    def items(self) -> str:
        """Write the small items of a data set into a folder, and a file of labels beside it."""
        folder = Path(KEPT.name, "items")
        folder.mkdir()
        for number in range(ITEMS):
            np.save(folder / f"{number}.npy", np.full(4, number / ITEMS, np.float32))
        folder.with_suffix(".labels").write_text("0\n" * ITEMS)
        return str(folder)

    @cached_property
    def results(self) -> str:
        """Write results of runs, which differ in `wall_seconds`, into a folder."""
        folder = Path(KEPT.name, "results")
        folder.mkdir()
        result = run_model(ONE_OPERATOR, iter=10).to_dict()
        for number in range(RESULTS):
            result["wall_seconds"] = number / RESULTS
            (folder / f"{number}.json").write_text(json.dumps(result))
        return str(folder)

    @cached_property
    def store(self) -> str:
        """Add the files of `results` to a store, and return the path of the store."""
        path = f"{KEPT.name}/store"
        results = map(str, Path(self.results).iterdir())
        run_well(LAR, "history", "add", "--store", path, *results)
        return path


FIGURES = Figures("bench", made=Made())


def search_seconds() -> float:
    """Return the seconds of the first iteration of `lar --fast-run`, which searches algorithms."""
    return run_model(MOBILENET, fill="ones", fast_run=True, iter=1).warmup.end_to_end[0]


def bare_search_seconds() -> float:
    return float(run_quietly([*PEERS, "search", MOBILENET]).stdout)


def times_of_app(model: str) -> Times:
    """Return the times that `benchmark_app` prints in milliseconds, with two decimal places."""
    asked = (*ASKED_OF_APP, *TYPES, "-niter", str(COUNTS[1]))
    printed = run_well(APP, "-m", model, *asked).stdout
    found = (re.search(rf"{name}:\s+([0-9.]+) ms", printed) for name in ("Median", "Min"))
    return Times(*(float(each[1]) / 1e3 for each in found if each))


@cache
def file_for(engine: str, model: str) -> str:
    """Return the file that an engine loads for an `.onnx`: MNN needs a conversion to `.mnn`."""
    if engine != "mnn":
        return model
    place = str(Path(KEPT.name, f"{Path(model).stem}.mnn"))
    run_well(LAR, model, "--engine", engine, "--model-dump", place, "--iter", "1")
    return place


def add_times(name: str, field: str, model: str, counts: tuple[int, int], engine: str = "") -> None:
    """Append a figure that compares one field of `Times`, such as the median.

    `counts` has the number of untimed and of timed iterations.
    """
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
    return lar.read_result(run_well(LAR, RESNET50, "--iter", "5", "--json", "-", *flags).stdout)


def median_of(result: lar.RunResult) -> float:
    return statistics.median(result.samples.end_to_end)


@cache
def search_once() -> tuple[lar.RunResult, str]:
    """Search algorithms for ResNet50 once; return the run, and the cache file that it wrote."""
    cache = str(Path(KEPT.name, "resnet50.cache"))
    return run_with("--fast-run", "--fast-run-algo-policy", cache), cache


def measure_setting(flags: Sequence[str], settings: Settings) -> Outcome:
    """Measure a setting: its latency divided by the default's, its warm-up and its peak memory."""
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
