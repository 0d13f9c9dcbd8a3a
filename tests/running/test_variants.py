"""The options that vary in a bench, and their values."""

from __future__ import annotations

import pytest

from lar.running.variants import make_variants, parse_vary
from tests.conftest import WriteScript


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


def test_several_values_of_an_option_have_spaces_between_them(write_script: WriteScript) -> None:
    model = write_script()
    variants = make_variants([model, f"{model} --engine-env A=1 --engine-env B=2"], [], {})
    assert [variant.name for variant in variants] == ["default", "engine-env=A=1 B=2"]
