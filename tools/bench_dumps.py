"""Times dumps and comparisons against peers, in turns, and how the time grows with the model.

    uv run python tools/bench_dumps.py [--count N] [FIGURE ...]

The compared dumps have the tensors of every layer of ResNet50. They come from two runs in which MKL
used different algorithms.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path

from figures import Figures, Measure, Outcome, Settings, measure_in_turns, measure_of
from planted_faults import alter_constant, times
from processes import (
    LAR,
    PYTHON,
    RESNET50,
    memory_peak_of,
    run_quietly,
    run_well,
    seconds_of,
)
from real_networks import RealNetwork, network_of
from real_pairs import side_of_model, write_network

ONCE = ("--iter", "1", "--warmup-iter", "0")
FAULT = 1.5  # a faulty weight is multiplied by this

# A script that times a piece of code in a new process, without the start of the process. Before the
# timing, modules are imported and the files are read into the page cache. The code either compares
# two dumps with lar, or reads both folders and compares the bytes.
TIMED = """
import os, sys, tempfile, time
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
    prepared="import numpy as np; place = sys.argv[1]; new = tempfile.TemporaryDirectory(); "
    'arrays = [np.fromfile(f"{place}/{name}", np.uint8) for name in os.listdir(place)]',
    timed="for number, array in enumerate(arrays): array.tofile(f'{new.name}/{number}')",
)

KEPT = tempfile.TemporaryDirectory()


class Made:
    """Files that the measured commands need; each is made once, and removed at the end."""

    @cached_property
    def dumps(self) -> tuple[str, str]:
        folders = f"{KEPT.name}/a", f"{KEPT.name}/b"
        variants = (), ("--engine-env", "MKL_DEBUG_CPU_TYPE=5")
        for folder, flags in zip(folders, variants, strict=True):
            run_well(LAR, RESNET50, "--fill", "ones", *ONCE, *flags, "--bin-io-dump", folder)
        return folders

    @cached_property
    def chain(self) -> str:
        """Write a chain without a fault; return the chain as a side of a comparison."""
        return chain_sides(Path(KEPT.name), 4000)[1]


MADE = Made()
FIGURES = Figures("bench_dumps", made=MADE)


def read_figure(code: str, *arguments: str) -> float:
    """Run a Python script, and return the seconds that it prints."""
    return float(run_quietly([PYTHON, "-c", code, *arguments]).stdout)


def time_added(plain: str, dumping: str) -> Measure:
    """Return a function that measures how many seconds a dump adds to a whole process."""
    without, dumped = (measure_of("dump", command) for command in (plain, dumping))
    return lambda: dumped() - without()


FIGURES.versus(
    "comparing",
    lambda: read_figure(COMPARE_IN_PROCESS, *MADE.dumps),
    lambda: read_figure(COMPARE_BYTES, *MADE.dumps),
)
FIGURES.versus(
    "compare-memory",
    lambda: memory_peak_of(LAR, "compare", *MADE.dumps),
    lambda: 2.0 * max(file.stat().st_size for file in Path(MADE.dumps[0]).iterdir()),
)
RUN = "{LAR} {RESNET50} --fill ones --iter 1 --warmup-iter 0"
BARE_RUN = "{PYTHON} -W ignore {ROOT}/tools/peers.py run {RESNET50} 1 0"
ADDED = time_added(f"{RUN} --cpu-default", f"{RUN} --bin-io-dump {{folder}}/dump")
BARE_ADDED = time_added(f"{BARE_RUN} -", f"{BARE_RUN} {{folder}}/dump")
FIGURES.versus("dump", ADDED, lambda: read_figure(WRITE_ARRAYS, MADE.dumps[0]))
FIGURES.versus("dump-bare", ADDED, BARE_ADDED)


# How comparisons grow


def make_chain(nodes: int) -> RealNetwork:
    """Return a network that repeats Conv, Add, Relu and Mul, one after the other.

    The numbers in the network neither grow nor vanish.
    """
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
    """Write two chains, one with a fault and one without; return both as sides of a comparison.

    The fault is eight nodes before the end, since an earlier fault would fade before the output.
    """
    right, faulty = make_chain(nodes), make_chain(nodes)
    alter_constant(f"layer{nodes // 4 - 2}.rotation", times(FAULT))(faulty.model)
    places = folder / f"chain{nodes}.faulty.onnx", folder / f"chain{nodes}.onnx"
    for place, network in zip(places, (faulty, right), strict=True):
        write_network(place, network)
    return side_of_model(places[0]), side_of_model(places[1])


def dumps_of(sides: Sequence[str]) -> list[str]:
    """Dump all tensors of models that `chain_sides` wrote; return the folders of the dumps."""
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
        sides = [partial(seconds_of, LAR, "compare", *prepare(each), *flags) for each in chains]
        pairs = measure_in_turns(sides[0], sides[1], settings.repetitions)
        growths[way] = statistics.median(longer / shorter for longer, shorter in pairs)
    measured = ", ".join(f"{way} {growth:.1f}x" for way, growth in growths.items())
    return Outcome(measured, max(growths.values()) <= 4.5)


if __name__ == "__main__":
    sys.exit(FIGURES.main(__doc__))
