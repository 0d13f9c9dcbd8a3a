"""What two runs were made with that differs: model, options, versions, machine."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import NamedTuple

from lar.options.command_line import text_of
from lar.options.option import flag_of, is_set
from lar.options.table import (
    BY_KEY,
    DRIVER,
    ENGINE,
    ITER,
    STALL_TIMEOUT,
    TIMEOUT,
    WARMUP_ITER,
)
from lar.records.profile import Profile

# What changes between runs of one command on one machine.
CHANGING = frozenset({"load"})
# What may differ between runs of one command: how much of it there is.
AMOUNTS = frozenset({"iterations", "warm-up iterations", "lar"})
NOTHING = "-"
MOST_WORDS = 12

# These are known of each run, or change nothing of it.
LEFT_OUT = frozenset(
    each.key for each in (ITER, WARMUP_ITER, ENGINE, DRIVER, TIMEOUT, STALL_TIMEOUT)
)


class Contrast(NamedTuple):
    """A fact of which two runs have different values, as texts."""

    what: str
    a: str
    b: str


def contrasts_of(a: Profile, b: Profile) -> list[Contrast]:
    """Return what differs, in the order: model, engine, options, amounts, machine. What one of them
    did not record, as an earlier lar some facts of the machine, is no difference."""
    recorded = a.facts.machine.keys() & b.facts.machine.keys()
    sides = [dict(facts_of(profile, recorded)) for profile in (a, b)]
    found = (
        (name, *(side.get(name, NOTHING) for side in sides)) for name in {**sides[0], **sides[1]}
    )
    return [
        Contrast(name, *without_common_words(one, other))
        for name, one, other in found
        if one != other
    ]


def without_common_words(one: str, other: str) -> tuple[str, str]:
    """Return two texts; of long lists of words, as instruction sets, those of one alone."""
    words = one.split(), other.split()
    if min(map(len, words)) <= MOST_WORDS:
        return one, other
    common = {*words[0]} & {*words[1]}
    first, second = (" ".join(it for it in each if it not in common) or NOTHING for each in words)
    return first, second


def are_of_one_command(a: Profile, b: Profile) -> bool:
    """Return whether two runs were made alike, but for how many iterations they have."""
    return all(each.what in AMOUNTS for each in contrasts_of(a, b))


def facts_of(profile: Profile, recorded: Collection[str]) -> Iterator[tuple[str, str]]:
    """Yield the known facts of a run that another run may not share; of the machine those that
    both have `recorded`."""
    facts = profile.facts
    yield from known("model", facts.model.path)
    yield from known("content of the model", facts.model.sha256[:12])
    yield from known("engine", facts.engine)
    yield from known("version of the engine", facts.engine_version)
    yield from known("driver", facts.driver)
    yield from known("device", facts.device)
    yield from known("lar", facts.lar_version)
    for key, value in facts.options.items():
        if is_set(value) and is_about_computing(key):
            yield flag_of(key), "given" if value is True else text_of(value)
    yield from known("batch", facts.batch)
    yield from known("threads", facts.threads)
    yield from known("iterations", facts.iterations)
    yield from known("warm-up iterations", facts.warmup_iterations)
    for name, value in facts.machine.items():
        if name not in recorded or name in CHANGING:
            continue
        if name == "variables" and isinstance(value, dict):
            yield from ((f"${variable}", str(text)) for variable, text in value.items())
        else:
            yield from known(f"machine: {name.replace('_', ' ')}", value)


def known(name: str, value: object) -> Iterator[tuple[str, str]]:
    if value not in (None, "", ()):
        yield name, text_of(value)


def is_about_computing(key: str) -> bool:
    """Return whether an option may change what is computed, and not only what is written of it."""
    option = BY_KEY.get(key)
    if option is None:
        return True
    is_output = bool(option.writes) or option.purpose in ("profile", "report")
    return not is_output and key not in LEFT_OUT
