"""Times dumps and comparisons against peers, side by side, and how comparisons grow.

    uv run python tools/bench_dumps.py [--count N] [FIGURE ...]

The dumps are those of every layer of ResNet50, made by two runs of other algorithms.
"""

from __future__ import annotations

import functools
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from figures import Figures, Measure, Outcome, Settings, measure_in_turns
from planted_faults import alter_constant, times
from processes import (
    LAR,
    PEERS,
    PYTHON,
    RESNET50,
    RESNET50_ONNX,
    memory_peak_of,
    run_quietly,
    run_well,
    seconds_of,
)
from real_networks import RealNetwork, network_of
from real_pairs import side_of_model, write_network

COMPARE = (PYTHON, "-m", "megengine.tools.compare_binary_iodump")
POLYGRAPHY = ("uv", "run", "--no-project", "--with", "polygraphy,onnxruntime==1.23.2,onnx,numpy<2")
ONCE = ("--iter", "1", "--warmup-iter", "0")
FAULT = 1.5  # what a weight is multiplied by

# What the comparing itself takes, and reading both folders and comparing bytes: in one process,
# without its start. The files are in the page cache and all is imported before.
TIMED = """
import os, sys, time
{prepared}
began = time.perf_counter()
{timed}
print(time.perf_counter() - began)
"""
COMPARED = "lar.compare(*sys.argv[1:])"
COMPARE_IN_PROCESS = TIMED.format(prepared=f"import lar; {COMPARED}", timed=COMPARED)
BYTES_COMPARED = """
for name in os.listdir(sys.argv[1]):
    with open(f"{sys.argv[1]}/{name}", "rb") as a, open(f"{sys.argv[2]}/{name}", "rb") as b:
        a.read() == b.read()
"""
COMPARE_BYTES = TIMED.format(prepared=BYTES_COMPARED, timed=BYTES_COMPARED)
WRITE_ARRAYS = TIMED.format(
    prepared="import numpy as np; place = sys.argv[1]; "
    'arrays = [np.fromfile(f"{place}/{name}", np.uint8) for name in os.listdir(place)]',
    timed="for number, array in enumerate(arrays): array.tofile(f'{sys.argv[2]}/{number}')",
)

KEPT = tempfile.TemporaryDirectory()
FIGURES = Figures("bench_dumps")


@functools.cache
def dumps() -> tuple[str, str]:
    """Make two dumps, once; they go away with the process."""
    folders = f"{KEPT.name}/a", f"{KEPT.name}/b"
    for folder, flags in zip(folders, ((), ("--engine-env", "MKL_DEBUG_CPU_TYPE=5")), strict=True):
        run_well(LAR, RESNET50, "--fill", "ones", *ONCE, *flags, "--bin-io-dump", folder)
    return folders


def on_dumps(measure: Callable[..., Measure], *command: str) -> Measure:
    """Measure a command on the two dumps."""
    return lambda: measure(*command, *dumps())()


def read_figure(code: str, *arguments: str) -> float:
    """Seconds that a script prints."""
    return float(run_quietly([PYTHON, "-c", code, *arguments]).stdout)


def in_folder(measure: Callable[[str], float]) -> Measure:
    """Give a measurement a folder for what it writes."""

    def measured() -> float:
        with tempfile.TemporaryDirectory() as folder:
            return measure(folder)

    return measured


def time_added(plain: Sequence[str], dumping: Sequence[str]) -> Measure:
    """Return what measures the seconds that a dump adds to a whole process; `dumping` ends before
    the folder."""
    return in_folder(lambda folder: seconds_of(*dumping, f"{folder}/dump")() - seconds_of(*plain)())


RUN = (LAR, RESNET50, "--fill", "ones", *ONCE)
BARE_RUN = (*PEERS, "run", RESNET50, "1", "0")
FIGURES.versus("compare", on_dumps(seconds_of, LAR, "compare"), on_dumps(seconds_of, *COMPARE))
FIGURES.versus(
    "comparing",
    lambda: read_figure(COMPARE_IN_PROCESS, *dumps()),
    lambda: read_figure(COMPARE_BYTES, *dumps()),
)
FIGURES.versus(
    "compare-memory",
    on_dumps(memory_peak_of, LAR, "compare"),
    lambda: 2.0 * max(file.stat().st_size for file in Path(dumps()[0]).iterdir()),
)
ADDED = time_added([*RUN, "--cpu-default"], [*RUN, "--bin-io-dump"])
FIGURES.versus(
    "dump", ADDED, in_folder(lambda folder: read_figure(WRITE_ARRAYS, dumps()[0], folder))
)
FIGURES.versus("dump-bare", ADDED, time_added([*BARE_RUN, "-"], BARE_RUN))
DUMP_ONNX = (LAR, RESNET50_ONNX, "--fill", "ones", *ONCE, "--bin-io-dump")
DUMP_ALL_LAYERS = (
    *(*POLYGRAPHY, "polygraphy", "run", RESNET50_ONNX, "--onnxrt", "--onnx-outputs", "mark", "all"),
    "--save-outputs",
)
FIGURES.versus(
    "onnx-dump-memory",
    in_folder(lambda folder: memory_peak_of(*DUMP_ONNX, f"{folder}/dump")()),
    in_folder(lambda folder: memory_peak_of(*DUMP_ALL_LAYERS, f"{folder}/o.json")()),
)


# How comparisons grow


def make_chain(nodes: int) -> RealNetwork:
    """Return Conv, Add, Relu and Mul one behind the other; numbers neither grow nor vanish."""
    weights, lines = ["float scale = {0.9}"], []
    for layer in range(nodes // 4):
        weight, shift = f'"layer{layer}.rotation"', f'"layer{layer}.shift"'
        weights += [f"float[8,8,1,1] {weight}", f"float[1,8,1,1] {shift}"]
        lines += [
            f"c{layer} = Conv (x{layer}, {weight})",
            f"a{layer} = Add (c{layer}, {shift})",
            f"r{layer} = Relu (a{layer})",
            f"x{layer + 1} = Mul (r{layer}, scale)",
        ]
    size = "float[1,8,4,4]"
    return network_of(f"{size} x0", f"{size} x{nodes // 4}", weights, lines)


def chain_sides(folder: Path, nodes: int) -> tuple[str, str]:
    """Write a chain with a fault eight nodes before its end, and as it should be; return them as
    sides. An earlier fault would fade before the output."""
    right, faulty = make_chain(nodes), make_chain(nodes)
    alter_constant(f"layer{nodes // 4 - 2}.rotation", times(FAULT))(faulty.model)
    places = folder / f"chain{nodes}.faulty.onnx", folder / f"chain{nodes}.onnx"
    for place, network in zip(places, (faulty, right), strict=True):
        write_network(place, network)
    return side_of_model(places[0]), side_of_model(places[1])


def dumps_of(sides: Sequence[str]) -> list[str]:
    """Return dumps of models that `write_pair` wrote."""
    folders = []
    for side in sides:
        model, *flags = side.split()
        folders.append(f"{model}.dump")
        run_well(LAR, model, *flags, *ONCE, "--bin-io-dump", folders[-1], "--overwrite")
    return folders


WAYS: dict[str, tuple[Callable[[Sequence[str]], Sequence[str]], tuple[str, ...]]] = {
    "two dumps": (dumps_of, ()),
    "two models": (list, ()),
    "`--truth`": (list, ("--truth",)),
    "`--isolate`": (list, ("--isolate",)),
}


@FIGURES.row("linear")
def measure_linear(settings: Settings) -> Outcome:
    chains = [chain_sides(settings.folder, nodes) for nodes in (4000, 1000)]
    growths = {}
    for way, (prepare, flags) in WAYS.items():
        sides = [seconds_of(LAR, "compare", *prepare(each), *flags) for each in chains]
        pairs = measure_in_turns(sides[0], sides[1], settings.repetitions)
        growths[way] = statistics.median(longer / shorter for longer, shorter in pairs)
    measured = ", ".join(f"{way} {growth:.1f}x" for way, growth in growths.items())
    return Outcome(measured, max(growths.values()) <= 4.5)


if __name__ == "__main__":
    sys.exit(FIGURES.main(__doc__))
