"""Measures whether `lar tune` finds the best engine and settings, and repeats no work.

    uv run python tools/bench_tune.py [--count N] [--budget S] [--seed N] [FIGURE ...]

prints a table of `lar help benchmarks`. Large models are first made in `models/large`. All figures
with all repetitions take some hours; `--count` sets a smaller number of repetitions.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from disturbance import disturbed
from figures import Figures, Outcome, Settings, note, repeat
from processes import DIGITS, LAR, MOBILENET, MOBILENET_ONNX, RESNET50

import lar
from lar.records.goals import Allowed
from lar.records.tuning import RankedCandidate, TuneResult
from lar.results.store import open_store

ALLOWED: tuple[Allowed, ...] = ("engine-fixes", "engine-env")
RIVALS = (MOBILENET, MOBILENET_ONNX)
SMALL = (*DIGITS, *RIVALS)
# How long each variant of a comparison is measured.
COMPARE_SECONDS = 20.0
RIVAL_SECONDS = 8.0
RIVAL_BUDGETS = (30.0, 60.0, 90.0)
LONG_SECONDS = 600.0
SHORT_SECONDS = 60.0
KILLS = 20
FIGURES = Figures("bench_tune", budget_seconds=120.0)


@FIGURES.row("resnet50")
def measure_resnet50(settings: Settings) -> Outcome:
    """Tune ResNet50; compare the plain run and the tuned run, in fresh processes."""
    gains = [1 / ratio_of_tuned((RESNET50,), settings.budget_seconds)[0] for _ in repeat(settings)]
    return Outcome(", ".join(f"{gain:.2f}x" for gain in gains), all(gain > 1 for gain in gains))


@FIGURES.row("short")
def measure_short(settings: Settings) -> Outcome:
    best, _ = ratio_of_tuned((RESNET50,), settings.budget_seconds)
    ratios = [ratio_of_tuned((RESNET50,), SHORT_SECONDS)[0] for _ in repeat(settings)]
    near = sum(ratio <= 1.05 * best for ratio in ratios)
    return Outcome(
        f"{near} of {settings.repetitions}; {1 / best:.2f}x, and "
        + ", ".join(f"{1 / ratio:.2f}x" for ratio in ratios),
        near >= 0.8 * settings.repetitions,
    )


def measure_rivals(settings: Settings, *, is_busy: bool) -> Outcome:
    """Search with short budgets, with both formats of a model as rivals.

    If `is_busy` is true, the machine is disturbed during the search. Afterwards, on a quiet
    machine, `lar bench` compares each winner with the winner of a long search.
    """
    right, near, count = 0, 0, 0
    for number in repeat(settings):
        for seconds in RIVAL_BUDGETS:
            best, file = best_of_long_search()
            with tempfile.TemporaryDirectory() as place:
                with disturbed(number) if is_busy else contextlib.nullcontext():
                    found, tuned = tune(RIVALS, Path(place), seconds, allowed=())
                winner = best_of(found)
                sides = ((best.model, file), (winner.model, tuned))
                ratio = compare_settings(*sides, seconds=RIVAL_SECONDS)[0]
            right += winner.engine == "onnxruntime"
            near += ratio <= 1.1
            count += 1
            note(f"{seconds:g} s: {winner.name}, {ratio:.3f} of {best.name}")
    return Outcome(
        f"{right} of {count}, {near} within 10 %", right == count and near >= 0.9 * count
    )


@functools.cache
def best_of_long_search() -> tuple[RankedCandidate, str]:
    """Return the winner of a long search among both formats, and its settings file."""
    found, tuned = tune(RIVALS, Path(tempfile.mkdtemp()), LONG_SECONDS, allowed=())
    return best_of(found), tuned


FIGURES.row("rivals")(functools.partial(measure_rivals, is_busy=False))
FIGURES.row("busy-rivals")(functools.partial(measure_rivals, is_busy=True))


@FIGURES.row("never-slower")
def measure_never_slower(settings: Settings) -> Outcome:
    slower, gains = 0, []
    for at in repeat(settings):
        ratio, verdict = ratio_of_tuned((SMALL[at % len(SMALL)],), settings.budget_seconds / 4)
        slower += verdict == "slower"
        gains.append(ratio)
    count = settings.repetitions
    return Outcome(
        f"{count - slower} of {count}, median ratio {statistics.median(gains):.2f}", not slower
    )


@FIGURES.row("kills")
def measure_kills(settings: Settings) -> Outcome:
    """Kill a search at random moments, and check that finished work is not repeated."""
    draw, kills, repeated, same = random.Random(settings.seed), 0, 0, 0
    for _ in repeat(settings):
        with tempfile.TemporaryDirectory() as place:
            whole, _ = tune((SMALL[0],), Path(place, "whole"), settings.budget_seconds)
            folder = Path(place, "killed")
            folder.mkdir()
            session = str(folder / "session")
            words = ("tune", SMALL[0], "--session", session, "--allow", ",".join(ALLOWED))
            command = [LAR, *words, "--budget", f"{settings.budget_seconds:g}"]
            count = 0
            while count < KILLS and kill_after(command, draw.uniform(2.0, 8.0)):
                count += 1
            killed, _ = tune((SMALL[0],), folder, settings.budget_seconds)
            repeated += count_repeated(session)
        kills += count
        same += singles_of(whole) == singles_of(killed)
    return Outcome(
        f"{kills} kills, {same} of {settings.repetitions} with the same single choices, "
        f"{repeated} that had ended measured again",
        same == settings.repetitions and not repeated,
    )


# Steps


def tune(
    models: Sequence[str], folder: Path, seconds: float, allowed: Sequence[Allowed] = ALLOWED
) -> tuple[TuneResult, str]:
    """Tune a model; return the result and the path of the settings file."""
    folder.mkdir(exist_ok=True)
    settings = str(folder / "tuned.json")
    found = lar.tune(models, session=folder / "session", budget=seconds, allow=allowed)
    found.write_settings(settings)
    return found, settings


def best_of(result: TuneResult) -> RankedCandidate:
    """Return the best candidate of a search, which must have measured something."""
    assert result.best
    return result.best


def singles_of(result: TuneResult) -> set[str]:
    """Return the names of the candidates that make a single choice."""
    return {each.name for each in result.ranking if len(each.choices) == 1}


def ratio_of_tuned(models: Sequence[str], seconds: float) -> tuple[float, str]:
    """Tune a model; then compare the best candidate with the plain run by `lar bench`.

    Return the time of the best candidate divided by that of the plain run, and the verdict.
    """
    with tempfile.TemporaryDirectory() as place:
        found, tuned = tune(models, Path(place), seconds)
        best = best_of(found)
        ratio, verdict = compare_settings((models[0], ""), (best.model, tuned))
    note(f"{Path(best.model).name}: {best.name}, ratio {ratio:.3f}")
    return ratio, verdict


def compare_settings(
    *sides: tuple[str, str], seconds: float = COMPARE_SECONDS
) -> tuple[float, str]:
    """Compare two models by `lar bench`, each with or without a settings file.

    Each model is measured for `seconds`. Return the time of the second model divided by that of the
    first, and the verdict.
    """
    specs = [f"{model} --settings {file}" if file else model for model, file in sides]
    difference = lar.bench(specs, budget_seconds=2 * seconds).variants[1].difference
    return (difference.ratio, difference.verdict) if difference else (1.0, "")


def kill_after(command: Sequence[str], seconds: float) -> bool:
    """Start a command; kill it and all its processes after `seconds`.

    Return False if the command has ended before.
    """
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return True
    return False


def count_repeated(session: str) -> int:
    """Return how many failed processes and finished searches of a session were repeated.

    Other processes are not counted: a candidate is measured again as long as it may win.
    """
    with open_store(session) as store:
        entries = store.entries()
    ends = Counter(
        entry.tag.split(": ", 1)[1]
        for entry in entries
        if entry.status != "ok" or entry.tag.startswith("search")
    )
    return sum(count - 1 for count in ends.values())


if __name__ == "__main__":
    sys.exit(FIGURES.main(__doc__))
