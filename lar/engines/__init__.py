"""The engines lar knows, and the choice of engine and driver for a run.

Importing this loads no engine: a usage error or `--help` stays cheap.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lar.engines.table import DriverEntry, EngineEntry, OptionRow
from lar.errors import UsageError, nearest
from lar.options.table import flag_of

ENGINES: Mapping[str, EngineEntry] = {
    entry.name: entry
    for entry in (
        EngineEntry(
            name="megengine",
            title="MegEngine",
            distribution="megengine",
            suffixes=(".mge", ".mgb", ".mdl", ".lite"),
            drivers=(
                DriverEntry(
                    "lite", "lar.engines.megengine.lite:LiteDriver", "fast to load, the default"
                ),
                DriverEntry(
                    "graph", "lar.engines.megengine.graph:GraphDriver", "the engine's device time"
                ),
            ),
            options="lar.engines.megengine.options:ROWS",
            reader="lar.engines.megengine.graph_file:read_model",
            probe="lar.engines.megengine.lite:find_devices",
            install_hint="MegEngine has packages for Python 3.10 and older only: "
            "uv run --python 3.10 lar ...",
            check="lar.engines.megengine.quirks:check_settings",
            hints="lar.engines.megengine.quirk_hints:hints_for",
            settle="lar.engines.megengine.algorithms:keep_search",
            settles=("fast_run_algo_policy", "fast_run", "full_run", "tensorrt_cache"),
            staged="lar.engines.megengine.winograd:run_with_winograd",
            stages=("winograd_transform",),
            searches=("fast_run", "full_run"),
            progress="lar.engines.megengine.search_progress:describe_search",
            explain_log="lar.engines.megengine.quirks:explain_log",
            unpacker="lar.engines.megengine.testcases:unpack",
            dumped="lar.engines.megengine.dumping:describe_dump",
            packer="lar.engines.megengine.testcases:write_testcases",
            packs_with="graph",
            packs="file",
        ),
        EngineEntry(
            name="onnxruntime",
            title="ONNX Runtime",
            distribution="onnxruntime",
            suffixes=(".onnx", ".ort"),
            drivers=(
                DriverEntry(
                    "session", "lar.engines.onnxruntime.session:SessionDriver", "IOBinding"
                ),
            ),
            options="lar.engines.onnxruntime.options:ROWS",
            reader="lar.engines.onnxruntime.model_file:read_model",
            probe="lar.engines.onnxruntime.session:find_devices",
            install_hint="pip install onnxruntime",
            packer="lar.engines.onnxruntime.testcases:write_testcases",
            packs_with="session",
            packs="folder",
            settle="lar.engines.onnxruntime.cache:remove_build",
            settles=(
                *("fast_run_algo_policy", "range"),
                *("bin_io_dump", "io_dump", "io_dump_stdout", "io_dump_stderr"),
            ),
            dumped="lar.engines.onnxruntime.dumping:describe_dump",
        ),
        EngineEntry(
            name="fake",
            title="the scripted engine",
            distribution="",
            suffixes=(".fake",),
            drivers=(DriverEntry("script", "lar.engines.fake:FakeDriver", "plays a JSON script"),),
            options="lar.engines.fake:ROWS",
            reader="lar.engines.fake:read_model",
            probe="lar.engines.fake:find_devices",
            install_hint="",
            progress="lar.engines.fake:describe_progress",
        ),
    )
}


def load_name(path: str) -> Any:
    """Import what `module:name` names."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def rows_of(entry: EngineEntry) -> Mapping[str, OptionRow]:
    """Return an engine's option table, by key."""
    rows: tuple[OptionRow, ...] = load_name(entry.options)
    return {row.key: row for row in rows}


def engine_named(name: str) -> EngineEntry:
    """Return the engine of that name.

    Raises:
        UsageError: there is none.
    """
    if name in ENGINES:
        return ENGINES[name]
    near = nearest(name.lower(), ENGINES)
    hint = f"did you mean {near}?" if near else f"engines: {', '.join(ENGINES)}"
    raise UsageError(f"--engine: there is no engine {name!r}", hint)


def engine_in_file(head: bytes) -> str | None:
    """Return the engine whose format a file begins with, None when the bytes do not tell.

    MegEngine: `mgbtest0` before a testcase file, `packed_model` in lite's packed files, the
    FlatBuffers identifier `mgv2` behind a size; older ones begin with `MGBC` or `MGBS`. ONNX is
    a protobuf message whose first field is ir_version, a small number; the ORT format has the
    identifier `ORTM`.
    """
    if head.startswith((b"mgbtest0", b"MGBC", b"MGBS", b"packed_model")) or head[8:12] == b"mgv2":
        return "megengine"
    if head[4:8] == b"ORTM" or (len(head) > 2 and head[0] == 0x08 and 1 <= head[1] <= 32):
        return "onnxruntime"
    return None


def engine_for(model: Path, asked: str | None) -> EngineEntry:
    """Choose the engine of a model file: the one asked for, else by suffix and content.

    Raises:
        UsageError: the file cannot be read, or no engine, or another one, reads it.
    """
    head = read_head(model)
    found = engine_in_file(head)
    if asked is not None:
        entry = engine_named(asked)
        if found and found != entry.name and entry.name != "fake":
            raise UsageError(
                f"{model}: this is a model for {ENGINES[found].title}, not for {entry.title}",
                f"leave out --engine, or give --engine {found}",
            )
        return entry
    suffix = model.suffix.lower()
    by_suffix = next((entry for entry in ENGINES.values() if suffix in entry.suffixes), None)
    if by_suffix is None:
        if found:
            return ENGINES[found]
        known = " ".join(suffix for entry in ENGINES.values() for suffix in entry.suffixes)
        raise UsageError(
            f"{model}: not a model that lar knows (suffix {suffix or 'none'})",
            f"models end in {known}; --engine NAME says what it is all the same",
        )
    if found and found != by_suffix.name and by_suffix.name != "fake":
        raise UsageError(
            f"{model}: named {suffix}, but its content is a model for {ENGINES[found].title}",
            f"rename it to {ENGINES[found].suffixes[0]}, or give --engine {found}",
        )
    return by_suffix


def read_head(model: Path) -> bytes:
    """Read the first bytes of a model file.

    Raises:
        UsageError: missing, a folder, unreadable or empty.
    """
    try:
        if model.is_dir():
            names = ", ".join(sorted(models_in(model))[:5])
            raise UsageError(
                f"{model}: is a folder, not a model file",
                f"give a model in it: {names}" if names else "give a model file",
            )
        if model.exists() and not model.is_file():
            raise UsageError(f"{model}: is not a regular file", "copy the model into a file")
        with model.open("rb") as file:
            head = file.read(16)
    except FileNotFoundError:
        near = nearest(model.name, models_in(model.parent))
        hint = f"did you mean {model.with_name(near)}?" if near else "check the path"
        raise UsageError(f"{model}: no such model file", hint) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UsageError(
            f"{model}: cannot be read: {reason.lower()}", "check the path and its permissions"
        ) from None
    if not head:
        raise UsageError(f"{model}: the model file is empty", "copy or export it again")
    return head


def models_in(folder: Path) -> list[str]:
    """Return the names of the model files in a folder."""
    suffixes = {suffix for entry in ENGINES.values() for suffix in entry.suffixes}
    try:
        files = [path for path in folder.iterdir() if path.is_file()]
        return [path.name for path in files if path.suffix in suffixes]
    except OSError:
        return []


def driver_for(entry: EngineEntry, keys: Iterable[str], asked: str | None = None) -> DriverEntry:
    """Choose the first driver of an engine that honours all the options set.

    Raises:
        UsageError: an option that the engine has no row for, naming the engines that have;
            or two options that no one driver honours.
    """
    rows, keys = rows_of(entry), list(keys)
    for key in keys:
        if key not in rows:
            able = [other.name for other in ENGINES.values() if key in rows_of(other)]
            raise UsageError(
                f"{flag_of(key)}: {entry.title} cannot do this",
                f"engines that can: {', '.join(able)}" if able else "no engine can",
            )
    names = [driver.name for driver in entry.drivers]
    if asked is not None and asked not in names:
        raise UsageError(
            f"--driver: {entry.title} has no driver {asked!r}", f"drivers: {', '.join(names)}"
        )
    for driver in entry.drivers:
        if asked in (None, driver.name) and all(driver.name in rows[key].drivers for key in keys):
            return driver
    if asked is not None:
        wrong = next(key for key in keys if asked not in rows[key].drivers)
        raise UsageError(
            f"--driver {asked} cannot do {flag_of(wrong)}",
            f"drivers that can: {', '.join(rows[wrong].drivers)}",
        )
    first, second = next(
        (a, b) for a in keys for b in keys if not set(rows[a].drivers) & set(rows[b].drivers)
    )
    raise UsageError(
        f"{flag_of(first)} and {flag_of(second)} cannot go together on {entry.title}",
        f"{flag_of(first)} needs the driver {' or '.join(rows[first].drivers)}, "
        f"{flag_of(second)} needs {' or '.join(rows[second].drivers)}",
    )


def support_of_options() -> dict[str, list[str]]:
    """Return which engines honour each engine option; the scripted engine is left out."""
    support: dict[str, list[str]] = {}
    for entry in ENGINES.values():
        for key in rows_of(entry) if entry.name != "fake" else ():
            support.setdefault(key, []).append(entry.name)
    return support
