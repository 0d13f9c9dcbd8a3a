"""The command line for option values, and the values in a command line."""

from __future__ import annotations

import argparse
import contextlib
import shlex
from collections.abc import Iterator, Mapping

from lar.options.option import Option, is_set
from lar.options.table import BY_KEY, CUDA, INPUT, OPTIONS


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
    """Return what the user would type for each value of an option, as a list."""
    if not option.repeatable:
        return [text_of(value)]
    values = value.split(option.joined_by) if isinstance(value, str) else value
    return [*map(text_of, values if isinstance(values, (list, tuple)) else [values])]


def text_of(value: object) -> str:
    """Return what the user would type for a value; several have commas between them."""
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def read_command(command: str) -> tuple[str, tuple[str, ...], dict[str, bool | int | float | str]]:
    """Return the model, its inputs and the settings in a command line of `load_and_run`.

    The text begins behind the program's name. lar has many of its flags too.
    """
    try:
        words = shlex.split(command, comments=True)
    except ValueError:  # a quotation mark without its partner
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
    """Return the value of an option as lar has it, as text if lar does not have the option."""
    if option is CUDA and not text:
        return 0  # the first device
    with contextlib.suppress(argparse.ArgumentTypeError):
        value = option.parse(text) if option and option.parse else text
        if isinstance(value, (bool, int, float, str)):
            return value or True
    return text or True
