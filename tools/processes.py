"""Commands that tools run: where they are, and what they take in time and memory."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
MODELS = ROOT / "models"
LARGE = MODELS / "large"
PYTHON = sys.executable
LAR = str(Path(PYTHON).with_name("lar"))
PEERS = (PYTHON, "-W", "ignore", str(ROOT / "tools" / "peers.py"))
ONE_OPERATOR = str(MODELS / "one_operator.mge")
RESNET50 = str(LARGE / "resnet50.mge")
RESNET50_ONNX = str(LARGE / "resnet50.onnx")
MOBILENET = str(MODELS / "mobilenet_v2.mge")
MOBILENET_ONNX = str(MODELS / "mobilenet_v2.onnx")
SCRIPTED_ENGINE = str(ROOT / "tests" / "engines" / "scripted_engine")
MIB = 2**20
SAMPLE_SECONDS = 0.03


def run_quietly(
    command: Sequence[str], input: str | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, input=input)


def run_well(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command, which must succeed."""
    done = run_quietly(command)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    return done


def run_json(*words: str) -> dict[str, Any]:
    """Run a command of lar that prints JSON on its standard output."""
    done = run_quietly([LAR, *words])
    with contextlib.suppress(ValueError):
        answer: dict[str, Any] = json.loads(done.stdout)
        return answer
    raise SystemExit(f"lar {' '.join(words)}: {done.stderr or done.stdout}")


def make_large(name: str) -> None:
    """Make a large model in both formats where it is missing."""
    if not (LARGE / f"{name}.mge").exists():
        run_well(PYTHON, str(ROOT / "tools" / "make_models.py"), name)


@functools.cache
def add_scripted_engine() -> None:
    """Let this process and those that it starts find the scripted engine of the tests."""
    sys.path.append(SCRIPTED_ENGINE)
    os.environ["PYTHONPATH"] = SCRIPTED_ENGINE


class Cost(NamedTuple):
    """What a command took: seconds, CPU seconds and the peak memory in bytes of all of its
    processes together, with shared pages counted once, and of the largest one."""

    seconds: float
    cpu_seconds: float
    together: float
    largest: float


def cost_of(*command: str, samples_memory: bool = True) -> Cost:
    """Run a command to its end; return what it took. Sampling its memory takes some CPU time."""
    began, together, largest = time.perf_counter(), 0.0, 0.0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while samples_memory and not os.waitid(
        os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT
    ):
        running = [*processes_of(process.pid)]
        together = max(together, memory_of(running))
        largest = max(largest, *map(peak_of, running))
        time.sleep(SAMPLE_SECONDS)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    process.returncode = os.waitstatus_to_exitcode(status)
    return Cost(seconds, usage.ru_utime + usage.ru_stime, together, largest)


def seconds_of(*command: str) -> Callable[[], float]:
    """Return what times a whole process."""
    return lambda: cost_of(*command, samples_memory=False).seconds


def memory_peak_of(*command: str) -> Callable[[], float]:
    """Return what measures the peak memory of a process and those that it starts, in bytes."""
    return lambda: cost_of(*command).together


def processes_of(pid: int) -> Iterator[int]:
    """Yield a process and all that it started, those that have not ended."""
    yield pid
    for place in Path("/proc", str(pid), "task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in place.read_text().split():
                yield from processes_of(int(child))


def peak_of(pid: int) -> float:
    """Return the peak of a process's memory in bytes, 0 where it has ended."""
    with contextlib.suppress(OSError):
        for line in Path("/proc", str(pid), "status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024.0
    return 0.0


def memory_of(processes: Iterable[int]) -> float:
    """Return the memory of processes together in bytes. A page of a file counts once, and it
    counts whole where processes of others have it too."""
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
    return (own + of_files.total()) * 1024.0
