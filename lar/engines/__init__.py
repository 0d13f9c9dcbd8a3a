"""The engines that lar can run, and the choice of engine and driver for a run.

Importing this module loads no engine, so that `--help` and usage errors stay fast.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import os
import sys
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from lar.engines import megengine, mnn, onnxruntime, openvino, reference
from lar.engines.engine import DriverEntry, Engine, imported
from lar.engines.formats import Format, format_in, format_named, read_head
from lar.errors import EngineMissing, UsageError
from lar.options.option import flag_of
from lar.options.suggestions import nearest_spelling

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint
    from pathlib import Path

    from lar.dumps import DumpFacts
    from lar.graphs import OperatorKinds
    from lar.graphs.origins import ModelOperator
    from lar.records.profile import Profile

ENGINES: tuple[Engine, ...] = (
    megengine.ENGINE,
    onnxruntime.ENGINE,
    openvino.ENGINE,
    mnn.ENGINE,
    reference.ENGINE,
)

# Other packages add engines by entry points of this group. Each entry point names an `Engine`.
ENTRY_POINTS = "lar.engines"


@functools.cache
def added_engines() -> tuple[dict[str, Engine], dict[str, str]]:
    """Find the engines that other packages add to lar.

    Returns:
        The engines by name, and for each engine that cannot be used a text which says why.

    To search other packages is slow, so lar searches them only if lar's own engines are not enough.
    """
    if not has_added_engines():
        return {}, {}
    from importlib.metadata import entry_points  # its import takes longer than to print a help

    own = {engine.name for engine in ENGINES}
    found: dict[str, Engine] = {}
    broken: dict[str, str] = {}
    for point in entry_points(group=ENTRY_POINTS):
        if point.name in own or point.name in found:
            continue
        try:
            engine = load_added(point)
        except Exception as error:  # another package may raise anything
            broken[point.name] = f"{point.value} cannot be imported: {error}"
            continue
        if isinstance(engine, Engine) and engine.name == point.name:
            found[point.name] = engine
        else:
            broken[point.name] = f"{point.value} is not a lar Engine named {point.name!r}"
    return found, broken


def load_added(point: EntryPoint) -> object:
    """Load the object that an entry point names.

    A package that is installed as editable may need the import hooks of the module `site`. Worker
    processes start without the module `site`. Therefore, if the package cannot be loaded at first,
    lar imports `site` and loads the package again.
    """
    try:
        return point.load()
    except ImportError:
        if not sys.flags.no_site:
            raise
        imported("site.main")()
        return point.load()


def has_added_engines() -> bool:
    """Return whether a package in the folders of `sys.path` may add engines.

    Archives are not read, so an archive in `sys.path` is treated as a package that may add engines.
    """
    named = f"[{ENTRY_POINTS}]".encode()
    for folder in sys.path:
        if os.path.isfile(folder):
            return True
        with contextlib.suppress(OSError):
            for name in filter(lambda it: it.endswith("-info"), os.listdir(folder or os.curdir)):
                file = os.path.join(folder, name, "entry_points.txt")
                with contextlib.suppress(OSError), open(file, "rb") as points:
                    if named in points.read():
                        return True
    return False


def all_engines() -> Iterator[Engine]:
    """Yield lar's own engines, then the engines of other packages, which are slow to find."""
    yield from ENGINES
    yield from added_engines()[0].values()


def engine_named(name: str) -> Engine:
    """Return the engine with the given name.

    Raises:
        UsageError: no engine has this name.
        EngineMissing: the engine belongs to another package and cannot be imported.
    """
    if engine := find_engine(name):
        return engine
    if why := added_engines()[1].get(name):
        raise EngineMissing(f"the engine {name} cannot be used: {why}", "install its package again")
    known = [engine.name for engine in all_engines()]
    near = nearest_spelling(name.lower(), known)
    hint = f"did you mean {near}?" if near else f"engines: {', '.join(known)}"
    raise UsageError(f"there is no engine {name!r}", hint, flag="--engine")


def find_engine(name: str) -> Engine | None:
    """Return the engine with the given name, or None if lar has no engine of this name.

    The name may come from a file, so it may be any text.
    """
    own = next((engine for engine in ENGINES if engine.name == name), None)
    return own or (added_engines()[0].get(name) if name else None)


def operator_kinds_of(name: str) -> OperatorKinds:
    """Return the operator kinds of an engine, given the engine's name in a dump or a profile.

    If lar does not know the engine, return the operator kinds of all of lar's own engines together.
    """
    if engine := find_engine(name):
        return engine.operator_kinds
    return functools.reduce(operator.or_, (each.operator_kinds for each in ENGINES))


def operator_kinds_of_both(
    baseline: Profile, experiment: Profile
) -> tuple[OperatorKinds, OperatorKinds]:
    """Return the operator kinds of the two engines that made two profiles."""
    return operator_kinds_of(baseline.facts.engine), operator_kinds_of(experiment.facts.engine)


def engines_for(model_format: Format) -> Iterator[Engine]:
    """Yield the engines that read a model format, the default engine first."""
    return (engine for engine in all_engines() if model_format in engine.formats)


def formats_of(model: Path, head: bytes) -> tuple[Format | None, Format | None]:
    """Return two formats of a model file: by its first bytes, and by its suffix."""
    found, named = format_in(head), format_named(model)
    if found is None and named is None:
        # The engines of other packages are slow to find, so their formats are tried last.
        formats = [each for engine in all_engines() for each in engine.formats]
        found, named = format_in(head, formats), format_named(model, formats)
    return found, named


def readers_of(model: Path) -> Iterator[Engine]:
    """Yield the engines that can read a model file, by the format of the file.

    Raises:
        UsageError: the first bytes of the file cannot be read.
    """
    found, named = formats_of(model, read_head(model))
    model_format = found or named
    return engines_for(model_format) if model_format else iter(())


def read_operators(model: Path) -> tuple[ModelOperator, ...]:
    """Read the operators of a model file with the names of their tensors.

    The result is empty if no engine can read the operators of this file.

    Raises:
        ValueError, OSError, LarError: the file cannot be read, or is damaged.
    """
    return next(filter(None, (each.read_operators(model) for each in readers_of(model))), ())


def read_quantizations(model: Path) -> DumpFacts:
    """Read the scales and zero points of a model file's quantised tensors.

    The result is empty if no engine can read scales and zero points from this file.

    Raises:
        ValueError, OSError, LarError: the file cannot be read, or is damaged.
    """
    from lar.dumps import NO_FACTS

    read = (engine.read_quantizations(model) for engine in readers_of(model))
    return next((facts for facts in read if facts.quantizations), NO_FACTS)


def engine_for(model: Path, asked: str | None) -> Engine:
    """Return the engine that the user asked for, else the first engine that reads the model file.

    Raises:
        UsageError: the file cannot be read, or no engine reads it, or the engine that the user
            asked for does not read it.
    """
    head = read_head(model)
    if asked is not None:
        engine = engine_named(asked)
        found = format_in(head, engine.formats) or format_in(head)
        if found is not None and found not in engine.formats:
            able = ", ".join(each.name for each in engines_for(found))
            problem = f"a model in the {found.name} format, which {engine.title} does not read"
            raise UsageError(problem, f"leave out --engine, or give --engine {able}", subject=model)
        return engine
    found, named = formats_of(model, head)
    if found is not None and named is not None and found != named:
        suffix, name = model.suffix.lower(), next(engines_for(found)).name
        problem = f"named {suffix}, but its content is a model in the {found.name} format"
        hint = f"rename it to {found.suffixes[0]}, or give --engine {name}"
        raise UsageError(problem, hint, subject=model)
    model_format = named or found
    if model_format is None:
        suffixes = dict.fromkeys(it for engine in all_engines() for it in engine.suffixes)
        problem = f"not a model that lar knows (suffix {model.suffix.lower() or 'none'})"
        hint = f"models end in {' '.join(suffixes)}; --engine NAME takes any suffix"
        raise UsageError(problem, hint, subject=model)
    return next(engines_for(model_format))


def check_options(engine: Engine, keys: Iterable[str]) -> None:
    """Raise an error if an engine has no driver that supports one of the options.

    Raises:
        UsageError: the engine does not support an option; the hint names the engines that support
            this option.
    """
    for key in keys:
        if key not in engine.rows:
            able = [other.name for other in all_engines() if key in other.rows]
            hint = f"engines that can: {', '.join(able)}" if able else "no engine can"
            raise UsageError(f"{engine.title} cannot do this", hint, flag=flag_of(key))


def driver_for(engine: Engine, keys: Iterable[str], asked: str | None = None) -> DriverEntry:
    """Return the first driver of an engine that supports all the options that are set.

    Raises:
        UsageError: no driver supports all these options; the error names two options that exclude
            each other.
    """
    rows, keys = engine.rows, list(keys)
    names = [driver.name for driver in engine.drivers]
    if asked is not None and asked not in names:
        problem, hint = f"{engine.title} has no driver {asked!r}", f"drivers: {', '.join(names)}"
        raise UsageError(problem, hint, flag="--driver")
    for driver in engine.drivers:
        if asked in (None, driver.name) and all(driver.name in rows[key].drivers for key in keys):
            return driver
    if asked is not None:
        wrong = next(key for key in keys if asked not in rows[key].drivers)
        hint = f"drivers that support the flag: {', '.join(rows[wrong].drivers)}"
        raise UsageError(f"--driver {asked} does not support {flag_of(wrong)}", hint)
    apart = ((a, b) for a in keys for b in keys if not {*rows[a].drivers} & {*rows[b].drivers})
    first, second = next(apart, (keys[0], keys[-1]))
    raise UsageError(
        f"{flag_of(first)} and {flag_of(second)} cannot go together on {engine.title}",
        f"{flag_of(first)} needs the driver {' or '.join(rows[first].drivers)}, "
        f"{flag_of(second)} needs {' or '.join(rows[second].drivers)}",
    )


def support_of_options() -> dict[str, list[str]]:
    """Return the names of the engines that support each engine option, by the option's key."""
    support: dict[str, list[str]] = {}
    for engine in all_engines():
        for key in engine.rows:
            support.setdefault(key, []).append(engine.name)
    return support
