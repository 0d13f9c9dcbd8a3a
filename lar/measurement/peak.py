"""The measured peak of a machine: float32 operations and bytes in a second.

Both are measured in a fresh process: the library behind NumPy's products reads how many threads it
may use when it is loaded. The process prints JSON:

    {"flops_per_second": 1.9e11, "bytes_per_second": 2.1e10, "threads": 2, "source": "...",
     "spread": 0.02, "measured_at": "2026-11-22T10:00:00+00:00", "rounds": 12}

Disturbances make a product or a copy slower, so the best of many counts. A product of float32
matrices of n x n is 2 n^3 operations; a copy reads and writes each byte once.

That library, OpenBLAS, chooses its code by the processor's model. For a newer model it may take
code for processors of 2004, whose products take four times as long. So lar chooses the code by the
instruction sets (`OPENBLAS_CORETYPE`), unless the user has set it.

The peaks are kept, each in a file among the user's data.

    lar/peaks/MACHINE-THREADS.json
    [the best before the last measurement, the last]

MACHINE stands for all that a peak depends on: the processor, the usable CPUs, limits, the library
that multiplies. If one of them changes, the file is another one, and the peak is measured anew.

A whole measurement may have been disturbed, and is too low then. So the first runs measure again,
each for a moment, until a measurement agrees with the best. The first run of each later day
measures too, in case those were disturbed alike. A file is replaced as a whole: if processes write
at the same time, only one measurement stays. A peak that cannot be kept, as on a full disk, is
measured each time.
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

# The cores that OpenBLAS has code for, the widest first, and the instruction sets that each needs.
CORE_VARIABLE = "OPENBLAS_CORETYPE"

CORES = {
    "SkylakeX": {"avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl"},
    "Haswell": {"avx2", "fma"},
}

# How long each of the two is repeated, and how long both together may take.
SECONDS = 0.2
FEWEST_ROUNDS = 3
TIMEOUT_SECONDS = 20.0

# In a shorter product the start of its threads would count: the matrices are too small. A much
# longer one is hardly ever undisturbed on a busy machine: with 4 ms two threads reached half.
SHORTEST_PRODUCT_SECONDS = 0.001
SMALLEST_SIDE, LARGEST_SIDE = 512, 4096

# The size of a copy, which exceeds the caches, and the part of the memory that it may take.
COPY_BYTES = 1 << 28
PART_OF_MEMORY = 8

# Variables that limit the threads of the libraries behind NumPy.
THREAD_LIMITS = [f"{library}_NUM_THREADS" for library in ("OMP", "OPENBLAS", "MKL", "BLIS")]


class Task(NamedTuple):
    """The work to time, and the operations or bytes of one run of it."""

    amount: int
    run: Callable[[], object]


def measure_peak(threads: int, deadline: float | None = None) -> Peak | None:
    """Measure this machine's peak with that many threads, in a fresh process.

    It is None if the process fails or is not done by `deadline` on the monotonic clock; reports do
    not need a peak.
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
    """Return the core whose OpenBLAS code this processor can run, empty if none is known."""
    sets = set(read_instruction_sets().split())
    return next((core for core, needed in CORES.items() if needed <= sets), "")


def measure_here(threads: int) -> Peak:
    """Measure in this process, whose libraries use that many threads."""
    sizes = measure_speeds(choose_copy(threads))  # no memory of copies is held afterwards
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
    """Return the operations or bytes in a second, for each of some runs."""
    speeds: list[float] = []
    end = perf_counter() + SECONDS
    while len(speeds) < FEWEST_ROUNDS or perf_counter() < end:
        speeds.append(task.amount / time_once(task.run))
    return speeds


def spread_of(speeds: Sequence[float]) -> float:
    """Return how far the median is below the best, as a part of the best."""
    return 1 - median(speeds) / max(speeds)


def choose_product() -> Task:
    """Return a product of float32 matrices that take long enough to be timed."""
    side = SMALLEST_SIDE
    while True:
        multiply = product_of(side)
        multiply()  # the first one starts the threads
        if time_once(multiply) >= SHORTEST_PRODUCT_SECONDS or side >= LARGEST_SIDE:
            return Task(2 * side**3, multiply)
        side *= 2


def product_of(side: int) -> Callable[[], object]:
    """Return a function that multiplies two matrices of side x side float32 values."""
    import numpy as np

    first, second, product = (np.full((side, side), 0.5, np.float32) for _ in range(3))
    return lambda: np.matmul(first, second, out=product)


def choose_copy(threads: int) -> Task:
    """Return a copy that exceeds the caches."""
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
    """Print the peak with so many threads as JSON."""
    print(msgspec.json.encode(measure_here(int(arguments[0]))).decode())


FOLDER = "peaks"
ONE_DAY_SECONDS = 86_400
AGREEMENT = 0.05  # how near the last measurement must be to the best, as a part of it

# So many products or copies are enough, even if measurements do not agree.
MOST_ROUNDS = 100
LONGEST_BYTES = 1 << 16


def find_peak(threads: int, deadline: float | None = None) -> Peak | None:
    """Return the best known peak of this machine with that many threads, measuring it if needed.

    It is None if it was never measured, and cannot be by `deadline` on the monotonic clock.
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
    """Return the file for this machine with so many threads."""
    variables = {name: it for name, it in os.environ.items() if name not in THREAD_LIMITS}
    machine = read_machine(variables)
    # These facts change from run to run, or do not make another machine.
    machine = replace(machine, system="", memory_bytes=None, python="", load=None)
    facts = repr((machine, read_instruction_sets(), installed_version("numpy")))
    name = f"{hashlib.sha256(facts.encode()).hexdigest()[:16]}-{threads}.json"
    return os.path.join(data_folder(), FOLDER, name)


def read_measurements(path: str) -> tuple[Peak, ...]:
    """Return what a file contains; empty if it is missing, damaged or something else."""
    try:
        return msgspec.json.decode(read_input(path, limit=LONGEST_BYTES), type=tuple[Peak, ...])
    except (UsageError, msgspec.MsgspecError, UnicodeDecodeError):
        return ()


def is_settled(path: str, known: Sequence[Peak]) -> bool:
    """Return whether another measurement would hardly find a better peak today."""
    if len(known) < 2 or abs(time.time() - os.path.getmtime(path)) >= ONE_DAY_SECONDS:
        return False
    agree = all(min(speeds) >= (1 - AGREEMENT) * max(speeds) for speeds in speeds_of(known))
    return agree or sum(each.rounds or 1 for each in known) >= MOST_ROUNDS


def best_of(known: Sequence[Peak]) -> Peak | None:
    """Return the best figures of some measurements, maybe of different ones; None without any."""
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
    """Write a file as a whole; if that fails, leave what was there."""
    with contextlib.suppress(OSError, LarError):
        os.makedirs(data_folder(), mode=0o700, exist_ok=True)  # as for the store of results
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with OutputFile(path, flag="") as file:
            file.write(msgspec.json.encode(known))
