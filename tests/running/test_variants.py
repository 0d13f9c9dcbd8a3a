"""The options that vary in a bench, and their values."""

from __future__ import annotations

import pytest

from lar.running.variants import parse_vary


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("batch-size=1:16:x2", "1 2 4 8 16"),
        ("batch-size=1:4", "1 2 3 4"),
        ("batch-size=1:10:4", "1 5 9"),
        ("batch-size=3:20:x3,32", "3 9 32"),
        ("multithread=2:2", "2"),
        ("input=1:16", "1:16"),
    ],
)
def test_numbers_may_be_a_range(text: str, values: str) -> None:
    assert " ".join(parse_vary(text).values) == values
