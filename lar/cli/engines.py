"""`lar engines`: the engines, with their devices, their options and their known defects."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence

from lar.cli.arguments import declared
from lar.cli.screen import say, screen_of_output
from lar.engines import added_engines, all_engines, support_of_options
from lar.engines.engine import Engine
from lar.errors import LarError
from lar.options.option import flag_of
from lar.reports.model import MARKDOWN, WRAPPED
from lar.reports.text import PAPER, Screen, format_rows

ARGUMENTS = (declared("engines"),)


def main(arguments: argparse.Namespace) -> int:
    """Print the engines and their options, or only one requested table; return the exit code."""
    engines, screen = [*all_engines()], screen_of_output()
    if arguments.quirks:
        lines = format_quirks(engines, screen)
    elif arguments.options:
        lines = format_rows(*table_of_options(engines), MARKDOWN)
    else:
        header = ["engine", "version", "devices", "drivers", "models"]
        lines = format_rows(header, [*map(row_of, engines)], screen=screen)
        note = "Flags that are not in this table are lar's own: they work on every engine."
        lines += ["", *format_rows(*table_of_options(engines), WRAPPED, screen)]
        lines += ["", *screen.wrap(note)]
        for reason in added_engines()[1].values():
            say(f"lar: warning: {reason}")
    print("\n".join(lines))
    return 0


def row_of(engine: Engine) -> list[str]:
    """Return the row of an engine: name, version, devices, drivers and model formats."""
    installed = engine.is_installed
    return [
        engine.name,
        (engine.version or "unknown") if installed else "not installed",
        describe_devices(engine) if installed else engine.install_hint,
        ", ".join(driver.name for driver in engine.drivers),
        " ".join(engine.suffixes),
    ]


def format_quirks(engines: Iterable[Engine], screen: Screen = PAPER) -> list[str]:
    """Return the table of the engines' known defects.

    The row of a defect has the defect's name, whether it is present on this machine, and its
    effect. Below the effect, one line says how the defect is detected, and one line how to get
    round the defect.
    """
    rows = []
    for engine, each in ((it, defect) for it in engines for defect in it.defects(os.environ)):
        here = ("no", "yes")[each.is_here] if engine.is_installed else "not installed"
        rows.append([each.name, here, each.effect])
        rows += [["", "", text] for text in (each.detection, f"-> {each.way_round}")]
    header = ["quirk", "here", "effect, how it is detected, and the way round"]
    return format_rows(header, rows, WRAPPED, screen)


def describe_devices(engine: Engine) -> str:
    """Return the names of the devices of an engine, or the reason why lar cannot detect them."""
    # Slow to import: an error in the command line does not need it.
    from lar.running.isolation import find_devices

    try:
        return ", ".join(find_devices(engine.name))
    except LarError as error:
        return error.message


def table_of_options(engines: Sequence[Engine]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of the table of options.

    The row of an option says, for each engine, how the engine honours the option, and with which
    drivers.
    """
    rows = [
        [flag_of(key), *(describe_support(engine, key) for engine in engines)]
        for key in support_of_options()
    ]
    return ["option", *(engine.name for engine in engines)], rows


def describe_support(engine: Engine, key: str) -> str:
    """Return how an engine honours an option, and with which drivers."""
    row = engine.rows.get(key)
    return f"{row.how} ({', '.join(row.drivers)})" if row else "no"
