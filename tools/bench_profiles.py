"""Times profiles and the reports made of them.

    uv run python tools/bench_profiles.py [--rounds N] [CASE ...]

The profile is that of ResNet50 with 100 iterations. What profiling costs is told by the samples of
a profiled run: lar makes the same run without the profiler before it.
"""

from __future__ import annotations

import functools
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import (
    LAR,
    PYTHON,
    RESNET50,
    Case,
    Figure,
    difference,
    format_percent,
    measure_memory,
    ratio,
    ratio_case,
    run_cases,
    run_quietly,
    time_process,
)

from lar.reports.styles import STYLES

RESNET50_ONNX = str(Path(RESNET50).with_suffix(".onnx"))
ANALYZE = [PYTHON, "-m", "megengine.tools.profile_analyze"]
MIB = 2**20
KEPT = tempfile.TemporaryDirectory()


@functools.cache
def profile() -> tuple[str, str]:
    """Make a profile and the engine's own, once; they go away with the process."""
    ours, raw = (str(Path(KEPT.name) / name) for name in ("profile.json", "raw.json"))
    flags = ["--fill", "ones", "--iter", "100", "--profile", ours, "--profile-raw", raw]
    subprocess.run([LAR, RESNET50, *flags], check=True, capture_output=True)
    return ours, raw


def on_profile(measure: object, style: str) -> Figure:
    """Measure a report of one style."""

    def figure() -> float:
        paths = [profile()[0]] * STYLES[style].profiles[0]
        command = [LAR, "report", *paths, "--style", style]
        return float(measure(*command)())  # type: ignore[operator]

    return figure


def on_raw(*command: str) -> Figure:
    """Time a command on the engine's own profile."""
    return lambda: time_process(*command, profile()[1])()


def cost_of(model: str) -> Figure:
    """The median iteration of a profiled run over that without the profiler."""

    def measure() -> float:
        with tempfile.TemporaryDirectory() as folder:
            flags = ["--fill", "ones", "--iter", "20", "--profile", f"{folder}/p.json"]
            result = json.loads(run_quietly([LAR, model, *flags, "--json", "-"]).stdout)
        medians = [
            statistics.median(result[key]["end_to_end"]) for key in ("samples", "unprofiled")
        ]
        return float(medians[0] / medians[1])

    return measure


def cost_case(name: str, model: str, limit: float) -> Case:
    kind = Path(model).suffix
    return Case(
        name,
        f"median iteration of ResNet50 {kind} with `--profile`",
        "without",
        f"under {100 * limit - 100:+.0f} %",
        cost_of(model),
        lambda: 1.0,
        ratio,
        format_percent,
        lambda value: value < limit,
        5,
    )


def bound_case(style: str) -> tuple[Case, Case]:
    """Return what a report of one style takes: seconds and memory."""
    what = f"`lar report --style {style}`, 100 iterations of ResNet50"
    return (
        Case(
            style,
            what,
            "",
            "under 1.5 s",
            on_profile(time_process, style),
            lambda: 0.0,
            difference,
            lambda value: f"{value:.2f} s",
            lambda value: value < 1.5,
            5,
        ),
        Case(
            f"{style}-memory",
            f"{what}, peak memory",
            "",
            "under 300 MiB",
            on_profile(measure_memory, style),
            lambda: 0.0,
            difference,
            lambda value: f"{value / MIB:.0f} MiB",
            lambda value: value < 300 * MIB,
            3,
        ),
    )


CASES = (
    # What tensorboard takes is its plugin's.
    *(case for style in STYLES if style != "tensorboard" for case in bound_case(style)),
    ratio_case(
        "analyze",
        "`lar report --style megengine` on the engine's own profile of ResNet50",
        "`profile_analyze`",
        0.5,
        on_raw(LAR, "report"),
        on_raw(*ANALYZE),
        11,
    ),
    cost_case("cost-mge", RESNET50, 1.10),
    cost_case("cost-onnx", RESNET50_ONNX, 1.03),
)

if __name__ == "__main__":
    sys.exit(run_cases(CASES))
