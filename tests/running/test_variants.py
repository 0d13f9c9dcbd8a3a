"""The options that vary in a bench, and their values."""

from __future__ import annotations

from lar.running.variants import axes_of, make_variants, parse_vary
from tests.conftest import WriteScript
from tests.refusals import refused
from tests.tables import each_row


@each_row("running/cases/ranges of numbers")
def test_numbers_may_be_a_range(text: str, values: str) -> None:
    assert " ".join(parse_vary(text).values) == values


def test_several_values_of_an_option_have_commas_between_them(write_script: WriteScript) -> None:
    model = write_script()
    variants = make_variants([model, f"{model} --engine-env A=1 --engine-env B=2"], [], {})
    assert [variant.name for variant in variants] == ["default", "engine-env=A=1,B=2"]
    refused("vary: seed: has no values to vary", axes_of, {"seed": []})
