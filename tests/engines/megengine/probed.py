"""What drivers give, each time in a process of its own: probe.py.

MegEngine changes how a process computes: it takes subnormal numbers for zero.
"""

from __future__ import annotations

import functools
import json
import re
import statistics
import tempfile
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tests.engines.megengine.programs import MODELS
from tests.worker_forks import FORKS

PROBE = "tests.engines.megengine.probe:main"
KEEP_OUTPUT = "tests.engines.megengine.probe:keep_output"
# Heavy enough that dispatching it takes far less time than computing it.
MOBILENET = "mobilenet_v2"


class Probed:
    """What a driver gave in its process."""

    def __init__(self, facts: Mapping[str, Any], log: str, dump: str) -> None:
        self.log, self.dump = log, dump
        self.new_threads: list[str] = facts["new_threads"]
        self.calling_thread: str = facts["calling_thread"]
        self.times: list[tuple[float, float]] = facts["times"]
        self.outputs: list[dict[str, Any]] = facts["outputs"]
        self.operators: list[dict[str, Any]] = facts.get("operators", [])
        self.memory: list[tuple[int, int]] = facts.get("memory", [])

    @property
    def types(self) -> Counter[str]:
        return Counter(operator["type"] for operator in self.operators)

    @property
    def first_dispatch(self) -> float:
        """The part of the first iteration that its dispatch takes."""
        end_to_end, host = self.times[0]
        return host / end_to_end

    @property
    def dispatch(self) -> float:
        """The part of an iteration that its dispatch takes: the median, without the first."""
        return statistics.median(host / end_to_end for end_to_end, host in self.times[1:])

    def formats(self, kind: str) -> set[str]:
        return {each["format"] for each in self.operators if each["type"] == kind}

    def dumped(self) -> dict[str, list[tuple[str, tuple[int, ...]]]]:
        """Return the layouts in the text dump: for each type of operator what it gave."""
        pattern = r" layout=\{(.*?) \w+\} owner_opr=.*\{(\w+)\} opr\d+$"
        found: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
        for layout, kind in re.findall(pattern, self.dump, re.MULTILINE):
            shape = tuple(int(size) for size in re.findall(r"(\d+)\(", layout))
            found.setdefault(kind, []).append((layout, shape))
        return found

    def shapes(self, kind: str) -> list[tuple[int, ...]]:
        return [shape for _, shape in self.dumped().get(kind, [])]


@functools.cache
def ask(question: str, attempt: int = 0) -> Probed:
    """Put a question to a new process, once for each attempt."""
    asked = json.loads(question)
    with tempfile.TemporaryDirectory() as folder:
        words = (asked["engine"], asked["driver"], PROBE, [question], Path(folder))
        log = FORKS.run_program(*words)
        facts, dump = Path(folder, "facts.json"), Path(folder, "dump.txt")
        text = dump.read_text(errors="replace") if dump.exists() else ""
        return Probed(json.loads(facts.read_text()), log, text)


def probe(
    driver: str,
    model: str | Path,
    settings: Mapping[str, Any] | None = None,
    *,
    iterations: int = 2,
    dump: bool = False,
    attempt: int = 0,
) -> Probed:
    """Run a model, one of MegEngine's if it is a name alone, with settings; tell what happened."""
    question = {
        "engine": "onnxruntime" if driver == "session" else "megengine",
        "driver": driver,
        "model": str(MODELS / f"{model}.mge" if isinstance(model, str) else model),
        "settings": dict(settings or {}),
        "iterations": iterations,
        "dump": dump,
    }
    return ask(json.dumps(question), attempt)


def difference(first: Probed, second: Probed, iteration: int = -1) -> float:
    """Return by how much two runs' outputs differ at most; infinite where one is no number."""
    pairs = zip(first.outputs[iteration].values(), second.outputs[iteration].values(), strict=True)
    most = max(float(np.abs(np.subtract(a, b)).max()) for a, b in pairs)
    return float("inf") if np.isnan(most) else most


def run_alone(
    model: Path, folder: Path, layout: str = "", fix: str = ""
) -> np.ndarray[Any, np.dtype[Any]]:
    """Run a model once with lite itself and return its first output: see `keep_output`."""
    place = folder / "output.npy"
    words = [str(model), layout, fix, str(place)]
    FORKS.run_program("megengine", "lite", KEEP_OUTPUT, words, folder)
    output: np.ndarray[Any, np.dtype[Any]] = np.load(place)
    return output
