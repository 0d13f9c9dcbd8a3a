"""Suggestions for a mistyped flag: near in meaning, else really near in spelling, else none."""

from __future__ import annotations

from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from lar.options.suggestions import nearest_spelling, other_runners, suggest_flag, typing_mistakes
from lar.options.table import BY_KEY, FLAGS
from tests.tables import each_row


def test_a_flag_that_the_command_lacks_is_not_suggested() -> None:
    for typed in ("--iterations", "--output", "--shapes", "--measurement-interval", "-m"):
        assert suggest_flag(typed, ["--json", "--debug"]) == ""


def test_keys_of_python() -> None:
    for typed, meant in (("iters", "iter"), ("iterations", "iter"), ("warmups", "warmup")):
        assert suggest_flag(typed, BY_KEY) == f"did you mean {meant!r}?"
    assert suggest_flag("quiet", BY_KEY) == ""


def test_the_table_names_flags_that_there_are() -> None:
    named = {text.split()[0] for text in other_runners().values() if text.startswith("--")}
    assert named <= set(FLAGS)
    assert all(len(name) == 1 or name == name.lower() for name in other_runners())
    assert not any("-" in name or "_" in name for name in other_runners())


@cache
def distance(word: str, other: str) -> int:
    """The simplest way to count mistakes: each is made, or not, at the beginning of both words."""
    if not word or not other:
        return len(word) + len(other)
    ways = [
        distance(word[1:], other) + 1,
        distance(word, other[1:]) + 1,
        distance(word[1:], other[1:]) + (word[0] != other[0]),
    ]
    if len(word) > 1 and word[1::-1] == other[:2]:
        ways.append(distance(word[2:], other[2:]) + 1)
    return min(ways)


@given(st.text("abc", max_size=6), st.text("abc", max_size=6))
def test_typing_mistakes_are_counted(word: str, other: str) -> None:
    assert typing_mistakes(word, other) == distance(word, other)


COMMANDS = ("run", "info", "compare", "report", "cache")


@each_row("options/cases/nearest spellings")
def test_nearest_spelling(known: list[str], spelt: dict[str, str]) -> None:
    assert {word: nearest_spelling(word, known) for word in spelt} == spelt
