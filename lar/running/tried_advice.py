"""The suggestions for the run of a profile, tried: the run beside itself with each, in turns.

The command is the profile's own, and so is the machine: what helps on one may hurt on another.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lar.engines.advice import describe_other_machine
from lar.errors import UsageError, count_of
from lar.files.work_folders import work_folder
from lar.inputs.grammar import missing_paths
from lar.measurement.listener import Listener
from lar.measurement.machine import read_model_file
from lar.options.table import BY_KEY, INPUT, PROFILE
from lar.options.variants import BENCH_KEYS
from lar.profiles.recommendations import Recommendation
from lar.records.bench import BenchResult
from lar.records.profile import Profile
from lar.records.run import Failure, RunContext, RunSpec
from lar.running.bench import Report, run_bench
from lar.running.compared_sides import parse_words
from lar.running.plan import find_items
from lar.running.steps import make_run
from lar.running.variants import Variant, join_options, plan_variant

FLAG = "--try"
AS_PROFILED = "as profiled"
MOST_TRIED = 3
# How long a suggestion that searches for algorithms may do so before it is measured.
SEARCH_SECONDS = 60.0
HINT = f"profile the model here: lar MODEL {PROFILE.flag} FILE"

Command = tuple[str, Mapping[str, Any]]
"""The model of a run, and its options as far as they say how it is run."""

ShowSearch = Callable[[str, float], None]
"""Shows what is searched for, and how many seconds that has taken."""


def settings_of(found: Sequence[Recommendation], most: int = MOST_TRIED) -> list[Recommendation]:
    """Return the suggestions that are tried: the first of those that name a setting."""
    return [each for each in found if each.choice is not None][:most]


def try_recommendations(
    profile: Profile,
    tried: Sequence[Recommendation],
    *,
    budget_seconds: float,
    command: Command | None = None,
    report: Report | None = None,
    show_search: ShowSearch = lambda text, seconds: None,
) -> BenchResult:
    """Measure the run of a profile and the same with each suggestion, in turns, and compare their
    outputs with its own; of a data set its first item is fed. One that fails, or that a rule
    refuses, is a row of the result.

    `command` is the run; without one it is what the profile names.

    Raises:
        UsageError: the profile was made on another machine or of another model file, what it was
            fed with is not there, or its run is refused.
        EngineMissing: its engine is not installed.
    """
    check_machine(profile)
    model, options = command or command_of(profile)
    check_model(profile, model)
    with work_folder() as folder:
        options = with_first_item(options, folder)
        plain, error = plan_variant(variant_of(AS_PROFILED, model, options))
        if error is not None:
            raise error
        check_inputs(profile, options)
        variants = [plain]
        for number, each in enumerate(tried):
            place = os.path.join(folder, str(number))
            variants.append(prepare(each, model, options, place, show_search))
        return run_bench(variants, budget_seconds=budget_seconds, report=report)


def check_machine(profile: Profile) -> None:
    """Refuse a profile of another machine.

    Raises:
        UsageError: saying in what it differs.
    """
    other = describe_other_machine(profile)
    if other:
        raise UsageError(other, HINT, flag=FLAG)


def check_model(profile: Profile, model: str) -> None:
    """Refuse a model that is not the one that was profiled.

    Raises:
        UsageError: it is not there, or its content is another.
    """
    sha256, hint = profile.facts.model.sha256, hint_on_place(profile, model)
    if not os.path.exists(model):
        raise UsageError("the model of the profile is not there", hint, flag=FLAG, subject=model)
    if sha256 and os.path.isfile(model) and read_model_file(Path(model)).sha256 != sha256:
        raise UsageError("has changed since it was profiled", hint, flag=FLAG, subject=model)


def check_inputs(profile: Profile, options: Mapping[str, Any]) -> None:
    """Refuse what the run was fed with where it is not there any more.

    Raises:
        UsageError: naming the file.
    """
    for path in missing_paths(options.get(INPUT.key) or ()):
        problem = f"the run of the profile was fed with it ({INPUT.flag}), and it is not there"
        raise UsageError(problem, hint_on_place(profile, path), flag=FLAG, subject=path)


def with_first_item(options: Mapping[str, Any], folder: str) -> Mapping[str, Any]:
    """Return the options of the run of a data set as those of its first item, which all variants
    are fed with; other options as they are. A slice of a stack is kept in the folder.

    Raises:
        UsageError: a file of the data set is not there, or is broken.
    """
    texts = options.get(INPUT.key)
    items = find_items(texts)
    if not texts or not items:
        return options
    _, files = items[0]
    if not files:
        return {**options, INPUT.key: save_first_slices(texts, folder)}
    return {**options, INPUT.key: [f"{name}:{file}" if name else file for name, file in files]}


def save_first_slices(texts: Sequence[str], folder: str) -> list[str]:
    """Write the first item of each stack into a file, and return what feeds it."""
    import numpy as np  # the worker alone needs it else

    from lar.datasets.items import name_of, parts_of, path_of
    from lar.inputs.readers import read_path

    parts = []
    for number, part in enumerate(parts_of(texts)):
        place, name = os.path.join(folder, f"item{number}.npz"), name_of(part)
        arrays = read_path(path_of(part), name)
        np.savez(place, **{each.name: each.array[:1] for each in arrays})
        parts.append(f"{name}:{place}" if name else place)
    return parts


def describe_item(profile: Profile, command: Command | None = None) -> str:
    """Return which item of a data set suggestions are tried with, empty where it is of none."""
    _, options = command or command_of(profile)
    items = find_items(options.get(INPUT.key))
    if not items:
        return ""
    count = count_of(len(items), "item")
    return f"the profile is of a data set of {count}: tried with the first, {items[0][0]}"


def hint_on_place(profile: Profile, path: str) -> str:
    """Return what to do about a path of a profile's run that does not lead to what it led to: one
    that is relative may have been so to another folder."""
    folder = profile.facts.folder
    if os.path.isabs(path) or (os.path.isdir(folder) and os.path.samefile(folder, os.curdir)):
        return HINT
    where = f"{folder}," if folder else "the folder"
    return f"the path is relative to {where} in which the run was started: call lar there"


def command_of(profile: Profile) -> tuple[str, dict[str, Any]]:
    """Return the model and the options of the run that made a profile, as far as they say how the
    model is run: those that were typed, or of a run from Python those that the engine was given.

    Raises:
        UsageError: the profile names no model.
    """
    facts = profile.facts
    model, words = facts.model.path, [*facts.arguments[1:]]
    if not model:
        raise UsageError("the profile does not say which model it is of", HINT, flag=FLAG)
    if words[:1] == ["run"]:
        del words[0]
    values: Mapping[str, Any] = dict(options_in(facts.options))
    if model in words:
        words.remove(model)
        values = parse_words(words)
    return model, {key: value for key, value in values.items() if key in BENCH_KEYS}


def options_in(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the options of settings; the values of a repeatable one stand there as one text."""
    for key, value in settings.items():
        option = BY_KEY.get(key)
        if option is not None and option.repeatable and isinstance(value, str):
            value = value.split(option.joined_by)
        yield key, value


def variant_of(name: str, model: str, options: Mapping[str, Any]) -> Variant:
    return Variant(name, model, options, {"setting": name})


def prepare(
    found: Recommendation,
    model: str,
    options: Mapping[str, Any],
    place: str,
    show: ShowSearch,
) -> Variant:
    """Return the variant of a suggestion, or why it cannot be measured. One that searches for
    algorithms has done so then; `place` is where it keeps what it found."""
    choice, name = found.choice, " ".join(found.flags)
    assert choice is not None
    kept = {key: value for key, value in options.items() if key not in found.without}
    joined = join_options(kept, choice.options)
    if not choice.cache:
        return plan_variant(variant_of(name, model, joined))[0]
    searching, _ = plan_variant(
        variant_of(name, model, {**joined, **choice.search, choice.cache: place})
    )
    if searching.spec is None:
        return searching
    failure = search(searching.spec, name, show)
    if failure is not None:
        return replace(searching, spec=None, failure=failure)
    return plan_variant(variant_of(name, model, {**joined, choice.cache: place}))[0]


def search(spec: RunSpec, name: str, show: ShowSearch) -> Failure | None:
    """Have the engine search for algorithms; return why that failed, None if it did not."""
    spec = replace(spec, warmup_iterations=1, iterations=0, timeout_seconds=SEARCH_SECONDS)
    result = make_run(spec, RunContext(began=time.monotonic()), SearchListener(name, show))
    if result.status == "interrupted":
        raise KeyboardInterrupt
    if result.status == "timed_out":
        return Failure(
            problem=f"its search takes longer than {SEARCH_SECONDS:g} s, and was not tried",
            subject=name,
        )
    return None if result.status == "ok" else result.failure or Failure(problem=result.status)


class SearchListener(Listener):
    """Shows how far the search of an engine is."""

    def __init__(self, name: str, show: ShowSearch) -> None:
        self.name = name
        self._show = show

    def on_progress(self, text: str, elapsed: float) -> None:
        if text:
            self._show(f"{self.name}: {text}", elapsed)
