"""The peaks measured on this machine, kept among the user's data in a file each.

    lar/peaks/MACHINE-THREADS.json
    [the best before the last measurement, the last]

MACHINE stands for all that a peak depends on: the processor, the CPUs that may be used, limits, the
library that multiplies. Where one of them differs, it is another file, and measured anew.

A whole measurement may have been disturbed, and then it is too low. So the first runs measure
again, each for a moment, until one agrees with the best; and, in case those were disturbed alike,
the first run of each later day. A file is replaced whole: of processes that write at the same time
one's measurement is lost. What cannot be kept, as on a full disk, is measured each time.
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
from lar.files.user_data import data_folder
from lar.measurement import peak
from lar.measurement.machine import installed_version, read_instruction_sets, read_machine
from lar.records.profile import Peak

FOLDER = "peaks"
ONE_DAY_SECONDS = 86_400
AGREEMENT = 0.05  # of the last measurement with the best
# So many products or copies are enough, whether measurements agree or not.
MOST_ROUNDS = 100
LONGEST_BYTES = 1 << 16


def find_peak(threads: int, deadline: float | None = None) -> Peak | None:
    """Return the best peak that is known of this machine with that many threads, measuring it
    unless that has been done often enough.

    None where nothing was measured before, and it cannot be measured by `deadline` on the
    monotonic clock.
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
    """Return the file of this machine with so many threads."""
    variables = {name: it for name, it in os.environ.items() if name not in peak.THREAD_LIMITS}
    machine = read_machine(variables)
    # What is taken out changes from run to run, or makes no other machine.
    machine = replace(machine, system="", memory_bytes=None, python="", load=None)
    facts = repr((machine, read_instruction_sets(), installed_version("numpy")))
    name = f"{hashlib.sha256(facts.encode()).hexdigest()[:16]}-{threads}.json"
    return os.path.join(data_folder(), FOLDER, name)


def read_measurements(path: str) -> tuple[Peak, ...]:
    """Return what a file holds; nothing where it is missing, damaged or of something else."""
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
    """Return the best of some measurements, if there are any: each figure may be of another."""
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
    """Write a file whole, or leave what was there where it cannot be written."""
    with contextlib.suppress(OSError, LarError):
        os.makedirs(data_folder(), mode=0o700, exist_ok=True)  # as the store of results is
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with OutputFile(path, flag="") as file:
            file.write(msgspec.json.encode(known))
