"""Fast-run cache files: read strictly, decoded, merged, and taken by the engine itself.

`tests/data/digits_cnn.cache` is of models/digits_cnn.mge, searched by MegEngine 1.13.0 on an x86
processor with the policy PROFILE | OPTIMIZED.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lar.engines.caches import Algorithm, Operator
from lar.engines.megengine.cache import (
    LONGEST_CATEGORY,
    SEARCH,
    AlgorithmCache,
    Entry,
    Place,
    algorithm_of,
    blob_bytes,
    bytes_of,
    cache_of,
    find_operator,
    number_bytes,
    operators_of,
    read_cache,
    value_of,
    winograd_of,
)
from lar.errors import UsageError
from tests.engines.megengine.caches import (
    EMPTY_FILE,
    MODEL,
    REAL,
    REAL_FILE,
    algorithm,
    cache_with,
    choose_algorithm,
    compare_caches,
)
from tests.tables import each_row

CONVOLUTION = "{1,16,8,8} {32,16,3,3} -> {1,32,8,8} Float32, pad 1"


needs_megengine = pytest.mark.skipif(
    importlib.util.find_spec("megenginelite") is None, reason="MegEngine is not installed"
)


# What a file holds


def test_a_real_file_is_read() -> None:
    cache = read_cache(REAL_FILE)
    assert list(dict.fromkeys(category for category, _ in cache)) == [
        "profile:plat=cpu:ConvolutionForwardv5F0",
        "profile:plat=cpu:PoolingForwardv5X86_POOLING_FORWARD",
        "profile:plat=cpu:MatrixMulv5DEFAULT",
    ]
    (_, key), entry = next(iter(cache.items()))
    assert key.startswith(b"1,16,8,8;Float32|32,16,3,3;Float32|1,32,8,8;Float32|")
    assert len(entry) == 16
    chosen = entry[0]
    assert isinstance(chosen, Algorithm)
    assert chosen.name == "CONVOLUTION_DEFAULT_IM2COLMATMUL:X86_F32_6x16:384"
    assert (chosen.seconds, chosen.workspace_bytes) == (1.1e-05, 103424)
    assert chosen.attributes == ("reproducible",)


def test_a_real_file_is_written_as_it_was() -> None:
    assert bytes_of(cache_of(REAL)) == REAL


JIT = "jit:nvrtc:plat=cuda;dev=NVIDIA A10;cap=8.6;runtime=11"


@pytest.mark.parametrize("name", [JIT, "profile:plat=cpu:ConvBiasForwardv4X0"])
def test_values_that_are_not_known_are_kept_and_not_read(name: str) -> None:
    cache = {(name, b"key"): b"anything", (name, b""): b""}
    assert cache_of(bytes_of(cache)) == cache
    assert operators_of(cache) == []


NAMES = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=30)
ALGORITHMS = st.builds(
    algorithm, NAMES, st.floats(0, 10).map(lambda seconds: f"{seconds:g}"), st.integers(0, 2**40)
)
SEARCHED: st.SearchStrategy[Entry] = st.lists(ALGORITHMS, min_size=1, max_size=3).map(tuple)


def entries_of(names: list[str], entry: st.SearchStrategy[Entry]) -> st.SearchStrategy[Any]:
    places = st.tuples(st.sampled_from(names), st.binary(max_size=40))
    return st.dictionaries(places, entry, max_size=6)


CACHES: st.SearchStrategy[AlgorithmCache] = st.builds(
    lambda searched, other: {**searched, **other},
    entries_of(["profile:plat=cpu:Av5X0", "profile:plat=cpu:Bv5X0"], SEARCHED),
    entries_of(["profile:plat=cpu:Av4X0", "jit:x"], st.binary(max_size=40)),
)


@given(CACHES)
def test_what_is_written_is_read(cache: AlgorithmCache) -> None:
    assert cache_of(bytes_of(cache)) == cache


# What is refused


TWICE = number_bytes(1) + blob_bytes(b"jit:x") + number_bytes(2) + 2 * (blob_bytes(b"k") * 2)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "4 bytes should follow byte 0, 0 do"),
        (b"\1\0", "4 bytes should follow byte 0, 2 do"),
        (EMPTY_FILE + b"\0", "1 bytes too many"),
        (REAL + b"\0", "1 bytes too many"),
        (REAL[:-1], "should follow byte"),
        (MODEL.read_bytes(), "is not a name"),
        (b"a text file, not a cache", "should follow byte"),
        (number_bytes(1) + number_bytes(0) + number_bytes(0), "is not a name"),
        (number_bytes(1) + blob_bytes(b"x" * 256) + number_bytes(0), "name of a category"),
        (number_bytes(1) + blob_bytes("ü".encode("latin1")) + number_bytes(0), "is not a name"),
        (number_bytes(1) + blob_bytes(b"a\0b") + number_bytes(0), "is not a name"),
        (
            number_bytes(2) + 2 * (blob_bytes(b"same") + number_bytes(0)),
            "a category is there twice",
        ),
        (TWICE, "an entry is there twice"),
    ],
    ids=lambda value: repr(value)[:24],
)
def test_what_is_no_whole_cache_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(UsageError, match="is not a fast-run cache of MegEngine") as caught:
        cache_of(data, "some.cache")
    assert message in caught.value.message
    assert caught.value.message.startswith("some.cache: ")
    assert caught.value.hint


@pytest.mark.parametrize(
    "value",
    [
        b"",
        number_bytes(0),
        number_bytes(1),
        *(
            number_bytes(1) + blob_bytes(algorithm("A").blob) + blob_bytes(result)
            for result in (b":1;fast;0:\0", b":1;1e+999;0:\0", b":1;nan;0:\0", b":1;0.1;0:")
        ),
        number_bytes(1) + blob_bytes(algorithm("A").blob[:-1]) + blob_bytes(b":1;0.1;0:\0"),
        number_bytes(1) + blob_bytes(algorithm("A").blob + b"A") + blob_bytes(b":1;0.1;0:\0"),
        number_bytes(1) + blob_bytes(algorithm("A").blob) + blob_bytes(b":1;0.1;0:\0") + b"A",
    ],
)
def test_a_damaged_search_is_refused(value: bytes) -> None:
    with pytest.raises(UsageError):
        cache_of(bytes_of({("profile:plat=cpu:MatrixMulv5X0", b"key"): value}))


def test_every_beginning_of_a_file_is_refused() -> None:
    for size in range(len(REAL)):
        with pytest.raises(UsageError):
            cache_of(REAL[:size])


def test_a_length_is_checked_before_memory_is_taken() -> None:
    huge = b"\xff" * 4
    for data in (huge, number_bytes(1) + huge, number_bytes(1) + blob_bytes(b"a") + huge):
        began = time.thread_time()
        with pytest.raises(UsageError):
            cache_of(data)
        assert time.thread_time() - began < 1


def refused_or_whole(data: bytes) -> None:
    try:
        cache = cache_of(data)
    except UsageError:
        return
    # Only categories without entries may be left out.
    assert bytes_of(cache) == data or len(bytes_of(cache)) < len(data)
    assert cache_of(bytes_of(cache)) == cache


@given(
    st.lists(
        st.tuples(
            st.integers(0, len(REAL)),
            st.integers(0, 12),
            st.one_of(st.binary(max_size=8), st.integers(0, 300).map(number_bytes)),
        ),
        min_size=1,
        max_size=3,
    )
)
@settings(max_examples=100)
def test_a_changed_file_is_refused_or_whole(changes: list[tuple[int, int, bytes]]) -> None:
    data = REAL
    for place, removed, added in changes:
        data = data[:place] + added + data[place + removed :]
    refused_or_whole(data)


def test_files_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    with open(tmp_path / "large", "wb") as file:
        file.truncate(1 << 40)
    for name, message in (
        ("missing", "no such fast-run cache"),
        ("large", "has 1099511627776 bytes; at most"),
    ):
        with pytest.raises(UsageError, match=message):
            read_cache(tmp_path / name)


# The engine


def write_anew(cache: str, written: str) -> None:
    """Have the engine read a cache and write it."""
    from lar.engines.megengine.lite import import_lite

    lite = import_lite()
    lite.LiteGlobal.set_persistent_cache(cache)
    lite.LiteGlobal.dump_persistent_cache(written)


@needs_megengine
def test_the_engine_reads_what_is_written(elsewhere: Callable[..., None], tmp_path: Path) -> None:
    """In its own order; the longest name of a category that is read, too."""
    place: Place = "x" * LONGEST_CATEGORY, b"key"
    cache = {**choose_algorithm(cache_of(REAL), CONVOLUTION, "4:4:24:3"), place: b"v"}
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.write_bytes(bytes_of(cache))
    elsewhere(write_anew, str(ours), str(theirs))
    assert read_cache(theirs) == cache


# Operators: decoded, found, given another algorithm, compared


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
    assert not compare_caches(choose_algorithm(after, operator, old[0].name), before).differing


@each_row("engines/megengine/cache_names/unclear")
def test_a_choice_that_is_not_clear_is_refused(
    operator: str, algorithm: str, message: str, candidates: str
) -> None:
    with pytest.raises(UsageError) as caught:
        choose_algorithm(cache_of(REAL), operator, algorithm)
    assert message in caught.value.message
    assert candidates in f"{caught.value.hint}."


@each_row("engines/megengine/cache_names/named")
def test_at_most_nine_operators_are_named(count: int, end: str) -> None:
    cache = cache_with(**{f"key{number}": "A" for number in range(count)})
    with pytest.raises(UsageError) as caught:
        find_operator(cache, "nothing")
    assert caught.value.hint.endswith(end)


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
    second = {**cache_with(b="B2", c="C", d="D"), next(iter(first)): (slower, algorithm("B"))}
    difference = compare_caches(first, second)
    assert not difference.only_first
    assert [each.place[1] for each in difference.only_second] == [b"d"]
    assert [(a.chosen.name, b.chosen.name) for a, b in difference.differing] == [("B", "B2")]
    assert difference.same == 2
    assert not compare_caches(first, first).differing


# What names and keys mean


@each_row("engines/megengine/cache_names/winograd")
def test_which_winograd_a_name_tells(name: str, expected: str) -> None:
    assert winograd_of(name) == expected


@each_row("engines/megengine/cache_names/categories")
def test_what_a_category_tells(category: str, expected: list[str] | None) -> None:
    found = operators_of({(category, b""): (algorithm("A"),) if expected else b""})
    assert [[each.device, each.name] for each in found] == [expected] * bool(expected)
    assert bool(SEARCH.fullmatch(category)) == bool(expected)


def operator_with(name: str, key: bytes) -> Operator:
    (found,) = operators_of({(f"profile:plat=cpu:{name}v5X0", key): (algorithm("A"),)})
    return found


@each_row("engines/megengine/cache_names/keys")
def test_a_key_is_told(operator: str, text: str, numbers: list[int], expected: str) -> None:
    blob = text.encode() + b"".join(map(number_bytes, numbers))
    assert operator_with(operator, blob).shapes == expected


def test_a_value_without_a_name_is_its_number() -> None:
    assert [value_of("mode", number) for number in (0, 1, 2)] == [
        *("CROSS_CORRELATION", "CONVOLUTION", 2)
    ]


@given(st.sampled_from(["ConvolutionForward", "MatrixMul", "New"]), st.binary(max_size=80))
def test_any_key_can_be_told(operator: str, blob: bytes) -> None:
    assert operator_with(operator, blob).shapes.isprintable()


@pytest.mark.parametrize(
    ("attribute", "names"),
    [
        (9, ("reproducible", "depends on batch")),
        (6, ("naive", "depends on shape")),
        (0, ()),
        (16, ()),
    ],
)
def test_the_attributes_are_named(attribute: int, names: tuple[str, ...]) -> None:
    result = f":{attribute};1e-05;64:\0".encode()
    assert algorithm_of(algorithm("A").blob, result).attributes == names
