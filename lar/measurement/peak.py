"""Measures the peak of a machine: float32 operations and bytes per second.

The operations and the bytes per second are measured in a fresh process, since the library that
computes NumPy's products reads its number of threads only when it is loaded. The process prints the
fields of `Peak` as JSON.

Disturbances only make a product or a copy slower, so the fastest of many repetitions is used. A
product of two n x n matrices of float32 has 2 n^3 operations. A copy reads and writes each byte
once.

The library is OpenBLAS, which chooses its code by the model of the processor. If OpenBLAS does not
know a new processor, it may choose code for processors of 2004, and then products take four times
as long. Therefore lar sets `OPENBLAS_CORETYPE` to code that fits the processor's instruction sets,
unless the user has set this variable.

Each peak is kept in the file lar/peaks/MACHINE-THREADS.json among the user's data. The file is a
list of two items: the best figures before the last measurement, and the last measurement. MACHINE
stands for everything on which a peak depends: the processor, the usable CPUs, the limits of CPU
time, and the library for matrix products. If one of the facts that MACHINE stands for changes, the
name of the file changes too, and the peak is measured anew.

If a whole measurement was disturbed, its peak is too low. The first runs on a machine measure the
peak again, each for a moment, until a measurement agrees with the best measurement. On each later
day, the first run measures the peak again, in case all earlier measurements were disturbed. If two
processes write at the same time, the file stays whole and has one of the two measurements. If a
peak cannot be kept, for example on a full disk, every run measures it again.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import os
import subprocess
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timezone
from statistics import median
from time import monotonic, perf_counter
from typing import NamedTuple

import msgspec

from lar.errors import LarError, UsageError
from lar.files.input_file import read_input
from lar.files.python_process import python_command
from lar.files.report_file import OutputFile
from lar.files.work_folders import data_folder
from lar.measurement.machine import (
    installed_version,
    read_instruction_sets,
    read_machine,
    read_memory,
)
from lar.records.profile import Peak

SOURCE = "numpy float32 product and copy"
CODE = "from lar.measurement.peak import main; main(sys.argv[1:])"

# The cores for which OpenBLAS has code, and the instruction sets that the code needs. The core with
# the widest instructions comes first.
CORE_VARIABLE = "OPENBLAS_CORETYPE"

CORES = {
    "SkylakeX": {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"},
    "Haswell": {"avx2", "fma"},
}

# Products and copies are each repeated for so many seconds, and for at least so many rounds. The
# timeout is for both together.
SECONDS = 0.2
FEWEST_ROUNDS = 3
TIMEOUT_SECONDS = 20.0

# If a product is shorter than this, its matrices are too small, and the start of its threads would
# count. A much longer product is nearly always disturbed on a busy machine: with 4 ms, two threads
# reached half of the peak.
SHORTEST_PRODUCT_SECONDS = 0.001
SMALLEST_SIDE, LARGEST_SIDE = 512, 4096

# The size of a copy, which is larger than the caches. A copy takes at most 1 / PART_OF_MEMORY of
# the memory.
COPY_BYTES = 1 << 28
PART_OF_MEMORY = 8

# Variables that limit the threads of the libraries behind NumPy.
THREAD_LIMITS = [f"{library}_NUM_THREADS" for library in ("OMP", "OPENBLAS", "MKL", "BLIS")]


class Task(NamedTuple):
    """Work that is timed.

    `run` executes the work once, and `amount` is the number of operations or bytes in the work.
    """

    amount: int
    run: Callable[[], object]


def measure_peak(threads: int, deadline: float | None = None) -> Peak | None:
    """Measure this machine's peak with `threads` threads, in a fresh process.

    The result is None if the process fails, or does not end before `deadline` on the monotonic
    clock. If the peak is unknown, reports are made without a peak.
    """
    left = math.inf if deadline is None else deadline - monotonic()
    core = choose_core()
    code = {CORE_VARIABLE: core} if core else {}
    try:
        child = subprocess.run(
            python_command(CODE, str(threads)),
            env=code | os.environ | dict.fromkeys(THREAD_LIMITS, str(threads)),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=min(max(0.0, left), TIMEOUT_SECONDS),
            check=True,
        )
        return msgspec.json.decode(child.stdout, type=Peak)
    except (OSError, subprocess.SubprocessError, msgspec.MsgspecError):
        return None


def choose_core() -> str:
    """Return the core whose OpenBLAS code this processor can run; empty if no core fits."""
    sets = set(read_instruction_sets().split())
    return next((core for core, needed in CORES.items() if needed <= sets), "")


def measure_here(threads: int) -> Peak:
    """Measure the peak in this process, whose libraries use `threads` threads."""
    sizes = measure_speeds(choose_copy(threads))  # first, and its memory is freed afterwards
    flops = measure_speeds(choose_product())
    return Peak(
        max(flops),
        max(sizes),
        threads,
        SOURCE,
        spread=max(spread_of(flops), spread_of(sizes)),
        measured_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        rounds=min(len(flops), len(sizes)),
    )


def measure_speeds(task: Task) -> list[float]:
    """Run a task repeatedly, and return the operations or bytes per second of each run."""
    speeds: list[float] = []
    end = perf_counter() + SECONDS
    while len(speeds) < FEWEST_ROUNDS or perf_counter() < end:
        speeds.append(task.amount / time_once(task.run))
    return speeds


def spread_of(speeds: Sequence[float]) -> float:
    """Return how far the median speed is below the best speed, as a part of the best speed."""
    return 1 - median(speeds) / max(speeds)


def choose_product() -> Task:
    """Return the multiplication of two float32 matrices that are large enough to time it."""
    side = SMALLEST_SIDE
    while True:
        multiply = product_of(side)
        multiply()  # the first product starts the threads
        if time_once(multiply) >= SHORTEST_PRODUCT_SECONDS or side >= LARGEST_SIDE:
            return Task(2 * side**3, multiply)
        side *= 2


def product_of(side: int) -> Callable[[], object]:
    """Return a function that multiplies two matrices of side x side float32 values."""
    import numpy as np

    first, second, product = (np.full((side, side), 0.5, np.float32) for _ in range(3))
    return lambda: np.matmul(first, second, out=product)


def choose_copy(threads: int) -> Task:
    """Return the task of copying an array that is larger than the caches."""
    import numpy as np

    size = min(COPY_BYTES, (read_memory() or COPY_BYTES) // PART_OF_MEMORY)
    source, target = np.ones((2, threads, size // threads), np.uint8)
    pool = ThreadPoolExecutor(threads)
    return Task(2 * source.size, lambda: list(pool.map(np.copyto, target, source)))


def time_once(work: Callable[[], object]) -> float:
    start = perf_counter()
    work()
    return perf_counter() - start


def main(arguments: Sequence[str]) -> None:
    """Measure the peak with the given number of threads, and print the peak as JSON."""
    print(msgspec.json.encode(measure_here(int(arguments[0]))).decode())


FOLDER = "peaks"
ONE_DAY_SECONDS = 86_400
AGREEMENT = 0.05  # measurements agree if they differ by at most this part of the best

# After this many products or copies, no more are measured, even if measurements do not agree.
MOST_ROUNDS = 100
LONGEST_BYTES = 1 << 16


def find_peak(threads: int, deadline: float | None = None) -> Peak | None:
    """Return the best known peak of this machine with `threads` threads; measure it if needed.

    The result is None if the peak is unknown and cannot be measured before `deadline`, a time on
    the monotonic clock.
    """
    path = path_of(threads)
    known = read_measurements(path)
    if not is_settled(path, known):
        measured = measure_peak(threads, deadline)
        if measured is not None:
            known = (*filter(None, [best_of(known)]), measured)
            keep(path, known)
    return best_of(known)


def path_of(threads: int) -> str:
    """Return the path of the file with the peaks of this machine for this number of threads."""
    variables = {name: it for name, it in os.environ.items() if name not in THREAD_LIMITS}
    machine = read_machine(variables)
    # These facts change from run to run, or do not affect the peak.
    machine = replace(machine, system="", memory_bytes=None, python="", load=None)
    facts = repr((machine, read_instruction_sets(), installed_version("numpy")))
    name = f"{hashlib.sha256(facts.encode()).hexdigest()[:16]}-{threads}.json"
    return os.path.join(data_folder(), FOLDER, name)


def read_measurements(path: str) -> tuple[Peak, ...]:
    """Return the measurements in a file; empty if the file is missing or damaged."""
    try:
        return msgspec.json.decode(read_input(path, limit=LONGEST_BYTES), type=tuple[Peak, ...])
    except (UsageError, msgspec.MsgspecError, UnicodeDecodeError):
        return ()


def is_settled(path: str, known: Sequence[Peak]) -> bool:
    """Return whether the peak is certain enough that no run measures it again today."""
    if len(known) < 2 or abs(time.time() - os.path.getmtime(path)) >= ONE_DAY_SECONDS:
        return False
    agree = all(min(speeds) >= (1 - AGREEMENT) * max(speeds) for speeds in speeds_of(known))
    return agree or sum(each.rounds or 1 for each in known) >= MOST_ROUNDS


def best_of(known: Sequence[Peak]) -> Peak | None:
    """Return the best figures of all measurements as one peak, or None if `known` is empty."""
    if len(known) < 2:
        return known[0] if known else None
    flops, sizes = speeds_of(known)
    return msgspec.structs.replace(
        known[-1],
        flops_per_second=max(flops),
        bytes_per_second=max(sizes),
        spread=max(spread_of(flops), spread_of(sizes)),
        rounds=sum(each.rounds or 1 for each in known),
    )


def speeds_of(known: Sequence[Peak]) -> tuple[list[float], list[float]]:
    return [it.flops_per_second for it in known], [it.bytes_per_second for it in known]


def keep(path: str, known: tuple[Peak, ...]) -> None:
    """Write all measurements to a file; if this fails, the old file stays."""
    with contextlib.suppress(OSError, LarError):
        os.makedirs(data_folder(), mode=0o700, exist_ok=True)  # as for the store of results
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with OutputFile(path, flag="") as file:
            file.write(msgspec.json.encode(known))
