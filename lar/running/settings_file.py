"""The settings that `lar tune` has found, in a file: read strictly, and checked against the model
and machine that they were found for.

Settings that win on one machine lose on another, so a file is refused where the model, the
processor, the cores or the engine are others than it was made for. Reading one imports no engine.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lar.engines.engine import Engine
from lar.errors import UsageError, did_you_mean
from lar.files.input_file import read_input
from lar.measurement.machine import read_machine, read_model_file
from lar.options.option import Option
from lar.options.table import BY_KEY, FAST_RUN, FAST_RUN_ALGO_POLICY, SEARCHES, SETTINGS, one_of
from lar.options.variants import BENCH_KEYS
from lar.records.choices import OptionValue
from lar.records.record import record_from_json, record_to_json
from lar.records.run import ModelFile
from lar.records.tuning import TunedSettings

MOST_BYTES = 1 << 20
HINT = "give what `lar tune MODEL --output FILE` wrote"
# The facts of a machine that the settings are for, by its fields.
FITTING = {
    "processor": "processor",
    "number of cores": "usable_cores",
    "limit of CPU time": "cpu_limit",
}

# The beginnings of other files of lar.
OTHERS = {
    "lar.result/": "the result of a run",
    "lar.bench/": "the result of a bench",
    "lar.tune/": "all that a search has found, and not the settings alone",
}


def can_be_set(option: Option[Any]) -> bool:
    """Return whether settings may hold an option: it says how a model is run, not on what."""
    return option.key in BENCH_KEYS and option.purpose != "input" and option is not SETTINGS


def read_settings(path: str) -> TunedSettings:
    """Read a file of settings; the files that they name are as they are named from here.

    Raises:
        UsageError: it cannot be read, is no such file, or holds what this lar does not know.
    """
    data = read_input(path, SETTINGS.flag, what="settings file", limit=MOST_BYTES)
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        content = None
    found = content.get("format") if isinstance(content, dict) else None
    if found != TunedSettings.format:
        raise refusal(path, describe_format(found))
    try:
        settings = record_from_json(data, TunedSettings)
        check_known(content, json.loads(record_to_json(settings)))
        check_options(settings.options)
    except ValueError as error:
        raise refusal(path, str(error)) from None
    return replace(settings, options=with_places(settings.options, os.path.dirname(path)))


def refusal(path: str, problem: str, hint: str = HINT) -> UsageError:
    """Return the error of a settings file."""
    return UsageError(problem, hint, flag=SETTINGS.flag, subject=path)


def describe_format(found: object) -> str:
    """Return what is wrong with a file that is of another format."""
    text = found if isinstance(found, str) else ""
    if text.startswith("lar.settings/"):
        return f"is of another version of lar: its format is {text}"
    for begin, what in OTHERS.items():
        if text.startswith(begin):
            return f"is {what}"
    return "is not a file of settings"


def check_known(given: Any, known: Any, where: str = "") -> None:
    """Refuse fields that a record does not have.

    Raises:
        ValueError: naming one.
    """
    if where == "options" or not isinstance(given, dict) or not isinstance(known, dict):
        return
    for name, value in given.items():
        if name not in known:
            place = f" in {where!r}" if where else ""
            raise ValueError(f"has an unknown field {name!r}{place}{did_you_mean(name, known)}")
        check_known(value, known[name], name)


def check_options(options: Mapping[str, OptionValue]) -> None:
    """Refuse options that settings do not have.

    Raises:
        ValueError: naming one.
    """
    keys = [key for key, option in BY_KEY.items() if can_be_set(option)]
    for key in options:
        if key not in keys:
            known = "does not say how a model is run" if key in BY_KEY else "is unknown"
            raise ValueError(f"its option {key!r} {known}{did_you_mean(key, keys)}")


def with_places(options: Mapping[str, OptionValue], folder: str) -> dict[str, OptionValue]:
    """Return options with the files that they name as they are named from here."""

    return {
        key: os.path.join(folder, value) if BY_KEY[key].reads and isinstance(value, str) else value
        for key, value in options.items()
    }


def check_fit(
    settings: TunedSettings, path: str, model: str, engine: Engine, *, own_python: bool
) -> None:
    """Refuse settings that were made for something else. The version of an engine is known for
    lar's own Python alone.

    Raises:
        UsageError: naming all that differs.
    """
    version = engine.version if own_python else ""
    differences = [*differences_of(settings, model, engine, version)]
    if differences:
        hint = "`lar tune MODEL` finds the settings for this; --force takes these all the same"
        raise refusal(path, f"was made for something else: {'; '.join(differences)}", hint)


def differences_of(
    settings: TunedSettings, model: str, engine: Engine, version: str
) -> Iterator[str]:
    """Yield what has changed since the settings were found."""
    theirs, machine = settings.engine, settings.machine
    own, files = settings.model, {read_model_file(Path(model)).sha256}
    files |= {*read_weights(model, engine).values()} if own.weights else set()
    theirs_of = {own.path: own.sha256, **own.weights}
    path = next((path for path, sha256 in theirs_of.items() if sha256 not in files), None)
    if path is not None:
        what = "the model" if path == own.path else "a file of its weights"
        yield f"{what} is not {os.path.basename(path)} with SHA-256 {theirs_of[path][:12]}"
    if theirs.name != engine.name:
        yield f"the engine is {engine.name}, not {theirs.name}"
    elif version and version != theirs.version:
        yield f"the version of {engine.title} is {version}, not {theirs.version}"
    here = read_machine()
    for what, field in FITTING.items():
        mine, its = getattr(here, field), getattr(machine, field)
        if field == "cpu_limit":
            mine, its = describe_limit(mine), describe_limit(its)
        if mine and its and mine != its:
            yield f"the {what} is {mine}, not {its}"


def read_with_weights(model: str, engine: Engine) -> ModelFile:
    """Return the facts of a model file, and those of the files beside it that it names.

    Raises:
        UsageError: the model is missing or cannot be read.
    """
    return replace(read_model_file(Path(model)), weights=read_weights(model, engine))


def read_weights(model: str, engine: Engine) -> dict[str, str]:
    """Return the SHA-256 of the files beside a model that hold its weights, by their paths; loading
    the model reports files that are missing or damaged."""
    try:
        names = engine.files_beside(Path(model))
    except (ValueError, OSError):
        return {}
    paths = [os.path.join(os.path.dirname(model), name) for name in names]
    return {path: read_model_file(Path(path)).sha256 for path in paths if os.path.isfile(path)}


def describe_limit(limit: float | None) -> str:
    return "none" if limit is None else f"{limit:g} CPUs"


def check_caches(settings: TunedSettings, path: str, values: Mapping[str, Any]) -> None:
    """Refuse settings whose cache is missing; a search makes it anew.

    `values` are those of the run, with the settings among them.

    Raises:
        UsageError: naming it.
    """
    if one_of(SEARCHES, values):
        return
    for key, cache in settings.options.items():
        is_cache = BY_KEY[key].purpose == "cache" and values[key] == cache
        if is_cache and not os.path.exists(str(cache)):
            hint = f"copy it from where {os.path.basename(path)} was written"
            if key == FAST_RUN_ALGO_POLICY.key:
                hint += f", or add {FAST_RUN.flag}, which searches anew and writes it"
            name = os.path.basename(str(cache))
            raise refusal(path, f"its cache {name} is missing beside it", hint)


def name_of_cache(path: str) -> str:
    """Return the name of the cache beside a settings file: `tuned.cache` for `tuned.json`."""
    return f"{Path(path).stem}.cache"
