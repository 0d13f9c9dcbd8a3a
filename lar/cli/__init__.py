"""The command line: the list of commands, and the overview that `lar help` prints.

Each command is a module `lar/cli/NAME.py` with a function `main(arguments)`. A command's module may
also define `ARGUMENTS`, `EPILOG`, `MISSING` and `hint_at`. `ARGUMENTS` has the command's arguments
(see `lar.cli.arguments`). `EPILOG` has the last lines of the command's help. `MISSING` is the
message for a missing argument. The function `hint_at(known, near)` returns the hint for an unknown
flag, where `known` is the option of `lar run` with this flag, and `near` is a hint that names a
similar flag.

The file `other_ways.txt` says what to use instead of flags that lar no longer has.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import ModuleType

from lar import __version__
from lar.cli.screen import format_entries, help_width

COMMANDS: Mapping[str, str] = {
    "run": "run a model and time it; `lar MODEL` is short for `lar run MODEL`",
    "info": "print a model's inputs, outputs, operators, parameters and FLOPs",
    "bench": "compare variants of a run: which is faster, by how much, and how sure that is",
    "tune": "search for the fastest settings that keep the numbers right",
    "pack": "write a model with testcases: inputs, and the outputs computed here",
    "compare": "compare two or more dumps or models, and name the operator at fault",
    "report": "print tables or write pages from a profile, in the style of a profiler",
    "advise": "profile a model, and try the settings that the profile suggests",
    "results": "print results of any machines, models and engines side by side",
    "history": "list, plot, add and remove stored results, and check them for regressions",
    "cache": "show, compare, merge and edit fast-run cache files",
    "engines": "list the installed engines, their devices, options and known defects",
    "help": "print a topic of the manual, the help of a command, or a man page",
    "completion": "print a script that lets a shell complete lar's commands and flags",
    "version": "print the version of lar",
}

DOCS = os.path.join(os.path.dirname(os.path.dirname(__file__)), "docs")

# The pages of the manual, in the order in which `lar help` lists them.
PAGES = (
    *("running", "inputs", "models", "support", "measuring", "statistics"),
    *("comparing", "dumps", "testcases", "profiles", "reports"),
    *("fastest-settings", "tuning", "variants", "side-by-side", "stored-results"),
    *("farm", "python", "formats", "exit-codes", "trust", "benchmarks"),
)

# The help of the argument MODEL, for commands that take one model.
MODEL = "a model file (.mge, .onnx, ...), or a file or folder of testcases"

PURPOSE = "how fast a model runs, whether its numbers are right, which settings make it fastest"


def other_way(command: str, word: str) -> str:
    """Return what to use instead of a removed flag of a command; empty for any other flag.

    If `command` is "commands", `word` is not a flag, but a word that people type in place of a
    command, such as `benchmark`.
    """
    with open(os.path.join(os.path.dirname(__file__), "other_ways.txt")) as file:
        rows = (line.rstrip("\n").partition(": ") for line in file)
        return next((hint for names, _, hint in rows if names == f"{command} {word}"), "")


def load_command(name: str) -> ModuleType:
    """Import and return the module of one command, without the modules of other commands."""
    import importlib  # `lar --help` does not need it

    return importlib.import_module(f"lar.cli.{name}")


def overview() -> str:
    """Return the list of commands and topics, as wide as the terminal."""
    from lar.reports.help_text import wrap_words  # only the help needs it

    return "\n".join(
        [
            *wrap_words(f"lar {__version__}: {PURPOSE}.", help_width()),
            "\nusage: lar MODEL [flags]\n       lar COMMAND ...\n\ncommands:",
            *format_entries(COMMANDS),
            "\ntopics of the manual:",
            *format_entries(topics()),
            "",
            *wrap_words(
                "`lar help TOPIC` prints a topic, `lar help COMMAND` and `lar COMMAND --help` the "
                "flags of a command; `lar --version` prints the version.",
                help_width(),
            ),
        ]
    )


def topics() -> dict[str, str]:
    """Return the topics of the manual, each with its description.

    The first line of a topic's page has the form `# NAME: description`.
    """
    found = {}
    for name in PAGES:
        with open(os.path.join(DOCS, f"{name}.md"), encoding="utf-8") as file:
            found[name] = file.readline().partition(": ")[2].strip()
    return found
