"""What a search leaves behind: the settings file with its cache, and runs for the store."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path

from lar import __version__
from lar.engines import engine_for, engine_named
from lar.errors import LarError, UsageError
from lar.files.path_conflicts import Place
from lar.files.report_file import OutputFile
from lar.measurement.rows import join_samples
from lar.options.command_line import format_command
from lar.options.option import Option
from lar.options.table import BY_KEY, ENGINE
from lar.records.choices import OptionValue
from lar.records.facts import MachineFacts
from lar.records.run import RunResult, RunSpec, Samples, record_to_json
from lar.records.settings import TunedSettings
from lar.records.tuning import (
    BASELINE,
    Candidate,
    RankedCandidate,
    Trial,
    TrialRow,
    TuneResult,
    options_of,
)
from lar.running.settings_file import can_be_set, name_of_cache

FLAG = "--output"


def settings_of(
    result: TuneResult, caches: Mapping[str, str] | None = None, folder: str = ""
) -> TunedSettings:
    """Return the settings that won.

    Args:
        result: of the search.
        caches: the names of the winner's caches beside the file, by the key of their option.
        folder: that of the file, for the command line.

    Raises:
        LarError: nothing was measured.
    """
    winner, row, machine = winner_of(result)
    space = result.request.spaces[winner.candidate.model]
    caches = caches or {}
    found = {**options_of(winner.candidate, space), **needed_engine(space.model, space.engine)}
    options = {key: with_place(key, value) for key, value in found.items() if is_setting(key)}
    places = {key: os.path.join(folder, name) for key, name in caches.items()}
    plain = result.baseline
    assert row.engine is not None
    return TunedSettings(
        options={**options, **caches},
        engine=row.engine,
        model=result.models[winner.candidate.model],
        machine=machine,
        objective=result.request.objective,
        value=winner.value,
        baseline_value=plain.value if plain else None,
        difference=winner.difference,
        command=format_command(space.model, {**found, **places}),
        lar_version=__version__,
        made_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
    )


def winner_of(result: TuneResult) -> tuple[RankedCandidate, TrialRow, MachineFacts]:
    """Return the winner, a row in which it was measured, and the machine.

    Raises:
        LarError: nothing was measured.
    """
    winner = result.winner
    rows = [row for _, row in rows_of(result, winner.candidate)] if winner else []
    machines = [trial.machine for trial in result.trials if trial.machine]
    machine = result.machine or (machines[-1] if machines else None)
    if winner is None or not rows or machine is None or not result.models:
        raise LarError(
            "the search has measured nothing, so that there are no settings to write",
            "give it a larger --budget",
        )
    return winner, rows[-1], machine


def rows_of(result: TuneResult, candidate: Candidate) -> Iterator[tuple[Trial, TrialRow]]:
    """Yield the rows in which a candidate was measured and went well, with their trials."""
    for trial in result.trials:
        for row in trial.rows:
            if row.candidate == candidate and row.status == "ok" and row.engine and row.turns:
                yield trial, row


def is_setting(key: str) -> bool:
    option = BY_KEY.get(key)
    return option is not None and can_be_set(option)


def with_place(key: str, value: OptionValue) -> OptionValue:
    """Return the value of an option; a file has its whole path, since settings are read
    elsewhere too."""
    option: Option[object] = BY_KEY[key]
    names_file = option.reads or option.metavar in ("PATH", "DIR")
    if not names_file:
        return value
    if isinstance(value, tuple):
        return tuple(map(os.path.abspath, value))
    return os.path.abspath(str(value))


def needed_engine(model: str, engine: str) -> dict[str, OptionValue]:
    """Return the option that chooses the engine of a model, where another is the default."""
    try:
        is_default = engine_for(Path(model), None).name == engine
    except LarError:
        is_default = False
    return {} if is_default else {ENGINE.key: engine}


def write_settings(
    output: OutputFile, result: TuneResult, caches: Mapping[str, str] | None = None
) -> TunedSettings:
    """Write the settings that won, and their caches beside them; each is replaced as a whole.

    `caches` has the files of the winner's caches, by the key of their option.

    Raises:
        LarError: nothing was measured, or a file cannot be written.
    """
    folder, names = os.path.dirname(output.name), {}
    sources = {**given_caches(result), **(caches or {})}
    for place, (key, source) in enumerate(sources.items()):
        name = name_of_cache(output.name) if place == 0 else f"{key}.{name_of_cache(output.name)}"
        names[key] = name
        copy_cache(result, source, os.path.join(os.path.dirname(output.path), name))
    settings = settings_of(result, names, folder)
    output.write(format_settings(settings))
    return settings


def given_caches(result: TuneResult) -> dict[str, str]:
    """Return the caches that the user has given and the winner reads, by key."""
    winner, _, _ = winner_of(result)
    options = options_of(winner.candidate, result.request.spaces[winner.candidate.model])
    return {
        key: str(value)
        for key, value in options.items()
        if key in BY_KEY and BY_KEY[key].purpose == "cache" and os.path.isfile(str(value))
    }


def place_of_cache(output: OutputFile) -> Place:
    """Return where the cache beside a settings file goes."""
    path = os.path.join(os.path.dirname(output.name), name_of_cache(output.name))
    return Place(path, FLAG, "the cache beside the settings")


def check_settings_place(output: OutputFile) -> None:
    """Refuse standard output for settings: a cache stands beside them.

    Raises:
        UsageError: naming the flag.
    """
    if output.to_stdout:
        raise UsageError("settings go to a file, beside their cache", "give a name", flag=FLAG)


def format_settings(settings: TunedSettings) -> str:
    """Return the content of a settings file."""
    import msgspec

    return msgspec.json.format(record_to_json(settings), indent=1).decode() + "\n"


def copy_cache(result: TuneResult, source: str, place: str) -> None:
    """Copy a cache of the winner's engine.

    Raises:
        LarError: it cannot be read or written.
    """
    winner, _, _ = winner_of(result)
    files = engine_named(result.request.spaces[winner.candidate.model].engine).cache
    if files is not None:
        files.copy(source, place, FLAG)
        return
    with OutputFile(place, FLAG) as output:
        output.write(Path(source).read_bytes())


def runs_of_tune(result: TuneResult, specs: Mapping[Candidate, RunSpec]) -> tuple[RunResult, ...]:
    """Return a result for each process in which one of some candidates was measured.

    A process that had only a short look at it counts where there is no other. `specs` are the runs
    that the candidates stand for.
    """
    return tuple(run for each, spec in specs.items() for run in runs_of(result, each, spec))


def runs_of(result: TuneResult, candidate: Candidate, spec: RunSpec) -> Iterator[RunResult]:
    """Yield a result for each process of a candidate."""
    measured = [*rows_of(result, candidate)]
    longer = [(trial, row) for trial, row in measured if trial.kind in ("race", "confirm")]
    for trial, row in longer or measured:
        rounds: dict[int, list[Samples]] = {}
        for turn in row.turns:
            rounds.setdefault(turn.round, []).append(turn.samples)
        made = RunResult(
            spec=spec,
            status="ok",
            phase="done",
            lar_version=result.lar_version,
            started_at=result.started_at,
            engine=row.engine,
            machine=trial.machine or result.machine,
            model=result.models[candidate.model] if result.models else None,
            fed=row.fed,
            outputs=row.outputs,
            load_seconds=row.load_seconds,
            peak_memory_bytes=row.peak_memory_bytes,
            warnings=row.warnings,
        )
        for parts in rounds.values():
            yield replace(made, samples=replace(join_samples(parts), runner=()))


def saved_candidates(result: TuneResult) -> tuple[Candidate, ...]:
    """Return the candidates whose runs are stored: the plain run and the winner."""
    winner = result.winner
    return tuple(dict.fromkeys((BASELINE, winner.candidate) if winner else (BASELINE,)))
