"""The commands: one module each, with `add_arguments(parser)` and `main(arguments)`."""

from __future__ import annotations

from collections.abc import Mapping

# Name, module and help; a module is imported when its command is typed.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "run": ("lar.cli.run", "run a model and time it; `lar MODEL` is the same"),
    "info": ("lar.cli.info", "what a model holds: inputs, operators, parameters, FLOPs"),
    "pack": ("lar.cli.pack", "pack inputs and the outputs computed here with a model"),
    "compare": ("lar.cli.compare", "two dumps or models: what differs, and which operator"),
    "report": ("lar.cli.report", "tables and pages of a profile, in the style of a profiler"),
    "cache": ("lar.cli.cache", "show, compare, merge and edit fast-run cache files"),
    "engines": ("lar.cli.engines", "installed engines, their devices and options"),
}
