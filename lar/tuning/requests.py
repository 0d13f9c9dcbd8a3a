"""Makes the requests of searches from what was typed: one for each model with its twins."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path

from lar.engines import all_engines, engine_for, engine_named, readers_of
from lar.engines.engine import Engine
from lar.engines.formats import models_in
from lar.errors import UsageError
from lar.files.input_file import check_input
from lar.options.table import ENGINE
from lar.records.choices import OptionValue
from lar.records.tuning import TuneRequest
from lar.tuning.space import survey_space


def group_models(given: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the models in groups that are tuned together.

    Files whose names differ only in the suffix are one model in several formats. A folder stands
    for the models in it.

    Raises:
        UsageError: a folder has no model, a file is missing, or one is given twice.
    """
    groups: dict[str, list[str]] = {}
    for text in given:
        for model in models_of_folder(text) if os.path.isdir(text) else [text]:
            check_input(model)
            twins = groups.setdefault(Path(model).stem, [])
            suffixes = [Path(each).suffix for each in twins]
            if Path(model).suffix in suffixes:
                other = twins[suffixes.index(Path(model).suffix)]
                problem, hint = f"has the same name as {other}", "tune them one after the other"
                if os.path.samefile(other, model):
                    problem, hint = "is given twice", "give it once"
                raise UsageError(problem, hint, subject=model)
            twins.append(model)
    return [tuple(twins) for twins in groups.values()]


def models_of_folder(folder: str) -> list[str]:
    """Return the model files in a folder, without its subfolders.

    Raises:
        UsageError: the folder has no model.
    """
    formats = [each for engine in all_engines() for each in engine.formats]
    names = sorted(models_in(Path(folder), formats))
    if not names:
        raise UsageError("has no model in it", "give a model file", subject=folder)
    return [os.path.join(folder, name) for name in names]


def make_request(
    models: Sequence[str],
    options: Mapping[str, OptionValue],
    asked: TuneRequest,
    engines: Collection[str] = (),
) -> TuneRequest:
    """Return the request of a search for one model with its twins, with their spaces.

    Raises:
        UsageError: a model cannot be read, or no asked engine reads it.
    """
    able = [(model, name) for model in models for name in find_engines(model, options, engines)]
    if not able:
        raise UsageError(
            f"none of these engines reads {', '.join(models)}",
            "`lar engines` lists them",
            flag=f"--engines {','.join(engines)}",
        )
    surveyed = [survey_space(model, options, asked, name) for model, name in able]
    not_tried = (
        replace(left, model=number)
        for number, each in enumerate(surveyed)
        for left in each.left_out
    )
    spaces = tuple(each.space for each in surveyed)
    return replace(asked, spaces=spaces, not_tried=tuple(not_tried))


def find_engines(
    model: str, options: Mapping[str, OptionValue], asked: Collection[str]
) -> list[str]:
    """Return the engines that run a model in a search.

    They are the asked ones that read its format, or the one that a run takes. `all` stands for all
    installed engines except an exact one, which is slow.

    Raises:
        UsageError: there is no such engine, or none reads the model.
    """
    chosen = engine_for(Path(model), ENGINE.of(options))
    if not asked:
        return [chosen.name]
    readers = [chosen, *readers_of(Path(model))]
    fast = [engine.name for engine in readers if engine.is_installed and not engine.is_exact]
    named = (fast if name == "all" else [engine_asked(name).name] for name in asked)
    return [name for name in dict.fromkeys(chain(*named)) if name in {it.name for it in readers}]


def engine_asked(name: str) -> Engine:
    """Return an engine that `--engines` names.

    Raises:
        UsageError: there is no such engine.
    """
    try:
        return engine_named(name)
    except UsageError as error:
        raise UsageError(error.problem, error.hint, flag="--engines") from None
