"""The rows that say how an engine honours options, and with which of its drivers."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

Hook = Callable[[Any, Any], None]


def calling(path: str) -> Hook:
    """Return a hook that calls `module:function`, imported when it is needed: the table is read
    for every command line, and those modules are slow to import."""
    module, _, name = path.partition(":")

    def call(driver: Any, value: Any) -> None:
        getattr(importlib.import_module(module), name)(driver, value)

    return call


class OptionRow(NamedTuple):
    """How an engine honours one option, and which of its drivers can.

    A hook takes the driver and the option's value. Hooks fire in the order of the table.
    """

    key: str
    drivers: tuple[str, ...]
    how: str
    before_load: Hook | None = None
    after_load: Hook | None = None
    before_run: Hook | None = None
    after_run: Hook | None = None
