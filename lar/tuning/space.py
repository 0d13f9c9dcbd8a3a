"""The choices that a search for the fastest settings may try, and the runs of candidates.

An engine declares the choices that can matter on a machine and a device (`Engine.dimensions`). A
space has only choices that the user asks for and allows, that affect the objective, and that may be
combined with the user's options.

The file of `--space FILE` lists the choices to try, by dimension:

    {"layout": ["nchw44", "--enable-nchw88 --engine-fix x2apic"],
     "threads": "full",
     "algorithms": ["fast-run"]}

A choice is a name that `lar tune --list-space` prints, or flags. `quick` and `full` stand for the
engine's own choices in a dimension.

A command line of `lar tune` becomes one request for each model. The request covers the model's
twins: files of the same model in other formats.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Literal, NamedTuple

from lar.engines import all_engines, engine_for, engine_named, readers_of
from lar.engines.choices import Site
from lar.engines.engine import Engine
from lar.engines.formats import models_in
from lar.errors import LarError, UsageError
from lar.files.input_file import check_input, read_input
from lar.measurement.machine import read_cpu_limit, read_instruction_sets
from lar.options.command_line import parse_values, parse_words
from lar.options.option import flag_of, is_set
from lar.options.suggestions import nearest_spelling
from lar.options.table import (
    ADDED,
    BY_KEY,
    CUDA,
    DRIVER,
    ENGINE,
    ENGINE_ENV,
    ENGINE_FIX,
    ENGINE_OPTION,
    check_typed,
    option_of,
)
from lar.options.values import pairs_in
from lar.records.goals import Allowed
from lar.records.run import Failure
from lar.records.tuning import (
    Candidate,
    Choice,
    Dimension,
    ModelSpace,
    NotTried,
    OptionValue,
    TuneRequest,
)
from lar.running.variants import Variant, known_option, plan_variant
from lar.tuning.decisions import choices_in, options_of

FLAG = "--space"
MOST_BYTES = 1 << 20
EXTENTS = ("quick", "full")
FORMAT = '{"layout": ["nchw44"], "threads": ["--multithread 2"], "algorithms": "full"}'
PERMITS: Mapping[str, Allowed] = {ENGINE_FIX.key: "engine-fixes", ENGINE_ENV.key: "engine-env"}
Listed = Mapping[str, str | Sequence[str]]
"""The content of a space file: for each dimension `quick`, `full`, or a list of choices."""


def read_space_file(path: str) -> Listed:
    """Read the file of a space, without a check of its choices.

    Raises:
        UsageError: the file cannot be read, or is not the file of a space.
    """
    if not os.path.exists(path):
        raise UsageError("no such file", "give quick, full or a file", flag=FLAG, subject=path)
    data = read_input(path, FLAG, what="file of a space", limit=MOST_BYTES)
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise wrong(path, f"is not JSON: {error}") from None
    if not isinstance(content, dict) or not content:
        raise wrong(path, "is not a JSON object of dimensions")
    for name, given in content.items():
        if given not in EXTENTS and not (
            isinstance(given, list) and given and all(isinstance(each, str) for each in given)
        ):
            raise wrong(path, f"{name!r} is neither quick nor full nor a list of strings")
    return content


def wrong(path: str, problem: str, hint: str = "") -> UsageError:
    return UsageError(problem, hint or f"an example: {FORMAT}", flag=FLAG, subject=path)


def choose_listed(
    path: str, listed: Listed, declared: Sequence[Dimension], others: Sequence[Dimension]
) -> tuple[Dimension, ...]:
    """Return the dimensions that a space file lists, with choices given by name or by flags.

    `others` are the dimensions that other engines declare. If the space file lists a choice of
    `others`, this choice is ignored.

    Raises:
        UsageError: a string is neither a choice's name nor flags, or a choice is given twice.
    """
    found = []
    for name, given in listed.items():
        if isinstance(given, str):
            own = [each for each in declared if each.name == name]
            if not own and name not in [each.name for each in others]:
                raise wrong(
                    path,
                    f"{name!r} is {given}, but no engine has such a dimension",
                    f"there are {', '.join(each.name for each in (*declared, *others))}",
                )
            choices = [
                choice
                for dimension in own
                for choice in dimension.choices
                if given == "full" or not choice.for_full
            ]
        else:
            texts = (find_choice(path, name, text, declared, others) for text in given)
            choices = [choice for choice in texts if choice is not None]
        asked = (replace(choice, for_full=False, objectives=()) for choice in choices)
        found.append(Dimension(name=name, choices=tuple(asked)))
    names = [choice.name for dimension in found for choice in dimension.choices]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise wrong(path, f"has the choice {twice!r} twice", "leave one of them out")
    return tuple(connect_caches(found, declared))


def find_choice(
    path: str,
    dimension: str,
    text: str,
    declared: Sequence[Dimension],
    others: Sequence[Dimension],
) -> Choice | None:
    """Return the choice for a string of the space file, or None if another engine has the choice.

    Raises:
        UsageError: the string is neither a choice's name nor flags that can be tried.
    """
    own = {choice.name: choice for each in declared for choice in each.choices}
    if not text.startswith("-"):
        known = {*own, *(choice.name for each in others for choice in each.choices)}
        if text not in known:
            near = nearest_spelling(text, sorted(known))
            raise wrong(
                path,
                f"{dimension}: there is no choice {text!r} here",
                f"did you mean {near}?" if near else "`lar tune MODEL --list-space` prints them",
            )
        return own.get(text)
    try:
        options = options_in(text)
    except LarError as error:
        raise wrong(path, f"{dimension}: {text}: {error.message}", error.hint) from None
    for choice in own.values():
        if choice.cache and choice.search.items() <= options.items():
            rest = {key: each for key, each in options.items() if key not in choice.search}
            return replace(choice, name=choice.name if not rest else name_of(text), options=rest)
        if choice.options == options:
            return choice
    allow: Allowed | Literal[""] = next((PERMITS[key] for key in options if key in PERMITS), "")
    return Choice(name=name_of(text), options=options, allow=allow)


def name_of(text: str) -> str:
    """Return the name of a choice that is given as flags."""
    return " ".join(word.removeprefix("--") for word in text.split())


def options_in(text: str) -> dict[str, OptionValue]:
    """Return the options that a string of flags sets.

    Raises:
        UsageError: an option does not change how an engine runs a model.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(str(error), "quote values as in a shell") from None
    options = parse_words(words)
    own = {each for engine in all_engines() for each in engine.own_variables}
    check_typed(options, {}, own)
    for key in options:
        try:
            option = known_option(key, flag_of(key))
        except UsageError as error:
            if option_of(key) is None:
                raise
            raise UsageError(
                error.problem, "a choice may contain only flags of the engine", flag=error.flag
            ) from None
        if option.purpose not in ("setting", "cache") and option not in (ENGINE_ENV, DRIVER):
            raise UsageError(
                "cannot differ between candidates",
                f"give the option to all candidates: lar tune MODEL {option.flag} ...",
                flag=option.flag,
            )
    return {
        key: tuple(value) if isinstance(value, list) else value
        for key, value in parse_values(options).items()
    }


def connect_caches(
    found: Sequence[Dimension], declared: Sequence[Dimension]
) -> Iterator[Dimension]:
    """Yield the dimensions; record for each cache on which other dimensions the cache may depend.

    The names of dimensions in a space file do not decide which dimensions affect a cache. A
    dimension in the file may have a name that the engine does not use, or choices from several of
    the engine's dimensions.
    """
    homes = {choice.name: each.name for each in declared for choice in each.choices}
    for dimension in found:
        choices = []
        for choice in dimension.choices:
            if choice.cache:
                depends = tuple(
                    other.name
                    for other in found
                    if other is not dimension
                    and any(
                        homes.get(each.name, "") in ("", *choice.cache_depends)
                        for each in other.choices
                    )
                )
                choice = replace(choice, cache_depends=depends)
            choices.append(choice)
        yield replace(dimension, choices=tuple(choices))


# Stands for a cache file that does not exist yet: rules only need to see that the option is set.
NO_FILE = "not searched yet"


class SurveyedSpace(NamedTuple):
    """The space of a model, and the choices that are left out of this space."""

    space: ModelSpace
    left_out: tuple[NotTried, ...] = ()


def survey_space(
    model: str, options: Mapping[str, Any], asked: TuneRequest, engine: str = ""
) -> SurveyedSpace:
    """Return the choices to try with a model on this machine, and the choices that are left out.

    `options` are the user's options, for all candidates. A choice that sets an option given by the
    user is not tried. The field `spaces` of `asked` is ignored.

    Raises:
        UsageError: the plain run of the model is refused, or the file of the space is wrong.
        EngineMissing: the model's engine is not installed.
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
    """Return the dimensions of the other engines, which may run the model in another format."""
    found: list[Dimension] = []
    for engine in all_engines():
        # An engine may try to read the model, which may not be of its format.
        with contextlib.suppress(UsageError):
            found += engine.dimensions(site, model) if engine is not chosen else ()
    return found


def normalise_options(options: Mapping[str, Any]) -> dict[str, OptionValue]:
    """Return the options that have a value, by their keys."""
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

    The given cache competes with the cache that a search fills. The given cache is removed from
    `shared`, so that only candidates with this choice use this cache.
    """
    for dimension in dimensions:
        keys = {choice.cache for choice in dimension.choices} & shared.keys()
        given = [Choice(name="given cache", options={key: shared.pop(key)}) for key in keys]
        yield replace(dimension, choices=(*given, *dimension.choices))


def find_site(options: Mapping[str, Any]) -> Site:
    """Return the site of runs with these options: cores, processor, device and environment."""
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
    """Return why a choice is not tried, or None if the choice is tried.

    `missing` has the permissions that the choice needs but that the user has not given.
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
    """Return the permissions that the user has to give before a choice is tried.

    The flags in a space file may include several of the engine's choices, and each of these choices
    may need a permission. If all flags of one included choice also belong to a larger included
    choice, only the larger choice needs a permission.
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
    """Return the run of a candidate: a variant with its spec, or with the reason for a refusal.

    `caches` maps the keys of options to the cache files that these options name. If `searching` is
    true, the run fills the candidate's cache. If the file of a candidate's cache is missing, the
    variant has no spec. If the cache file is missing, only the rules of options are checked, and
    the variant has a failure if the rules refuse the run.
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
    # The space may have been made on another machine: the engine is installed there.
    variant = plan_variant(
        Variant(name, space.model, options),
        elsewhere=True,
        takes_turns=not (searching or lacks),
    )
    return replace(variant, spec=None) if lacks else variant


def find_set_twice(choices: Iterable[Choice]) -> UsageError | None:
    """Return the error if choices set an option or a property of the engine to two values.

    Return None if no two choices disagree.
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
    return UsageError(f"{one.name} and {other.name} both set {flag}", "leave one of the two out")


def group_models(given: Iterable[str]) -> list[tuple[str, ...]]:
    """Return the model files in groups that are tuned together.

    Files whose names differ only in the suffix are one model in several formats. A folder stands
    for the models in it.

    Raises:
        UsageError: a folder has no model, a file is missing, or a file is given twice.
    """
    groups: dict[str, list[str]] = {}
    for text in given:
        for model in models_of_folder(text) if os.path.isdir(text) else [text]:
            check_input(model)
            twins = groups.setdefault(Path(model).stem, [])
            suffixes = [Path(each).suffix for each in twins]
            if Path(model).suffix in suffixes:
                other = twins[suffixes.index(Path(model).suffix)]
                problem, hint = f"has the same name as {other}", "tune one model at a time"
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
        raise UsageError("contains no model", "give a model file", subject=folder)
    return [os.path.join(folder, name) for name in names]


def make_request(
    models: Sequence[str],
    options: Mapping[str, OptionValue],
    asked: TuneRequest,
    engines: Collection[str] = (),
) -> TuneRequest:
    """Return the request of a search for one model in several formats, with a space for each file.

    Raises:
        UsageError: a model cannot be read, or no requested engine reads any of the models.
    """
    able = [(model, name) for model in models for name in find_engines(model, options, engines)]
    if not able:
        raise UsageError(
            f"no requested engine reads {', '.join(models)}",
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

    A requested engine runs the model if the engine reads the model's format. If no engine is
    requested, the function returns the engine that a run would use. `all` stands for all installed
    engines except exact engines, which are slow.

    Raises:
        UsageError: a requested engine does not exist, or no engine reads the model.
    """
    chosen = engine_for(Path(model), ENGINE.of(options))
    if not asked:
        return [chosen.name]
    readers = [chosen, *readers_of(Path(model))]
    fast = [engine.name for engine in readers if engine.is_installed and not engine.is_exact]
    named = (fast if name == "all" else [engine_asked(name).name] for name in asked)
    return [name for name in dict.fromkeys(chain(*named)) if name in {it.name for it in readers}]


def engine_asked(name: str) -> Engine:
    """Return the engine that a name in `--engines` stands for.

    Raises:
        UsageError: no engine has this name.
    """
    try:
        return engine_named(name)
    except UsageError as error:
        raise UsageError(error.problem, error.hint, flag="--engines") from None
