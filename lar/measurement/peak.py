"""The measured peak of a machine: float32 operations and bytes in a second.

Both are measured in a fresh process: the library behind NumPy's products reads how many threads it
may use when it is loaded. The process prints JSON:

    {"flops_per_second": 1.9e11, "bytes_per_second": 2.1e10, "threads": 2, "source": "...",
     "spread": 0.02, "measured_at": "2026-11-22T10:00:00+00:00", "rounds": 12}

Disturbances make a product or a copy slower, so the best of many counts. A product of float32
matrices of n x n is 2 n^3 operations; a copy reads and writes each byte once.
`lar.measurement.kept_peaks` keeps the measurements.

That library, OpenBLAS, chooses its code by the processor's model. For a newer model it may take
code for processors of 2004, whose products take four times as long. So lar chooses the code by the
instruction sets (`OPENBLAS_CORETYPE`), unless the user has set it.
"""

from __future__ import annotations

import math
import os
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from statistics import median
from time import monotonic, perf_counter
from typing import NamedTuple

import msgspec

from lar.files.python_process import python_command
from lar.measurement.machine import read_instruction_sets, read_memory
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
    sizes = speeds_of(choose_copy(threads))  # no memory of copies is held afterwards
    flops = speeds_of(choose_product())
    return Peak(
        max(flops),
        max(sizes),
        threads,
        SOURCE,
        spread=max(spread_of(flops), spread_of(sizes)),
        measured_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        rounds=min(len(flops), len(sizes)),
    )


def speeds_of(task: Task) -> list[float]:
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
