"""Every fault that the scripted engine plays, at every point of a run where it may come."""

from __future__ import annotations

import itertools
import os
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from lar_scripted.script import FAULTS

import lar
from tests.conftest import WriteScript
from tests.running.isolated_runs import SOON, needs_proc

pytestmark = [pytest.mark.usefixtures("nothing_left"), needs_proc]


class Point(NamedTuple):
    """A point of a run: a fault's `at` and its index, how messages name the phase, and the
    iterations that were made before it: of the warm-up, and timed ones."""

    at: str
    number: int
    phase: str
    kept: tuple[int, int] = (0, 0)


POINTS = {
    "load": Point("load", 0, "load"),
    "feed": Point("feed", 0, "prepare"),
    "warm-up": Point("start", 0, "warmup (iteration 0)"),
    "iteration": Point("start", 2, "iterations (iteration 1)", (1, 1)),
    "outputs": Point("outputs", 0, "finish", (1, 3)),
}


class End(NamedTuple):
    """How a run ends: its status, its exit code, and what the message says."""

    status: str
    exit_code: int
    said: str


ENDS = {
    "raise": End("failed", 4, "the engine failed: scripted failure"),
    "memory": End("failed", 4, "out of memory"),
    "exit": End("crashed", 4, "the engine ended the process in phase {phase}: exit code 7"),
    "abort": End("crashed", 4, "the engine crashed in phase {phase}: killed by SIGABRT"),
    "kill": End("crashed", 4, "the engine crashed in phase {phase}: killed by SIGKILL"),
    "segfault": End("crashed", 4, "the engine crashed in phase {phase}: killed by SIGSEGV"),
    "hang": End("timed_out", 124, "the engine hangs, it has neither computed nor answered for "),
    "spin": End("timed_out", 124, " s in phase {phase}"),
    "flood": End("ok", 0, ""),
}
# Limits of what would never end; a busy machine may take longer to come to the point.
LIMITS: dict[str, tuple[dict[str, Any], ...]] = {
    "hang": ({"stall_timeout": 0.5}, {"stall_timeout": 10}),
    # An engine that computes has not stalled.
    "spin": ({"timeout": 0.4, "stall_timeout": 0.2}, {"timeout": 15, "stall_timeout": 10}),
}


# What the hint names.
FLAGS = {"hang": "--stall-timeout", "spin": "--timeout"}


def test_every_fault_has_an_end() -> None:
    assert set(ENDS) == set(FAULTS)


# What floods goes on with the run: twice is enough.
CASES = [
    (fault, point)
    for fault, point in itertools.product(ENDS, POINTS)
    if fault != "flood" or point in ("load", "iteration")
]


@pytest.mark.parametrize(("fault", "point"), CASES)
def test_a_fault_at_a_point_ends_the_run_as_it_should(
    write_script: WriteScript,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    fault: str,
    point: str,
) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    at, index, phase, kept = POINTS[point]
    script = write_script(faults=[{"at": at, "do": fault, "index": index}])
    for limits in LIMITS.get(fault, ({},)):
        result = lar.run(script, iter=3, **limits)
        if result.phase == phase.partition(" ")[0]:
            break
    longest = max(limits.values(), default=0)
    assert (fault not in LIMITS) or result.wall_seconds < longest + SOON
    status, exit_code, said = ENDS[fault]
    if (fault, at) == ("raise", "load"):  # it may be the fault of the file
        exit_code, said = 2, "the engine cannot load it"
    assert result.status == status, result.failure
    if result.failure is None:
        assert exit_code == 0
    else:
        assert result.failure.exit_code == exit_code
        assert said.format(phase=phase) in result.failure.message
        assert FLAGS.get(fault, "") in result.failure.hint
        assert len(result.failure.message.splitlines()) == 1
    assert result.phase == ("done" if status == "ok" else phase.partition(" ")[0])
    if status == "ok":
        kept = (1, 3)
    assert (len(result.warmup.end_to_end), len(result.samples.end_to_end)) == kept
    assert (result.machine is None, result.model is None) == (False, False)
    assert len(result.log_tail) < 10_000  # of a flood too
    assert os.listdir(folder) == []
