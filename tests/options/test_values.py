"""Values that are typed: what is one, and how many or how large are too many."""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lar.options import values


def refusal(parse: Callable[[str], Any], text: str) -> str:
    with pytest.raises(argparse.ArgumentTypeError) as caught:
        parse(text)
    return str(caught.value)


# For each parser: texts with the values that they stand for, and refused texts with the reason.
TEXTS = json.loads(Path(__file__).with_name("values.json").read_text())


@pytest.mark.parametrize("name", TEXTS)
def test_a_value_is_taken_up_to_its_bounds(name: str) -> None:
    parse: Callable[[str], Any] = getattr(values, f"parse_{name}")
    for text, value in TEXTS[name]["taken"].items():
        parsed, meant = parse(text), tuple(value) if isinstance(value, list) else value
        assert parsed == meant
        assert type(parsed) is type(meant)
    for text, message in TEXTS[name]["refused"].items():
        assert refusal(parse, text) == message


def test_a_number_has_so_many_digits() -> None:
    assert values.parse_seed("7" * 4000) == int("7" * 4000)
    assert refusal(values.parse_seed, "7" * 4001)
    assert refusal(values.parse_positive, "9" * 5000) == f"{'9' * 5000} is too many; at most 999999"


def test_channel_values_keep_their_sign() -> None:
    assert math.copysign(1, values.parse_channel_values("-0.0,1e-300")[0]) == -1
