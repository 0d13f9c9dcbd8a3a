"""From a model and options to a spec and the driver for it."""

from __future__ import annotations

from typing import Any

import pytest

from lar.errors import UsageError
from lar.measurement.rows import size_of_rows
from lar.options.values import MOST_ITERATIONS
from lar.records.run import RunSpec
from lar.running import plan
from lar.running.plan import plan_run
from tests.command_lines import ROOT
from tests.conftest import WriteScript


@pytest.fixture
def script(write_script: WriteScript) -> str:
    return write_script()


def planned(model: str, **values: Any) -> RunSpec:
    return plan_run(model, values)


def test_a_model_alone_gives_the_default_spec(script: str) -> None:
    assert plan_run(script, {}) == RunSpec(model=script, engine="fake", driver="script")


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
    long, short = 3600.0, 0.001
    assert plan.room_for(long, 1) == MOST_ITERATIONS
    assert plan.room_for(long, 4) == MOST_ITERATIONS // 4
    assert plan.room_for(short, 1) == plan.MOST_IN_A_SECOND / 1000
    monkeypatch.setattr(plan, "limit_of", lambda _: 2**30)
    assert plan.room_for(long, 2) * 2 * size_of_rows(1) == pytest.approx(2**26, rel=0.01)
    monkeypatch.setattr(plan, "limit_of", lambda _: 1)
    assert plan.room_for(long, 2) == 1
