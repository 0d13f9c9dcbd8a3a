"""What a search for the fastest settings tries with OpenVINO: a table of choices by dimension.

Each option that says how a model is run, and that can vary, stands here or in `NOT_TRIED`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lar.engines.choices import copies_dimension, set_to, thread_choices, turn_on
from lar.engines.engine import Site
from lar.options.option import Option
from lar.options.table import (
    ALLOW_EXTERNAL_DATA,
    CONST_SHAPE,
    CPU,
    CPU_DEFAULT,
    ENGINE_OPTION,
    FAST_RUN,
    FAST_RUN_ALGO_POLICY,
    HINT,
    MULTITHREAD,
    MULTITHREAD_DEFAULT,
    PRECISION,
    PROVIDER,
    STREAMS,
)
from lar.records.choices import Choice, Dimension

# What no search tries, and why.
NOT_TRIED: Mapping[Option[Any], str] = {
    CPU: "it is the default",
    MULTITHREAD_DEFAULT: "it is the same as --multithread here",
    PROVIDER: "which devices there are is known in a worker alone",
    STREAMS: "each copy of --thread has a stream",
    ALLOW_EXTERNAL_DATA: "it changes nothing of a run",
    ENGINE_OPTION: "the same as other options, or no property helps many models",
}

# What of float32 a CPU may be asked to compute in, and the instruction sets that this needs.
COARSER = {
    "bfloat16": {"avx512_bf16", "amx_bf16"},
    "float16": {"avx512_fp16", "amx_fp16", "asimdhp"},
}


def dimensions_of(site: Site) -> tuple[Dimension, ...]:
    """Return what can matter at a site, in the order in which candidates name it."""
    table: dict[str, tuple[Choice, ...]] = {
        "precision": tuple(
            set_to(PRECISION, name, name, allow="reduced-precision")
            for name, flags in COARSER.items()
            if flags & site.instruction_sets
        ),
        "shapes": (turn_on(CONST_SHAPE),),
        "threads": (
            set_to(CPU_DEFAULT, True, "1 thread"),
            *thread_choices(site.cores, ((MULTITHREAD, ""),), binds=False),
        ),
        "hint": (set_to(HINT, "throughput", "throughput-hint", for_full=True),),
        "model": (
            Choice(
                name="compiled-model",
                search={FAST_RUN.key: True},
                cache=FAST_RUN_ALGO_POLICY.key,
                cache_depends=("precision", "threads", "hint", "copies"),
                # The same model comes of it, sooner and with less memory.
                objectives=("memory",),
            ),
        ),
        "copies": copies_dimension(site.cores).choices,
    }
    return tuple(Dimension(name=name, choices=choices) for name, choices in table.items())
