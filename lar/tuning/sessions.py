"""Sessions of several days or machines: read to stand side by side, and merged into one."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from lar.errors import UsageError, error_of_write, printable
from lar.files.input_file import read_input
from lar.files.work_folders import work_folder
from lar.options.command_line import format_flags
from lar.profiles.packed_file import unpack
from lar.records.choices import Allowed, Choice, Dimension
from lar.records.run import record_to_json
from lar.records.tuning import BASELINE, ModelSpace, Trial, TuneRequest, TuneResult, read_tune
from lar.reports.sessions_report import NamedTune
from lar.results.naming import distinguish, shorten, split_name
from lar.results.reading import HINT, MOST_BYTES, WHAT, is_database
from lar.tuning.ranking import rank_candidates
from lar.tuning.session import (
    SessionFacts,
    TuningSession,
    differences_of,
    differences_of_requests,
    open_session,
    ratio_of,
    read_session,
)

FLAG = "--merge"


def read_tunes(words: Sequence[str]) -> list[NamedTune]:
    """Return the searches in files, each with a name of its own.

    Raises:
        UsageError: a file is damaged, or of a newer lar.
    """
    names, paths = zip(*map(split_name, words), strict=True)
    labels = [name or short for name, short in zip(names, shorten(paths), strict=True)]
    return [
        NamedTune(label, read_result(path))
        for label, path in zip(distinguish(labels), paths, strict=True)
    ]


def read_result(path: str) -> TuneResult:
    """Return what a search found, as its session or its JSON has it.

    Raises:
        UsageError: it is damaged, or of a newer lar.
    """
    if is_database(path):
        with read_session(path) as session:
            return result_of(session)
    try:
        content = read_input(path, what=WHAT, limit=MOST_BYTES)
        return read_tune(unpack(content, path, HINT))
    except ValueError as error:
        problem = f"is damaged, or of another version of lar: {printable(str(error))}"
        raise UsageError(problem, subject=path) from None


def result_of(session: TuningSession) -> TuneResult:
    """Return what a session has found until now."""
    return TuneResult(
        request=session.request,
        ending=session.ending or "interrupted",
        ranking=rank_candidates(session.request, session.trials),
        trials=tuple(session.trials),
        lar_version=session.facts.lar_version,
        started_at=session.began_at,
        models=session.facts.models,
        machine=session.facts.machine,
        wall_seconds=session.spent_seconds,
    )


# Merging


def merge_sessions(words: Sequence[str], output: str) -> list[Trial]:
    """Write one session with the trials and caches of several; return its trials.

    They must be of the same machine, models, versions and options. A trial that several have, as
    copies of a session do, is kept once. Of two caches of one name that one is kept with which a
    candidate was faster.

    Raises:
        UsageError: they differ, the output exists, or a file is not a session.
        LarError: the disk is full.
    """
    paths = [split_name(word)[1] for word in words]
    if os.path.lexists(output):
        raise UsageError("exists already", "give another name", flag=FLAG, subject=output)
    with ExitStack() as stack:
        sessions = [stack.enter_context(read_session(path)) for path in paths]
        for other in sessions[1:]:
            refuse_other_kind(sessions[0], other)
        request = merge_requests(sessions)
        folder = os.path.dirname(output) or os.curdir
        try:
            place = stack.enter_context(work_folder(folder))
        except OSError as error:
            raise error_of_write(error, flag=FLAG, subject=output) from None
        new = os.path.join(place, "merged")
        with open_session(new, request, facts=sessions[0].facts) as merged:
            for session, trial in renumber_trials(sessions):
                names = caches_to_keep(session, trial, sessions)
                files = {name: Path(place, f"cache{at}") for at, name in enumerate(names)}
                for name, file in files.items():
                    session.get_cache(name, file)
                merged.record(trial, files)
            trials = list(merged.trials)
        try:
            os.rename(new, output)
        except OSError as error:
            raise error_of_write(error, flag=FLAG, subject=output) from None
    return trials


def refuse_other_kind(first: TuningSession, other: TuningSession) -> None:
    """Refuse to merge sessions whose trials cannot stand for each other.

    Raises:
        UsageError: naming what differs.
    """
    differences = differences_of(facts_measured(first), facts_measured(other))
    # Margins, spaces and what is allowed say what is tried, not what was measured.
    mine, its = first.request, other.request
    spaces = [
        replace(each, dimensions=mine.spaces[place].dimensions)
        for place, each in enumerate(its.spaces[: len(mine.spaces)])
    ]
    alike = replace(
        its,
        margin=mine.margin,
        allowed=mine.allowed,
        spaces=(*spaces, *its.spaces[len(mine.spaces) :]),
    )
    differences += differences_of_requests(alike, mine, (*first.facts.inputs, *other.facts.inputs))
    if differences:
        raise UsageError(
            f"cannot be merged with {first.path}: {'; '.join(differences)}",
            "`lar results` shows them side by side",
            subject=other.path,
        )


def facts_measured(session: TuningSession) -> SessionFacts:
    """Return the facts of a session with the versions of engines that its trials have seen."""
    versions = {
        row.engine.name: row.engine.version
        for trial in session.trials
        for row in trial.rows
        if row.engine
    }
    return replace(session.facts, engines={**session.facts.engines, **versions})


def merge_requests(sessions: Sequence[TuningSession]) -> TuneRequest:
    """Return the request of all sessions: all that any of them may try, and the time of all.

    Raises:
        UsageError: two choices of one name are not the same.
    """
    first, *others = sessions
    merged = first.request
    for other in others:
        spaces = tuple(
            replace(mine, dimensions=tuple(merge_dimensions(mine, its, first, other)))
            for mine, its in zip(merged.spaces, other.request.spaces, strict=True)
        )
        allowed: tuple[Allowed, ...] = (*merged.allowed, *other.request.allowed)
        merged = replace(
            merged,
            spaces=spaces,
            allowed=tuple(dict.fromkeys(allowed)),
            budget_seconds=merged.budget_seconds + other.request.budget_seconds,
        )
    return merged


def merge_dimensions(
    mine: ModelSpace, its: ModelSpace, first: TuningSession, other: TuningSession
) -> Iterator[Dimension]:
    """Yield the dimensions of two spaces, with the choices of both.

    Raises:
        UsageError: two choices of one name are not the same.
    """
    theirs = {dimension.name: dimension for dimension in its.dimensions}
    for dimension in mine.dimensions:
        choices = {choice.name: choice for choice in dimension.choices}
        added = theirs.pop(dimension.name, None)
        for choice in added.choices if added else ():
            known = choices.setdefault(choice.name, choice)
            if describe_choice(known) != describe_choice(choice):
                raise UsageError(
                    f"cannot be merged with {first.path}: {choice.name!r} is "
                    f"{describe_choice(choice)}, not {describe_choice(known)}",
                    "`lar results` shows them side by side",
                    subject=other.path,
                )
        yield replace(dimension, choices=tuple(choices.values()))
    yield from theirs.values()


def describe_choice(choice: Choice) -> str:
    """Return what a choice sets, as it would be typed."""
    return format_flags({**choice.options, **choice.search}) or "nothing"


def renumber_trials(sessions: Sequence[TuningSession]) -> Iterator[tuple[TuningSession, Trial]]:
    """Yield the trials of all sessions, those of each after those before, with its session; the
    numbers of trials and of processes are unique again."""
    seen: set[bytes] = set()
    number, round_before, spent = sessions[0].trials[0].number if sessions[0].trials else 0, 0, 0.0
    for session in sessions:
        ended, most = 0.0, round_before
        for trial in session.trials:
            content, pause = record_to_json(trial), max(0.0, trial.began - ended)
            ended = trial.began + trial.seconds
            if content in seen:
                continue
            seen.add(content)
            rows = tuple(
                replace(
                    row,
                    turns=tuple(
                        replace(turn, round=round_before + turn.round) for turn in row.turns
                    ),
                )
                for row in trial.rows
            )
            most = max([most, *(turn.round for row in rows for turn in row.turns)])
            yield session, replace(trial, number=number, rows=rows, began=spent + pause)
            number, spent = number + 1, spent + pause + trial.seconds
        round_before = most + 1


def caches_to_keep(
    session: TuningSession, trial: Trial, sessions: Sequence[TuningSession]
) -> list[str]:
    """Return the names of the caches that a trial has filled or read and that are taken from its
    session."""
    used = dict.fromkeys(row.cache for row in trial.rows if row.cache)
    return [
        name
        for name in used
        if name in session.cache_names
        and session
        is min(
            (each for each in sessions if name in each.cache_names),
            key=lambda each: best_ratio(each, name),
        )
    ]


def best_ratio(session: TuningSession, cache: str) -> float:
    """Return the least ratio to the plain run with a cache, infinity without one."""
    ratios = [
        ratio_of(row, next((it for it in trial.rows if it.candidate == BASELINE), None))
        for trial in session.trials
        for row in trial.rows
        if row.cache == cache
    ]
    return min((ratio for ratio in ratios if ratio is not None), default=float("inf"))
