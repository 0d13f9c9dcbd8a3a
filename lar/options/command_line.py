"""Conversion between option values and command lines.

A caller in Python gives option values by key. A command line gives option values as flags and
texts.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from lar.errors import UsageError
from lar.options.option import Option, flag_of, is_set
from lar.options.suggestions import SWITCH, hint_after, suggest_flag
from lar.options.table import (
    ADDED,
    BY_ALIAS,
    BY_KEY,
    CUDA,
    FLAGS,
    INPUT,
    KEYWORDS,
    OPTIONS,
    option_of,
    values_of,
)


def split_command(text: str) -> tuple[str, dict[str, Any]]:
    """Return the model and the options of a text such as "model.mge --cpu".

    Raises:
        UsageError: a quote is not closed, or `parse_words` refuses a word.
    """
    try:
        model, *words = shlex.split(text) or [""]
    except ValueError as error:
        hint = "quote a model with its options as one word"
        raise UsageError(str(error), hint, subject=text) from None
    return model, parse_words(words)


def parse_words(words: Iterable[str]) -> dict[str, Any]:
    """Return the options that command-line arguments set, as texts by key.

    Raises:
        UsageError: a word is not a flag, or a flag is unknown or lacks its value.
    """
    values: dict[str, Any] = {}
    left = iter(words := [*words])
    for word in left:
        if not word.startswith("--"):
            raise UsageError(f"{word!r} is one argument too many", hint_after(words, word))
        name, equals, value = word[2:].partition("=")
        if name.startswith("cuda"):  # the value of --cuda is optional and follows a colon
            name, _, number = name.partition(":")
            equals, value = "=", value or number or "0"
        option = option_of(name.replace("-", "_"))
        if option is None:
            hint = suggest_flag(flag_of(name), FLAGS) or "`lar run --help all` lists the flags"
            raise UsageError(f"unknown flag {flag_of(name)}", hint)
        if option.parse is None:
            if equals:
                raise UsageError(SWITCH, "leave its value out", flag=option.flag)
            values[option.key] = True
            continue
        value = value if equals else next(left, "")
        if not value:
            raise UsageError("expected one argument", flag=flag_of(name))
        values[option.key] = [*values.get(option.key, []), value] if option.repeatable else value
    return values


def join_options(shared: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of one run: its own options replace the options that all runs share.

    The run's own environment variables and engine properties do not replace the shared values, but
    are added to the shared values.
    """
    joined = {**shared, **own}
    for key in (option.key for option in ADDED):
        if own.get(key) is not None:
            joined[key] = [*values_of(shared.get(key)), *values_of(own[key])]
    return {key: value for key, value in joined.items() if is_set(value)}


def parse_values(given: Mapping[str, Any], others: Iterable[str] = ()) -> dict[str, Any]:
    """Parse the values of options by key; a value is a text or a Python value such as a number.

    `others` are the keyword arguments of the Python function that are not options of a run. `given`
    may have values for those of `others` that are in `KEYWORDS`. The message for an unknown option
    may suggest one of `others`.

    Raises:
        UsageError: an option is unknown, or does not accept its value.
    """
    values: dict[str, Any] = {}
    for key, value in given.items():
        option = option_of(key) or (KEYWORDS.get(key) if key in others else None)
        if option is None:
            near = suggest_flag(key.rstrip("_"), (*BY_KEY, *BY_ALIAS, *others))
            hint = "options are the flags of `lar run --help all`: --warmup-iter N is warmup_iter=N"
            raise UsageError(f"unknown option {key!r}" + (f"; {near}" if near else ""), hint)
        if option.is_for_command_line and is_set(value):
            raise UsageError("works only on the command line", "leave it out", flag=option.flag)
        if option.key in values:
            raise UsageError(f"{option.key} and {option.alias} set the same option", "give one")
        values[option.key] = parse_value(option, value)
    return values


def parse_value(option: Option[Any], value: Any) -> Any:
    """Parse the value of an option; the value None stands for the option's default.

    Raises:
        UsageError: the option does not accept the value.
    """
    if value is None:
        return False if option.parse is None else option.default
    if not option.repeatable:
        return parse_once(option, value)
    if option.by_engine and isinstance(value, str):  # settings join the values into one text
        value = value.split(option.joined_by)
    several = isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))
    return [parse_once(option, each) for each in (value if several else [value])]


def parse_once(option: Option[Any], value: Any) -> Any:
    """Parse one value of an option; a repeatable option may have several values."""
    if option.parse is None:
        if not isinstance(value, bool):
            problem = f"is a switch: it takes True or False, not {value!r}"
            raise UsageError(problem, f"give {option.key}=True", flag=option.flag)
        return value
    try:
        parsed = option.parse(typed_text(option, value))
    except argparse.ArgumentTypeError as error:
        if option.key in KEYWORDS:
            hint = f"for example {option.key}={option.default}" if option.default else ""
            raise UsageError(str(error), hint, flag=option.key) from None
        hint = f"`lar run --help {option.flag[2:]}` says what it takes"
        raise UsageError(str(error), hint, flag=option.flag) from None
    if option.choices and parsed not in option.choices:
        problem = f"{parsed!r} is not one of its values"
        raise UsageError(problem, f"it takes {', '.join(option.choices)}", flag=option.flag)
    return parsed


def typed_text(option: Option[Any], value: Any) -> str:
    """Return the text that a user would type for a Python value.

    The value is a text, a number, a path or a list of these. Commas join a list.

    Raises:
        UsageError: the value has another type.
    """
    value = value.tolist() if hasattr(value, "tolist") else value  # of a NumPy array or number
    if isinstance(value, (tuple, list)):
        return ",".join(typed_text(option, each) for each in value)
    if isinstance(value, (str, os.PathLike, int, float)) and not isinstance(value, bool):
        return str(value)
    hint = f"give what would be typed: {option.key}={option.metavar or option.choices[0]!r}"
    raise UsageError(f"takes a text, a number or a path, not {value!r:.80}", hint, flag=option.flag)


# From option values to a command line


def format_command(model: str, options: Mapping[str, object]) -> str:
    """Return the command line that runs a model with these options, quoted for a shell."""
    return shlex.join(["lar", model, *words_of(options)])


def format_flags(options: Mapping[str, object]) -> str:
    """Return the flags for these options, quoted for a shell."""
    return shlex.join(words_of(options))


def words_of(options: Mapping[str, object]) -> Iterator[str]:
    """Yield the flags of options and their values, in the order of the table of options."""
    for option in OPTIONS:
        value = options.get(option.key)
        if not is_set(value):
            continue
        if option.parse is None:
            yield option.flag
            continue
        for text in texts_of(option, value):
            if option is CUDA:
                yield f"{option.flag}:{text}"
            elif text.startswith("-"):  # the parser would take the value for a flag
                yield f"{option.flag}={text}"
            else:
                yield from (option.flag, text)


def texts_of(option: Option[object], value: object) -> list[str]:
    """Return the texts that a user would type for the values of an option."""
    if not option.repeatable:
        return [text_of(value)]
    values = value.split(option.joined_by) if isinstance(value, str) else value
    return [*map(text_of, values if isinstance(values, (list, tuple)) else [values])]


def text_of(value: object) -> str:
    """Return the text that a user would type for a value; a list is joined by commas."""
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def read_command(command: str) -> tuple[str, tuple[str, ...], dict[str, bool | int | float | str]]:
    """Return the model, its inputs and the settings in a command line of `load_and_run`.

    `command` is the command line without the program's name. Many flags of `load_and_run` are flags
    of lar too, and lar's own parsers parse the values of these flags.
    """
    try:
        words = shlex.split(command, comments=True)
    except ValueError:  # a quotation mark is not closed
        words = command.split()
    model, *rest = words or [""]
    inputs, settings = list[str](), dict[str, bool | int | float | str]()
    while rest:
        flag, equals, value = rest.pop(0).partition("=")
        if not flag.startswith("--"):
            continue
        key = flag[2:].replace("-", "_")
        option = BY_KEY.get(key)
        takes_value = option is None or option.parse is not None
        if takes_value and not equals and rest and not rest[0].startswith("--"):
            value = rest.pop(0)
        if key == INPUT.key:
            inputs.append(value)
        elif option is None or option.by_engine:
            settings[key] = value_in(value, option)
    return model, tuple(inputs), settings


def value_in(text: str, option: Option[object] | None) -> bool | int | float | str:
    """Return the parsed value of an option, or the text itself if lar cannot parse it."""
    if option is CUDA and not text:
        return 0  # the first device
    with contextlib.suppress(argparse.ArgumentTypeError):
        value = option.parse(text) if option and option.parse else text
        if isinstance(value, (bool, int, float, str)):
            return value or True
    return text or True
