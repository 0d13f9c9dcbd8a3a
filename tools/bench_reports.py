"""Measures what reports of profiles say: joined operators, differences, advice, accounts, cost.

    uv run python tools/bench_reports.py [--count N] [--budget S] [--seed N] [FIGURE ...]

prints the table of `lar help benchmarks`. Large models are made in `models/large` first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench import LAR, PYTHON, RESNET50, ROOT, run_quietly
from bench_tune import best_of, make_large, tune
from figures import Figure, Outcome, Settings, measure_figures, note, repeat
from profile_costs import measure_kept
from report_differences import measure_joined, measure_same, measure_slower

import lar
from lar.engines.advice import suggestions_of
from lar.profiles.breakdown import OTHER, WAITING, breakdown_of
from lar.profiles.costs import fit_to_plain
from lar.records.tuning import TuneResult
from lar.reports.styles import STYLES
from lar.running.advice import MOST_TRIED, plan_plain, race

SMALL = tuple(
    str(ROOT / "models" / f"{name}.{suffix}")
    for name in ("mobilenet_v2", "digits_cnn")
    for suffix in ("mge", "onnx")
)

ADVISED = (*SMALL, str(ROOT / "models" / "large" / "resnet18.mge"))
COMPARE_SECONDS = 40.0
# A choice of a winner that gains less may have been taken for what was noise.
NOISE = 0.03


def measure_accounts(settings: Settings) -> Outcome:
    """Profile models, and compare the sum of what the report names, which leaves out Other, with
    the iterations as the run measured them."""
    off = []
    for at in repeat(settings):
        model = SMALL[at % len(SMALL)]
        with tempfile.TemporaryDirectory(dir=FOLDER.name) as folder:
            place, kept = str(Path(folder, "profile.json")), str(Path(folder, "run.json"))
            words = (model, "--iter", "50", "--profile", place, "--json", kept)
            run_quietly([LAR, *words])
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


def measure_cost(settings: Settings) -> Outcome:
    """Report 100 iterations of ResNet50 in every style: seconds of CPU time and MiB of memory."""
    make_resnet50()
    place = profile_of(RESNET50, "--iter", "100")
    most = {"seconds": 0.0, "MiB": 0.0}
    slowest = ""
    for style, row in STYLES.items():
        if style == "tensorboard":
            continue  # what it takes is the plugin's
        words = [LAR, "report", *[place] * row.profiles[0], "--style", style]
        words += ["--html", str(Path(place).with_name("page.html"))]
        costs = [cost_of(words) for _ in repeat(settings)]
        seconds, size = min(each[0] for each in costs), max(each[1] for each in costs)
        note(f"{style}: {seconds:.2f} s, {size:.0f} MiB")
        if seconds > most["seconds"]:
            slowest = style
        most = {"seconds": max(most["seconds"], seconds), "MiB": max(most["MiB"], size)}
    return Outcome(
        f"{most['seconds']:.2f} s ({slowest}), {most['MiB']:.0f} MiB",
        most["seconds"] < 1.0 and most["MiB"] < 150,
    )


def cost_of(words: list[str]) -> tuple[float, float]:
    """Return the CPU seconds and the peak memory in MiB of a command.

    Raises:
        RuntimeError: it failed.
    """
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"{' '.join(words)} failed")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


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
            plain = plan_plain(model, {})
            bench = race(plain, advised[:1], budget_seconds=COMPARE_SECONDS)
            difference = bench.variants[1].difference
        is_slower = difference is not None and difference.verdict == "slower"
        slower += is_slower
        with tempfile.TemporaryDirectory() as place:
            found = tune((model,), Path(place), settings.budget_seconds)[0]
        best = best_choice_of(found)
        names = [each.name for each in advised]
        is_missing = bool(best) and best not in names
        missing += is_missing
        ratio = f"{difference.ratio:.2f}" if difference else "-"
        note(
            f"{Path(model).name}: advised {', '.join(names) or 'nothing'}; the first {ratio}; "
            f"the tuner has {best_of(found).name}, best of it {best or 'none'}"
        )
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


# Steps


def profile_of(model: str, *words: str) -> str:
    """Profile a model; return the file."""
    place = str(Path(tempfile.mkdtemp(dir=FOLDER.name), "profile.json"))
    run_quietly([LAR, model, "--profile", place, *words])
    return place


def in_folder(measure: Callable[[Settings, Path], Outcome]) -> Callable[[Settings], Outcome]:
    """Return a measurement that is given a folder of its own for its profiles."""

    def measured(settings: Settings) -> Outcome:
        make_resnet50()
        return measure(settings, Path(tempfile.mkdtemp(dir=FOLDER.name)))

    return measured


def make_resnet50() -> None:
    """Make ResNet50 in both formats where it is missing."""
    if not Path(RESNET50).exists():
        run_quietly([PYTHON, str(ROOT / "tools" / "make_models.py"), "resnet50"])


FOLDER = tempfile.TemporaryDirectory()

FIGURES = (
    Figure(
        "joined",
        "operators joined between layouts, levels and engines: ResNet50, MobileNetV2, BERT-like",
        "95 % of the time, 0 wrong pairs",
        1,
        in_folder(measure_joined),
    ),
    Figure(
        "same",
        "one command, three pairs of runs, disturbed: any operator called different",
        "at most 1 of 20",
        20,
        in_folder(measure_same),
    ),
    Figure(
        "slower",
        "one operator of 59 made twice as slow in three pairs of runs: it is found, and no other",
        "90 %",
        20,
        in_folder(measure_slower),
    ),
    Figure(
        "accounts",
        "operators, copies, waiting and overhead against the measured step",
        "within 3 %",
        20,
        measure_accounts,
    ),
    Figure(
        "cost",
        "a report of 100 iterations of ResNet50, CPU time and memory, the most of any style",
        "under 1.0 s and 150 MB",
        3,
        measure_cost,
    ),
    Figure(
        "kept",
        "a profile of 5,000 iterations of a small model, both engines: memory, and its file",
        "under 150 MB and 10 MB",
        2,
        in_folder(measure_kept),
    ),
    Figure(
        "advice",
        "the first setting suggested, beside the default; the best of lar tune among three",
        "never slower; all",
        len(ADVISED),
        measure_advice,
    ),
)


def main() -> int:
    """Measure the figures that the command line names."""
    return measure_figures(FIGURES, __doc__.splitlines()[0] if __doc__ else "", 20.0)


if __name__ == "__main__":
    sys.exit(main())
