"""Option values as they are given: from Python, or in the words of a text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lar.errors import UsageError
from lar.options.command_line import (
    format_command,
    join_options,
    parse_values,
    parse_words,
    read_command,
    split_command,
)
from lar.options.table import OPTIONS
from tests.refusals import refused
from tests.tables import each_row


@each_row("options/cases/words of a side")
def test_the_words_of_a_side_become_options(words: list[str], options: dict[str, object]) -> None:
    assert parse_words(words) == options


def test_own_environment_variables_come_after_the_shared_ones() -> None:
    joined = join_options({"engine_env": "A=1"}, {"engine_env": ["A=2", "B=3"]})
    assert joined == {"engine_env": ["A=1", "A=2", "B=3"]}
    assert join_options({"engine_env": ["A=1"]}, {"engine_env": None}) == {}


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
    assert parse_values({option.key: None for option in OPTIONS}) == {
        option.key: False if option.parse is None else option.default for option in OPTIONS
    }


@each_row("options/cases/refused values of Python")
def test_a_refused_value_is_said_in_the_words_of_python(
    given: dict[str, Any], others: list[str], message: str, hint: str
) -> None:
    error = refused("", parse_values, given, others)
    assert (str(error), error.hint) == (message, hint)  # a traceback shows no hint


def test_options_are_written_as_they_would_be_typed() -> None:
    several = {"input": ["a b", "-c"], "disable_optimizer": "A,B", "fast_run": False}
    values = {"cpu": True, "cuda": 1, "mean": (-1.0, 2.0), "resize": (8, 9), "iter": 0}
    command = format_command("a model.onnx", {**values, **several, "thread": None})
    assert command == (
        "lar 'a model.onnx' --iter 0 --input 'a b' --input=-c --resize 8,9 --mean=-1.0,2.0 --cpu "
        "--cuda:1 --disable-optimizer A --disable-optimizer B"
    )
    model, options = split_command(command.removeprefix("lar "))
    assert (model, parse_values(options)) == (
        "a model.onnx",
        {**values, "input": ["a b", "-c"], "disable_optimizer": ["A", "B"]},
    )


@each_row("options/cases/commands of load_and_run")
def test_a_command_of_load_and_run_is_read(
    command: str, model: str, inputs: list[str], settings: dict[str, object]
) -> None:
    assert read_command(command) == (model, tuple(inputs), settings)
    kinds = {key: type(value) for key, value in read_command(command)[2].items()}
    assert kinds == {key: type(value) for key, value in settings.items()}


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
