"""Times lar on OpenVINO and MNN beside OpenVINO's own program and bare loops, with one thread.

    uv run python tools/bench_engines.py [--count N] [FIGURE ...]

prints a table of `lar help benchmarks`. A figure is the median over the rounds of the ratio (or
the difference) of the two runs of a round.
"""

from __future__ import annotations

import re
import statistics
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from figures import Figures, Outcome, Settings, measure_in_turns, note
from processes import LAR, MOBILENET_ONNX, MODELS, PEERS, run_json, run_well

ONE_OPERATOR = str(MODELS / "one_operator.onnx")
APP = str(Path(LAR).with_name("benchmark_app"))
ASKED_OF_APP = ("-d", "CPU", "-api", "sync", "-hint", "none", "-nstreams", "1", "-nthreads", "1")
WARMUP, ITERATIONS = 20, 300
ADDED_WARMUP, ADDED_ITERATIONS = 1000, 20_000
FIGURES = Figures("bench_engines")


class Times(NamedTuple):
    """The seconds of iterations."""

    median: float
    minimum: float


Read = Callable[[], Times]


def read_lar(model: str, engine: str, warmup: int, count: int) -> Times:
    """Return the times that lar reports."""
    words = (model, "--engine", engine, "--multithread", "1", "--fill", "ones", "--json", "-")
    result = run_json(*words, "--warmup-iter", str(warmup), "--iter", str(count))
    taken = result["samples"]["end_to_end"]
    return Times(statistics.median(taken), min(taken))


def read_app(model: str, count: int) -> Times:
    """Return the times that `benchmark_app` prints, in hundredths of a millisecond."""
    asked = (*ASKED_OF_APP, "-infer_precision", "f32", "-niter", str(count))
    printed = run_well(APP, "-m", model, *asked).stdout
    found = (re.search(rf"{name}:\s+([0-9.]+) ms", printed) for name in ("Median", "Min"))
    return Times(*(float(each[1]) / 1e3 for each in found if each))


def read_loop(model: str, engine: str, warmup: int, count: int) -> Times:
    """Return the times of a bare loop."""
    words = ("times", model, engine, str(warmup), str(count))
    return Times(*map(float, run_well(*PEERS, *words).stdout.split()[-2:]))


def compare_times(settings: Settings, ours: Read, theirs: Read) -> list[tuple[Times, Times]]:
    """Return the times of both sides in each round."""
    sides: dict[str, list[Times]] = {"ours": [], "theirs": []}

    def reading(side: str, read: Read) -> Callable[[], float]:
        def read_once() -> float:
            sides[side].append(read())
            return 0.0

        return read_once

    for _ in measure_in_turns(
        reading("ours", ours), reading("theirs", theirs), settings.repetitions
    ):
        note(f"{sides['ours'][-1]} {sides['theirs'][-1]}")
    return [*zip(sides["ours"], sides["theirs"], strict=True)][1:]  # the first read the files


def measure_agreement(settings: Settings, ours: Read, theirs: Read) -> Outcome:
    pairs = compare_times(settings, ours, theirs)
    median, minimum = (
        100 * (statistics.median(getattr(a, name) / getattr(b, name) for a, b in pairs) - 1)
        for name in Times._fields
    )
    holds = abs(median) <= 3 and abs(minimum) <= 1
    return Outcome(f"{median:+.1f} %, {minimum:+.1f} %", holds)


def measure_added(settings: Settings, model: str, engine: str) -> Outcome:
    asked = (engine, ADDED_WARMUP, ADDED_ITERATIONS)
    pairs = compare_times(
        settings, lambda: read_lar(model, *asked), lambda: read_loop(model, *asked)
    )
    added = statistics.median(ours.median - theirs.median for ours, theirs in pairs) * 1e6
    return Outcome(f"{added:+.2f} us", added < 1)


def converted(settings: Settings, model: str) -> str:
    """Return the `.mnn` file of a model."""
    place = str(settings.folder / f"{Path(model).stem}.mnn")
    run_well(LAR, model, "--engine", "mnn", "--model-dump", place, "--iter", "1")
    return place


@FIGURES.row("openvino")
def measure_openvino(settings: Settings) -> Outcome:
    return measure_agreement(
        settings,
        lambda: read_lar(MOBILENET_ONNX, "openvino", WARMUP, ITERATIONS),
        lambda: read_app(MOBILENET_ONNX, ITERATIONS),
    )


@FIGURES.row("mnn")
def measure_mnn(settings: Settings) -> Outcome:
    model = converted(settings, MOBILENET_ONNX)
    asked = (model, "mnn", WARMUP, ITERATIONS)
    return measure_agreement(settings, lambda: read_lar(*asked), lambda: read_loop(*asked))


@FIGURES.row("added-openvino")
def measure_added_openvino(settings: Settings) -> Outcome:
    return measure_added(settings, ONE_OPERATOR, "openvino")


@FIGURES.row("added-mnn")
def measure_added_mnn(settings: Settings) -> Outcome:
    return measure_added(settings, converted(settings, ONE_OPERATOR), "mnn")


if __name__ == "__main__":
    sys.exit(FIGURES.main(__doc__))
