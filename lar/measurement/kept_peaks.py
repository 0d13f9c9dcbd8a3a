"""The measured peaks of this machine, each in a file among the user's data.

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
import os
import time
from collections.abc import Sequence
from dataclasses import replace

import msgspec

from lar.errors import LarError, UsageError
from lar.files.input_file import read_input
from lar.files.report_file import OutputFile
from lar.files.work_folders import data_folder
from lar.measurement import peak
from lar.measurement.machine import installed_version, read_instruction_sets, read_machine
from lar.records.profile import Peak

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
        measured = peak.measure_peak(threads, deadline)
        if measured is not None:
            known = (*filter(None, [best_of(known)]), measured)
            keep(path, known)
    return best_of(known)


def path_of(threads: int) -> str:
    """Return the file for this machine with so many threads."""
    variables = {name: it for name, it in os.environ.items() if name not in peak.THREAD_LIMITS}
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
        spread=max(peak.spread_of(flops), peak.spread_of(sizes)),
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
