"""What it costs to keep the profile of many iterations."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench import LAR, ROOT
from figures import Outcome, Settings, note, repeat

SMALL = tuple(str(ROOT / "models" / f"digits_cnn.{suffix}") for suffix in ("mge", "onnx"))
ITERATIONS = 5000
MOST_MEGABYTES = 150.0
MOST_FILE_MEGABYTES = 10.0


def measure_kept(settings: Settings, folder: Path) -> Outcome:
    """Profile thousands of iterations of a small model with both engines, and report them."""
    memory, sizes, reports = [], [], []
    for model in SMALL:
        # The first profile of a day measures what the machine reaches, in a process of its own.
        memory_of([LAR, model, "--iter", "1", "--profile", str(folder / "first.json")])
    for at in repeat(settings):
        model, place = SMALL[at % len(SMALL)], folder / f"{at}.json"
        command = [LAR, model, "--iter", str(ITERATIONS), "--profile", str(place)]
        memory.append(memory_of(command))
        sizes.append(place.stat().st_size / 1e6)
        reports.append(memory_of([LAR, "report", str(place)]))
        note(
            f"{Path(model).name}: {memory[-1]:.0f} MB, the file {sizes[-1]:.1f} MB; "
            f"its report {reports[-1]:.0f} MB"
        )
    return Outcome(
        f"{max(memory):.0f} MB, the file {max(sizes):.1f} MB; its report {max(reports):.0f} MB",
        max(memory) < MOST_MEGABYTES and max(sizes) < MOST_FILE_MEGABYTES,
    )


def memory_of(command: Sequence[str]) -> float:
    """Run a command, which must succeed; return the megabytes of the largest of its processes."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    return usage.ru_maxrss * 1024 / 1e6  # KiB on Linux
