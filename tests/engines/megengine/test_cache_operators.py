"""Operators of a fast-run cache: decoded, found, given another algorithm, compared."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lar.engines.caches import Operator
from lar.engines.megengine.cache import (
    SEARCH,
    algorithm_of,
    bytes_of,
    cache_of,
    number_bytes,
    winograd_of,
)
from lar.engines.megengine.cache_operators import find_operator, operators_of, value_of
from lar.errors import UsageError
from tests.engines.megengine.caches import (
    REAL,
    algorithm,
    cache_with,
    choose_algorithm,
    compare_caches,
)

CONVOLUTION = "{1,16,8,8} {32,16,3,3} -> {1,32,8,8} Float32, pad 1"
WINOGRAD = "CONVOLUTION_DEFAULT_WINOGRAD:FB_GI_F32_MK4_4x8:4:4:24:3"


@pytest.mark.parametrize("operator", ["1", "32,16,3,3", f"ConvolutionForward {CONVOLUTION}"])
def test_another_algorithm_is_chosen(operator: str) -> None:
    before = cache_of(REAL)
    after = choose_algorithm(before, operator, "4:4:24:3")
    first, *others = operators_of(after)
    assert first.chosen.name == WINOGRAD
    assert others == operators_of(before)[1:]
    old = operators_of(before)[0].algorithms
    assert first.algorithms == (first.chosen, *(each for each in old if each != first.chosen))
    assert len(bytes_of(after)) == len(REAL)
    again = choose_algorithm(after, operator, old[0].name)
    assert not compare_caches(again, before).differing


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
    cache = {
        ("profile:plat=cpu:Newv5X0", b"1;Float32|"): (algorithm("A:24"), algorithm("A:2")),
        ("profile:plat=cpu:Newv5X0", b"1;Float32|2;Float32|"): (algorithm("B"),),
    }
    assert find_operator(cache, "{1} Float32").number == 1
    assert operators_of(choose_algorithm(cache, "1", "A:2"))[0].chosen.name == "A:2"


def test_two_caches_are_compared_by_their_choices() -> None:
    first = cache_with(a="A", b="B", c="C")
    slower = replace(algorithm("A"), seconds=9.0)  # another time is not another choice
    place = next(iter(first))
    second = {**cache_with(b="B2", c="C", d="D"), place: (slower, algorithm("B"))}
    difference = compare_caches(first, second)
    assert not difference.only_first
    assert [each.place[1] for each in difference.only_second] == [b"d"]
    assert [(a.chosen.name, b.chosen.name) for a, b in difference.differing] == [("B", "B2")]
    assert difference.same == 2
    assert not compare_caches(first, first).differing


def test_the_next_best_is_the_fastest_of_the_others() -> None:
    (operator, *_) = operators_of(choose_algorithm(cache_of(REAL), "1", "4:4:24:3"))
    assert operator.next_best is not None
    assert operator.next_best.name == "CONVOLUTION_DEFAULT_IM2COLMATMUL:X86_F32_6x16:384"


# What names and keys mean


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("WINOGRAD:FB_GI_F32_MK4_4x8:4:4:8:3", "F(4,3)"),
        ("WINOGRAD:FB_GI_F32_4x12:1:5:32:4", "F(5,4)"),
        ("WINOGRAD_NCHW44:FB_GI_F32_MK4_4x8:4:2:16:3", "F(2,3)"),
        ("CONVOLUTION_DEFAULT_WINOGRAD:FB_F32_K8X12X1:1:6:24:3", "F(6,3)"),
        ("WINOGRAD:FALLBACK_WINOGRAD_F32-FB_NAIVE:1:2:32:3", "F(2,3)"),
        ("CUDNN:Convolution:CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED", "winograd"),
        ("IM2COLMATMUL:X86_F32_6x16:192", ""),
        ("", ""),
    ],
)
def test_which_winograd_a_name_tells(name: str, expected: str) -> None:
    assert winograd_of(name) == expected


@pytest.mark.parametrize(
    ("category", "expected"),
    [
        ("profile:plat=cpu:ConvBiasForwardv5X0", ("plat=cpu", "ConvBiasForward")),
        ("profile:plat=cpu:Convolution3DForwardv5F0", ("plat=cpu", "Convolution3DForward")),
        ("profile:plat=cpu:MatrixMulv5DEFAULT", ("plat=cpu", "MatrixMul")),
        (
            "profile:plat=cuda;dev=NVIDIA H200;cap=9.0;runtime=10:ConvolutionForwardv5CUDA CONV",
            ("plat=cuda;dev=NVIDIA H200;cap=9.0;runtime=10", "ConvolutionForward"),
        ),
        ("layout_transform_profile:plat=cpu", None),
        ("profile:plat=cpu:ConvBiasForwardv4X0", None),
        ("profile:plat=cpu:ConvBiasForwardv51X0", None),
        ("profile:plat=cpu", None),
    ],
)
def test_what_a_category_tells(category: str, expected: tuple[str, str] | None) -> None:
    found = operators_of({(category, b""): (algorithm("A"),) if expected else b""})
    assert [(each.device, each.name) for each in found] == [expected] * bool(expected)
    assert bool(SEARCH.fullmatch(category)) == bool(expected)


def operator_with(name: str, key: bytes) -> Operator:
    (found,) = operators_of({(f"profile:plat=cpu:{name}v5X0", key): (algorithm("A"),)})
    return found


def parameters(*numbers: int) -> bytes:
    return b"".join(map(number_bytes, numbers))


@pytest.mark.parametrize(
    ("operator", "blob", "expected"),
    [
        (
            "ConvolutionForward",
            b"1,3,9,9;Float32|8,3,3,3;Float32|1,8,5,4;Float32|"
            + parameters(1, 1, 1, 2, 3, 1, 1, 1, 0, 1),
            "{1,3,9,9} {8,3,3,3} -> {1,8,5,4} Float32, "
            "mode CONVOLUTION, sparse GROUP, compute_mode FLOAT32, pad 1, stride 2x3",
        ),
        (
            "ConvBiasForward",
            b"1,1,8,8;QuantizedS8|16,1,3,3;QuantizedS8|1,16,1,1;QuantizedS32|;QuantizedS8|"
            b"1,16,8,8;QuantizedS8|" + parameters(1, 0, 0, 7, 0, 0, 1, 1, 2, 2, 0),
            "{1,1,8,8} {16,1,3,3} {1,16,1,1} -> {1,16,8,8} QuantizedS8/QuantizedS32, "
            "nonlinear RELU, format NCHW44, dilate 2",
        ),
        (
            "PoolingForward",
            b"1,2,4,4;Float32|1,2,2,2;Float32|" + parameters(1, 0, 0, 2, 2, 3, 2, 0),
            "{1,2,4,4} -> {1,2,2,2} Float32, mode AVERAGE, stride 2, window 3x2",
        ),
        (
            "MatrixMul",
            b"4,2;2,1;Float32|4,3;Float32|2,3;Float32|\1\0\0\0" + parameters(0, 1),
            "{4,2} strides {2,1} {4,3} -> {2,3} Float32, transpose_a yes, format MK4",
        ),
        ("MatrixMul", b"0,4;Float32|", "{?,4} Float32"),
        ("ConvBiasForward", b"1,2;Float32|short", "{1,2} Float32"),
        ("ConvBiasForward", b"", "unknown shapes"),
        ("SomethingNew", b"1,2;Float32|3;Int8|\0\0\0\0", "{1,2} -> {3} Float32/Int8"),
        ("ConvolutionForward", parameters(*[0] * 8, 99, 0), "unknown shapes"),
    ],
)
def test_a_key_is_told(operator: str, blob: bytes, expected: str) -> None:
    assert operator_with(operator, blob).shapes == expected


def test_a_value_without_a_name_is_its_number() -> None:
    assert value_of("format", 99) == 99


@given(st.sampled_from(["ConvolutionForward", "MatrixMul", "New"]), st.binary(max_size=80))
def test_any_key_can_be_told(operator: str, blob: bytes) -> None:
    assert operator_with(operator, blob).shapes.isprintable()


@pytest.mark.parametrize(
    ("attribute", "names"), [(9, ("reproducible", "depends on batch")), (0, ()), (16, ())]
)
def test_the_attributes_are_named(attribute: int, names: tuple[str, ...]) -> None:
    result = f":{attribute};1e-05;64:\0".encode()
    assert algorithm_of(algorithm("A").blob, result).attributes == names
