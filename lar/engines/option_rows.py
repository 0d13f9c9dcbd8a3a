"""The rows of an engine's option table; a row says how the engine honours one option."""

from __future__ import annotations

import functools
import importlib
import os
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from lar.options.option import Option
from lar.options.table import BIN_OUT_DUMP, DUMP_FILTER, OPERATOR_DUMPS

D = TypeVar("D")  # the class of the drivers that honour an option, or a union of classes
T = TypeVar("T")  # the type of the option's value

Hook = Callable[[D, T], object]


class Drivers(Generic[D], tuple[str, ...]):
    """Names of an engine's drivers; for the type checker, also their classes.

    `module` is the file of the module that has their rows. If a row does not say how its option is
    honoured, `options.json` beside that module does.
    """

    module: str = ""

    def __new__(cls, names: Iterable[str], module: str = "") -> Drivers[D]:
        made = super().__new__(cls, names)
        made.module = module
        return made

    def row(self, option: Option[T], how: str = "", **hooks: Hook[D, T]) -> OptionRow[D, T]:
        """Return the row of an option that these drivers honour; `hooks` are by stage."""
        return OptionRow(option, self, how, **hooks)

    def rows(self, *options: Option[Any]) -> tuple[OptionRow[D, Any], ...]:
        """Return the rows of options that these drivers honour without hooks."""
        return tuple(OptionRow(option, self, "") for option in options)


@functools.cache
def words_beside(module: str) -> Mapping[str, str]:
    """Return how options are honoured, in words, by the option's key.

    An engine's own `options.json` comes before the one for several engines.
    """
    import json  # slow to import, and `lar run --help` does not need these words

    found = []
    for place in (__file__, module) if module else ():
        with open(os.path.join(os.path.dirname(place), "options.json")) as file:
            found.append(json.load(file))
    return ChainMap(*reversed(found))


class OptionRow(Generic[D, T]):
    """A row of the table: an option, the drivers that honour it, and the hooks that do so.

    A hook takes the driver and the option's value. Each hook is called at its stage: before or
    after the model is loaded, before the first run, or after the last run. Hooks of one stage are
    called in the order of the table. A hook that several rows share is called once, for the first
    of their options that is given. A row needs no hook if the engine behaves so by default, or if
    the hook of another option reads this option.
    """

    before_load: Hook[D, T] | None = None
    after_load: Hook[D, T] | None = None
    before_run: Hook[D, T] | None = None
    after_run: Hook[D, T] | None = None

    def __init__(
        self, option: Option[T], drivers: Drivers[D], how: str, **hooks: Hook[D, T]
    ) -> None:
        """Make a row; `hooks` are by stage, and each stage is an attribute of the class."""
        self.option, self.drivers, self._how = option, drivers, how
        for stage, hook in hooks.items():
            assert hasattr(type(self), stage), stage
            setattr(self, stage, hook)

    @property
    def how(self) -> str:
        """How the drivers honour the option, in words for the user."""
        return self._how or words_beside(self.drivers.module).get(self.key, "")

    @property
    def key(self) -> str:
        """The option's key."""
        return self.option.key


def cores_of(runner: int, runners: int, core_ids: str) -> list[int]:
    """Return one copy's share of a list of cores, which has the same number for each copy."""
    listed = [int(core) for core in core_ids.split(",")]
    share = len(listed) // runners
    return listed[share * runner :][:share]


def dump_rows(
    drivers: Drivers[D],
    dump_layers: Hook[D, Any],
    dump_outputs: Hook[D, Any],
    **hooks: Hook[D, Any],
) -> tuple[OptionRow[D, Any], ...]:
    """Return the rows of the dump options, for an engine that dumps a model after it was fed.

    `hooks` are further hooks of the options that dump operators.
    """
    return (
        *(drivers.row(it, "", before_run=dump_layers, **hooks) for it in OPERATOR_DUMPS),
        drivers.row(BIN_OUT_DUMP, before_run=dump_outputs),
        drivers.row(DUMP_FILTER),
    )


class LazyModule:
    """Stands for a module with hooks, and imports it when one of its functions is called."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, function: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            return getattr(importlib.import_module(self._name), function)(*arguments)

        return call


def add_lazy_modules(names: dict[str, Any]) -> None:
    """Add a lazy module for each module in a table's folder to the names of the table's module.

    The table is read for every command line, but the other modules import the engine, which is
    slow. The type checker sees the modules themselves:

        if TYPE_CHECKING:
            from lar.engines.megengine import dumps
        else:
            add_lazy_modules(globals())
    """
    for file in os.listdir(os.path.dirname(names["__file__"])):
        name, suffix = os.path.splitext(file)
        if suffix == ".py":
            names.setdefault(name, LazyModule(f"{names['__package__']}.{name}"))
