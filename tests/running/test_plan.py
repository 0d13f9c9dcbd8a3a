"""From a model and options to a spec and the driver for it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lar.errors import UsageError
from lar.measurement.rows import size_of_rows
from lar.options.table import OPTIONS
from lar.options.values import MOST_ITERATIONS
from lar.records.run import RunSpec
from lar.running import plan
from lar.running.plan import is_writable, parse_values, plan_run
from tests.command_lines import ROOT
from tests.conftest import WriteScript


@pytest.fixture
def script(write_script: WriteScript) -> str:
    return write_script()


def planned(model: str, **values: Any) -> RunSpec:
    return plan_run(model, values)


def test_a_model_alone_gives_the_default_spec(script: str) -> None:
    spec = plan_run(script, {})
    assert spec == RunSpec(model=script, engine="fake", driver="script")


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize(
    ("model", "driver"), [("digits_cnn.onnx", "session"), ("int8.mge", "lite")]
)
def test_a_cuda_device_is_device_and_setting(model: str, driver: str, number: int) -> None:
    spec = planned(str(ROOT / "models" / model), cuda=number)
    assert (spec.device, spec.settings, spec.driver) == (f"cuda:{number}", {"cuda": number}, driver)


def test_values_given_as_text_or_as_what_it_means_are_the_same() -> None:
    meant = {
        "iter": 3,
        "resize": (8, 9),
        "mean": (1.0, 2.5),
        "seed": 7,
        "rgb": True,
        "input": ["a", "b"],
    }
    text = {**meant, "iter": "3", "resize": "8x9", "mean": "1,2.5", "seed": "7"}
    assert parse_values(meant) == parse_values(text) == meant


def test_one_input_needs_no_list() -> None:
    assert parse_values({"input": "a.npy"}) == {"input": ["a.npy"]}


def test_none_is_the_default_of_any_option() -> None:
    values = parse_values({option.key: None for option in OPTIONS})
    assert values == {
        option.key: False if option.parse is None else option.default for option in OPTIONS
    }


def test_an_unknown_option_names_the_nearest() -> None:
    for wrong in ("itre", "iters"):
        with pytest.raises(UsageError) as caught:
            parse_values({wrong: 1})
        # In the message itself: a traceback shows no hint.
        assert str(caught.value) == f"unknown option {wrong!r}; did you mean 'iter'?"


@pytest.mark.parametrize("value", [True, False, b"x", {}, {"a": 1}, object(), ["a", None]])
@pytest.mark.parametrize("key", ["profile", "bin_io_dump", "engine", "input"])
def test_a_value_that_cannot_be_typed_is_refused(key: str, value: Any) -> None:
    with pytest.raises(UsageError, match=r"takes a text, a number or a path, not ") as caught:
        parse_values({key: value})
    assert caught.value.flag == "--" + key.replace("_", "-")


def test_numbers_of_numpy_are_numbers() -> None:
    given = {"iter": np.int64(3), "timeout": np.float32(2), "mean": np.array([1, 2.5])}
    assert parse_values(given) == {"iter": 3, "timeout": 2.0, "mean": (1.0, 2.5)}
    assert parse_values({"profile": Path("x"), "input": ("a", Path("b"))}) == {
        "profile": "x",
        "input": ["a", "b"],
    }


@pytest.mark.parametrize("value", ["yes", "True", 1, 0, [True]])
def test_a_switch_takes_true_and_false_alone(value: Any) -> None:
    with pytest.raises(UsageError, match=r"^--enable-nchw44: is a switch: it takes True or False"):
        parse_values({"enable_nchw44": value})
    assert parse_values({"enable_nchw44": True, "fast_run": False}) == {
        "enable_nchw44": True,
        "fast_run": False,
    }


@pytest.mark.parametrize(("key", "value"), [("input", ["\udcff.npy"]), ("bin_out_dump", "\udcff")])
def test_names_that_no_result_can_hold_are_refused(key: str, value: Any) -> None:
    with pytest.raises(UsageError, match="is not UTF-8"):
        plan_run(str(ROOT / "models" / "digits_cnn.onnx"), {key: value})


def test_a_report_can_be_written_where_permissions_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "there.json"
    file.write_text("")
    assert is_writable(str(file))
    assert is_writable(str(tmp_path / "new.json"))
    assert not is_writable(str(tmp_path))  # a folder
    monkeypatch.setattr(os, "access", lambda name, mode: False)  # root may write everywhere
    assert not is_writable(str(file))
    assert not is_writable(str(tmp_path / "new.json"))


def test_there_is_room_for_as_many_iterations_as_may_come(monkeypatch: pytest.MonkeyPatch) -> None:
    long, short = 3600.0, 0.001
    assert plan.room_for(long, 1) == MOST_ITERATIONS
    assert plan.room_for(long, 4) == MOST_ITERATIONS // 4
    assert plan.room_for(short, 1) == plan.MOST_IN_A_SECOND / 1000
    monkeypatch.setattr(plan, "limit_of", lambda _: 2**30)
    room = plan.room_for(long, 2)
    assert room * 2 * size_of_rows(1) == pytest.approx(2**26, rel=0.01)
    monkeypatch.setattr(plan, "limit_of", lambda _: 1)
    assert plan.room_for(long, 2) == 1
