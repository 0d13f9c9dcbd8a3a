"""Rows of an engine's option table: each says how the engine honours an option."""

from __future__ import annotations

import functools
import importlib
import os
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from lar.options.option import Option
from lar.options.table import BIN_OUT_DUMP, DUMP_FILTER, OPERATOR_DUMPS

D = TypeVar("D")  # the class of the drivers that honour an option, or the union of several
T = TypeVar("T")  # the type of the option's value

Hook = Callable[[D, T], object]


class Drivers(Generic[D], tuple[str, ...]):
    """Names of an engine's drivers; for the type checker, also their classes.

    `module` is the file of the module with their rows. `options.json` beside it says how an option
    is honoured if its row has no words for that.
    """

    module: str = ""

    def __new__(cls, names: Iterable[str], module: str = "") -> Drivers[D]:
        made = super().__new__(cls, names)
        made.module = module
        return made

    def row(self, option: Option[T], how: str = "", **hooks: Hook[D, T]) -> OptionRow[D, T]:
        """Return the row of an option that they honour, with its hooks by stage."""
        return OptionRow(option, self, how, **hooks)

    def rows(self, *options: Option[Any]) -> tuple[OptionRow[D, Any], ...]:
        """Return the rows of options without hooks."""
        return tuple(OptionRow(option, self, "") for option in options)


@functools.cache
def words_beside(module: str) -> Mapping[str, str]:
    """Return how options are honoured, by key: in the words of an engine, or in those that hold for
    several."""
    import json  # slow to import, and the help of a run reads no words

    found = []
    for place in (__file__, module) if module else ():
        with open(os.path.join(os.path.dirname(place), "options.json")) as file:
            found.append(json.load(file))
    return ChainMap(*reversed(found))


class OptionRow(Generic[D, T]):
    """A row of the table: the drivers that honour the option, how, and by which hooks.

    A hook takes the driver and the option's value. Hooks fire in the order of the table, each at
    its stage: before and after the model is loaded, before the first run, and after the last. One
    that several rows share fires once, for the first of their options that is given. A row
    has no hooks if the engine does it anyway, or if the hook of another option looks at it.
    """

    before_load: Hook[D, T] | None = None
    after_load: Hook[D, T] | None = None
    before_run: Hook[D, T] | None = None
    after_run: Hook[D, T] | None = None

    def __init__(
        self, option: Option[T], drivers: Drivers[D], how: str, **hooks: Hook[D, T]
    ) -> None:
        """`hooks` are by their stages, each of which is an attribute of the class."""
        self.option, self.drivers, self._how = option, drivers, how
        for stage, hook in hooks.items():
            assert hasattr(type(self), stage), stage
            setattr(self, stage, hook)

    @property
    def how(self) -> str:
        """How they honour it, for the user."""
        return self._how or words_beside(self.drivers.module).get(self.key, "")

    @property
    def key(self) -> str:
        """The option's key."""
        return self.option.key


def cores_of(runner: int, runners: int, core_ids: str) -> list[int]:
    """Return the cores of one copy of the model, of a list that has as many for each copy."""
    listed = [int(core) for core in core_ids.split(",")]
    share = len(listed) // runners
    return listed[share * runner :][:share]


def dump_rows(
    drivers: Drivers[D],
    dump_layers: Hook[D, Any],
    dump_outputs: Hook[D, Any],
    **hooks: Hook[D, Any],
) -> tuple[OptionRow[D, Any], ...]:
    """Return the rows of dumps of an engine that dumps a fed model; `hooks` are further ones of
    dumps of operators."""
    return (
        *(drivers.row(it, "", before_run=dump_layers, **hooks) for it in OPERATOR_DUMPS),
        drivers.row(BIN_OUT_DUMP, before_run=dump_outputs),
        drivers.row(DUMP_FILTER),
    )


class LazyModule:
    """A module with hooks, which is imported when one of them is called."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, function: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            return getattr(importlib.import_module(self._name), function)(*arguments)

        return call


def add_lazy_modules(names: dict[str, Any]) -> None:
    """Add lazy modules to the names of a table's module, for all modules in its folder.

    The table is read for every command line, and those modules are slow to import: they import the
    engine. The type checker sees the modules themselves:

        if TYPE_CHECKING:
            from lar.engines.megengine import dumps
        else:
            add_lazy_modules(globals())
    """
    for file in os.listdir(os.path.dirname(names["__file__"])):
        name, suffix = os.path.splitext(file)
        if suffix == ".py":
            names.setdefault(name, LazyModule(f"{names['__package__']}.{name}"))
