"""What an engine computes for the testcases of a packed model."""

from __future__ import annotations

import numpy as np
import pytest

from lar.errors import UsageError
from lar.measurement.rows import SampleRows
from lar.records.run import RunContext, RunSpec
from lar.worker.execution import Copies
from lar.worker.tasks import compute
from tests.conftest import WriteScript


def copies_of(script: str) -> Copies:
    spec = RunSpec(model=script, engine="fake", driver="script")
    return Copies(spec, RunContext(), [SampleRows.anonymous(1)])


@pytest.mark.parametrize("at", ["feed", "start", "outputs"])
def test_a_failure_is_the_engines(write_script: WriteScript, at: str) -> None:
    copies = copies_of(write_script(faults=[{"at": at, "do": "raise"}]))
    with pytest.raises(RuntimeError, match="scripted failure"):
        compute(copies, {})


def test_an_output_that_is_no_array_is_refused(
    write_script: WriteScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = copies_of(write_script())
    outputs = {"a": np.zeros(1), "b": "a sequence"}
    monkeypatch.setattr(copies.drivers[0], "outputs", lambda: outputs)
    with pytest.raises(UsageError, match="output b is a sequence, which cannot be packed"):
        compute(copies, {})
