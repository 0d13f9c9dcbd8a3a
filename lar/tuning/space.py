"""The choices of a search for the fastest settings: spaces of models, and runs of candidates.

An engine declares what can matter at a site (`Engine.dimensions`). A space keeps the part that the
user asks for and allows, that the objective depends on, and that goes with the user's options.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from lar.engines import all_engines, engine_for
from lar.engines.engine import Engine, Site
from lar.errors import UsageError
from lar.measurement.machine import read_cpu_limit, read_instruction_sets
from lar.options.option import is_set
from lar.options.table import ADDED, BY_KEY, CUDA, ENGINE, ENGINE_OPTION, option_of
from lar.options.values import pairs_in
from lar.records.choices import Allowed, Choice, Dimension, OptionValue
from lar.records.run import Failure
from lar.records.tuning import Candidate, ModelSpace, NotTried, TuneRequest
from lar.running.variants import Variant, plan_variant
from lar.tuning.candidates import choices_in, options_of
from lar.tuning.space_file import PERMITS, choose_listed, read_space_file

# The name of a cache file that does not exist yet: the rules only look at the option.
NO_FILE = "not searched yet"


class SurveyedSpace(NamedTuple):
    """The space of a model, and the choices of the engine that are left out."""

    space: ModelSpace
    left_out: tuple[NotTried, ...] = ()


def survey_space(
    model: str, options: Mapping[str, Any], asked: TuneRequest, engine: str = ""
) -> SurveyedSpace:
    """Return what can be tried with a model on this machine, and what is left out and why.

    `options` are the user's, which hold for all candidates; what they set is not tried. The spaces
    of `asked` are ignored.

    Raises:
        UsageError: the plain run of the model is refused, or the file of the space is wrong.
        EngineMissing: its engine is not installed.
    """
    shared = normalise_options(options)
    chosen = engine_for(Path(model), engine or options.get(ENGINE.key))
    if engine and engine != engine_for(Path(model), None).name:
        shared[ENGINE.key] = engine
    site = find_site(shared)
    known: Sequence[Dimension] = chosen.dimensions(site, Path(model))
    declared = known
    if asked.extent not in ("quick", "full"):
        others = dimensions_of_others(chosen, site, Path(model))
        declared = choose_listed(asked.extent, read_space_file(asked.extent), known, others)
    dimensions = tuple(take_given_caches(declared, shared))
    plain = ModelSpace(model=model, engine=chosen.name, dimensions=dimensions, options=shared)
    plan_variant(Variant("plain", model, shared)).require()
    kept: list[Dimension] = []
    left_out: list[NotTried] = []
    for dimension in dimensions:
        choices = []
        for choice in dimension.choices:
            missing = find_permits(choice, known).difference(asked.allowed)
            why = find_reason(choice, plain, asked, missing)
            if why is None:
                choices.append(choice)
            else:
                left_out.append(why)
        if choices:
            kept.append(replace(dimension, choices=tuple(choices)))
    return SurveyedSpace(replace(plain, dimensions=tuple(kept)), tuple(left_out))


def dimensions_of_others(chosen: Engine, site: Site, model: Path) -> list[Dimension]:
    """Return the dimensions of the other engines here, for a twin of the model."""
    found: list[Dimension] = []
    for engine in all_engines():
        # An engine may look into the model, which is not of its format.
        with contextlib.suppress(UsageError):
            found += engine.dimensions(site, model) if engine is not chosen else ()
    return found


def normalise_options(options: Mapping[str, Any]) -> dict[str, OptionValue]:
    """Return the options that are given, by their keys."""
    found: dict[str, OptionValue] = {}
    for name, value in options.items():
        option = option_of(name)
        if option in ADDED and isinstance(value, str):
            value = (value,)
        if is_set(value):
            value = tuple(value) if isinstance(value, list) else value
            found[option.key if option else name] = value
    return found


def take_given_caches(
    dimensions: Sequence[Dimension], shared: dict[str, OptionValue]
) -> Iterator[Dimension]:
    """Yield the dimensions with one more choice for each cache that the user gives.

    The cache is tried beside what a search finds. It is taken out of `shared`, so that it no longer
    holds for all candidates.
    """
    for dimension in dimensions:
        keys = {choice.cache for choice in dimension.choices} & shared.keys()
        given = [Choice(name="given cache", options={key: shared.pop(key)}) for key in keys]
        yield replace(dimension, choices=(*given, *dimension.choices))


def find_site(options: Mapping[str, Any]) -> Site:
    """Return the site of runs with these options."""
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    cores = sorted(usable or range(os.cpu_count() or 1))
    limit = read_cpu_limit()
    return Site(
        cores=tuple(cores[: max(1, math.ceil(limit))] if limit else cores),
        processor=read_instruction_sets(),
        device=f"cuda:{options['cuda']}" if CUDA.is_given(options) else "cpu",
        environment={**os.environ, **pairs_in(options.get("engine_env", ()))},
    )


def find_reason(
    choice: Choice, plain: ModelSpace, asked: TuneRequest, missing: Collection[Allowed]
) -> NotTried | None:
    """Return why a choice is not tried, None if it is.

    `missing` is what the user has to allow for it.
    """
    given = [key for key in (*choice.options, *choice.search) if key in plain.options]
    given = [key for key in given if not BY_KEY[key].repeatable]
    if given:
        why = f"{BY_KEY[given[0]].flag} is given"
    elif choice.objectives and asked.objective not in choice.objectives:
        why = f"for --objective {' and '.join(choice.objectives)}"
    elif choice.for_full and asked.extent == "quick":
        why = "for --space full"
    elif failure := plan_candidate(Candidate(choices=(choice.name,)), [plain]).failure:
        why = failure.message
    elif missing:
        words = ",".join(sorted(missing))
        return NotTried(choice=choice.name, why=f"needs --allow {words}", allow=words)
    else:
        return None
    return NotTried(choice=choice.name, why=why)


def find_permits(choice: Choice, known: Iterable[Dimension]) -> set[Allowed]:
    """Return all that the user has to allow for a choice.

    Flags in a file may contain several of the engine's choices, each with its own need. If one
    contains another, only the larger one counts.
    """
    parts = [each for dimension in known for each in dimension.choices if each.options]
    held = [each for each in parts if each.options.items() <= choice.options.items()]
    needs = [
        each.allow
        for each in held
        if not any(each.options.items() < other.options.items() for other in held)
    ]
    return {need for need in (choice.allow, *needs) if need}.union(
        PERMITS[key] for key in choice.options if key in PERMITS
    )


def plan_candidate(
    candidate: Candidate,
    spaces: Sequence[ModelSpace],
    caches: Mapping[str, str] = {},
    *,
    searching: bool = False,
) -> Variant:
    """Return the run of a candidate: a variant with its spec, or with why rules refuse it.

    `caches` are files by the key of the option that names them. With `searching`, the run fills its
    cache. If a candidate's cache has no file, only the rules are asked: the variant then has a
    failure, or neither spec nor failure.
    """
    space = spaces[candidate.model]
    options: dict[str, Any] = dict(options_of(candidate, space))
    name = " + ".join(candidate.choices) or "plain"
    twice = find_set_twice(choices_in(candidate, space))
    if twice is not None:
        return Variant(name, space.model, options, failure=Failure.of(twice))
    lacks = False
    for choice in choices_in(candidate, space):
        if not choice.cache:
            continue
        file = caches.get(choice.cache)
        lacks = lacks or file is None
        options[choice.cache] = NO_FILE if file is None else file
        if searching or file is None:
            options.update(choice.search)
    # Its engine is installed where the space was made, maybe on another machine.
    variant = plan_variant(
        Variant(name, space.model, options),
        elsewhere=True,
        takes_turns=not (searching or lacks),
    )
    return replace(variant, spec=None) if lacks else variant


def find_set_twice(choices: Iterable[Choice]) -> UsageError | None:
    """Return the error of choices that set an option, or a property of the engine, to two values.

    It is None if they do not.
    """
    setting: dict[str, Choice] = {}
    properties: dict[str, tuple[Choice, str]] = {}
    for choice in choices:
        keys = {*choice.options, *choice.search, choice.cache} - {""}
        for key in sorted(key for key in keys if not BY_KEY[key].repeatable):
            other = setting.setdefault(key, choice)
            same = key in choice.options and choice.options[key] == other.options.get(key)
            if other is not choice and not same:
                return set_twice(other, choice, BY_KEY[key].flag)
        texts = choice.options.get(ENGINE_OPTION.key, ())
        for name, value in pairs_in(texts if isinstance(texts, tuple) else (str(texts),)).items():
            other, held = properties.setdefault(name, (choice, value))
            if held != value:
                return set_twice(other, choice, f"{ENGINE_OPTION.flag} {name}")
    return None


def set_twice(one: Choice, other: Choice, flag: str) -> UsageError:
    return UsageError(f"{one.name} and {other.name} both set {flag}", "leave one of them out")
