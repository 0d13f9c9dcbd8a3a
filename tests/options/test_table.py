"""The options: each is declared once, parses what it says and refuses the rest."""

from __future__ import annotations

import argparse
import math
import re
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lar.errors import UsageError
from lar.options.arguments import add_arguments
from lar.options.option import Option, flag_of
from lar.options.rules import RULES, Asked, check_rules
from lar.options.table import BY_KEY, OPTIONS, collect_settings
from lar.options.values import (
    MOST_ITERATIONS,
    parse_channel_values,
    parse_count,
    parse_device_id,
    parse_duration,
    parse_seed,
    parse_size,
    parse_stall,
)
from lar.running.plan import parse_values


def refused(parse: Any, text: str) -> str:
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        parse(text)
    return str(caught.value)


def parsed(*words: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_arguments(parser, {"cuda": ["megengine", "onnxruntime"]})
    return vars(parser.parse_args(words))


def faults_of(option: Option[Any]) -> Iterator[str]:
    """What an option's declaration lacks."""
    if not re.match("[a-z]|CUDA", option.help) or option.help.endswith("."):
        yield f"help {option.help!r}"
    if not option.group.title:
        yield "no group"
    if not re.fullmatch("[a-z][a-z0-9_]*", option.key) or BY_KEY[option.key] is not option:
        yield "key"
    if bool(option.metavar or option.choices) != (option.parse is not None):
        yield f"metavar {option.metavar!r}, choices {option.choices}, parse {option.parse}"
    if option.default is not None and (
        option.parse is None or option.parse(str(option.default)) != option.default
    ):
        yield f"default {option.default!r}"


def test_options_are_declared_whole() -> None:
    assert OPTIONS
    assert [(option.key, fault) for option in OPTIONS for fault in faults_of(option)] == []


def test_the_empty_name_of_a_file_is_refused() -> None:
    options = [option for option in OPTIONS if option.metavar in ("FILE", "DIR")]
    assert options
    for option in options:
        assert "is empty" in refused(option.parse, ""), option.key


def test_keys_are_unique() -> None:
    assert len(BY_KEY) == len(OPTIONS)


def test_the_help_shows_flag_group_text_and_engines() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser, {"cuda": ["megengine", "onnxruntime"]})
    words = " ".join(parser.format_help().split())
    for option in OPTIONS:
        separator = " " if option.metavar else ""
        assert f"{option.flag}{separator}{option.metavar}" in words
        assert option.help in words
        assert f"{option.group.title}:" in words
    assert "cuda:1 [megengine, onnxruntime]" in words


def test_what_is_for_the_command_line_is_refused_from_python() -> None:
    keys = [option.key for option in OPTIONS if option.is_for_command_line]
    assert set(keys) == {
        *("model_info", "json", "csv", "html", "save", "tag", "store", "in_process", "debug"),
        *("scheduler", "on"),
    }
    for key in keys:
        with pytest.raises(UsageError, match="is for the command line alone"):
            parse_values({key: True})


def test_no_flag_gives_the_defaults() -> None:
    values = parsed()
    assert values == {
        option.key: False if option.parse is None else option.default for option in OPTIONS
    }
    assert (values["iter"], values["warmup_iter"], values["stall_timeout"]) == (None, None, 30.0)


def test_flags_give_their_values() -> None:
    values = parsed("--iter=3", "--timeout", "2.5", "--input", "a.npy", "--input=b:[1]", "--rgb")
    assert (values["iter"], values["timeout"], values["rgb"]) == (3, 2.5, True)
    assert values["input"] == ["a.npy", "b:[1]"]


@pytest.mark.parametrize(
    ("key", "flag"), [("iter", "--iter"), ("warmup_iter", "--warmup-iter"), ("a_b_c", "--a-b-c")]
)
def test_the_flag_of_a_key(key: str, flag: str) -> None:
    assert flag_of(key) == flag


@given(st.integers(0, MOST_ITERATIONS))
def test_a_count_is_a_whole_number(count: int) -> None:
    assert parse_count(str(count)) == count


@pytest.mark.parametrize(
    "text", ["-1", "1.5", "ten", "", "1e3", str(MOST_ITERATIONS + 1), "9" * 30]
)
def test_a_wrong_count_is_refused(text: str) -> None:
    assert refused(parse_count, text)


@given(st.floats(min_value=1e-9, max_value=1e9))
def test_seconds_are_any_positive_number(seconds: float) -> None:
    assert parse_duration(repr(seconds)) == seconds


@pytest.mark.parametrize("text", ["0", "-1", "inf", "nan", "soon", "", "1d", "1e999", "s"])
def test_wrong_seconds_are_refused(text: str) -> None:
    assert refused(parse_duration, text)


@pytest.mark.parametrize(
    ("text", "limit"), [("0", None), ("0.0", None), (" 0", None), ("0.00", None), ("2.5", 2.5)]
)
def test_the_stall_limit_is_off_at_zero(text: str, limit: float | None) -> None:
    assert parse_stall(text) == limit


@given(st.integers(0, 2**80))
def test_a_seed_is_any_natural_number(seed: int) -> None:
    assert parse_seed(str(seed)) == seed


@pytest.mark.parametrize("text", ["-1", "1.0", "", "²", "٣", "abc"])
def test_a_wrong_seed_is_refused(text: str) -> None:
    assert refused(parse_seed, text)


@given(st.integers(0, 255))
def test_a_device_id_is_a_small_number(number: int) -> None:
    assert parse_device_id(str(number)) == number


@pytest.mark.parametrize("text", ["-1", "256", "x", "", "0.5", "²"])
def test_a_wrong_device_id_is_refused(text: str) -> None:
    assert refused(parse_device_id, text)


@given(st.integers(1, 65536), st.integers(1, 65536), st.sampled_from("xX,"))
def test_a_size_is_height_and_width(height: int, width: int, between: str) -> None:
    assert parse_size(f"{height}{between}{width}") == (height, width)


@pytest.mark.parametrize(
    "text", ["224", "224x", "x", "0x1", "1x65537", "1x2x3", "-1x2", "1.5x2", ""]
)
def test_a_wrong_size_is_refused(text: str) -> None:
    assert refused(parse_size, text)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=4))
def test_channel_values_are_a_list_of_numbers(values: list[float]) -> None:
    assert parse_channel_values(",".join(map(repr, values))) == tuple(values)


@pytest.mark.parametrize("text", ["", "1,", "a", "1,nan", "inf", "1;2"])
def test_wrong_channel_values_are_refused(text: str) -> None:
    assert refused(parse_channel_values, text)


@pytest.mark.parametrize("pair", [{"cpu": True, "cuda": 0}, {"bgr": True, "rgb": True}])
def test_options_that_exclude_each_other_are_refused_by_name(pair: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as caught:
        check_rules(RULES, Asked(pair))
    assert " exclude each other: " in caught.value.message
    assert all(flag_of(key) in caught.value.message for key in pair)
    assert caught.value.hint in ("give one of them", "leave one of them out")


@pytest.mark.parametrize(
    "values", [{}, {"cpu": True, "cuda": None}, {"cpu": False, "cuda": 0}, {"model": "m"}]
)
def test_options_that_are_not_set_exclude_nothing(values: dict[str, Any]) -> None:
    check_rules(RULES, Asked(values))


@pytest.mark.parametrize(
    ("values", "settings"),
    [
        ({}, {}),
        ({"cpu": True, "iter": 3}, {"cpu": True}),
        ({"cpu": False, "cuda": None}, {}),
        ({"cuda": 1, "verbose": True}, {"cuda": 1, "verbose": True}),
        ({"cuda": 0}, {"cuda": 0}),
        ({"disable_optimizer": ["A", "B,C"]}, {"disable_optimizer": "A,B,C"}),
    ],
)
def test_settings_are_the_engine_options_that_were_set(
    values: dict[str, Any], settings: dict[str, Any]
) -> None:
    assert collect_settings(values) == settings


def test_channel_values_keep_their_sign_and_size() -> None:
    assert parse_channel_values("-0.0,1e-300") == (0.0, 1e-300)
    assert math.copysign(1, parse_channel_values("-0.0")[0]) == -1
