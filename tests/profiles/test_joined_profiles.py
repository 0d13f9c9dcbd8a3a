"""Profiles of one model in other layouts, at other levels and on another engine, joined: the truth
are the model's own names."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest
from report_differences import judge_joined, without_names

from lar.engines import operator_kinds_of_both
from lar.engines.operator_times import read_profile
from lar.profiles.differences import compare_profiles
from lar.records.profile import Profile
from tests.cli.marks import needs_megengine
from tests.conftest import RunLar

pytestmark = needs_megengine

WAYS = {
    "plain": ("digits_cnn.mge",),
    "nchw44": ("digits_cnn.mge", "--enable-nchw44"),
    "basic": ("digits_cnn.onnx", "--graph-optimization-level", "basic"),
    "all": ("digits_cnn.onnx",),
}


@pytest.fixture(scope="module")
def profiles(
    run_lar: RunLar, root: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Profile]:
    folder = tmp_path_factory.mktemp("joined")
    made = {}
    for name, (model, *flags) in WAYS.items():
        place = folder / f"{name}.json"
        words = [str(root / "models" / model), "--iter", "5", "--profile", str(place), *flags]
        run_lar(*words, code=0)
        made[name] = read_profile(place)
    return made


@pytest.mark.parametrize(("one", "other"), [*combinations(WAYS, 2)])
def test_operators_that_compute_are_joined_and_none_wrongly(
    profiles: dict[str, Profile], one: str, other: str
) -> None:
    joined = judge_joined((profiles[one], profiles[other]))
    assert joined.wrong == []
    assert heavy_of(joined.missed) == []
    hidden = judge_joined((profiles[one], profiles[other]), hidden=True)
    assert hidden.wrong == []
    assert heavy_of(hidden.missed) == []


def heavy_of(names: list[str]) -> list[str]:
    return [each for each in names if "conv" in each or "matrix_mul" in each]


def test_the_rows_of_two_layouts(profiles: dict[str, Profile]) -> None:
    sides = profiles["plain"], profiles["nchw44"]
    rows = compare_profiles([sides], operator_kinds_of_both(*sides)).operators
    joined = [row for row in rows if row.is_of_both and "conv" in row.name.lower()]
    assert len(joined) >= 3
    alone = {row.type for row in rows if not row.is_of_both}
    assert not {"ConvolutionForward", "ConvBiasForward", "PoolingForward", "MatrixMul"} & alone


def test_modules_are_compared_across_engines(profiles: dict[str, Profile]) -> None:
    sides = profiles["plain"], profiles["basic"]
    rows = compare_profiles([sides], operator_kinds_of_both(*sides), "module").operators
    assert {"conv1", "conv2", "conv3", "logits"} <= {row.name for row in rows if row.is_of_both}


def test_a_profile_without_names_has_the_same_graph(profiles: dict[str, Profile]) -> None:
    hidden = without_names(profiles["plain"])
    assert not any("conv" in each.name for each in hidden.operators)
    assert [len(each.reads) for each in hidden.operators] == [
        len(each.reads) for each in profiles["plain"].operators
    ]
