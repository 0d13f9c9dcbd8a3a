"""The result of a search: the ranking, the best settings, and the settings file with its cache.

With `--packed-model-dump`, a model and the settings that a search found go into one file.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, ClassVar

from lar import __version__
from lar.engines import engine_for, engine_named
from lar.engines.engine import Deployment
from lar.errors import LarError, UsageError
from lar.files.report_file import OutputFile
from lar.files.work_folders import work_folder
from lar.measurement.statistics import percentile_of
from lar.options.command_line import format_command, format_flags, parse_values
from lar.options.paths import Place
from lar.options.table import BY_KEY, INPUT, PACKED_MODEL_DUMP, find_untyped
from lar.records.record import record_to_json
from lar.records.run import ModelFile, RunContext, RunResult, RunSpec
from lar.records.summary import Difference
from lar.records.tuning import (
    BASELINE,
    Candidate,
    ModelSpace,
    OptionValue,
    RankedCandidate,
    TunedSettings,
    TuneRequest,
    TuneResult,
    space_of,
)
from lar.running.isolation import require_ok
from lar.running.plan import plan_run
from lar.running.settings_file import can_be_set
from lar.running.steps import make_run
from lar.tuning.decisions import Survey, name_of, options_of
from lar.tuning.evidence import Evidence, best_first, order_of


def check_deployment(space: ModelSpace) -> None:
    """Refuse an engine that has no packed models, before anything is measured.

    Raises:
        UsageError: the engine has no packed models; the message names the engine.
    """
    with work_folder() as folder:
        deployment_of(space, {}, folder)


def deployment_of(space: ModelSpace, settings: Mapping[str, Any], folder: str) -> Deployment:
    """Return how the engine of a space stores settings in a model file.

    Raises:
        UsageError: the engine has no packed models; the message names the engine.
    """
    engine = engine_named(space.engine)
    found = engine.deploy(settings, Path(space.model), Path(folder))
    if found is None:
        raise UsageError(
            f"{engine.title} cannot store settings in a model file",
            "leave the flag out: --output FILE writes the settings",
            flag=PACKED_MODEL_DUMP.flag,
        )
    return found


def write_packed(space: ModelSpace, spec: RunSpec, place: str) -> list[str]:
    """Write a model with its settings into one file, and replace an old file as a whole.

    `spec` is the run of the winner. Return lines that say what settings the file holds or lacks.

    Raises:
        LarError: the engine has no packed models, or cannot write the file.
    """
    with work_folder() as folder:
        found, model = deployment_of(space, spec.settings, folder), space.model
        for number, run in enumerate(found.runs):
            is_last = run is found.runs[-1]
            written = os.path.join(folder, f"{number}{Path(model).suffix}")
            target = os.path.abspath(place) if is_last else written
            make_file(space, model, {**run.options, run.writes.key: target})
            model = target
    return [*describe_space(found, spec, place)]


def make_file(space: ModelSpace, model: str, options: Mapping[str, Any]) -> None:
    """Make a run that writes a file.

    Raises:
        LarError: the run failed.
    """
    fed = {key: value for key, value in space.options.items() if key == INPUT.key}
    values = {"engine": space.engine, "iter": 0, "warmup_iter": 0, **fed, **options}
    result = make_run(plan_run(model, parse_values(values)), RunContext())
    require_ok(result, within=PACKED_MODEL_DUMP.flag)


def describe_space(found: Deployment, spec: RunSpec, place: str) -> Iterator[str]:
    """Yield lines on what a packed file holds, and which options its runs still need."""

    def flags(keys: Iterable[str]) -> str:
        return format_flags({key: spec.settings[key] for key in keys})

    # The path that a cache had when it was packed does not matter later.
    caches = [key for key in found.held if BY_KEY[key].purpose == "cache"]
    held = [flags(key for key in found.held if key not in caches)]
    held += [f"the cache of {BY_KEY[key].flag}" for key in caches]
    yield f"packed: {place}: {', '.join(filter(None, held)) or 'the model'}"
    if found.left_out:
        yield f"not in the file: {flags(found.left_out)}: add this to each run of the file"
    if spec.environment:
        variables = " ".join(f"{name}={value}" for name, value in spec.environment.items())
        yield f"not in the file: the environment variables {variables}"
    try:
        engine_for(Path(place), None)
    except UsageError as error:  # the winner may be a model of another format
        yield f"note: {error.message}; {error.hint}"
    if found.note:
        yield f"note: {found.note}"


FLAG = "--output"


class Tuning(TuneResult):
    """The result of a search, with the cache files of the best settings.

    The cache files are beside the file of the session. Without a session, they exist as long as
    this object. `runs` has the results of all processes of the plain run and of the best candidate.
    """

    runs: ClassVar[tuple[RunResult, ...]] = ()

    def write_settings(self, path: str | os.PathLike[str]) -> TunedSettings:
        """Write the best settings for `--settings FILE`, with their caches beside the file.

        `lar.run(model, settings=FILE)` reads the file too.

        Raises:
            LarError: nothing was measured, or a file cannot be written.
        """
        with OutputFile(os.fspath(path), FLAG) as output:
            return write_settings(output, self)


# The ranking


def find_best(survey: Survey) -> Candidate:
    """Return the candidate that won.

    The winner is the first candidate that is proven to be better than the plain run, or else the
    first candidate that is likely to be better. Other work on the machine may disturb the search so
    much that no candidate is proven or likely to be better. If no candidate is proven or likely to
    be better, the winner is the candidate with the shortest iteration, provided that this iteration
    is far shorter than any iteration of the plain run.
    """
    others = [it for it in survey.ordered if it != BASELINE]
    proven = (it for it in others if survey.evidence.is_proven(it))
    likely = (it for it in others if survey.evidence.likely(it))
    far = [it for it in survey.evidence.able if survey.evidence.is_far_shorter(it)]
    shortest = min(far, key=survey.evidence.fastest, default=BASELINE)
    return next(proven, None) or next(likely, None) or shortest


def rank(survey: Survey) -> Iterator[RankedCandidate]:
    """Yield the rows of the ranking: measured candidates, best first, then those that failed."""
    evidence = survey.evidence
    ordered = best_first(evidence, evidence.able)
    others = sorted((each for each in evidence.fates if each not in ordered), key=order_of)
    best = find_best(survey)
    plain = plain_value(evidence)
    for candidate in (*ordered, *others):
        yield describe(candidate, survey, best, plain)


def plain_value(evidence: Evidence) -> float | None:
    """Return the objective of the plain run: the median over its processes."""
    scores = sorted(evidence.scores.get(BASELINE, {}).values())
    return percentile_of(scores, 50) if scores else None


def describe(
    candidate: Candidate, survey: Survey, best: Candidate, plain: float | None
) -> RankedCandidate:
    """Return a candidate's row of the ranking."""
    evidence, spaces = survey.evidence, survey.request.spaces
    space, results = spaces[candidate.model], [it.result for it in evidence.trials_of(candidate)]
    failure = next((it.failure for it in results if it.failure), None)
    level = evidence.levels.get(candidate)
    difference = shown_difference(evidence, candidate, is_best=candidate == best)
    interval = difference.interval if difference else None
    agreement, error = agreement_of(results, evidence)
    own = {
        key: value
        for key, value in options_of(candidate, space).items()
        if space.options.get(key) != value
    }
    return RankedCandidate(
        name=name_of(candidate, spaces),
        model=space.model,
        engine=space.engine,
        choices=candidate.choices,
        options=own,
        status=evidence.fates[candidate],
        is_best=candidate == best and level is not None,
        value=None if level is None or plain is None else plain * math.exp(level),
        ratio=None if level is None else math.exp(level),
        ratio_low=interval.low if interval else None,
        ratio_high=interval.high if interval else None,
        processes=len(evidence.scores.get(candidate, {})),
        memory_bytes=max((it.peak_memory_bytes or 0 for it in results), default=0) or None,
        outputs=agreement,  # type: ignore[arg-type]
        output_error=error,
        verdict=verdict_of(candidate, evidence, best),
        error=failure.message if failure else "",
    )


def shown_difference(
    evidence: Evidence, candidate: Candidate, *, is_best: bool
) -> Difference | None:
    """Return how a candidate differs from the plain run, or None for the plain run itself.

    For the best candidate, the result may be the difference by which this candidate is proven to be
    better, or likely to be better.
    """
    if candidate == BASELINE:
        return None
    # The more comparisons there are, the stricter each of them has to be.
    found = evidence.compare(BASELINE, candidate, comparisons=len(evidence.scores) - 1)
    if not is_best or (found and found.is_shown):
        return found
    proofs = (each for each in evidence.proofs_of(candidate) if each.verdict == "faster")
    return next(proofs, None) or evidence.likely(candidate) or found


def agreement_of(results: list[RunResult], evidence: Evidence) -> tuple[str, float | None]:
    """Return how well the worst outputs agree with the plain run's outputs, and their error."""
    errors = [error.relative for it in results for error in it.numeric_errors]
    if any(it.status == "failed" and it.phase == "done" for it in results):
        return "different", max((it for it in errors if it is not None), default=None)
    if not errors:
        return "", None
    worst = max(it if it is not None else math.inf for it in errors)
    return ("within the tolerance" if worst else "equal"), worst


def verdict_of(candidate: Candidate, evidence: Evidence, best: Candidate) -> str:
    """Return the verdict on a candidate in a few words."""
    fate = evidence.fates[candidate]
    if fate != "ok":
        return "wrong numbers" if fate == "wrong" else fate.replace("_", " ")
    if candidate == best:
        if candidate == BASELINE:
            return "the plain run; best"
        return "best" if evidence.is_proven(candidate) else "likely best"
    if candidate == BASELINE:
        return "the plain run"
    count = len(evidence.scores.get(candidate, {}))
    found = evidence.compare(best, candidate)
    if found is not None and found.verdict == "slower":
        return "slower than the best"
    if count < 2:
        return "looked at once"
    return "not shown to be better" if candidate.choices else "another plain run"


# The settings


def settings_of(
    request: TuneRequest,
    survey: Survey,
    models: Mapping[int, ModelFile],
    caches: Mapping[str, str],
) -> TunedSettings | None:
    """Return the best settings with their cache files, or None if nothing was measured."""
    best = find_best(survey)
    measured = [it.result for it in survey.evidence.trials_of(best) if it.result.samples.end_to_end]
    plain = plain_value(survey.evidence)
    if not measured or plain is None:
        return None
    result, space = measured[-1], request.spaces[best.model]
    assert result.engine is not None
    assert result.machine is not None
    found = options_of(best, space)
    held = settings_in(found, space)
    return TunedSettings(
        options={**{key: with_place(key, value) for key, value in held.items()}, **caches},
        engine=result.engine,
        model=models[best.model],
        machine=result.machine,
        objective=request.objective,
        value=plain * math.exp(survey.evidence.levels[best]),
        baseline_value=plain,
        difference=shown_difference(survey.evidence, best, is_best=True),
        command=format_command(space.model, {**found, **caches}),
        lar_version=__version__,
        made_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )


def settings_in(options: Mapping[str, OptionValue], space: ModelSpace) -> dict[str, OptionValue]:
    """Return the options that a settings file may hold.

    Options that only the command line may set are left out.
    """
    own = engine_named(space.engine).own_variables
    known = {key: value for key, value in options.items() if key in BY_KEY}
    return {
        key: value
        for key, value in known.items()
        if can_be_set(BY_KEY[key]) and not find_untyped({key: value}, {}, own)
    }


def with_place(key: str, value: OptionValue) -> OptionValue:
    """Return the value of an option; the name of a file becomes an absolute path."""
    return os.path.abspath(str(value)) if BY_KEY[key].reads else value


def write_settings(output: OutputFile, result: TuneResult) -> TunedSettings:
    """Write the best settings and, beside them, their caches; old files are replaced as a whole.

    Raises:
        LarError: nothing was measured, or a file cannot be written.
    """
    import msgspec

    settings, folder = result.tuned, os.path.dirname(output.name)
    space = space_of(result)
    if settings is None or space is None:
        raise LarError(
            "the search has measured nothing, so that there are no settings to write",
            "give a larger --budget",
        )
    names: dict[str, str] = {}
    for key, source in caches_in(settings).items():
        name = f"{Path(output.name).stem}.cache"
        names[key] = f"{key}.{name}" if names else name
        copy_cache(space, source, os.path.join(os.path.dirname(output.path), names[key]))
    places = {key: os.path.join(folder, name) for key, name in names.items()}
    used = {**space.options, **(result.best.options if result.best else {})}
    written = replace(
        settings,
        options={**settings.options, **names},
        command=format_command(space.model, {**used, **settings.options, **places}),
    )
    output.write(msgspec.json.format(record_to_json(written), indent=1).decode() + "\n")
    return written


def caches_in(settings: TunedSettings, folder: str = "") -> dict[str, str]:
    """Return the cache files that settings name and that exist in a folder, by option key."""
    files = {
        key: os.path.join(folder, str(value))
        for key, value in settings.options.items()
        if BY_KEY[key].purpose == "cache"
    }
    return {key: file for key, file in files.items() if os.path.isfile(file)}


def copy_cache(space: ModelSpace, source: str, place: str) -> None:
    """Copy a cache file of a space's engine.

    Raises:
        LarError: the cache cannot be read or written.
    """
    files = engine_named(space.engine).cache
    if files is not None:
        files.copy(source, place, FLAG)
        return
    with OutputFile(place, FLAG, is_text=False) as output:
        output.write(Path(source).read_bytes())


def place_of_cache(output: OutputFile) -> Place:
    """Return the path of the cache that stands beside a settings file."""
    path = os.path.join(os.path.dirname(output.name), f"{Path(output.name).stem}.cache")
    return Place(path, FLAG, "the cache beside the settings")


def check_settings_place(output: OutputFile) -> None:
    """Refuse standard output for settings, since their cache needs a folder.

    Raises:
        UsageError: the settings would go to standard output.
    """
    if output.to_stdout:
        raise UsageError("settings cannot be written to stdout", "give a file name", flag=FLAG)
