"""The rules for MegEngine's options, here and in `rules.json`: what an option needs or excludes."""

from __future__ import annotations

from typing import Any

from lar.options import table
from lar.options.option import Option
from lar.options.rules import SEVERAL_RUNNERS, Asked, Condition, fact, needs_cores, read_rules


def hanging(option: Option[Any]) -> Condition:
    """Return a condition that holds if an option is given and hangs every run on this processor."""

    def holds(asked: Asked) -> bool:
        if not option.is_given(asked.values) or table.CUDA.is_given(asked.values):
            return False
        from lar.engines.megengine.defects import hangs_here

        return hangs_here(asked.environment)

    return fact(option.flag, holds)


NO_FULL_EXECUTION = Condition(
    lambda asked: "--warmup-iter 0" if asked.iterations else "--iter 0",
    lambda asked: (
        (asked.warmup_iterations, asked.iterations) == (1, 0)
        or bool(asked.iterations) > bool(asked.warmup_iterations)
    ),
)
SEVERAL_WITHOUT_WARMUP = Condition(
    lambda asked: f"--thread {table.THREAD.of(asked.values)} without a warm-up",
    lambda asked: SEVERAL_RUNNERS.holds(asked) and not asked.warmup_iterations,
)
RECORDS = (table.RECORD_COMP_SEQ, table.RECORD_COMP_SEQ2)


def check_packed_files(asked: Asked) -> None:
    """Refuse files for a packed model if lite would ignore or misread these files."""
    info, cache = table.PACK_INFO_JSON.of(asked.values), table.PACK_CACHE.of(asked.values)
    if info is not None:
        from lar.engines.megengine.packing import read_info_file  # slow to import

        read_info_file(info)
    if cache is not None:
        from lar.engines.megengine.packing import read_cache_file

        read_cache_file(cache)


HANGING = (hanging(table.ENABLE_NCHW88), hanging(table.LAYOUT_TRANSFORM))
CORES_FOR_THREADS = needs_cores(
    "give one core for each thread of --multithread N or --multithread-default N, for each copy of "
    "--thread N",
    threads=1,
)

RULES = read_rules(globals())
