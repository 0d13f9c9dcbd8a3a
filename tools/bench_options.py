"""Times the settings of MegEngine on ResNet50, side by side, and prints them as a table.

    uv run python tools/bench_options.py [--rounds N]

Each round runs all variants in an order drawn anew. Latency is the median over the rounds of the
ratio to the default of the same round; warm-up seconds and peak memory are medians. The search
of fast-run is made once, before the rounds, into a cache file that the last variants read.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
MODEL = ROOT / "models" / "large" / "resnet50.mge"
MKL = ("--engine-env", "MKL_DEBUG_CPU_TYPE=5")


class Figures(NamedTuple):
    """What one run gave."""

    median_seconds: float
    warmup_seconds: float
    peak_bytes: int


def variants_of(cache: Path) -> dict[str, tuple[str, ...]]:
    """Return the flags of each variant, by the text that the table shows."""
    read = ("--fast-run-algo-policy", str(cache))
    return {
        "default": (),
        "`--engine-env MKL_DEBUG_CPU_TYPE=5`": MKL,
        "`--enable-nchw44`": ("--enable-nchw44",),
        "`--enable-nchw88 --engine-fix x2apic`": ("--enable-nchw88", "--engine-fix", "x2apic"),
        "`--multithread-default 2`": ("--multithread-default", "2"),
        "`--fast-run-algo-policy FILE`, searched before": read,
    }


def run_lar(*flags: str) -> Figures:
    """Run the model five times and return the figures.

    Raises:
        SystemExit: the run failed.
    """
    command = [sys.executable, "-m", "lar", str(MODEL), "--iter", "5", "--json", "-", *flags]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    result: dict[str, Any] = json.loads(done.stdout)
    return Figures(
        statistics.median(result["samples"]["end_to_end"]),
        sum(result["warmup"]["end_to_end"]),
        result["peak_memory_bytes"],
    )


def format_row(name: str, ratio: float, figures: list[Figures]) -> str:
    warmup = statistics.median(each.warmup_seconds for each in figures)
    peak = statistics.median(each.peak_bytes for each in figures)
    return f"| {name} | {ratio:.2f}x | {warmup:.2f} s | {peak / 2**20:.0f} MiB |"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    if not MODEL.exists():
        make = [sys.executable, str(ROOT / "tools" / "make_models.py"), "resnet50"]
        subprocess.run(make, check=True)
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "resnet50.cache"
        search = run_lar("--fast-run", "--fast-run-algo-policy", str(cache))
        variants = variants_of(cache)
        figures: dict[str, list[Figures]] = {name: [] for name in variants}
        for _ in range(rounds):
            for name in random.sample(list(variants), len(variants)):
                figures[name].append(run_lar(*variants[name]))
    print("| ResNet50 | latency | warm-up | peak memory |\n|---|---|---|---|")
    default = figures["default"]
    for name, runs in figures.items():
        pairs = zip(runs, default, strict=True)
        ratio = statistics.median(mine.median_seconds / its.median_seconds for mine, its in pairs)
        print(format_row(name, ratio, runs))
    ratio = search.median_seconds / statistics.median(each.median_seconds for each in default)
    print(format_row("`--fast-run`, the search itself", ratio, [search]))


if __name__ == "__main__":
    main()
