"""Suggestions of settings to try next, from the profile of a run.

`Engine.signs` finds facts in a profile which suggest that certain settings save time. The suggested
settings are choices in the engine's `dimensions`. A search for the fastest settings tries the
choices in `dimensions` too. This module leaves out the choices that the run has set already, and
choices that would save too little time. The most promising choice comes first.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lar.engines import driver_for, find_engine
from lar.engines.choices import Site
from lar.engines.engine import Engine
from lar.engines.signs import Sign, computing_ns_of
from lar.errors import UsageError
from lar.measurement.machine import read_machine
from lar.options.command_line import format_flags, parse_value
from lar.options.option import is_set
from lar.options.rules import RULES, Asked, check_rules
from lar.options.table import BENCH_KEYS, BY_KEY, ENGINE_FIX, LAYOUT_CHOICES, OPTIONS
from lar.profiles.times import keep_with_profile
from lar.records.profile import Profile
from lar.records.tuning import Choice, OptionValue

# A choice that probably saves a smaller part of an iteration is not worth measuring.
LEAST_SAVED = 0.03
# A file may claim any number of cores.
MOST_CORES = 4096
# Stands for the name of a file that a search has to write first.
NEW_FILE = "FILE"


@dataclass(frozen=True)
class Suggestion:
    """A choice of settings, and the figures of a profile that suggest this choice."""

    choice: Choice
    why: str

    @property
    def name(self) -> str:
        """The choice's name in the engine's dimensions, such as `nchw88`."""
        return self.choice.name

    @property
    def flags(self) -> str:
        """The flags that set this choice, such as `--enable-nchw88 --engine-fix x2apic`."""
        return format_flags(options_of(self.choice))


def options_of(choice: Choice, cache: str = NEW_FILE) -> dict[str, OptionValue]:
    """Return all options that a choice sets, including the option that names its cache file."""
    named: dict[str, OptionValue] = {choice.cache: cache} if choice.cache else {}
    return {**choice.options, **choice.search, **named}


@keep_with_profile
def suggestions_of(profile: Profile) -> tuple[Suggestion, ...]:
    """Return the suggestions for the run that made a profile, the most promising first.

    The result is empty if lar does not know the engine of the run, or if the profile has no times.
    """
    engine = find_engine(profile.facts.engine)
    if engine is None or not computing_ns_of(profile):
        return ()
    site = site_of(profile)
    try:
        dimensions = engine.dimensions(site, Path(profile.facts.model.path))
        signs = [*engine.signs(profile, site)]
    except UsageError:  # the model file is gone, and this engine's dimensions need it
        return ()
    choices = {choice.name: choice for each in dimensions for choice in each.choices}
    open_ones = (
        each
        for each in signs
        if each.choice in choices and is_open(choices[each.choice], engine, site, profile)
    )
    return tuple(Suggestion(choices[it.choice], it.figure) for it in in_order(open_ones))


def given_in(profile: Profile) -> dict[str, Any]:
    """Return the options of the run that made a profile.

    Options with impossible values are left out.
    """
    found: dict[str, Any] = {}
    for key, value in profile.facts.options.items():
        with contextlib.suppress(UsageError):
            found |= {key: parse_value(BY_KEY[key], value)} if key in BENCH_KEYS else {}
    return found


def in_order(signs: Iterable[Sign]) -> list[Sign]:
    """Return the signs worth trying, in the order of the time that they are expected to save.

    If two signs have an equal `way`, both choices save the same part of the time, so the two
    savings do not add up. Therefore, among the signs with one `way`, the saving of the second sign
    is divided by 2, and the saving of the third sign by 3.
    """
    worth = sorted((it for it in signs if it.saves >= LEAST_SAVED), key=lambda it: -it.saves)
    ways = [each.way for each in worth]
    counts = [ways[: at + 1].count(way) for at, way in enumerate(ways)]
    weighed = sorted(zip(counts, worth, strict=True), key=lambda it: -it[1].saves / it[0])
    return list({each.choice: each for _, each in weighed}.values())


def is_open(choice: Choice, engine: Engine, site: Site, profile: Profile) -> bool:
    """Return whether a choice can be tried in addition to the options of a profile's run.

    The run must not have set any option of the choice. If the choice sets a layout, the run must
    not have set any layout. The rules of options must allow the choice, and a driver of the engine
    must support it.
    """
    options, given = options_of(choice), given_in(profile)
    taken = {key for key, value in given.items() if is_set(value)}
    layouts = {option.key for option in LAYOUT_CHOICES}
    if options.keys() - {ENGINE_FIX.key} & taken or (layouts & options.keys() and layouts & taken):
        return False
    values = {**given, **options}
    # Rules of an engine may look at this machine's processor, so they hold only if it is the same.
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
    """Return the machine of the run that made a profile, as far as the profile describes it."""
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
