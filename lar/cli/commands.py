"""The commands of lar: a module `lar/cli/NAME.py` each, with `main(arguments)`.

It may have `ARGUMENTS` (`lar.cli.arguments`), or `ACTIONS`: the arguments of each of its actions,
with a line about it; `EPILOG`, the last lines of its help; `MISSING`, what is said where an
argument is missing; `GONE`, what does the same as a flag that has gone; and `hint_at(flag, near)`,
the hint at another flag that it does not take, where `near` names the one that may have been meant.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import ModuleType

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

# What people type for what lar does in another way.
OTHER_WAYS: Mapping[str, str] = {
    "benchmark": "`lar run MODEL` times a model, `lar bench` compares variants",
    "vary": "`lar bench MODEL --vary FLAG=a,b` compares the values of a flag",
    "profile": "`lar run MODEL --profile FILE` writes a profile, `lar report FILE` prints it",
    "dump": "`lar run MODEL --bin-io-dump DIR` writes what each operator computes",
    "diff": "`lar compare A B` compares two dumps or models",
    "inspect": "`lar info MODEL` prints what a model holds",
    "check": "`lar history check --baseline TAG` compares new runs with stored ones",
    "save": "`lar run MODEL --save` keeps the result for `lar history`",
    "list": "`lar engines` lists the installed engines",
    "convert": "`lar run MODEL --model-dump FILE` writes the model as the options have made it",
}


def load_command(name: str) -> ModuleType:
    """Import the module of a command; none is imported before its command is typed."""
    return importlib.import_module(f"lar.cli.{name}")
