"""Rows of an engine's option table: each says how the engine honours an option."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from lar.options.option import Option
from lar.options.table import BIN_IO_DUMP, BIN_OUT_DUMP, DUMP_FILTER, TEXT_DUMPS

D = TypeVar("D")  # the class of the drivers that honour an option, or the union of several
T = TypeVar("T")  # the type of the option's value

Hook = Callable[[D, T], object]


class Drivers(Generic[D], tuple[str, ...]):
    """Names of an engine's drivers; for the type checker, also their classes."""


class OptionRow(Generic[D, T]):
    """A row of the table: the drivers that honour the option, how, and by which hooks.

    A hook takes the driver and the option's value. Hooks fire in the order of the table, each at
    its stage: before and after the model is loaded, before the first run, and after the last. A row
    has no hooks if the engine does it anyway, or if the hook of another option looks at it.
    """

    def __init__(
        self,
        option: Option[T],
        drivers: Drivers[D],
        how: str,
        *,
        before_load: Hook[D, T] | None = None,
        after_load: Hook[D, T] | None = None,
        before_run: Hook[D, T] | None = None,
        after_run: Hook[D, T] | None = None,
    ) -> None:
        self.option = option
        self.drivers = drivers
        self.how = how
        self.before_load = before_load
        self.after_load = after_load
        self.before_run = before_run
        self.after_run = after_run

    @property
    def key(self) -> str:
        """The option's key."""
        return self.option.key


def dump_rows(
    drivers: Drivers[D], how: str, dump: Hook[D, Any], dump_outputs: Hook[D, Any]
) -> tuple[OptionRow[D, Any], ...]:
    """Return the rows of dumps of an engine that dumps a fed model before the warm-up; `how` says
    which tensors."""
    return (
        *(
            OptionRow(option, drivers, how, before_run=dump)
            for option in (*TEXT_DUMPS, BIN_IO_DUMP)
        ),
        OptionRow(
            BIN_OUT_DUMP,
            drivers,
            "the outputs, written after each iteration",
            before_run=dump_outputs,
        ),
        OptionRow(DUMP_FILTER, drivers, "what it leaves out is removed when the run has ended"),
    )


class LazyModule:
    """A module with hooks, which is imported when one of them is called.

    The table is read for every command line, and those modules are slow to import: they import the
    engine. The type checker sees the module itself:

        if TYPE_CHECKING:
            from lar.engines.megengine import checkers
        else:
            checkers = LazyModule("lar.engines.megengine.checkers")
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, function: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            return getattr(importlib.import_module(self._name), function)(*arguments)

        return call
