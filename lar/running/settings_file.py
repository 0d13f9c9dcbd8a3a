"""Reads a file of settings from `lar tune`, and checks that the settings fit this run.

The fastest settings of one machine may be slow on another machine. So a settings file is refused if
it was made for another model, processor, number of cores or engine. To read a settings file, no
engine is imported.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lar.datasets.testcases import Source
from lar.engines import engine_for, find_engine
from lar.engines.engine import Engine
from lar.errors import UsageError
from lar.files.input_file import read_input
from lar.measurement.machine import read_machine, read_model_file
from lar.options import table
from lar.options.command_line import join_options, parse_values
from lar.options.option import Option
from lar.options.suggestions import did_you_mean
from lar.options.table import BENCH_KEYS, BY_KEY, SETTINGS
from lar.records.record import record_from_json, record_to_json
from lar.records.run import MachineFacts
from lar.records.tuning import TunedSettings

MOST_BYTES = 1 << 20
HINT = "give what `lar tune MODEL --output FILE` wrote"


def can_be_set(option: Option[Any]) -> bool:
    """Return whether a settings file may contain an option.

    A settings file may contain only options that change how a model is run.
    """
    return option.key in BENCH_KEYS and option.purpose != "input" and option is not SETTINGS


@contextlib.contextmanager
def with_settings(source: Source, values: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield option values, completed with the values in the settings file.

    Values given by the user replace values of the file. Environment variables from the user and
    from the file are all set. If an error inside the block is about a flag that the file sets, the
    error's hint says that the file sets this flag.

    Raises:
        UsageError: the file cannot be read, has a wrong value, or was made for another model,
            engine or machine.
    """
    path = values[SETTINGS.key]
    settings = read_settings(path)
    try:
        found = options_in(settings, os.path.dirname(path))
        maker = find_engine(settings.engine.name)
        table.check_typed(found, values, maker.own_variables if maker else ())
    except UsageError as error:
        raise refusal(path, error.message, error.hint) from None
    given = {key: values[key] for key in found if BY_KEY[key].is_given(values)}
    joined = {**values, **join_options(found, given)}
    try:
        forced = table.FORCE.of(values)
        if not forced and (differences := [*differences_of(settings, source.model, joined)]):
            hint = "`lar tune MODEL` finds settings for this run; --force uses the file anyway"
            raise refusal(path, f"was made for something else: {'; '.join(differences)}", hint)
        check_caches(found, path, joined)
        yield joined
    except UsageError as error:
        words = re.findall(r"--[a-z][a-z0-9-]*", error.message)
        named = [flag for key in found if (flag := BY_KEY[key].flag) in words and key not in given]
        if error.flag != SETTINGS.flag and named:
            says = f"{path} sets {' and '.join(named)}"
            error.hint = f"{error.hint}; {says}" if error.hint else says
        raise


def read_settings(path: str) -> TunedSettings:
    """Read a file of settings.

    Raises:
        UsageError: the file cannot be read, holds no settings, or has unknown fields.
    """
    data = read_input(path, SETTINGS.flag, what="settings file", limit=MOST_BYTES)
    try:
        content = json.loads(data)
    except (ValueError, RecursionError):
        content = None
    found = content.get("format") if isinstance(content, dict) else None
    if found != TunedSettings.format:
        its = f": its format is {found}" if isinstance(found, str) else ""
        raise refusal(path, f"is not a file of settings that this lar reads{its}")
    try:
        settings = record_from_json(data, TunedSettings)
        check_known(content, json.loads(record_to_json(settings)))
    except ValueError as error:
        raise refusal(path, str(error)) from None
    return settings


def refusal(path: str, problem: str, hint: str = HINT) -> UsageError:
    """Return the error that says why a settings file is refused."""
    return UsageError(problem, hint, flag=SETTINGS.flag, subject=path)


def check_known(given: Any, known: Any, where: str = "") -> None:
    """Refuse fields that a record does not have.

    Raises:
        ValueError: a field is unknown; the message names the field.
    """
    if where == "options" or not isinstance(given, dict) or not isinstance(known, dict):
        return
    for name, value in given.items():
        if name not in known:
            place = f" in {where!r}" if where else ""
            raise ValueError(f"has an unknown field {name!r}{place}{did_you_mean(name, known)}")
        check_known(value, known[name], name)


def options_in(settings: TunedSettings, folder: str) -> dict[str, Any]:
    """Return the option values that a settings file contains.

    Relative file names in the settings are completed with `folder`, the settings file's folder.

    Raises:
        UsageError: an option is not allowed in settings, or an option has a wrong value.
    """
    found = parse_values(settings.options)
    for key, value in found.items():
        option = BY_KEY[key]
        if not can_be_set(option):
            raise UsageError("cannot be in a settings file", "leave it out", flag=option.flag)
        if option.reads and isinstance(value, str):
            found[key] = os.path.join(folder, value)
    return found


def differences_of(settings: TunedSettings, model: str, values: Mapping[str, Any]) -> Iterator[str]:
    """Yield how this run differs from the run for which the settings were found.

    `values` maps the keys of all options of the run to values, with the settings included.
    """
    if table.SCHEDULER.is_given(values):
        yield "another machine makes the run"
        return
    engine = engine_for(Path(model), values["engine"])
    own, theirs = settings.model, settings.engine
    files = {read_model_file(Path(model)).sha256}
    files |= {*read_weights(model, engine).values()} if own.weights else set()
    for path, sha256 in {own.path: own.sha256, **own.weights}.items():
        if sha256 not in files:
            what = "the model" if path == own.path else "a file of its weights"
            yield f"{what} is not {os.path.basename(path)} with SHA-256 {sha256[:12]}"
            break
    # The version of an engine is known only in lar's own Python.
    version = "" if values["python"] else engine.version
    if theirs.name != engine.name:
        yield f"the engine is {engine.name}, not {theirs.name}"
    elif version and version != theirs.version:
        yield f"the version of {engine.title} is {version}, not {theirs.version}"
    here, there = (facts_that_fit(machine) for machine in (read_machine(), settings.machine))
    for what, mine in here.items():
        if mine and there[what] and mine != there[what]:
            yield f"the {what} is {mine}, not {there[what]}"


def facts_that_fit(machine: MachineFacts) -> dict[str, object]:
    """Return those facts about a machine that decide whether settings fit."""
    limit = machine.cpu_limit
    return {
        "processor": machine.processor,
        "number of cores": machine.usable_cores,
        "limit of CPU time": "none" if limit is None else f"{limit:g} CPUs",
    }


def read_weights(model: str, engine: Engine) -> dict[str, str]:
    """Return the SHA-256 of each separate file that holds weights of a model, by path.

    Missing or damaged files are left out, since the error is reported when the model is loaded.
    """
    try:
        names = engine.files_beside(Path(model))
    except (ValueError, OSError):
        return {}
    paths = [os.path.join(os.path.dirname(model), name) for name in names]
    return {path: read_model_file(Path(path)).sha256 for path in paths if os.path.isfile(path)}


def check_caches(options: Mapping[str, Any], path: str, values: Mapping[str, Any]) -> None:
    """Refuse settings whose cache is missing, unless the run searches and so fills the cache.

    `values` maps the keys of all options of the run to values, with the settings included.

    Raises:
        UsageError: a cache is missing; the message names the cache.
    """
    if table.one_of(table.SEARCHES, values):
        return
    for key, cache in options.items():
        if BY_KEY[key].purpose == "cache" and values[key] == cache and not os.path.exists(cache):
            hint = f"copy it from where {os.path.basename(path)} was written"
            if key == table.FAST_RUN_ALGO_POLICY.key:
                hint += f", or add {table.FAST_RUN.flag}, which searches anew and writes it"
            raise refusal(path, f"its cache {os.path.basename(cache)} is missing beside it", hint)
