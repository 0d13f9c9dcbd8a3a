"""`lar engines`: what is installed, on which devices it runs, and which options it honours."""

from __future__ import annotations

import argparse
import importlib.util
import os

from lar.engines import ENGINES, rows_of, support_of_options
from lar.engines.table import EngineEntry
from lar.errors import LarError
from lar.options.table import flag_of
from lar.reports.tables import format_markdown, format_table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--options", action="store_true", help="print the table of options alone, as Markdown"
    )
    parser.add_argument(
        "--quirks", action="store_true", help="print the engines' known defects, and ways round"
    )
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")


def main(arguments: argparse.Namespace) -> int:
    """Print both tables; return the exit code."""
    entries = [entry for entry in ENGINES.values() if entry.distribution]
    if arguments.quirks:
        from lar.engines.megengine.quirks import format_quirks

        print("\n".join(format_quirks(os.environ)))
        return 0
    if arguments.options:
        print("\n".join(format_markdown(*table_of_options(entries))))
        return 0
    print("\n".join(format_engines(entries)))
    print()
    print("\n".join(format_table(*table_of_options(entries))))
    print("\nFlags that are not in this table are lar's own: they work on every engine.")
    return 0


def format_engines(entries: list[EngineEntry]) -> list[str]:
    """Return the table of engines."""
    from lar.measurement.machine import installed_version  # slow to import, as what it asks is

    rows = []
    for entry in entries:
        installed = importlib.util.find_spec(entry.distribution) is not None
        version = installed_version(entry.distribution) or ("unknown" if installed else "")
        rows.append(
            [
                entry.name,
                version if installed else "not installed",
                describe_devices(entry) if installed else entry.install_hint,
                ", ".join(driver.name for driver in entry.drivers),
                " ".join(entry.suffixes),
            ]
        )
    return format_table(["engine", "version", "devices", "drivers", "models"], rows)


def describe_devices(entry: EngineEntry) -> str:
    """Return the devices of an engine, or why there are none."""
    from lar.running.api import (
        find_devices,  # slow to import: an error in the command line needs it not
    )

    try:
        return ", ".join(find_devices(entry.name))
    except LarError as error:
        return error.message


def table_of_options(entries: list[EngineEntry]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the options that engines honour, with the drivers that do."""
    tables = [rows_of(entry) for entry in entries]
    rows = [
        [
            flag_of(key),
            *(
                f"{table[key].how} ({', '.join(table[key].drivers)})" if key in table else "no"
                for table in tables
            ),
        ]
        for key in support_of_options()
    ]
    return ["option", *(entry.name for entry in entries)], rows
