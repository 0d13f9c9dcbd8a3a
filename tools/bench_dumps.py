"""Times dumps and their comparison against peers, side by side.

    uv run python tools/bench_dumps.py [--rounds N] [CASE ...]

The dumps are those of every layer of ResNet50, made by two runs of other algorithms.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import (
    BARE_RUN,
    LAR,
    PYTHON,
    RESNET50,
    Case,
    Figure,
    difference,
    measure_memory,
    ratio_case,
    run_cases,
    run_quietly,
    time_process,
)

RESNET50_ONNX = str(Path(RESNET50).with_suffix(".onnx"))
COMPARE = [PYTHON, "-m", "megengine.tools.compare_binary_iodump"]
POLYGRAPHY = ["uv", "run", "--no-project", "--with", "polygraphy,onnxruntime==1.23.2,onnx,numpy<2"]
ONCE = ["--fill", "ones", "--iter", "1", "--warmup-iter", "0"]
MIB = 2**20

# What the comparing itself takes, and reading both folders and comparing bytes: in one process,
# without its start.
COMPARE_IN_PROCESS = """
import sys, time
import lar
lar.compare(*sys.argv[1:])  # the files are in the page cache and all is imported from here on
began = time.perf_counter()
lar.compare(*sys.argv[1:])
print(time.perf_counter() - began)
"""
COMPARE_BYTES = """
import os, sys, time
first, second = sys.argv[1:]
def compare():
    for name in os.listdir(first):
        with open(f"{first}/{name}", "rb") as a, open(f"{second}/{name}", "rb") as b:
            a.read() == b.read()
compare()
began = time.perf_counter()
compare()
print(time.perf_counter() - began)
"""
WRITE_ARRAYS = """
import os, sys, time
import numpy as np
arrays = [np.fromfile(f"{sys.argv[1]}/{name}", np.uint8) for name in os.listdir(sys.argv[1])]
began = time.perf_counter()
for number, array in enumerate(arrays):
    array.tofile(f"{sys.argv[2]}/{number}")
print(time.perf_counter() - began)
"""


@functools.cache
def dumps() -> tuple[str, str]:
    """Make two dumps, once; they go away with the process."""
    folder = Path(KEPT.name)
    for name, flags in (("a", []), ("b", ["--engine-env", "MKL_DEBUG_CPU_TYPE=5"])):
        command = [LAR, RESNET50, *ONCE, *flags, "--bin-io-dump", str(folder / name)]
        subprocess.run(command, check=True, capture_output=True)
    return str(folder / "a"), str(folder / "b")


def on_dumps(measure: object, *command: str) -> Figure:
    """Measure a command on the two dumps."""
    return lambda: measure(*command, *dumps())()  # type: ignore[operator]


def read_figure(code: str, *arguments: str) -> float:
    """Seconds that a script prints."""
    return float(run_quietly([PYTHON, "-c", code, *arguments]).stdout)


def time_added_by_dump() -> float:
    """Seconds that a dump adds to a whole process."""
    plain = time_process(LAR, RESNET50, *ONCE, "--cpu-default")()
    with tempfile.TemporaryDirectory() as folder:
        dumped = time_process(LAR, RESNET50, *ONCE, "--bin-io-dump", f"{folder}/dump")()
    return dumped - plain


def time_added_by_bare_dump() -> float:
    """Seconds that the engine's own dump adds to a whole process without lar."""
    plain = time_process(*BARE_RUN, RESNET50, "1", "0", "-")()
    with tempfile.TemporaryDirectory() as folder:
        dumped = time_process(*BARE_RUN, RESNET50, "1", "0", f"{folder}/dump")()
    return dumped - plain


def time_writing() -> float:
    """Seconds to write as many bytes from NumPy, into as many files."""
    with tempfile.TemporaryDirectory() as folder:
        return read_figure(WRITE_ARRAYS, dumps()[0], folder)


def largest_pair() -> float:
    """Bytes of the largest tensor and its twin."""
    return 2.0 * max(file.stat().st_size for file in Path(dumps()[0]).iterdir())


def memory_of_onnx_dump() -> float:
    """Peak memory of a dump of every layer of the .onnx."""
    with tempfile.TemporaryDirectory() as folder:
        return measure_memory(LAR, RESNET50_ONNX, *ONCE, "--bin-io-dump", f"{folder}/dump")()


def memory_of_polygraphy() -> float:
    """Peak memory of Polygraphy's dump of every layer, as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--onnxrt", "--onnx-outputs", "mark", "all", "--save-outputs", f"{folder}/o.json"]
        return measure_memory(*POLYGRAPHY, "polygraphy", "run", RESNET50_ONNX, *flags)()


KEPT = tempfile.TemporaryDirectory()
CASES = (
    ratio_case(
        "compare",
        "whole process, `lar compare` of two ResNet50 dumps",
        "`compare_binary_iodump`",
        0.4,
        on_dumps(time_process, LAR, "compare"),
        on_dumps(time_process, *COMPARE),
        11,
    ),
    ratio_case(
        "comparing",
        "the comparing itself",
        "reading both and comparing bytes",
        3,
        lambda: read_figure(COMPARE_IN_PROCESS, *dumps()),
        lambda: read_figure(COMPARE_BYTES, *dumps()),
        11,
    ),
    Case(
        "compare-memory",
        "peak memory of `lar compare`",
        "the largest pair of tensors",
        "under 100 MiB more",
        on_dumps(measure_memory, LAR, "compare"),
        largest_pair,
        difference,
        lambda value: f"{value / MIB:+.0f} MiB",
        lambda value: value < 100 * MIB,
        3,
    ),
    ratio_case(
        "dump",
        "time that `--bin-io-dump` adds, ResNet50 .mge",
        "writing as much from NumPy",
        1.2,
        time_added_by_dump,
        time_writing,
        11,
    ),
    ratio_case(
        "dump-bare",
        "time that `--bin-io-dump` adds, ResNet50 .mge",
        "what the engine's own dump adds to a bare script",
        1.2,
        time_added_by_dump,
        time_added_by_bare_dump,
        11,
    ),
    ratio_case(
        "onnx-dump-memory",
        "peak memory of `--bin-io-dump`, ResNet50 .onnx",
        "`polygraphy run --onnx-outputs mark all`",
        0.5,
        memory_of_onnx_dump,
        memory_of_polygraphy,
        3,
    ),
)

if __name__ == "__main__":
    sys.exit(run_cases(CASES))
