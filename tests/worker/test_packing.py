"""What an engine computes for the testcases of a packed model."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from lar_scripted.script import FakeDriver

from lar.engines import engine_named
from lar.errors import LarError, UsageError
from lar.records.run import RunSpec
from lar.worker.packing import compute

if TYPE_CHECKING:
    from tests.conftest import WriteScript


def driver_of(script: str) -> FakeDriver:
    return FakeDriver(
        RunSpec(model=script, engine="fake", driver="script"), engine_named("fake").rows
    )


def test_the_outputs_are_kept(write_script: WriteScript) -> None:
    driver = driver_of(write_script(outputs={"a": [1, 2.5], "b": []}))
    outputs = compute(driver, {})
    assert {name: value.tolist() for name, value in outputs.items()} == {"a": [1, 2.5], "b": []}
    assert driver.step == 1


@pytest.mark.parametrize("at", ["feed", "start", "outputs"])
def test_a_failure_is_the_engines(write_script: WriteScript, at: str) -> None:
    driver = driver_of(write_script(faults=[{"at": at, "do": "raise"}]))
    with pytest.raises(LarError, match="the engine failed: scripted failure"):
        compute(driver, {})


def test_an_output_that_is_no_array_is_refused(
    write_script: WriteScript, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = driver_of(write_script())
    monkeypatch.setattr(driver, "outputs", lambda: {"a": np.zeros(1), "b": "sequence"})
    with pytest.raises(UsageError, match="output b is a sequence, which cannot be packed"):
        compute(driver, {})
