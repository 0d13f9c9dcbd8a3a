"""The options of a variant: its own beside those that all share."""

from __future__ import annotations

from lar.running.variants import join_options


def test_a_variants_own_value_replaces_the_shared_one() -> None:
    shared = {"iter": 10, "warmup_iter": 2}
    assert join_options(shared, {"iter": 3, "seed": 7}) == {"iter": 3, "warmup_iter": 2, "seed": 7}


def test_own_environment_variables_come_after_the_shared_ones() -> None:
    joined = join_options({"engine_env": "A=1"}, {"engine_env": ["A=2", "B=3"]})
    assert joined == {"engine_env": ["A=1", "A=2", "B=3"]}
    assert join_options({"engine_env": ["A=1"]}, {"engine_env": None}) == {}
