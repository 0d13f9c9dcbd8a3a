"""The options that vary in a bench, and their values."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from lar.running.variants import Variant, axes_of, find_baseline, make_variants, parse_vary
from tests.conftest import WriteScript
from tests.refusals import refused
from tests.tables import each_row


@each_row("running/cases/ranges of numbers")
def test_numbers_may_be_a_range(text: str, values: str) -> None:
    assert " ".join(parse_vary(text).values) == values


@each_row("running/cases/variants")
def test_variants_have_names_and_the_values_that_vary(
    models: list[str],
    vary: Any,
    options: dict[str, Any],
    told: dict[str, dict[str, str]],
    tmp_path: Path,
    write_script: WriteScript,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("a", "b"):
        os.rename(write_script(), tmp_path / f"{name}.fake")
    monkeypatch.chdir(tmp_path)
    variants = make_variants(models, axes_of(vary), options)
    assert {it.name: dict(it.values) for it in variants} == told


@each_row("running/cases/refused variants")
def test_what_cannot_vary_is_refused(
    vary: Any, said: str, hint: str, write_script: WriteScript
) -> None:
    error = refused("", lambda: make_variants([write_script()], axes_of(vary), {}))
    assert (error.message, error.hint) == (said, hint)


@each_row("running/cases/baselines")
def test_a_baseline_is_a_name_or_a_number(asked: str | None, place: Any) -> None:
    variants = [Variant(name, "net", {}) for name in ("a", "2", "c", *"defghi")]
    if isinstance(place, int):
        assert find_baseline(variants, asked) == place
    else:
        error = refused("", find_baseline, variants, asked)
        assert [error.message, error.hint] == place
