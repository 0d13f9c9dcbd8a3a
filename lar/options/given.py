"""Option values as they are given: by key from Python, or in the words of a text."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from lar.errors import UsageError
from lar.options.option import Option, flag_of, is_set
from lar.options.suggestions import suggest_flag
from lar.options.table import ADDED, BY_ALIAS, BY_KEY, FLAGS, option_of, values_of


def split_command(text: str) -> tuple[str, dict[str, Any]]:
    """Return the model and the options of a text such as "model.mge --cpu".

    Raises:
        UsageError: a quote is not closed, or as `parse_words`.
    """
    try:
        model, *words = shlex.split(text) or [""]
    except ValueError as error:
        hint = "quote a model with its options as one word"
        raise UsageError(str(error), hint, subject=text) from None
    return model, parse_words(words)


def parse_words(words: Iterable[str]) -> dict[str, Any]:
    """Return the options that the words of a command line set, by key and as texts.

    Raises:
        UsageError: a word is not a flag, or a flag is unknown or lacks its value.
    """
    values: dict[str, Any] = {}
    left = iter(words)
    for word in left:
        if not word.startswith("--"):
            raise UsageError(f"{word!r} is one argument too many", "flags begin with --")
        name, equals, value = word[2:].partition("=")
        if name.startswith("cuda"):  # its value is optional, and stands behind a colon
            name, _, number = name.partition(":")
            equals, value = "=", value or number or "0"
        option = option_of(name.replace("-", "_"))
        if option is None:
            hint = suggest_flag(flag_of(name), FLAGS) or "`lar run --help all` lists the flags"
            raise UsageError(f"unknown flag {flag_of(name)}", hint)
        if option.parse is None:
            values[option.key] = True
            continue
        value = value if equals else next(left, "")
        if not value:
            raise UsageError("expected one argument", flag=flag_of(name))
        values[option.key] = [*values.get(option.key, []), value] if option.repeatable else value
    return values


def join_options(shared: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return options that come before shared ones; variables and properties come after these."""
    joined = {**shared, **own}
    for key in (option.key for option in ADDED):
        if own.get(key) is not None:
            joined[key] = [*values_of(shared.get(key)), *values_of(own[key])]
    return {key: value for key, value in joined.items() if is_set(value)}


def parse_values(given: Mapping[str, Any], others: Iterable[str] = ()) -> dict[str, Any]:
    """Parse option values that are given by key, as text or as what the text means.

    `others` are the other keywords that a function of Python takes, which may have been meant.

    Raises:
        UsageError: an unknown option, naming the nearest, or a value that it does not take.
    """
    values: dict[str, Any] = {}
    for key, value in given.items():
        option = option_of(key)
        if option is None:
            near = suggest_flag(key.rstrip("_"), (*BY_KEY, *BY_ALIAS, *others))
            problem = f"unknown option {key!r}" + (f"; {near}" if near else "")
            hint = "options are the flags of `lar run --help all`: --warmup-iter N is warmup_iter=N"
            raise UsageError(problem, hint)
        if option.is_for_command_line and is_set(value):
            raise UsageError("is for the command line alone", "leave it out", flag=option.flag)
        if option.key in values:
            raise UsageError(f"{option.key} and {option.alias} are one option", "give one of them")
        values[option.key] = parse_value(option, value)
    return values


def parse_value(option: Option[Any], value: Any) -> Any:
    """Parse one value; None stays the option's default.

    Raises:
        UsageError: the option does not take it.
    """
    if value is None:
        return False if option.parse is None else option.default
    if not option.repeatable:
        return parse_once(option, value)
    if option.by_engine and isinstance(value, str):  # a text may be that of settings
        value = value.split(option.joined_by)
    several = isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))
    return [parse_once(option, each) for each in (value if several else [value])]


def parse_once(option: Option[Any], value: Any) -> Any:
    """Parse one value of an option that takes one, or one of those of a repeatable option."""
    if option.parse is None:
        if not isinstance(value, bool):
            problem = f"is a switch: it takes True or False, not {value!r}"
            raise UsageError(problem, f"give {option.key}=True", flag=option.flag)
        return value
    try:
        parsed = option.parse(text_of(option, value))
    except argparse.ArgumentTypeError as error:
        raise UsageError(str(error), flag=option.flag) from None
    if option.choices and parsed not in option.choices:
        problem = f"{parsed!r} is not one of its values"
        raise UsageError(problem, f"it takes {', '.join(option.choices)}", flag=option.flag)
    return parsed


def text_of(option: Option[Any], value: Any) -> str:
    """Return what would be typed for a value: a text, a number, a path, or several with commas.

    Raises:
        UsageError: it is something else.
    """
    value = value.tolist() if hasattr(value, "tolist") else value  # of NumPy
    if isinstance(value, (tuple, list)):
        return ",".join(text_of(option, each) for each in value)
    if isinstance(value, (str, os.PathLike, int, float)) and not isinstance(value, bool):
        return str(value)
    hint = f"give what would be typed: {option.key}={option.metavar or option.choices[0]!r}"
    raise UsageError(f"takes a text, a number or a path, not {value!r:.80}", hint, flag=option.flag)
