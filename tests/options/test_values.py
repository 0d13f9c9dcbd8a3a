"""Numbers that are typed: what is one, and how many are too many."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import pytest

from lar.options.values import (
    MOST_THINGS,
    MOST_THREADS,
    parse_bytes,
    parse_channel_values,
    parse_check_interval,
    parse_core_ids,
    parse_count,
    parse_device_id,
    parse_limit,
    parse_positive,
    parse_seconds,
    parse_seed,
    parse_threads,
)

PARSERS: tuple[Callable[[str], Any], ...] = (
    parse_bytes,
    parse_channel_values,
    parse_check_interval,
    parse_core_ids,
    parse_count,
    parse_device_id,
    parse_limit,
    parse_positive,
    parse_seconds,
    parse_seed,
    parse_threads,
)


def refusal(parse: Callable[[str], Any], text: str) -> str:
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        parse(text)
    return str(caught.value)


@pytest.mark.parametrize("parse", PARSERS)
@pytest.mark.parametrize("text", ["1_0", "\u0661", "\uff11"])
def test_what_only_python_takes_for_a_number_is_refused(
    parse: Callable[[str], Any], text: str
) -> None:
    assert repr(text) in refusal(parse, text)


@pytest.mark.parametrize(
    ("parse", "most"), [(parse_positive, MOST_THINGS), (parse_threads, MOST_THREADS)]
)
def test_too_many_is_said_so(parse: Callable[[str], int], most: int) -> None:
    assert parse(str(most)) == parse(f"000{most}") == most
    for text in (str(most + 1), str(10 * most), "9" * 5000):
        assert refusal(parse, text).endswith(f" is too many; at most {most}")
    for text in ("0", "000", "-1", "x", ""):
        assert refusal(parse, text) == f"{text!r} is not a number from 1"
