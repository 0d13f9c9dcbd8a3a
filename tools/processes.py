"""Runs commands for the other tools, and measures their time and memory."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import psutil

import lar
from lar.measurement.machine import read_memory
from tests.command_lines import SCRIPTED_ENGINE

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "models"
LARGE = MODELS / "large"
PYTHON = sys.executable
LAR = str(Path(PYTHON).with_name("lar"))
PEERS = (PYTHON, "-W", "ignore", str(ROOT / "tools" / "peers.py"))
ONE_OPERATOR = str(MODELS / "one_operator.mge")
ONE_OPERATOR_ONNX = str(MODELS / "one_operator.onnx")
RESNET50 = str(LARGE / "resnet50.mge")
RESNET50_ONNX = str(LARGE / "resnet50.onnx")
MOBILENET = str(MODELS / "mobilenet_v2.mge")
MOBILENET_ONNX = str(MODELS / "mobilenet_v2.onnx")
DIGITS = tuple(str(MODELS / f"digits_cnn.{suffix}") for suffix in ("mge", "onnx"))
Work = TypeVar("Work")
Result = TypeVar("Result")
MIB = 2**20
SAMPLE_SECONDS = 0.03


def run_quietly(
    command: Sequence[str], input: str | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, input=input)


def run_well(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command; if it fails, end this program with its error output."""
    done = run_quietly(command)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    return done


def map_in_processes(
    function: Callable[[Work], Result], works: Sequence[Work], processes: int
) -> list[Result]:
    """Call a function for each item of `works` in new processes; return the results in order."""
    with ProcessPoolExecutor(processes, get_context("spawn")) as pool:
        return list(pool.map(function, works, chunksize=1))


def make_large(name: str) -> None:
    """Make a large model in both formats, unless it exists."""
    if not (LARGE / f"{name}.mge").exists():
        run_well(PYTHON, str(ROOT / "tools" / "make_models.py"), name)


def write_script(folder: Path, **script: Any) -> str:
    """Write a model of the tests' scripted engine; return its path.

    From then on, this process and its child processes can import the scripted engine.
    """
    if str(SCRIPTED_ENGINE) not in sys.path:
        sys.path.append(str(SCRIPTED_ENGINE))
        os.environ["PYTHONPATH"] = str(SCRIPTED_ENGINE)
    path = folder / f"{len(list(folder.iterdir()))}.fake"
    path.write_text(json.dumps(script))
    return str(path)


def run_model(model: str | Path, **options: Any) -> lar.RunResult:
    """Run a model; the run must end without failure."""
    result = lar.run(model, **options)
    assert result.status == "ok", result.failure
    return result


class Times(NamedTuple):
    """The median and the minimum of the seconds of iterations."""

    median: float
    minimum: float


def times_of_lar(model: str, warmup: int, count: int, **options: Any) -> Times:
    """Run a model with lar, and return the reported times of iterations."""
    asked = {"fill": "ones", "warmup_iter": warmup, "iter": count, **options}
    taken = run_model(model, **asked).samples.end_to_end
    return Times(statistics.median(taken), min(taken))


def times_of_loop(model: str, warmup: int, count: int, engine: str) -> Times:
    """Run a model in a bare loop of `peers.py`, and return the times of iterations."""
    done = run_quietly([*PEERS, "loop", model, engine], f"{warmup} {count}\n")
    return Times(*map(float, done.stdout.split()[-2:]))


class Cost(NamedTuple):
    """The cost of a command: seconds, CPU seconds and peak memory in bytes.

    `together` is the peak memory of all processes; each process has its share of shared pages.
    `largest` is the peak memory of the largest process.
    """

    seconds: float
    cpu_seconds: float
    together: float
    largest: float


def cost_of(*command: str, samples_memory: bool = True) -> Cost:
    """Run a command to its end; return its cost.

    If `samples_memory` is true, this process takes some CPU time to sample the memory.
    """
    began, together, largest = time.perf_counter(), 0.0, 0.0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while samples_memory and not os.waitid(
        os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT
    ):
        first = psutil.Process(process.pid)
        running = [first, *first.children(recursive=True)]
        with contextlib.suppress(psutil.Error, OSError):
            together = max(together, sum(each.memory_full_info().pss for each in running))
        peaks = (read_memory("VmHWM", f"/proc/{each.pid}/status") for each in running)
        largest = max(largest, *(float(peak or 0) for peak in peaks))
        time.sleep(SAMPLE_SECONDS)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    return Cost(seconds, usage.ru_utime + usage.ru_stime, together, largest)


def seconds_of(*command: str) -> float:
    """Run a command, and return how many seconds the whole process took."""
    return cost_of(*command, samples_memory=False).seconds


def memory_peak_of(*command: str) -> float:
    """Run a command; return the peak memory of all its processes together, in bytes."""
    return cost_of(*command).together
