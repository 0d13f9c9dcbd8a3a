"""The file of `--space FILE`: what to try, by dimensions.

    {"layout": ["nchw44", "--enable-nchw88 --engine-fix x2apic"],
     "threads": "full",
     "algorithms": ["fast-run"]}

A choice is a name that `lar tune --list-space` prints, or flags. `quick` and `full` stand for what
the engine itself has in that dimension.
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from lar.engines import all_engines
from lar.errors import LarError, UsageError, nearest
from lar.files.input_file import read_input
from lar.options.given import parse_values, parse_words
from lar.options.option import flag_of
from lar.options.table import DRIVER, ENGINE_ENV, ENGINE_FIX, check_typed, option_of
from lar.options.variants import known_option
from lar.records.choices import Allowed, Choice, Dimension, OptionValue

FLAG = "--space"
MOST_BYTES = 1 << 20
EXTENTS = ("quick", "full")
FORMAT = '{"layout": ["nchw44"], "threads": ["--multithread 2"], "algorithms": "full"}'
PERMITS: Mapping[str, Allowed] = {ENGINE_FIX.key: "engine-fixes", ENGINE_ENV.key: "engine-env"}

Listed = Mapping[str, str | Sequence[str]]
"""For each dimension of a file: `quick`, `full`, or a list of choices."""


def read_space_file(path: str) -> Listed:
    """Read a file, without a look at the choices.

    Raises:
        UsageError: it cannot be read, or is not such a file.
    """
    if not os.path.exists(path):
        raise UsageError("no such file", "give quick, full or a file", flag=FLAG, subject=path)
    data = read_input(path, FLAG, what="file of a space", limit=MOST_BYTES)
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise wrong(path, f"is not JSON: {error}") from None
    if not isinstance(content, dict) or not content:
        raise wrong(path, "is not a JSON object of dimensions")
    for name, given in content.items():
        if given not in EXTENTS and not (
            isinstance(given, list) and given and all(isinstance(each, str) for each in given)
        ):
            raise wrong(path, f"{name!r} is neither quick nor full nor a list of texts")
    return content


def wrong(path: str, problem: str, hint: str = "") -> UsageError:
    return UsageError(problem, hint or f"as in {FORMAT}", flag=FLAG, subject=path)


def choose_listed(
    path: str, listed: Listed, declared: Sequence[Dimension], others: Sequence[Dimension]
) -> tuple[Dimension, ...]:
    """Return the dimensions that a file lists: an engine's choices, and flags.

    `others` are the dimensions that other engines declare here; choices of these are ignored.

    Raises:
        UsageError: a text is neither a choice nor flags, or two are the same.
    """
    found = []
    for name, given in listed.items():
        if isinstance(given, str):
            own = [each for each in declared if each.name == name]
            if not own and name not in [each.name for each in others]:
                raise wrong(
                    path,
                    f"no engine has a dimension {name!r}, of which {given} is to be tried",
                    f"there are {', '.join(each.name for each in (*declared, *others))}",
                )
            choices = [
                choice
                for dimension in own
                for choice in dimension.choices
                if given == "full" or not choice.for_full
            ]
        else:
            texts = (find_choice(path, name, text, declared, others) for text in given)
            choices = [choice for choice in texts if choice is not None]
        asked = (replace(choice, for_full=False, objectives=()) for choice in choices)
        found.append(Dimension(name=name, choices=tuple(asked)))
    names = [choice.name for dimension in found for choice in dimension.choices]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise wrong(path, f"has the choice {twice!r} twice", "leave one of them out")
    return tuple(connect_caches(found, declared))


def find_choice(
    path: str,
    dimension: str,
    text: str,
    declared: Sequence[Dimension],
    others: Sequence[Dimension],
) -> Choice | None:
    """Return the choice that a text stands for, None for a choice of another engine.

    Raises:
        UsageError: it is neither a choice's name nor flags that can be tried.
    """
    own = {choice.name: choice for each in declared for choice in each.choices}
    if not text.startswith("-"):
        known = {*own, *(choice.name for each in others for choice in each.choices)}
        if text not in known:
            near = nearest(text, sorted(known))
            raise wrong(
                path,
                f"{dimension}: there is no choice {text!r} here",
                f"did you mean {near}?" if near else "`lar tune MODEL --list-space` prints them",
            )
        return own.get(text)
    try:
        options = options_in(text)
    except LarError as error:
        raise wrong(path, f"{dimension}: {text}: {error.message}", error.hint) from None
    for choice in own.values():
        if choice.cache and choice.search.items() <= options.items():
            rest = {key: each for key, each in options.items() if key not in choice.search}
            return replace(choice, name=choice.name if not rest else name_of(text), options=rest)
        if choice.options == options:
            return choice
    allow: Allowed | Literal[""] = next((PERMITS[key] for key in options if key in PERMITS), "")
    return Choice(name=name_of(text), options=options, allow=allow)


def name_of(text: str) -> str:
    """Return the name of a choice that is given as flags."""
    return " ".join(word.removeprefix("--") for word in text.split())


def options_in(text: str) -> dict[str, OptionValue]:
    """Return the options that flags set.

    Raises:
        UsageError: an option does not say how an engine runs a model.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(str(error), "quote a value as in a shell") from None
    options = parse_words(words)
    own = {each for engine in all_engines() for each in engine.own_variables}
    check_typed(options, {}, own)
    for key in options:
        try:
            option = known_option(key, flag_of(key))
        except UsageError as error:
            if option_of(key) is None:
                raise
            raise UsageError(
                error.problem, "a choice has flags of the engine alone", flag=error.flag
            ) from None
        if option.purpose not in ("setting", "cache") and option not in (ENGINE_ENV, DRIVER):
            raise UsageError(
                "does not say how the engine computes",
                f"give it to all candidates: lar tune MODEL {option.flag} ...",
                flag=option.flag,
            )
    return {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in parse_values(options).items()
    }


def connect_caches(
    found: Sequence[Dimension], declared: Sequence[Dimension]
) -> Iterator[Dimension]:
    """Yield dimensions whose caches depend on all others, except on those known not to matter.

    The names are no help: a dimension of the file may have another name than the engine's, or hold
    choices of several dimensions.
    """
    homes = {choice.name: each.name for each in declared for choice in each.choices}
    for dimension in found:
        choices = []
        for choice in dimension.choices:
            if choice.cache:
                depends = tuple(
                    other.name
                    for other in found
                    if other is not dimension
                    and any(
                        homes.get(each.name, "") in ("", *choice.cache_depends)
                        for each in other.choices
                    )
                )
                choice = replace(choice, cache_depends=depends)
            choices.append(choice)
        yield replace(dimension, choices=tuple(choices))
