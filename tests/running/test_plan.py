"""From a model and options to a spec and the driver for it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from lar.errors import UsageError
from lar.measurement.rows import size_of_rows
from lar.records.run import RunSpec
from lar.running import plan
from lar.running.plan import plan_run
from tests.command_lines import ROOT
from tests.conftest import WriteScript
from tests.refusals import refused
from tests.tables import each_row


@pytest.fixture
def script(write_script: WriteScript) -> str:
    return write_script()


def planned(model: str, **values: Any) -> RunSpec:
    return plan_run(model, values)


def test_a_model_alone_gives_the_default_spec(script: str) -> None:
    assert plan_run(script, {}) == RunSpec(model=script, engine="fake", driver="script")


@each_row("running/cases/plans")
def test_options_become_the_fields_of_a_spec(
    options: dict[str, Any], fields: dict[str, Any], script: str
) -> None:
    """`fields` are the fields that are not as without options."""
    plain, spec = (msgspec.to_builtins(planned(script, **it)) for it in ({}, options))
    assert {name: it for name, it in spec.items() if it != plain[name]} == fields


@each_row("running/cases/refused plans")
def test_what_cannot_be_planned_is_refused(
    options: dict[str, Any], said: str, hint: str, script: str
) -> None:
    error = refused("", planned, script, **options)
    assert (error.message, error.hint) == (said, hint)


def test_a_run_has_ten_million_iterations_at_most(tmp_path: Path) -> None:
    model = str(ROOT / "models" / "digits_cnn.onnx")
    for name in ("a", "b"):
        np.save(tmp_path / f"{name}.npy", np.zeros((1, 1, 8, 8), np.float32))
    assert planned(model, input=[str(tmp_path)], iter=5_000_000, warmup_iter=9).warmup_iterations
    error = refused("", planned, model, input=[str(tmp_path)], iter=5_000_001)
    assert error.message == "--iter 5000001: too many for 2 items; at most 10000000 in all"


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(
    ("model", "driver"), [("digits_cnn.onnx", "session"), ("int8.mge", "lite")]
)
def test_a_cuda_device_is_device_and_setting(model: str, driver: str, number: int) -> None:
    spec = planned(str(ROOT / "models" / model), cuda=number)
    assert (spec.device, spec.settings, spec.driver) == (f"cuda:{number}", {"cuda": number}, driver)


@pytest.mark.parametrize(("key", "value"), [("input", ["\udcff.npy"]), ("bin_out_dump", "\udcff")])
def test_names_that_no_result_can_hold_are_refused(key: str, value: Any) -> None:
    with pytest.raises(UsageError, match="is not UTF-8"):
        plan_run(str(ROOT / "models" / "digits_cnn.onnx"), {key: value})


def test_there_is_room_for_as_many_iterations_as_may_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "limit_of", lambda _: 2**30)
    assert plan.room_for(3600.0, 2) * 2 * size_of_rows(1) == pytest.approx(2**26, rel=0.01)
    monkeypatch.setattr(plan, "limit_of", lambda _: 1)
    assert plan.room_for(3600.0, 2) == 1
