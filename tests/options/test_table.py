"""The options: each is declared once, parses what it says and refuses the rest."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from typing import Any

import pytest

from lar.cli.arguments import add_rows, headings_of, name_supporters
from lar.errors import UsageError
from lar.options.command_line import parse_values
from lar.options.option import Option
from lar.options.table import BY_KEY, OPTIONS, collect_settings


def parsed(*words: str) -> dict[str, Any]:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    add_rows(parser, headings_of(OPTIONS))
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
        assert option.parse is not None
        with pytest.raises(argparse.ArgumentTypeError, match="is empty"):
            option.parse("")


def test_keys_are_unique() -> None:
    assert len(BY_KEY) == len(OPTIONS)


def test_the_help_shows_flag_group_text_and_engines() -> None:
    parser = argparse.ArgumentParser()
    add_rows(parser, headings_of(OPTIONS))
    name_supporters(parser, {"cuda": ["megengine", "onnxruntime"]})
    words = " ".join(parser.format_help().split())
    for option in OPTIONS:
        separator = " " if option.metavar else ""
        assert f"{option.flag}{separator}{option.metavar}" in words
        assert option.help in words
        assert f"{option.group.title}:" in words
    assert "means device 1 [megengine, onnxruntime]" in words


def test_what_is_for_the_command_line_is_refused_from_python() -> None:
    keys = [option.key for option in OPTIONS if option.is_for_command_line]
    assert {"json", "scheduler", "debug"} <= set(keys)
    for key in keys:
        with pytest.raises(UsageError, match="works only on the command line"):
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


def test_settings_are_the_engine_options_that_were_set() -> None:
    given: dict[str, Any]
    for given in ({}, {"cpu": True}, {"cuda": 1, "verbose": True}, {"cuda": 0}):
        assert collect_settings(given) == given
        assert collect_settings({"iter": 3, "bgr": False, "input": None, **given}) == given
    assert collect_settings({"disable_optimizer": ["A", "B,C"]}) == {"disable_optimizer": "A,B,C"}
