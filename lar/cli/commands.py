"""The commands of lar: a module `lar/cli/NAME.py` each, with `main(arguments)`.

It may have `ARGUMENTS` (`lar.cli.arguments`); `EPILOG`, the last lines of its help; `MISSING`, the
message for a missing argument; and `hint_at(flag, near)`, the hint at a flag that it does not take,
where `near` names the one that may have been meant. `other_ways.json` says what does the same as a
flag that has gone.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Mapping
from types import ModuleType
from typing import Any

COMMANDS: Mapping[str, str] = {
    "run": "run a model and time it; `lar MODEL` is short for `lar run MODEL`",
    "info": "print a model's inputs, outputs, operators, parameters and FLOPs",
    "bench": "compare variants of a run: which is faster, by how much, and how sure that is",
    "tune": "search the fastest settings that keep the numbers right",
    "pack": "write a model with testcases: inputs, and the outputs computed here",
    "compare": "compare two or more dumps or models, and name the operator at fault",
    "report": "print tables or write pages from a profile, in the style of a profiler",
    "advise": "profile a model, and try the settings that the profile suggests",
    "results": "print results of any machines, models and engines side by side",
    "history": "list, plot and check stored results for regressions, add and remove some",
    "cache": "show, compare, merge and edit fast-run cache files",
    "engines": "list the installed engines, their devices, options and known defects",
    "help": "print a topic of the manual, the help of a command, or a man page",
    "completion": "print what makes a shell complete lar's commands and flags",
    "version": "print the version of lar",
}


def other_way(command: str, word: str) -> str:
    """Return lar's other way for a flag that has gone; or, for `commands`, for a word that people
    type for something that lar does in another way. Empty for any other word."""
    hint: str = read_table("other_ways").get(command, {}).get(word, "")
    return hint


@functools.cache
def read_table(name: str) -> Mapping[str, Any]:
    """Return what a JSON file beside this module holds."""
    import json  # `lar --help` does without

    with open(os.path.join(os.path.dirname(__file__), f"{name}.json")) as file:
        return dict(json.load(file))


def load_command(name: str) -> ModuleType:
    """Import the module of a command; none is imported before its command is typed."""
    return importlib.import_module(f"lar.cli.{name}")
