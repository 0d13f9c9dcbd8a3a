"""Operators of a fast-run cache: found, given another algorithm, compared."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lar.engines.megengine.cache import (
    AlgorithmCache,
    Category,
    Entry,
    bytes_of,
    cache_of,
    merge_caches,
)
from lar.engines.megengine.cache_choices import (
    compare_caches,
    find_operator,
    operators_of,
)
from lar.errors import UsageError
from tests.engines.megengine.caches import REAL, algorithm, cache_with, choose_algorithm

CONVOLUTION = "{1,16,8,8} {32,16,3,3} -> {1,32,8,8} Float32, pad 1"
WINOGRAD = "CONVOLUTION_DEFAULT_WINOGRAD:FB_GI_F32_MK4_4x8:4:4:24:3"


@pytest.mark.parametrize("operator", ["1", "32,16,3,3", f"ConvolutionForward {CONVOLUTION}"])
def test_another_algorithm_is_chosen(operator: str) -> None:
    before = cache_of(REAL)
    after = choose_algorithm(before, operator, "4:4:24:3")
    first, *others = operators_of(after)
    assert first.chosen.name == WINOGRAD
    assert others == operators_of(before)[1:]
    old = before.categories[0].entries[0].algorithms
    assert set(first.entry.algorithms) == set(old)
    assert [each for each in first.entry.algorithms if each.name != WINOGRAD] == [
        each for each in old if each.name != WINOGRAD
    ]
    assert len(bytes_of(after)) == len(REAL)
    assert not compare_caches(choose_algorithm(after, operator, old[0].name), before)


@pytest.mark.parametrize(
    ("operator", "algorithm", "message", "candidates"),
    [
        ("10", "x", "'10' means 0 operators", "9: MatrixMul"),
        ("0", "x", "'0' means 0 operators", "1: ConvolutionForward"),
        ("MatrixMul", "x", "'MatrixMul' means 4 operators", "7: MatrixMul"),
        ("1", "x86_f32_6x16", "means 2 algorithms", "IM2COLMATMUL:X86_F32_6x16:48"),
        ("1", "nothing", "'nothing' means 0 algorithms", "FALLBACK_ALGO"),
    ],
)
def test_a_choice_that_is_not_clear_is_refused(
    operator: str, algorithm: str, message: str, candidates: str
) -> None:
    with pytest.raises(UsageError) as caught:
        choose_algorithm(cache_of(REAL), operator, algorithm)
    assert message in caught.value.message
    assert candidates in caught.value.hint


def test_a_whole_name_counts_more_than_a_piece() -> None:
    short = Entry(b"1;Float32|", (algorithm("A:24"), algorithm("A:2")))
    long = Entry(b"1;Float32|2;Float32|", (algorithm("B"),))
    cache = AlgorithmCache((Category("profile:plat=cpu:Newv5X0", (short, long)),))
    assert find_operator(cache, "{1} Float32").number == 1
    assert operators_of(choose_algorithm(cache, "1", "A:2"))[0].chosen.name == "A:2"


def test_many_operators_are_not_all_told() -> None:
    cache = cache_with(**{f"k{index}": "A" for index in range(40)})
    with pytest.raises(UsageError) as caught:
        find_operator(cache, "MatrixMul")
    assert caught.value.hint.endswith("; and 31 more")


def test_two_caches_are_compared_by_their_choices() -> None:
    first = cache_with(a="A", b="B", c="C")
    slower = replace(algorithm("A"), seconds=9.0)  # another time is not another choice
    second = merge_caches(cache_with(b="B2", c="C", d="D"), AlgorithmCache())
    entry = Entry(b"a", (slower, algorithm("B")))
    second = merge_caches(second, AlgorithmCache((Category(second.categories[0].name, (entry,)),)))
    difference = compare_caches(first, second)
    assert difference
    assert not difference.only_first
    assert [each.entry.key for each in difference.only_second] == [b"d"]
    assert [(a.chosen.name, b.chosen.name) for a, b in difference.differing] == [("B", "B2")]
    assert difference.same == 2
    assert not compare_caches(first, first)


def test_the_next_best_is_the_fastest_of_the_others() -> None:
    (operator, *_) = operators_of(choose_algorithm(cache_of(REAL), "1", "4:4:24:3"))
    assert operator.next_best is not None
    assert operator.next_best.name == "CONVOLUTION_DEFAULT_IM2COLMATMUL:X86_F32_6x16:384"
