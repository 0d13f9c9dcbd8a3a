"""The settings that a profile speaks for: what to try next with its run.

An engine says what a profile shows (`Engine.signs`), as choices of its `dimensions`, which a search
for the fastest settings tries too. This module leaves out those that the run has set or that save
too little, and puts the most promising first.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lar.engines import driver_for, find_engine
from lar.engines.engine import Engine, Sign, Site, computing_ns_of
from lar.errors import UsageError
from lar.measurement.machine import read_machine
from lar.options.command_line import format_flags, parse_value
from lar.options.option import is_set
from lar.options.rules import RULES, Asked, check_rules
from lar.options.table import BENCH_KEYS, BY_KEY, ENGINE_FIX, LAYOUT_CHOICES, OPTIONS
from lar.profiles.times import keep_with_profile
from lar.records.profile import Profile
from lar.records.tuning import Choice, OptionValue

# A choice that probably saves a smaller part of an iteration is not worth a race.
LEAST_SAVED = 0.03
# A file may claim any number.
MOST_CORES = 4096
# Stands for a file that a search writes first.
NEW_FILE = "FILE"


@dataclass(frozen=True)
class Suggestion:
    """A choice of an engine's dimensions, and what a profile shows that speaks for it."""

    choice: Choice
    why: str

    @property
    def name(self) -> str:
        """Its name in the dimensions: `nchw88`."""
        return self.choice.name

    @property
    def flags(self) -> str:
        """Its flags as they are typed: `--enable-nchw88 --engine-fix x2apic`."""
        return format_flags(options_of(self.choice))


def options_of(choice: Choice, cache: str = NEW_FILE) -> dict[str, OptionValue]:
    """Return all that a choice sets, with the file of its cache."""
    named: dict[str, OptionValue] = {choice.cache: cache} if choice.cache else {}
    return {**choice.options, **choice.search, **named}


@keep_with_profile
def suggestions_of(profile: Profile) -> tuple[Suggestion, ...]:
    """Return what a profile speaks for, the most promising first: nothing if its engine is not
    known, or nothing was timed."""
    engine = find_engine(profile.facts.engine)
    if engine is None or not computing_ns_of(profile):
        return ()
    site = site_of(profile)
    try:
        dimensions = engine.dimensions(site, Path(profile.facts.model.path))
        signs = [*engine.signs(profile, site)]
    except UsageError:  # the model has gone, without which this engine knows nothing of it
        return ()
    choices = {choice.name: choice for each in dimensions for choice in each.choices}
    open_ones = (
        each
        for each in signs
        if each.choice in choices and is_open(choices[each.choice], engine, site, profile)
    )
    return tuple(Suggestion(choices[it.choice], it.figure) for it in in_order(open_ones))


def given_in(profile: Profile) -> dict[str, Any]:
    """Return the options of the run of a profile that say how it ran, without impossible values."""
    found: dict[str, Any] = {}
    for key, value in profile.facts.options.items():
        with contextlib.suppress(UsageError):
            found |= {key: parse_value(BY_KEY[key], value)} if key in BENCH_KEYS else {}
    return found


def in_order(signs: Iterable[Sign]) -> list[Sign]:
    """Return signs by what they are expected to save. Signs of one way save the same time: the
    second counts half, the third a third."""
    worth = [each for each in signs if each.saves >= LEAST_SAVED]
    worth.sort(key=lambda each: -each.saves)
    ways = [each.way for each in worth]
    counts = [ways[: at + 1].count(way) for at, way in enumerate(ways)]
    weighed = sorted(zip(counts, worth, strict=True), key=lambda it: -it[1].saves / it[0])
    return list({each.choice: each for _, each in weighed}.values())


def is_open(choice: Choice, engine: Engine, site: Site, profile: Profile) -> bool:
    """Return whether a choice can be tried: the run has set none of its options and no other
    layout, and the rules of options and a driver of the engine allow it."""
    options, given = options_of(choice), given_in(profile)
    taken = {key for key, value in given.items() if is_set(value)}
    layouts = {option.key for option in LAYOUT_CHOICES}
    if options.keys() - {ENGINE_FIX.key} & taken or (layouts & options.keys() and layouts & taken):
        return False
    values = {**given, **options}
    # Rules of an engine may look at the processor, which is this machine's.
    is_here = profile.facts.machine.get("processor") == read_machine().processor
    rules = (*RULES, *(engine.option_rules() if is_here else ()))
    defaults = {option.key: option.default for option in OPTIONS}
    try:
        driver_for(engine, [key for key in values if key in engine.rows])
        check_rules(rules, Asked({**defaults, **values}, environment=site.environment))
    except UsageError:
        return False
    return True


def site_of(profile: Profile) -> Site:
    """Return where the run of a profile took place, as far as the profile says it."""
    facts, machine = profile.facts, profile.facts.machine
    count = machine.get("usable_cores") or facts.cpu.count or facts.threads or 1
    cores = tuple(machine.get("affinity") or range(min(count, MOST_CORES)))
    limit = machine.get("cpu_limit")
    return Site(
        cores=cores[: max(1, math.ceil(min(limit, MOST_CORES)))] if limit else cores,
        processor=machine.get("instruction_sets") or "unknown ",
        device="cpu" if facts.device.startswith("cpu") else facts.device,
        environment=machine.get("variables", {}),
    )
