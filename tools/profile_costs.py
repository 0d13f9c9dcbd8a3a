"""What it costs to keep the profile of thousands of iterations, and to report and export it.

    uv run python tools/profile_costs.py

prints the table of `lar help benchmarks`: the memory and the CPU time of each style and export.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bench import LAR, ROOT
from figures import Outcome, Settings, note, repeat

from lar.measurement.kept_peaks import find_peak
from lar.measurement.machine_noise import usable_cpus
from lar.reports.styles import EXPORTS, STYLES

SMALL = tuple(str(ROOT / "models" / f"digits_cnn.{suffix}") for suffix in ("mge", "onnx"))
ITERATIONS = 5000
MOST_FIRST_PROFILES = 10
MOST_MEGABYTES = 150.0
MOST_FILE_MEGABYTES = 10.0
SAMPLE_SECONDS = 0.03


class Cost(NamedTuple):
    """What a command took: the peak of all of its processes together, with shared pages counted
    once, that of the largest one, and the CPU time of all, in MB and seconds."""

    sum_megabytes: float
    largest_megabytes: float
    cpu_seconds: float


def main() -> None:
    """Print what the profiles of both engines cost, and each style and export of them."""
    with tempfile.TemporaryDirectory() as folder:
        profiles = [os.path.join(folder, f"{number}.json") for number in range(len(SMALL))]
        print("| what | .mge | .onnx |\n|---|---|---|")
        warm_up()
        print_row("the run, all processes together", [*map(cost_of_run, SMALL, profiles)])
        for name, words in report_words(Path(folder)):
            costs = [cost_of([LAR, "report", place, *words(place)]) for place in profiles]
            print_row(f"`{name}`", costs)


def print_row(what: str, costs: Sequence[Cost]) -> None:
    cells = [f"{it.sum_megabytes:.0f} MB, {it.cpu_seconds:.1f} s" for it in costs]
    print(f"| {what} | {' | '.join(cells)} |", flush=True)


class Words(NamedTuple):
    """The words of a command after the profile, some of which may be the profile again."""

    again: bool
    rest: tuple[str, ...]

    def __call__(self, profile: str) -> list[str]:
        return [*[profile] * self.again, *self.rest]


def report_words(folder: Path) -> Iterator[tuple[str, Words]]:
    """Yield each style and each export, and the words that ask for it."""
    for name, style in STYLES.items():
        if name == "tensorboard":
            continue  # what it takes is the plugin's
        yield f"--style {name}", Words(style.profiles[0] == 2, ("--style", name))
    yield "--html FILE", Words(False, ("--html", str(folder / "page.html")))
    for name in EXPORTS:
        for suffix in ("json", "json.gz"):
            place = str(folder / f"{name}.{suffix}")
            yield f"--export {name} -o FILE.{suffix}", Words(False, ("--export", name, "-o", place))


def measure_kept(settings: Settings, folder: Path) -> Outcome:
    """Profile thousands of iterations of a small model with both engines, and report them."""
    runs, sizes, reports = [], [], []
    warm_up()
    for at in repeat(settings):
        model, place = SMALL[at % len(SMALL)], folder / f"{at}.json"
        runs.append(cost_of_run(model, str(place)))
        sizes.append(place.stat().st_size / 1e6)
        reports.append(cost_of([LAR, "report", str(place)]).largest_megabytes)
        note(
            f"{Path(model).name}: {runs[-1].sum_megabytes:.0f} MB together, "
            f"{runs[-1].largest_megabytes:.0f} MB the largest process, the file "
            f"{sizes[-1]:.1f} MB; its report {reports[-1]:.0f} MB"
        )
    together = max(each.sum_megabytes for each in runs)
    largest = max(each.largest_megabytes for each in runs)
    return Outcome(
        f"{together:.0f} MB together, {largest:.0f} MB the largest process, the file "
        f"{max(sizes):.1f} MB; its report {max(reports):.0f} MB",
        together < MOST_MEGABYTES and max(sizes) < MOST_FILE_MEGABYTES,
    )


def warm_up() -> None:
    """Measure what the machine reaches, as the first profiles of a day do, in processes of their
    own, until that is known."""
    for threads in {1, len(usable_cpus())}:
        for _ in range(MOST_FIRST_PROFILES):
            find_peak(threads)


def cost_of_run(model: str, profile: str) -> Cost:
    return cost_of([LAR, model, "--iter", str(ITERATIONS), "--profile", profile])


def cost_of(command: Sequence[str]) -> Cost:
    """Run a command, which must succeed; return what it took."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    together = 0.0
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        together = max(together, megabytes_of(processes_of(process.pid)))
        time.sleep(SAMPLE_SECONDS)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}: exit code {process.returncode}")
    largest = usage.ru_maxrss * 1024 / 1e6  # KiB on Linux
    return Cost(together, largest, usage.ru_utime + usage.ru_stime)


def processes_of(pid: int) -> Iterator[int]:
    """Yield a process and all that it started, those that have not ended."""
    yield pid
    for place in Path("/proc", str(pid), "task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in place.read_text().split():
                yield from processes_of(int(child))


def megabytes_of(processes: Iterable[int]) -> float:
    """Return the memory of processes together. A page of a file counts once, and it counts whole
    where processes of others have it too."""
    own, of_files = 0, Counter[str]()
    for pid in processes:
        files = Counter[str]()
        with contextlib.suppress(OSError):
            name, resident = "", 0
            for line in Path("/proc", str(pid), "smaps").read_text().splitlines():
                word, _, rest = line.partition(" ")
                if word == "Rss:":
                    resident = int(rest.split()[0])
                elif word == "Anonymous:":
                    private = int(rest.split()[0])
                    own += private
                    files[name] += resident - private
                elif not word.endswith(":"):  # where the mapping lies, and of which file it is
                    name = rest.partition("/")[2]
        of_files |= files  # the larger of each
    return (own + of_files.total()) * 1024 / 1e6


if __name__ == "__main__":
    main()
