"""Times lar against its peers, side by side, and prints the table that stands in the README.

    uv run python tools/bench.py [--rounds N] [CASE ...]

Each round runs lar and its peer one after the other, in an order drawn anew, so that a machine
whose speed drifts is fair to both. A figure is the median over the rounds of the ratio (or the
difference) of the two runs of a round.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PYTHON = sys.executable
LAR = str(Path(PYTHON).with_name("lar"))
LOAD_AND_RUN = [PYTHON, "-m", "megengine.tools.load_network_and_run"]
ONE_OPERATOR = str(ROOT / "models" / "one_operator.mge")
ONE_OPERATOR_ONNX = str(ROOT / "models" / "one_operator.onnx")
RESNET50 = str(ROOT / "models" / "large" / "resnet50.mge")
MOBILENET = str(ROOT / "models" / "mobilenet_v2.mge")
BARE_LOOP = [PYTHON, str(ROOT / "tools" / "bare_loop.py")]
BARE_RUN = [PYTHON, str(ROOT / "tools" / "bare_run.py")]
BARE_SEARCH = [PYTHON, str(ROOT / "tools" / "bare_search.py")]

Figure = Callable[[], float]


def run_quietly(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def time_process(*command: str) -> Figure:
    """Seconds of a whole process."""

    def measure() -> float:
        began = time.perf_counter()
        run_quietly(command)
        return time.perf_counter() - began

    return measure


def measure_memory(*command: str) -> Figure:
    """Peak memory in bytes of a process and its children: the sum of their high-water marks."""

    def measure() -> float:
        peaks: dict[int, int] = {}
        with subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            watcher = threading.Thread(target=watch_memory, args=(process, peaks))
            watcher.start()
            process.wait()
            watcher.join()
        return float(sum(peaks.values()))

    return measure


def watch_memory(process: subprocess.Popen[bytes], peaks: dict[int, int]) -> None:
    """Note the high-water mark of a process and its children until it ends."""
    while process.poll() is None:
        for pid in [process.pid, *children_of(process.pid)]:
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                    if line.startswith("VmHWM:"):
                        peaks[pid] = int(line.split()[1]) * 1024
        time.sleep(0.003)


def children_of(pid: int) -> list[int]:
    """Return the processes that a process, in any of its threads, and its children started."""
    children: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            children += map(int, (thread / "children").read_text().split())
    return children + [below for child in children for below in children_of(child)]


def read_median(model: str, warmup: int, count: int) -> Figure:
    """The median seconds of an iteration that lar reports."""

    def measure() -> float:
        run = run_quietly(
            [
                LAR,
                model,
                "--fill",
                "ones",
                "--warmup-iter",
                str(warmup),
                "--iter",
                str(count),
                "--json",
                "-",
            ]
        )
        times: list[float] = json.loads(run.stdout)["samples"]["end_to_end"]
        return statistics.median(times)

    return measure


def read_bare_median(model: str, warmup: int, count: int) -> Figure:
    """The median seconds of an iteration of a bare loop."""

    def measure() -> float:
        return float(run_quietly([*BARE_LOOP, model, str(warmup), str(count)]).stdout)

    return measure


def read_search(model: str) -> Figure:
    """The seconds of the first iteration of `lar --fast-run`, which searches."""

    def measure() -> float:
        flags = ["--fill", "ones", "--fast-run", "--iter", "1", "--json", "-"]
        times = json.loads(run_quietly([LAR, model, *flags]).stdout)["warmup"]["end_to_end"]
        return float(times[0])

    return measure


def read_bare_search(model: str) -> Figure:
    """The seconds of the engine's own search in a bare script."""

    def measure() -> float:
        return float(run_quietly([*BARE_SEARCH, model]).stdout)

    return measure


class Case(NamedTuple):
    """One line of the table: lar against a peer, and what is promised."""

    name: str
    what: str
    peer: str
    promise: str
    lar: Figure
    other: Figure
    compare: Callable[[float, float], float]
    format: Callable[[float], str]
    holds: Callable[[float], bool]
    rounds: int


def ratio(ours: float, theirs: float) -> float:
    return ours / theirs


def difference(ours: float, theirs: float) -> float:
    return ours - theirs


def format_ratio(value: float) -> str:
    return f"{value:.2f}x"


def format_us(value: float) -> str:
    return f"{value * 1e6:+.2f} us"


def format_percent(value: float) -> str:
    return f"{(value - 1) * 100:+.1f} %"


def ratio_case(
    name: str, what: str, peer: str, limit: float, lar: Figure, other: Figure, rounds: int
) -> Case:
    return Case(
        name,
        what,
        peer,
        f"under {limit:g}x",
        lar,
        other,
        ratio,
        format_ratio,
        lambda value: value < limit,
        rounds,
    )


def added_case(name: str, what: str, peer: str, model: str) -> Case:
    return Case(
        name,
        what,
        peer,
        "under 1 us",
        read_median(model, 1000, 20000),
        read_bare_median(model, 1000, 20000),
        difference,
        format_us,
        lambda value: value < 1e-6,
        11,
    )


PASS = time_process(PYTHON, "-c", "pass")
PEER = "`load_network_and_run`"
CASES = (
    ratio_case(
        "help", "`lar --help`", "`python -c pass`", 4, time_process(LAR, "--help"), PASS, 21
    ),
    ratio_case(
        "run-help",
        "`lar run --help`",
        "`python -c pass`",
        4,
        time_process(LAR, "run", "--help"),
        PASS,
        21,
    ),
    ratio_case(
        "usage",
        "a usage error: a report that cannot be written",
        "`python -c pass`",
        4,
        time_process(LAR, ONE_OPERATOR, "--json", "no/such/folder"),
        PASS,
        21,
    ),
    ratio_case(
        "one-operator",
        "whole process, a one-operator .mge, `--iter 10`",
        PEER,
        0.4,
        time_process(LAR, ONE_OPERATOR, "--iter", "10"),
        time_process(*LOAD_AND_RUN, ONE_OPERATOR, "--iter", "10"),
        11,
    ),
    ratio_case(
        "one-operator-bare",
        "whole process, a one-operator .mge, `--iter 10`",
        "a bare script on lite's C functions",
        1.7,
        time_process(LAR, ONE_OPERATOR, "--iter", "10"),
        time_process(*BARE_RUN, ONE_OPERATOR, "10"),
        11,
    ),
    ratio_case(
        "resnet50",
        "whole process, ResNet50 .mge, `--iter 1 --warmup-iter 0`",
        PEER,
        0.6,
        time_process(LAR, RESNET50, "--iter", "1", "--warmup-iter", "0"),
        time_process(*LOAD_AND_RUN, RESNET50, "--iter", "1", "--warm-up", "0"),
        11,
    ),
    ratio_case(
        "resnet50-memory",
        "ResNet50 again, peak memory of all processes",
        PEER,
        0.65,
        measure_memory(LAR, RESNET50, "--iter", "1", "--warmup-iter", "0"),
        measure_memory(*LOAD_AND_RUN, RESNET50, "--iter", "1", "--warm-up", "0"),
        3,
    ),
    added_case(
        "added-lite",
        "time added to an iteration, one-operator .mge",
        "a bare loop on lite's C functions",
        ONE_OPERATOR,
    ),
    added_case(
        "added-onnx",
        "time added to an iteration, one-operator .onnx",
        "a bare loop on IOBinding",
        ONE_OPERATOR_ONNX,
    ),
    Case(
        "median",
        "reported median of ResNet50 .mge",
        "a bare loop in a script",
        "within 2 %",
        read_median(RESNET50, 1, 10),
        read_bare_median(RESNET50, 1, 10),
        ratio,
        format_percent,
        lambda value: abs(value - 1) < 0.02,
        11,
    ),
    Case(
        "search",
        "search of `--fast-run`, MobileNetV2 .mge",
        "the engine's own, in a bare script",
        "within 5 %",
        read_search(MOBILENET),
        read_bare_search(MOBILENET),
        ratio,
        format_percent,
        lambda value: abs(value - 1) < 0.05,
        11,
    ),
)


def measure_case(case: Case, rounds: int) -> float:
    """Run both sides of a case in turn and return the median of their comparison."""
    case.lar(), case.other()  # both sides' files are in the page cache from here on
    values = []
    for _ in range(rounds):
        figures = {}
        for side in random.sample(["lar", "other"], 2):
            figures[side] = case.lar() if side == "lar" else case.other()
        values.append(case.compare(figures["lar"], figures["other"]))
    return statistics.median(values)


def run_cases(cases: Sequence[Case]) -> int:
    """Measure the cases that the command line names and print their table."""
    parser = argparse.ArgumentParser(description="Times lar against its peers, side by side.")
    parser.add_argument("cases", nargs="*", metavar="CASE", help="all of them if none is named")
    parser.add_argument("--rounds", type=int, help="rounds of each case")
    arguments = parser.parse_args()
    names = [case.name for case in cases]
    unknown = set(arguments.cases) - set(names)
    if unknown:
        parser.error(f"no case {', '.join(sorted(unknown))}; cases: {', '.join(names)}")
    chosen = [case for case in cases if case.name in (arguments.cases or names)]
    if not os.path.exists(RESNET50) and any("ResNet50" in case.what for case in chosen):
        subprocess.run([PYTHON, str(ROOT / "tools" / "make_models.py"), "resnet50"], check=True)
    print("| what | peer | promise | measured |\n|---|---|---|---|", flush=True)
    kept = True
    for case in chosen:
        value = measure_case(case, arguments.rounds or case.rounds)
        holds = case.holds(value)
        kept = kept and holds
        measured = case.format(value) + ("" if holds else " (missed)")
        print(f"| {case.what} | {case.peer} | {case.promise} | {measured} |", flush=True)
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(run_cases(CASES))
