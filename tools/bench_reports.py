"""Measures the cost of profiles and their reports, and whether reports are right.

    uv run python tools/bench_reports.py [--count N] [--budget S] [--seed N] [FIGURE ...]

prints tables of `lar help benchmarks`. Large models are first made in `models/large`.
"""

from __future__ import annotations

import math
import statistics
import sys
import tempfile
from functools import cached_property
from pathlib import Path
from typing import Any

import report_differences
from bench_tune import SMALL, best_of, tune
from figures import Figures, Outcome, Settings, note, repeat
from processes import (
    DIGITS,
    LAR,
    LARGE,
    RESNET50,
    Cost,
    cost_of,
    make_large,
    run_model,
)

import lar
from lar.engines.advice import suggestions_of
from lar.measurement.differences import compare_pairs
from lar.measurement.machine import usable_cpus
from lar.measurement.peak import find_peak
from lar.profiles.breakdown import OTHER, WAITING, breakdown_of
from lar.profiles.costs import fit_to_plain
from lar.records.tuning import TuneResult
from lar.reports.styles import STYLES
from lar.running.bench import MOST_TRIED, plan_plain, race

ADVISED = (*SMALL, str(LARGE / "resnet18.mge"))
COMPARE_SECONDS = 40.0
# A smaller gain of a choice may be noise, even if the search has chosen it.
NOISE = 0.03
MANY_ITERATIONS = 5000
FIRST_PROFILES = 10  # the first ones measure the machine's peak
MB = 1e6

FOLDER = tempfile.TemporaryDirectory()


class Made:
    """Files that the figures of ResNet50 need; they are made once."""

    @cached_property
    def profiles(self) -> tuple[str, str]:
        """Make a profile in lar's format, and the profile in the engine's own format."""
        raw = new_place()
        return profile_of(RESNET50, iter=100, profile_raw=raw)[0], raw


MADE = Made()
FIGURES = Figures("bench_reports", budget_seconds=20.0, made=MADE)


def new_place(name: str = "profile.json") -> str:
    """Return the path for a new file, in a new folder."""
    return str(Path(tempfile.mkdtemp(dir=FOLDER.name), name))


def profile_of(model: str, **options: Any) -> tuple[str, lar.RunResult]:
    """Profile a model; return the path of the profile, and the result of the run."""
    place = new_place()
    return place, run_model(model, fill="ones", profile=place, **options)


# What profiles and reports cost


@FIGURES.row("styles")
def measure_styles(settings: Settings) -> Outcome:
    most, profile = Cost(0.0, 0.0, 0.0, 0.0), MADE.profiles[0]
    for style in STYLES:
        if style == "tensorboard":  # the cost would be that of the plugin
            continue
        # Styles for two profiles compare the profile with itself.
        profiles = [profile] * STYLES[style].profiles[0]
        words = (LAR, "report", *profiles, "--style", style, "--html", new_place("page.html"))
        costs = [cost_of(*words) for _ in repeat(settings)]
        cost = Cost(*map(min, zip(*costs, strict=True)))
        note(
            f"{style}: {cost.seconds:.2f} s, CPU {cost.cpu_seconds:.2f} s, {cost.largest / MB:.0f}"
        )
        most = Cost(*map(max, most, cost))
    return Outcome(
        f"{most.seconds:.2f} s, CPU {most.cpu_seconds:.2f} s, {most.largest / MB:.0f} MB",
        most.seconds < 1.5 and most.cpu_seconds < 1.0 and most.largest < 150 * MB,
    )


def reported_with_profile(model: str) -> float:
    """Return the median iteration of a run with `--profile`, divided by that of a run without.

    A printed line also has the median of the iterations in the profile, divided by the median that
    the run with `--profile` reports.
    """
    run, plain = profile_of(model, iter=100)[1], run_model(model, iter=100)
    samples = run.profiled, run.samples, plain.samples
    recorded, *reported = (statistics.median(it.end_to_end) for it in samples)
    note(f"recorded {recorded / reported[0]:.2f}x")
    return reported[0] / reported[1]


@FIGURES.row("kept")
def measure_kept(settings: Settings) -> Outcome:
    """Profile thousands of iterations, and measure the memory and the size of the files.

    The machine's peak is measured before, since lar would otherwise measure it, in additional
    processes, during the first profiles of a day.
    """
    for threads in {1, len(usable_cpus())}:
        for _ in range(FIRST_PROFILES):
            find_peak(threads)
    runs, sizes, reports = [], [], []
    for at in repeat(settings):
        model, place = DIGITS[at % len(DIGITS)], new_place()
        runs.append(cost_of(LAR, model, "--iter", str(MANY_ITERATIONS), "--profile", place))
        sizes.append(Path(place).stat().st_size / MB)
        reports.append(cost_of(LAR, "report", place).largest / MB)
        about = f"{sizes[-1]:.1f} MB, {reports[-1]:.0f}"
        note(f"{at}: {runs[-1].together / MB:.0f} MB together, {about}")
    together = max(each.together for each in runs) / MB
    largest = max(each.largest for each in runs) / MB
    return Outcome(
        f"{together:.0f} MB together, {largest:.0f} MB the largest process, the file "
        f"{max(sizes):.1f} MB; its report {max(reports):.0f} MB",
        together < 150 and max(sizes) < 10,
    )


# What reports say


FIGURES.row("joined")(report_differences.measure_joined)
FIGURES.row("same")(report_differences.measure_same)
FIGURES.row("slower")(report_differences.measure_slower)


@FIGURES.row("accounts")
def measure_accounts(settings: Settings) -> Outcome:
    """Profile models, and compare the time that the report explains with the measured iterations.

    The explained time is the sum of all parts of the report except Other.
    """
    off = []
    for at in repeat(settings):
        model = SMALL[at % len(SMALL)]
        place, run = profile_of(model, iter=50)
        measured = sum(run.samples.end_to_end)
        steps = breakdown_of(fit_to_plain(lar.read_profile(place)))
        named = sum(step.total_ns - step.buckets_ns[OTHER] for step in steps)
        off.append(abs(named / 1e9 / measured - 1))
        waits = sum(step.buckets_ns.get(WAITING, 0) for step in steps)
        waiting = waits / sum(step.total_ns for step in steps)
        note(f"{Path(model).name}: {off[-1]:.2%} off, {waiting:.0%} of it waiting")
    held = sum(share <= 0.03 for share in off)
    return Outcome(
        f"{held} of {settings.repetitions}, at most {max(off):.1%} off",
        held == settings.repetitions,
    )


@FIGURES.row("plain")
def measure_plain(settings: Settings) -> Outcome:
    """Run four models with and without `--profile`, in turns, and compare the medians."""
    verdicts = []
    for model in SMALL:
        turns = [[math.log(reported_with_profile(model))] for _ in repeat(settings)]
        found = compare_pairs(turns, comparisons=len(SMALL), once=True)
        assert found
        assert found.interval
        low, high = found.interval.low, found.interval.high
        verdicts.append((f"{found.ratio:.3f} ({low:.3f} to {high:.3f})", found.ratio < 1.05))
    held = sum(is_held for _, is_held in verdicts)
    return Outcome(
        f"{held} of {len(SMALL)}: {', '.join(text for text, _ in verdicts)}", held == len(SMALL)
    )


@FIGURES.row("advice")
def measure_advice(settings: Settings) -> Outcome:
    """Check that suggestions for models help, and that the best choice is among them.

    A run with the first suggestion must not be slower than the profiled run. Of the choices that
    `lar tune` finds, the choice with the largest gain must be among the first three suggestions.
    """
    make_large("resnet18")
    slower, missing, named = 0, 0, []
    for at in repeat(settings):
        model = ADVISED[at % len(ADVISED)]
        profile = fit_to_plain(lar.read_profile(profile_of(model, iter=30)[0]))
        advised = suggestions_of(profile)[:MOST_TRIED]
        difference = None
        if advised:
            bench = race(plan_plain(model, {}), advised[:1], budget_seconds=COMPARE_SECONDS)
            difference = bench.variants[1].difference
        slower += difference is not None and difference.verdict == "slower"
        found, _ = tune((model,), Path(new_place()).parent, settings.budget_seconds)
        best = best_choice_of(found)
        missing += bool(best) and best not in [each.name for each in advised]
        ratio = f"{difference.ratio:.2f}" if difference else "-"
        note(f"{model}: advised {[it.name for it in advised]}; the first {ratio}; tuned {best}")
        named.append(f"{Path(model).name} {ratio}")
    count = settings.repetitions
    return Outcome(
        f"{count - slower} of {count} not slower, {count - missing} of {count} named "
        f"(time over the default's: {', '.join(named)})",
        not slower and not missing,
    )


def best_choice_of(result: TuneResult) -> str:
    """Return the winner's choice that gains most when it is made alone.

    The text is empty if no choice alone gains more than noise.
    """
    winner = best_of(result)
    ratios = {
        each.choices[0]: each.ratio
        for each in result.ranking
        if each.ratio and each.engine == winner.engine
        if len(each.choices) == 1 and each.choices[0] in winner.choices
    }
    best = min(ratios, key=lambda choice: ratios[choice], default="")
    return best if best and ratios[best] < 1 - NOISE else ""


if __name__ == "__main__":
    sys.exit(FIGURES.main(__doc__))
