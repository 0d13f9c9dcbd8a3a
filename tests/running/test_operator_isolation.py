"""Workers that run operators alone: they may crash, hang and fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from lar.dumps.dump import DumpedTensor
from lar.errors import LarError, UsageError
from lar.records.run import RunSpec
from lar.running.operator_isolation import MOST_WORKERS, IsolatedOperators, spec_for_isolation

WriteScript = Callable[..., str]

PROB = DumpedTensor(key="prob", name="prob", dtype="float32", shape=(2,))


def spec_of(script: str) -> RunSpec:
    spec = RunSpec(model=script, engine="fake", driver="script", stall_seconds=1.0)
    return spec_for_isolation(spec)[0]


def outcomes(script: str, folder: Path, count: int) -> list[str]:
    """What comes of so many operators: `ok`, or why not."""
    with IsolatedOperators(spec_of(script), folder) as operators:
        found = [outcome(operators) for _ in range(count)]
    assert not [*folder.iterdir()]
    return found


def outcome(operators: IsolatedOperators) -> str:
    try:
        array = operators.compute(PROB, {"data": np.ones(3, np.float32)})
    except LarError as error:
        return error.message
    return "ok" if array.tolist() == [0.25, 0.75] else str(array)


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("raise", "scripted failure"),
        ("segfault", "the engine crashed in phase prepare: killed by SIGSEGV"),
        ("hang", "the engine hangs, it has neither computed nor answered for 1 s in phase prepare"),
    ],
)
@pytest.mark.usefixtures("nothing_left")
def test_a_fault_is_the_problem_of_one_operator(
    write_script: WriteScript, tmp_path: Path, fault: str, problem: str
) -> None:
    folder = tmp_path / "alone"
    folder.mkdir()
    script = write_script(
        outputs={"prob": [0.25, 0.75]}, faults=[{"at": "alone", "do": fault, "index": 1}]
    )
    assert outcomes(script, folder, 3) == ["ok", problem, "ok"]


def test_an_engine_that_always_crashes_is_given_up(
    write_script: WriteScript, tmp_path: Path
) -> None:
    folder = tmp_path / "alone"
    folder.mkdir()
    script = write_script(
        outputs={"prob": [0.25, 0.75]}, faults=[{"at": "alone", "do": "abort", "index": 0}]
    )
    assert len(set(outcomes(script, folder, MOST_WORKERS + 2))) == 1
    does_not_load = write_script(faults=[{"at": "load", "do": "raise"}])
    assert outcomes(does_not_load, folder, 2) == ["the engine failed: scripted failure"] * 2


def test_an_engine_that_cannot_do_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lar.engines.fake.FakeEngine.isolating_driver", "")
    spec = RunSpec(model="m.fake", engine="fake", driver="script")
    with pytest.raises(UsageError, match="--isolate: the scripted engine cannot run an operator"):
        spec_for_isolation(spec)
