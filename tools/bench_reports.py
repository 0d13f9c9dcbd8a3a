"""Measures what reports of profiles say: joined operators, differences, advice, accounts, cost.

    uv run python tools/bench_reports.py [--count N] [--budget S] [--seed N] [FIGURE ...]

prints the table of `lar help benchmarks`. Large models are made in `models/large` first.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from bench import LAR, PYTHON, RESNET50, ROOT, run_quietly
from figures import Figure, Outcome, Settings, measure_figures, note, repeat

import lar
from lar.profiles.breakdown import OTHER, breakdown_of

SMALL = tuple(
    str(ROOT / "models" / f"{name}.{suffix}")
    for name in ("mobilenet_v2", "digits_cnn")
    for suffix in ("mge", "onnx")
)


def measure_accounts(settings: Settings) -> Outcome:
    """Profile models, and compare what the report names with the steps as they were measured."""
    left = []
    for at in repeat(settings):
        model = SMALL[at % len(SMALL)]
        breakdown = breakdown_of(lar.read_profile(profile_of(model, "--iter", "50")))
        left.append(breakdown.share(OTHER) or 0.0)
        note(f"{Path(model).name}: {left[-1]:.2%} not explained")
    held = sum(share <= 0.03 for share in left)
    return Outcome(
        f"{held} of {settings.repetitions}, at most {max(left):.1%} not explained",
        held == settings.repetitions,
    )


# Steps


def profile_of(model: str, *words: str) -> str:
    """Profile a model; return the file."""
    place = str(Path(tempfile.mkdtemp(dir=FOLDER.name), "profile.json"))
    run_quietly([LAR, model, "--profile", place, *words])
    return place


def make_resnet50() -> None:
    """Make ResNet50 in both formats where it is missing."""
    if not Path(RESNET50).exists():
        run_quietly([PYTHON, str(ROOT / "tools" / "make_models.py"), "resnet50"])


FOLDER = tempfile.TemporaryDirectory()

FIGURES = (
    Figure(
        "accounts",
        "operators, copies, waiting and overhead against the measured step",
        "within 3 %",
        20,
        measure_accounts,
    ),
)


def main() -> int:
    """Measure the figures that the command line names."""
    return measure_figures(FIGURES, __doc__.splitlines()[0] if __doc__ else "", 20.0)


if __name__ == "__main__":
    sys.exit(main())
