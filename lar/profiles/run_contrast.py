"""The differences in how two runs were made: model, options, versions, machine."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from lar.options.command_line import text_of
from lar.options.option import flag_of, is_set
from lar.options.table import BY_KEY, DRIVER, ENGINE, ITER, STALL_TIMEOUT, TIMEOUT, WARMUP_ITER
from lar.records.profile import Profile

# Facts that change between runs of one command on one machine.
CHANGING = frozenset({"load"})
# Amounts that may differ between runs of one command.
AMOUNTS = frozenset({"iterations", "warm-up iterations", "lar"})
NOTHING = "-"
MOST_WORDS = 12

# Options that other facts show for each run, or that change nothing in it.
LEFT_OUT = frozenset(
    each.key for each in (ITER, WARMUP_ITER, ENGINE, DRIVER, TIMEOUT, STALL_TIMEOUT)
)


class Contrast(NamedTuple):
    """A fact with different values in two runs, as texts."""

    what: str
    a: str
    b: str


def contrasts_of(a: Profile, b: Profile) -> list[Contrast]:
    """Return what differs, in the order: model, engine, options, amounts, machine.

    A fact that one run did not record is no difference: an earlier lar recorded less of the
    machine.
    """
    recorded = a.facts.machine.keys() & b.facts.machine.keys()
    first, second = (facts_of(profile, recorded - CHANGING) for profile in (a, b))
    return [
        Contrast(name, *without_common_words(first.get(name, NOTHING), second.get(name, NOTHING)))
        for name in {**first, **second}
        if first.get(name) != second.get(name)
    ]


def without_common_words(one: str, other: str) -> tuple[str, str]:
    """Return two texts; long lists of words, as instruction sets, without their common words."""
    words = one.split(), other.split()
    if min(map(len, words)) <= MOST_WORDS:
        return one, other
    common = {*words[0]} & {*words[1]}
    first, second = (" ".join(it for it in each if it not in common) or NOTHING for each in words)
    return first, second


def are_of_one_command(a: Profile, b: Profile) -> bool:
    """Return whether two runs were made alike, apart from their amounts of iterations."""
    return all(each.what in AMOUNTS for each in contrasts_of(a, b))


def facts_of(profile: Profile, recorded: Collection[str]) -> dict[str, str]:
    """Return the known facts of a run that may differ in another run.

    Facts of the machine are among them if both runs have `recorded` them.
    """
    facts = profile.facts
    options = {
        flag_of(key): "given" if value is True else value
        for key, value in facts.options.items()
        if is_set(value) and is_about_computing(key)
    }
    machine = {name: value for name, value in facts.machine.items() if name in recorded}
    variables = facts.machine.get("variables", {}) if machine.pop("variables", None) else {}
    found: dict[str, object] = {
        "model": facts.model.path,
        "content of the model": facts.model.sha256[:12],
        "engine": facts.engine,
        "version of the engine": facts.engine_version,
        "driver": facts.driver,
        "device": facts.device,
        "lar": facts.lar_version,
        **options,
        "batch": facts.batch,
        "threads": facts.threads,
        "iterations": facts.iterations,
        "warm-up iterations": facts.warmup_iterations,
        **{f"machine: {name.replace('_', ' ')}": value for name, value in machine.items()},
        **{f"${name}": text for name, text in variables.items()},
    }
    return {name: text_of(it) for name, it in found.items() if it not in (None, "", ())}


def is_about_computing(key: str) -> bool:
    """Return whether an option may change what is computed, not only what is reported."""
    option = BY_KEY.get(key)
    if option is None:
        return True
    is_output = bool(option.writes) or option.purpose in ("profile", "report")
    return not is_output and key not in LEFT_OUT
