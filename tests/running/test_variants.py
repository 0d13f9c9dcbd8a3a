"""The options of a variant: its own beside those that all share."""

from __future__ import annotations

import pytest

from lar.running.plan import join_options
from lar.running.variants import parse_vary


def test_own_environment_variables_come_after_the_shared_ones() -> None:
    joined = join_options({"engine_env": "A=1"}, {"engine_env": ["A=2", "B=3"]})
    assert joined == {"engine_env": ["A=1", "A=2", "B=3"]}
    assert join_options({"engine_env": ["A=1"]}, {"engine_env": None}) == {}


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
