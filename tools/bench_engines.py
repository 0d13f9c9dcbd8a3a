"""Times lar on OpenVINO and MNN beside OpenVINO's own program and bare loops, with one thread.

    uv run python tools/bench_engines.py [--count N] [FIGURE ...]

A figure is the median over the rounds of the ratio (or the difference) of the two runs of a round.
"""

from __future__ import annotations

import re
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from figures import Figures
from processes import LAR, LARGE, MODELS, Times, run_well, times_of_lar, times_of_loop

ONE_OPERATOR = str(MODELS / "one_operator.onnx")
RESNET18 = str(LARGE / "resnet18.onnx")
APP = str(Path(LAR).with_name("benchmark_app"))
ASKED_OF_APP = ("-d", "CPU", "-api", "sync", "-hint", "none", "-nstreams", "1", "-nthreads", "1")
# In the type of the model; else it puts a conversion in front.
TYPES = ("-infer_precision", "f32", "-ip", "f32")
WARMUP, ITERATIONS = 10, 100
MANY = 1000, 20_000  # untimed and timed iterations of one operator
KEPT = tempfile.TemporaryDirectory()
FIGURES = Figures("bench_engines")


def times_of_app(model: str) -> Times:
    """Return the times that `benchmark_app` prints, in hundredths of a millisecond."""
    asked = (*ASKED_OF_APP, *TYPES, "-niter", str(ITERATIONS))
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


def read_ours(engine: str, model: str, warmup: int, count: int) -> Times:
    return times_of_lar(file_for(engine, model), warmup, count, engine=engine, multithread=1)


def read_theirs(engine: str, model: str, warmup: int, count: int) -> Times:
    if engine == "openvino" and count == ITERATIONS:
        return times_of_app(model)
    return times_of_loop(file_for(engine, model), warmup, count, engine)


def add_figure(name: str, field: str, *asked: Any) -> None:
    """Append a comparison of one of the `Times`."""
    FIGURES.versus(
        name, lambda: getattr(read_ours(*asked), field), lambda: getattr(read_theirs(*asked), field)
    )


for engine in ("openvino", "mnn"):
    for field in Times._fields:
        add_figure(f"{engine}-{field}", field, engine, RESNET18, WARMUP, ITERATIONS)
    add_figure(f"added-{engine}", "median", engine, ONE_OPERATOR, *MANY)

if __name__ == "__main__":
    sys.exit(FIGURES.main(__doc__))
