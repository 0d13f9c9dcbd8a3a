"""What a search for the fastest settings tries with MNN: a table of choices by dimension.

Each option that says how a model is run, and that can vary, stands here or in `NOT_TRIED`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lar.engines.choices import copies_dimension, set_to, thread_choices
from lar.engines.engine import Site
from lar.options.option import Option
from lar.options.table import (
    ALLOW_EXTERNAL_DATA,
    CPU,
    CPU_DEFAULT,
    ENGINE_OPTION,
    MULTITHREAD,
    MULTITHREAD_DEFAULT,
    PRECISION,
)
from lar.records.choices import Choice, Dimension

# What no search tries, and why.
NOT_TRIED: Mapping[Option[Any], str] = {
    CPU: "it is the default",
    MULTITHREAD_DEFAULT: "it is the same as --multithread here",
    ALLOW_EXTERNAL_DATA: "it changes nothing of a run",
}


def dimensions_of(site: Site) -> tuple[Dimension, ...]:
    """Return what may be tried at a site."""
    # On other processors MNN takes float32 for it.
    has_halves = "asimdhp" in site.instruction_sets
    halves = set_to(PRECISION, "float16", "float16", allow="reduced-precision")
    free = [it for it in thread_choices(site.cores, ((MULTITHREAD, ""),)) if len(it.options) == 1]
    table: dict[str, tuple[Choice, ...]] = {
        "threads": (set_to(CPU_DEFAULT, True, "1 thread"), *free),
        "precision": (halves,) if has_halves else (),
        "memory": (
            set_to(ENGINE_OPTION, ("memory=low",), "low memory", allow="reduced-precision"),
        ),
        "power": (set_to(ENGINE_OPTION, ("power=high",), "high power", for_full=True),),
        "copies": copies_dimension(site.cores).choices,
    }
    return tuple(Dimension(name=name, choices=choices) for name, choices in table.items())
