"""What to try next with the run of a profile, on the machine that made it.

An engine says what its own settings may save (`Engine.prospects`), out of what a search for the
fastest settings tries at that site. Here are left out those that the run has set or that save too
little, and the others stand in the order of what they are expected to save, the best of each rule
first.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lar.engines import find_engine
from lar.engines.engine import Engine, Site
from lar.errors import UsageError
from lar.measurement.machine import read_instruction_sets, read_machine
from lar.options.command_line import format_flags
from lar.options.rules import RULES, Asked, Rule, check_rules
from lar.options.table import BY_KEY, ENGINE_ENV, ENGINE_FIX, LAYOUT_CHOICES, OPTIONS
from lar.options.variants import BENCH_KEYS
from lar.profiles.recommendations import (
    LEAST_GAIN,
    Prospect,
    Recommendation,
    Shown,
    notes_of,
)
from lar.records.profile import Machine, Profile, keep_with_profile

# What distinguishes a machine from another: a profile is made on one, and read on any.
DISTINGUISHING = ("processor", "architecture", "cores", "usable_cores", "cpu_limit")
# Options of which several values go together.
JOINED = frozenset({ENGINE_ENV.key, ENGINE_FIX.key})
# A file may claim any number.
MOST_CORES = 4096
# What a file stands for that a search writes first.
NEW_FILE = "FILE"


@keep_with_profile
def recommendations_for(profile: Profile) -> tuple[Recommendation, ...]:
    """Return the suggestions for the run of a profile: settings to try, the most promising first,
    then notes. Where nobody knows its engine there are notes alone."""
    engine = find_engine(profile.facts.engine)
    shown = Shown(profile)
    settings: list[Recommendation] = []
    if engine is not None and shown.iteration_ns:
        site = site_of(profile)
        # What is recorded, and where to, does not hold for the run that is suggested.
        given = {key: it for key, it in profile.facts.options.items() if key in BENCH_KEYS}
        # Rules of an engine may look at the processor, which is this machine's.
        of_engine = () if describe_other_machine(profile) else engine.option_rules()
        rules = (*RULES, *of_engine)
        prospects = [
            each
            for each in engine.prospects(shown, site)
            if is_open(each, given) and is_allowed(each, given, engine, site, rules)
        ]
        settings = [recommendation_of(each) for each in order_prospects(prospects)]
    honoured = engine.rows.keys() if engine else ()
    return (*settings, *notes_of(profile, honoured))


def order_prospects(prospects: Iterable[Prospect]) -> list[Prospect]:
    """Return prospects by what they are expected to save, notes last. Behind the first of a rule
    others of it come after all other rules: they save the same time in another way."""
    ordered = sorted(prospects, key=lambda each: (each.choice is None, -each.gain))
    seen: Counter[str] = Counter()
    places = []
    for each in ordered:
        places.append((each.choice is None, seen[each.rule]))
        seen[each.rule] += 1
    order = sorted(range(len(ordered)), key=places.__getitem__)
    return [ordered[index] for index in order]


def is_open(prospect: Prospect, given: Mapping[str, Any]) -> bool:
    """Return whether a prospect is worth a try, and the run has not set what it sets, nor another
    layout."""
    choice = prospect.choice
    if choice is None:
        return True
    if prospect.gain < LEAST_GAIN:
        return False
    keys = {*choice.options, *choice.search, choice.cache} - {""}
    taken = {key for key, value in given.items() if value} - {*prospect.without}
    layouts = {option.key for option in LAYOUT_CHOICES}
    if keys & layouts and taken & layouts:
        return False
    return not (keys - JOINED) & taken


def is_allowed(
    prospect: Prospect,
    given: Mapping[str, Any],
    engine: Engine,
    site: Site,
    rules: Iterable[Rule],
) -> bool:
    """Return whether the rules of options and a driver of the engine allow a prospect beside what
    the run has set."""
    choice = prospect.choice
    if choice is None:
        return True
    kept = {key: given[key] for key in given if key not in prospect.without}
    values = {**kept, **choice.options, **choice.search}
    if choice.cache:
        values[choice.cache] = NEW_FILE
    drivers = [{*engine.rows[key].drivers} for key in values if key in engine.rows]
    if drivers and not set.intersection(*drivers):
        return False
    defaults = {option.key: option.default for option in OPTIONS}
    try:
        check_rules(rules, Asked({**defaults, **values}, environment=site.environment))
    except UsageError:
        return False
    return True


def recommendation_of(prospect: Prospect) -> Recommendation:
    """Return a prospect with its sentence."""
    flags = tuple(flags_of(prospect))
    tries = f": {' '.join(flags)}" if flags else ""
    text = f"{prospect.figure.text}; {prospect.advice}{tries}"
    return Recommendation(
        prospect.rule,
        prospect.figure.share,
        prospect.limit,
        text,
        flags,
        gain=prospect.gain if prospect.choice else None,
        choice=prospect.choice,
        without=prospect.without,
    )


def flags_of(prospect: Prospect) -> Iterator[str]:
    """Yield the flags of a prospect, each with its value; of one that only leaves options out,
    those, after a word that says so."""
    choice = prospect.choice
    if choice is None:
        return
    options = {**choice.options, **choice.search}
    if choice.cache:
        options[choice.cache] = NEW_FILE
    for key, value in options.items():
        if text := format_flags({key: value}):
            yield text
    if not options:
        yield f"without {', '.join(BY_KEY[key].flag for key in prospect.without)}"


def site_of(profile: Profile) -> Site:
    """Return where the run of a profile took place, as far as the profile says it.

    Older profiles lack its instruction sets: they are this machine's where it seems to be the same
    one, and else none, so that nothing is suggested that needs them.
    """
    facts, machine = profile.facts, profile.facts.machine
    count = machine.get("usable_cores") or facts.cpu.count or facts.threads or 1
    cores = tuple(machine.get("affinity") or range(min(count, MOST_CORES)))
    limit = machine.get("cpu_limit")
    processor = machine.get("instruction_sets", "")
    if not processor and not describe_other_machine(profile):
        processor = read_instruction_sets()
    return Site(
        cores=cores[: max(1, math.ceil(min(limit, MOST_CORES)))] if limit else cores,
        processor=processor or "unknown ",
        device="cpu" if facts.device.startswith("cpu") else facts.device,
        environment={**machine.get("variables", {}), **dict(variables_of(facts.options))},
    )


def variables_of(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    texts = options.get(ENGINE_ENV.key) or ()
    for text in [texts] if isinstance(texts, str) else texts:
        name, _, value = str(text).partition("=")
        yield name, value


def describe_other_machine(profile: Profile) -> str:
    """Return that the machine of a profile is another than this one, and in what; empty if it is
    the same as far as the profile says it."""
    theirs: Machine = profile.facts.machine
    if not theirs.get("processor"):
        return "the profile does not say which machine it was made on"
    here = read_machine()
    found = []
    for name in DISTINGUISHING:
        its, mine = theirs.get(name), getattr(here, name)
        if name in theirs and its != mine and (its or mine):
            found.append(f"its {name.replace('_', ' ')} {describe(its)}, here {describe(mine)}")
    return f"the profile was made on another machine: {'; '.join(found)}" if found else ""


def describe(value: object) -> str:
    return "unlimited" if value is None else str(value)
