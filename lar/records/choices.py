"""Choices of a search for the fastest settings, as engines and files declare them."""

from __future__ import annotations

from dataclasses import field
from typing import Literal

from lar.records.record import Record

OptionValue = bool | int | float | str | tuple[str, ...]

Objective = Literal["latency", "throughput", "memory", "p99"]
"""What is made small:

latency     the median time of an iteration
throughput  the time of all copies of the model together, divided by the iterations that they made
memory      the most memory that a process held
p99         the 99th percentile of the times of iterations
"""

Allowed = Literal["engine-fixes", "engine-env", "reduced-precision"]
"""What a search tries only where the user allows it:

engine-fixes       defects of the engine are mended in memory (`--engine-fix`)
engine-env         environment variables are set for the engine (`--engine-env`)
reduced-precision  tensors are computed in a coarser type than the model's
"""


class Choice(Record):
    """One of the settings that a dimension offers.

    Attributes:
        name: its name in tables, which no other choice of the space has: `nchw88`.
        options: what it sets, by key, as `lar.run` takes it.
        search: the further options of a run that fills a cache before the first measurement; empty
            if nothing is searched. Such a run may take minutes.
        cache: the key of the option that names the cache's file; empty without a search. The file
            belongs to the session, and `options` do not hold it.
        cache_depends: the dimensions whose choices decide what the cache holds; candidates that
            agree in them share one.
        allow: what the user must allow, empty if nothing.
        for_full: it is tried in the space `full` alone.
        measures_at_load: the engine measures each time that it loads the model, which may take
            long; nothing is kept of it.
        objectives: the objectives that it can matter for, empty for all.
    """

    name: str
    options: dict[str, OptionValue] = field(default_factory=dict)
    search: dict[str, OptionValue] = field(default_factory=dict)
    cache: str = ""
    cache_depends: tuple[str, ...] = ()
    allow: Allowed | Literal[""] = ""
    for_full: bool = False
    measures_at_load: bool = False
    objectives: tuple[Objective, ...] = ()


class Dimension(Record):
    """Choices of which a candidate has one, or none: `layout`, `threads`."""

    name: str
    choices: tuple[Choice, ...]
