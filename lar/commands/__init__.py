"""The commands: one module each, with `add_arguments(parser)` and `main(arguments)`."""

from __future__ import annotations

from collections.abc import Mapping

# Name, module and help; a module is imported when its command is typed.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "run": ("lar.commands.run", "run a model and time it; `lar MODEL` is the same"),
    "info": ("lar.commands.info", "what a model holds: inputs, operators, parameters, FLOPs"),
    "pack": ("lar.commands.pack", "pack inputs and the outputs computed here with a model"),
    "compare": ("lar.commands.compare", "two dumps or models: what differs, and which operator"),
    "report": ("lar.commands.report", "tables and pages of a profile, in the style of a profiler"),
    "cache": ("lar.commands.cache", "show, compare, merge and edit fast-run cache files"),
    "engines": ("lar.commands.engines", "installed engines, their devices and options"),
}
