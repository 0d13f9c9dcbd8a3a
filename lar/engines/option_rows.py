"""The rows of an engine's option table; each row says how the engine supports one option."""

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
    """A group of drivers of an engine, as a tuple of the drivers' names.

    Each row of the option table is for one group of drivers, which all support the row's option.
    For the type checker, this class also has the drivers' classes. `module` is the path of the
    module that contains the rows of these drivers. If a row does not say how its option is
    supported, the file `options.json` beside the module says how.
    """

    module: str = ""

    def __new__(cls, names: Iterable[str], module: str = "") -> Drivers[D]:
        made = super().__new__(cls, names)
        made.module = module
        return made

    def row(self, option: Option[T], how: str = "", **hooks: Hook[D, T]) -> OptionRow[D, T]:
        """Return the row of an option that these drivers support, with a hook for some stages."""
        return OptionRow(option, self, how, **hooks)

    def rows(self, *options: Option[Any]) -> tuple[OptionRow[D, Any], ...]:
        """Return rows without hooks, for options that these drivers support."""
        return tuple(OptionRow(option, self, "") for option in options)


@functools.cache
def words_beside(module: str) -> Mapping[str, str]:
    """Return a text for each option, by the option's key, which says how the option is supported.

    If an option is in an engine's own `options.json` and in the `options.json` for all engines, the
    text of the engine's own file is used.
    """
    import json  # slow to import, and `lar run --help` does not need these words

    found = []
    for place in (__file__, module) if module else ():
        with open(os.path.join(os.path.dirname(place), "options.json")) as file:
            found.append(json.load(file))
    return ChainMap(*reversed(found))


class OptionRow(Generic[D, T]):
    """A row of the option table: an option, the drivers that support it, and the hooks for it.

    A hook is a function, whose arguments are the driver and the option's value. Each hook is called
    at its stage: before or after the model is loaded, before the first run, or after the last run.
    Hooks of one stage are called in the order of the table. If several rows have the same hook, the
    hook is called only once, for the first given option of these rows. An option needs no hook if
    the engine always behaves as the option asks, or if the hook of another option also reads the
    value of this option.
    """

    before_load: Hook[D, T] | None = None
    after_load: Hook[D, T] | None = None
    before_run: Hook[D, T] | None = None
    after_run: Hook[D, T] | None = None

    def __init__(
        self, option: Option[T], drivers: Drivers[D], how: str, **hooks: Hook[D, T]
    ) -> None:
        """Make a row; `hooks` has a hook for each stage; the stages are attributes of the class."""
        self.option, self.drivers, self._how = option, drivers, how
        for stage, hook in hooks.items():
            assert hasattr(type(self), stage), stage
            setattr(self, stage, hook)

    @property
    def how(self) -> str:
        """How the drivers support the option, in words for the user."""
        return self._how or words_beside(self.drivers.module).get(self.key, "")

    @property
    def key(self) -> str:
        """The option's key."""
        return self.option.key


def cores_of(runner: int, runners: int, core_ids: str) -> list[int]:
    """Return the cores for one copy of a model, if the copies share a list of cores equally."""
    listed = [int(core) for core in core_ids.split(",")]
    share = len(listed) // runners
    return listed[share * runner :][:share]


def dump_rows(
    drivers: Drivers[D],
    dump_layers: Hook[D, Any],
    dump_outputs: Hook[D, Any],
    **hooks: Hook[D, Any],
) -> tuple[OptionRow[D, Any], ...]:
    """Return the rows of the dump options, for an engine that writes dumps before the first run.

    `hooks` are further hooks for the options that dump the tensors of all operators.
    """
    return (
        *(drivers.row(it, "", before_run=dump_layers, **hooks) for it in OPERATOR_DUMPS),
        drivers.row(BIN_OUT_DUMP, before_run=dump_outputs),
        drivers.row(DUMP_FILTER),
    )


class LazyModule:
    """Stands for a module with hooks, which is imported when one of its functions is called."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, function: str) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            return getattr(importlib.import_module(self._name), function)(*arguments)

        return call


def add_lazy_modules(names: dict[str, Any]) -> None:
    """Add a `LazyModule` for each module of an engine to `names`, the option table's globals.

    A lazy module is imported only when one of its functions is called. This makes lar start faster:
    lar reads the option table for every command line, but the other modules of an engine import the
    engine, which is slow. The type checker sees the real modules, if the table's module has these
    lines:

        if TYPE_CHECKING:
            from lar.engines.megengine import dumps
        else:
            add_lazy_modules(globals())
    """
    for file in os.listdir(os.path.dirname(names["__file__"])):
        name, suffix = os.path.splitext(file)
        if suffix == ".py":
            names.setdefault(name, LazyModule(f"{names['__package__']}.{name}"))
