"""Measures what profiles and their reports cost, and what reports say.

    uv run python tools/bench_reports.py [--count N] [--budget S] [--seed N] [FIGURE ...]

prints tables of `lar help benchmarks`. Large models are made in `models/large` first.
"""

from __future__ import annotations

import functools
import json
import math
import statistics
import sys
import tempfile
from pathlib import Path

import report_differences
from bench_tune import best_of, tune
from figures import Figures, Measure, Outcome, Settings, note, ratio_under, ratio_within, repeat
from processes import (
    LAR,
    MOBILENET,
    MOBILENET_ONNX,
    MODELS,
    PYTHON,
    RESNET50,
    RESNET50_ONNX,
    Cost,
    cost_of,
    make_large,
    run_json,
    run_well,
    seconds_of,
)

import lar
from lar.engines.advice import suggestions_of
from lar.measurement.differences import compare_pairs
from lar.measurement.kept_peaks import find_peak
from lar.measurement.machine_noise import usable_cpus
from lar.profiles.breakdown import OTHER, WAITING, breakdown_of
from lar.profiles.costs import fit_to_plain
from lar.records.tuning import TuneResult
from lar.reports.styles import STYLES
from lar.running.advice import MOST_TRIED, plan_plain, race

DIGITS = tuple(str(MODELS / f"digits_cnn.{suffix}") for suffix in ("mge", "onnx"))
SMALL = (MOBILENET, MOBILENET_ONNX, *DIGITS)
ADVISED = (*SMALL, str(MODELS / "large" / "resnet18.mge"))
COMPARE_SECONDS = 40.0
# A choice of a winner that gains less may have been taken for what was noise.
NOISE = 0.03
MANY_ITERATIONS = 5000
FIRST_PROFILES = 10  # of a day, after which the peak of a machine is known
MB = 1e6

FOLDER = tempfile.TemporaryDirectory()
FIGURES = Figures(budget_seconds=20.0)


def new_place(name: str = "profile.json") -> str:
    """Return where a file is to be written, in a folder of its own."""
    return str(Path(tempfile.mkdtemp(dir=FOLDER.name), name))


def profile_of(model: str, *words: str) -> str:
    """Profile a model; return the file."""
    place = new_place()
    run_well(LAR, model, "--fill", "ones", "--profile", place, *words)
    return place


def style_words(profile: str, style: str) -> list[str]:
    """Return the command of a report in a style, which compares a profile with itself if it takes
    two."""
    return [LAR, "report", *[profile] * STYLES[style].profiles[0], "--style", style]


def export_words(name: str, suffix: str, profile: str) -> list[str]:
    place = f"{FOLDER.name}/{name}.{suffix}"
    return [LAR, "report", profile, "--export", name, "-o", place]


# What tensorboard takes is its plugin's.
OWN_STYLES = [style for style in STYLES if style != "tensorboard"]


# What they cost


@functools.cache
def profiles_of_resnet50() -> tuple[str, str]:
    """Make a profile of ResNet50 and the engine's own, once."""
    raw = new_place()
    return profile_of(RESNET50, "--iter", "100", "--profile-raw", raw), raw


@FIGURES.row(
    "styles",
    "a report of 100 iterations of ResNet50, the most of any style: seconds, CPU time, memory",
    "under 1.5 s, 1.0 s and 150 MB",
    3,
)
def measure_styles(settings: Settings) -> Outcome:
    most = Cost(0.0, 0.0, 0.0, 0.0)
    for style in OWN_STYLES:
        words = [*style_words(profiles_of_resnet50()[0], style), "--html", new_place("page.html")]
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


FIGURES.versus(
    "analyze",
    "`lar report --style megengine` on the engine's own profile of ResNet50, to `profile_analyze`",
    ratio_under(0.5),
    lambda: seconds_of(LAR, "report", profiles_of_resnet50()[1])(),
    lambda: seconds_of(
        PYTHON, "-m", "megengine.tools.profile_analyze", profiles_of_resnet50()[1]
    )(),
    11,
)


def median_with_profile(model: str) -> float:
    """Return the median iteration of a profiled run over that without the profiler: lar makes the
    same run without it before."""
    words = ("--fill", "ones", "--iter", "20", "--profile", new_place(), "--json", "-")
    result = run_json(model, *words)
    medians = [statistics.median(result[key]["end_to_end"]) for key in ("samples", "unprofiled")]
    return float(medians[0] / medians[1])


def add_profiling(name: str, model: str, percent: float) -> None:
    ours: Measure = functools.partial(median_with_profile, model)
    what = f"median iteration of ResNet50 {Path(model).suffix} with `--profile`, to without"
    limit = ratio_within(-100, percent, f"under {percent:+.0f} %")
    FIGURES.versus(name, what, limit, ours, lambda: 1.0, 5)


add_profiling("cost-mge", RESNET50, 10)
add_profiling("cost-onnx", RESNET50_ONNX, 3)


@functools.cache
def find_peaks() -> None:
    """Measure what the machine reaches, as the first profiles of a day do, in processes of their
    own, until that is known."""
    for threads in {1, len(usable_cpus())}:
        for _ in range(FIRST_PROFILES):
            find_peak(threads)


@functools.cache
def keep_profile(model: str, number: int = 0) -> tuple[str, Cost]:
    """Profile thousands of iterations; return the file and what that took."""
    find_peaks()
    place = new_place()
    return place, cost_of(LAR, model, "--iter", str(MANY_ITERATIONS), "--profile", place)


@FIGURES.row(
    "kept",
    "a profile of 5,000 iterations of a small model, both engines: memory, and its file",
    "under 150 MB and 10 MB",
    2,
)
def measure_kept(settings: Settings) -> Outcome:
    runs, sizes, reports = [], [], []
    for at in repeat(settings):
        place, cost = keep_profile(DIGITS[at % len(DIGITS)], at // len(DIGITS))
        runs.append(cost)
        sizes.append(Path(place).stat().st_size / MB)
        reports.append(cost_of(LAR, "report", place).largest / MB)
        note(f"{at}: {cost.together / MB:.0f} MB together, {sizes[-1]:.1f} MB, {reports[-1]:.0f}")
    together = max(each.together for each in runs) / MB
    largest = max(each.largest for each in runs) / MB
    return Outcome(
        f"{together:.0f} MB together, {largest:.0f} MB the largest process, the file "
        f"{max(sizes):.1f} MB; its report {max(reports):.0f} MB",
        together < 150 and max(sizes) < 10,
    )


# What they say


FIGURES.row(
    "joined",
    "operators joined between layouts, levels and engines: ResNet50, MobileNetV2, BERT-like",
    "95 % of the time, 0 wrong pairs",
)(report_differences.measure_joined)
FIGURES.row(
    "same",
    "one command, three pairs of runs, disturbed: any operator called different",
    "at most 1 of 20",
    20,
)(report_differences.measure_same)
FIGURES.row(
    "slower",
    "one operator of 59 made twice as slow in three pairs of runs: it is found, and no other",
    "90 %",
    20,
)(report_differences.measure_slower)


@FIGURES.row(
    "accounts",
    "operators, copies, waiting and overhead against the measured step",
    "within 3 %",
    20,
)
def measure_accounts(settings: Settings) -> Outcome:
    """Profile models, and compare the sum of what the report names, which leaves out Other, with
    the iterations as the run measured them."""
    off = []
    for at in repeat(settings):
        model, kept = SMALL[at % len(SMALL)], new_place("run.json")
        place = profile_of(model, "--iter", "50", "--json", kept)
        measured = sum(json.loads(Path(kept).read_text())["samples"]["end_to_end"])
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


@FIGURES.row(
    "plain",
    "the plain time that a report begins with, to `lar run` without `--profile`, in turns",
    "no difference shown",
    8,
)
def measure_plain(settings: Settings) -> Outcome:
    """Take turns between runs with and without `--profile`, of four models; judge as `lar bench`
    does."""
    verdicts = []
    for model in SMALL:
        turns = []
        for _ in repeat(settings):
            words = (model, "--iter", "100", "--json", "-")
            plain = statistics.median(run_json(*words)["samples"]["end_to_end"])
            headline = profile_of(*words[:3])
            cost = lar.read_profile(headline).facts.cost
            assert cost
            turns.append([math.log(cost.unprofiled_seconds / plain)])
        found = compare_pairs(turns, comparisons=len(SMALL), once=True)
        assert found
        assert found.interval
        low, high = found.interval.low, found.interval.high
        verdicts.append((f"{found.ratio:.3f} ({low:.3f} to {high:.3f})", found.is_shown))
    held = sum(not is_shown for _, is_shown in verdicts)
    return Outcome(
        f"{held} of {len(SMALL)}: {', '.join(text for text, _ in verdicts)}", held == len(SMALL)
    )


@FIGURES.row(
    "advice",
    "the first setting suggested, beside the default; the best of lar tune among three",
    "never slower; all",
    len(ADVISED),
)
def measure_advice(settings: Settings) -> Outcome:
    """Follow the first suggestion for models, beside the run that was profiled; and look whether
    the choice that helps most of what `lar tune` finds is among the first three."""
    make_large("resnet18")
    slower, missing, named = 0, 0, []
    for at in repeat(settings):
        model = ADVISED[at % len(ADVISED)]
        profile = fit_to_plain(lar.read_profile(profile_of(model, "--iter", "30")))
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
    """Return the choice of the winner of a search that helps most alone, empty where none helps by
    more than noise."""
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
