"""Writes a model with the settings that a search found into one file (`--packed-model-dump`)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lar.engines import engine_for, engine_named
from lar.engines.engine import Deployment
from lar.errors import UsageError
from lar.files.work_folders import work_folder
from lar.options.command_line import format_flags
from lar.options.given import parse_values
from lar.options.table import BY_KEY, INPUT, PACKED_MODEL_DUMP
from lar.records.run import RunContext, RunSpec
from lar.records.tuning import ModelSpace
from lar.running.plan import plan_run
from lar.running.steps import make_run
from lar.running.tasks import require_ok


def check_deployment(space: ModelSpace) -> None:
    """Refuse an engine that has no packed models, before anything is measured.

    Raises:
        UsageError: naming the engine.
    """
    engine = engine_named(space.engine)
    with work_folder() as folder:
        if engine.deploy({}, Path(space.model), Path(folder)) is None:
            raise UsageError(
                f"{engine.title} has no file that holds a model with its settings",
                "leave the flag out: --output FILE writes the settings",
                flag=PACKED_MODEL_DUMP.flag,
            )


def write_packed(space: ModelSpace, spec: RunSpec, place: str) -> list[str]:
    """Write a model with its settings into one file; what stands there is replaced as a whole.

    `spec` is the run of the winner. Returns lines on what the file holds and what it does not.

    Raises:
        LarError: the engine has no such file, or cannot write it.
    """
    engine = engine_named(space.engine)
    with work_folder() as folder:
        found = engine.deploy(spec.settings, Path(space.model), Path(folder))
        if found is None:
            check_deployment(space)
            return []
        model = space.model
        for number, run in enumerate(found.runs):
            is_last = run is found.runs[-1]
            written = os.path.join(folder, f"{number}{Path(model).suffix}")
            target = os.path.abspath(place) if is_last else written
            make_file(space, model, {**run.options, run.writes.key: target})
            model = target
    return [*describe(found, spec, place)]


def make_file(space: ModelSpace, model: str, options: Mapping[str, Any]) -> None:
    """Make a run that writes a file.

    Raises:
        LarError: the run failed.
    """
    fed = {key: value for key, value in space.options.items() if key == INPUT.key}
    values = {"engine": space.engine, "iter": 0, "warmup_iter": 0, **fed, **options}
    result = make_run(plan_run(model, parse_values(values)), RunContext())
    require_ok(result, within=PACKED_MODEL_DUMP.flag)


def describe(found: Deployment, spec: RunSpec, place: str) -> Iterator[str]:
    """Yield lines on what a file holds, and what else a run of it has to be given."""

    def flags(keys: Iterable[str]) -> str:
        return format_flags({key: spec.settings[key] for key in keys})

    # Nobody needs to know where a cache was when it was packed.
    caches = [key for key in found.held if BY_KEY[key].purpose == "cache"]
    held = [flags(key for key in found.held if key not in caches)]
    held += [f"the cache of {BY_KEY[key].flag}" for key in caches]
    yield f"packed: {place}: {', '.join(filter(None, held)) or 'the model'}"
    if found.left_out:
        yield f"not in it: {flags(found.left_out)}: give this when it is run"
    if spec.environment:
        variables = " ".join(f"{name}={value}" for name, value in spec.environment.items())
        yield f"not in it: the environment variables {variables}"
    try:
        engine_for(Path(place), None)
    except UsageError as error:  # the winner may be a model of another format
        yield f"note: {error.message}; {error.hint}"
    if found.note:
        yield f"note: {found.note}"
