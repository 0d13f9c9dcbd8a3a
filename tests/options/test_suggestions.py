"""Suggestions for a mistyped flag: near in meaning, else really near in spelling, else none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lar.options.suggestions import (
    nearest_spelling,
    other_runners,
    suggest_flag,
    typing_mistakes,
)
from lar.options.table import BY_KEY, FLAGS


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("--itre", "--iter"),
        ("--iters", "--iter"),
        ("-iter", "--iter"),
        ("--enable-nchw-44", "--enable-nchw44"),
        ("--weigth-preproces", "--weight-preprocess"),
        ("--imput", "--input"),
        ("--jsno", "--json"),
        # Flags of other runners
        ("--iterations", "--iter"),
        ("-s", "--percentile"),
        ("--latency-percentile", "--percentile"),
        ("-niter", "--iter"),
        ("-nstreams", "--streams"),
        ("--idleTime", "--idle-ms"),
        ("-t", "--duration"),
        ("--request-rate-range", "--rate"),
        ("--stability-percentage", "--target-ci"),
        ("--exportTimes", "--csv"),
        ("--exportProfile", "--profile"),
        ("-x", "--multithread"),
        ("-S", "--seed"),
        ("-pc", "--profile"),
        ("--timingCacheFile", "--fast-run-algo-policy"),
        ("--fitting", "--fast-run"),
    ],
)
def test_a_typing_mistake_or_a_flag_of_another_runner(typed: str, meant: str) -> None:
    assert suggest_flag(typed, FLAGS) == f"did you mean {meant}?"


@pytest.mark.parametrize(
    ("typed", "piece"),
    [
        ("--output", "--bin-out-dump DIR"),
        ("--shapes", "--input 'NAME:{1,3,224,224}'"),
        ("--measurement-interval", "--duration S"),
        ("-m", "`lar MODEL`"),
        ("--warmUp", "--warmup 200ms"),
    ],
)
def test_what_takes_more_than_a_flag(typed: str, piece: str) -> None:
    assert piece in suggest_flag(typed, FLAGS)
    # Other commands have neither iterations nor inputs.
    assert suggest_flag(typed, ["--json", "--debug"]) == ""


@pytest.mark.parametrize("typed", ["--quiet", "--bogus", "--foo-bar", "--", "-"])
def test_nothing_where_nothing_is_near(typed: str) -> None:
    assert suggest_flag(typed, FLAGS) == ""


def test_a_flag_that_the_command_lacks_is_not_suggested() -> None:
    assert suggest_flag("--iterations", ["--json", "--debug"]) == ""


@pytest.mark.parametrize(
    ("typed", "hint"),
    [
        ("iters", "did you mean 'iter'?"),
        ("iterations", "did you mean 'iter'?"),
        ("warmups", "did you mean 'warmup'?"),
        ("quiet", ""),
    ],
)
def test_keys_of_python(typed: str, hint: str) -> None:
    assert suggest_flag(typed, BY_KEY) == hint


def test_the_table_names_flags_that_there_are() -> None:
    named = {text.split()[0] for text in other_runners().values() if text.startswith("--")}
    assert named <= set(FLAGS)
    assert all(len(name) == 1 or name == name.lower() for name in other_runners())
    assert not any("-" in name or "_" in name for name in other_runners())


@pytest.mark.parametrize(
    ("word", "other", "mistakes"),
    [
        ("", "", 0),
        ("abc", "abc", 0),
        ("abc", "acb", 1),
        ("comapre", "compare", 1),
        ("abc", "ab", 1),
        ("abc", "abxc", 1),
        ("abc", "abx", 1),
        ("ca", "abc", 3),
        ("kitten", "sitting", 3),
        ("tiers", "iters", 1),
        ("ab", "ba", 1),
        ("iters", "itesr", 1),
    ],
)
def test_typing_mistakes(word: str, other: str, mistakes: int) -> None:
    assert typing_mistakes(word, other) == mistakes
    assert typing_mistakes(other, word) == mistakes


@given(st.text("abc", max_size=6), st.text("abc", max_size=6))
def test_the_number_of_mistakes_is_bounded_by_the_lengths(word: str, other: str) -> None:
    mistakes = typing_mistakes(word, other)
    assert abs(len(word) - len(other)) <= mistakes <= max(len(word), len(other))
    assert (mistakes == 0) == (word == other)


COMMANDS = ("run", "info", "compare", "report", "cache")


@pytest.mark.parametrize(
    ("known", "spelt"),
    [
        (COMMANDS, {"comapre": "compare", "rnu": "run", "tune": "", "rep": "report"}),
        (COMMANDS, {"c": "", "m": ""}),
        # A long word may have two mistakes.
        (("profiler",), {"profilxx": "profiler", "profixxx": "", "profile": "profiler"}),
        ((), {"a": ""}),
    ],
)
def test_nearest_spelling(known: tuple[str, ...], spelt: dict[str, str]) -> None:
    assert {word: nearest_spelling(word, known) for word in spelt} == spelt
