"""The rows that describe an engine without loading it: its drivers and how it honours options."""

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


class DriverEntry(NamedTuple):
    """One way into an engine; `path` is `module:class`. The first driver is the default."""

    name: str
    path: str
    what: str


class EngineEntry(NamedTuple):
    """An engine as the parent process knows it.

    `distribution` is the package that must be installed, `options` and `reader` are
    `module:name` of its option table and of the function that reads a model file. `check` refuses
    settings that are known to fail here, `hints` says of a result, on one line, what its user
    should know, if anything; both take the worker's environment too. `settle` takes the spec when
    the worker has ended, however it did, for runs with one of the options `settles`. `staged` makes
    a run with one of the options `stages` in several worker processes. The options `searches` do
    their work in the first iteration.
    `progress` takes the spec of a run that goes on and tells how far its preparation is, in a
    few words or none; it never raises. `explain_log` takes what the engine has printed and returns
    the error of one that is lost, crashed or hanging, None for any other. `unpacker` takes the
    testcases out of a file that the drivers do not read; `dumped` takes the folder of a dump and
    returns what is known of it besides the names of its tensors; `packer` writes testcases, with
    what the driver `packs_with` computes, into what `packs` says: a file or a folder.
    """

    name: str
    title: str
    distribution: str
    suffixes: tuple[str, ...]
    drivers: tuple[DriverEntry, ...]
    options: str
    reader: str
    probe: str
    install_hint: str
    check: str = ""
    hints: str = ""
    settle: str = ""
    settles: tuple[str, ...] = ()
    staged: str = ""
    stages: tuple[str, ...] = ()
    searches: tuple[str, ...] = ()
    progress: str = ""
    explain_log: str = ""
    unpacker: str = ""
    dumped: str = ""
    packer: str = ""
    packs_with: str = ""
    packs: str = ""
