"""Fast-run cache files: read strictly, decoded, merged, and taken by the engine itself.

`tests/data/digits_cnn.cache` was made as `search` below does it: models/digits_cnn.mge, policy
PROFILE | OPTIMIZED, by MegEngine 1.13.0 on an x86 processor.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lar.engines.megengine.cache import (
    LONGEST_CATEGORY,
    AlgorithmCache,
    Category,
    Entry,
    blob_bytes,
    bytes_of,
    cache_of,
    merge_caches,
    number_bytes,
    read_cache,
    write_cache_merged,
)
from lar.engines.megengine.cache_choices import (
    compare_caches,
    find_operator,
    operators_of,
)
from lar.errors import UsageError
from tests.engines.megengine.caches import (
    EMPTY_FILE,
    MODEL,
    REAL,
    REAL_FILE,
    algorithm,
    cache_with,
    choices_of,
    choose_algorithm,
)

CONVOLUTION = "{1,16,8,8} {32,16,3,3} -> {1,32,8,8} Float32, pad 1"


needs_megengine = pytest.mark.skipif(
    importlib.util.find_spec("megenginelite") is None, reason="MegEngine is not installed"
)


def entries_of(cache: AlgorithmCache) -> dict[tuple[str, bytes], Entry]:
    return {(each.name, entry.key): entry for each in cache.categories for entry in each.entries}


# What a file holds


def test_a_real_file_is_read() -> None:
    cache = read_cache(REAL_FILE)
    assert [category.name for category in cache.categories] == [
        "profile:plat=cpu:ConvolutionForwardv5F0",
        "profile:plat=cpu:PoolingForwardv5X86_POOLING_FORWARD",
        "profile:plat=cpu:MatrixMulv5DEFAULT",
    ]
    first = cache.categories[0].entries[0]
    assert first.key.startswith(b"1,16,8,8;Float32|32,16,3,3;Float32|1,32,8,8;Float32|")
    assert len(first.algorithms) == 16
    chosen = first.algorithms[0]
    assert chosen.name == "CONVOLUTION_DEFAULT_IM2COLMATMUL:X86_F32_6x16:384"
    assert (chosen.seconds, chosen.workspace_bytes, chosen.attribute) == (1.1e-05, 103424, 1)


def test_a_real_file_is_written_as_it_was() -> None:
    assert bytes_of(cache_of(REAL)) == REAL


def test_an_empty_cache_has_four_bytes() -> None:
    assert cache_of(EMPTY_FILE) == AlgorithmCache()
    assert bytes_of(AlgorithmCache()) == EMPTY_FILE


@pytest.mark.parametrize(
    "name",
    [
        "jit:nvrtc:plat=cuda;dev=NVIDIA A10;cap=8.6;runtime=11",
        "profile:plat=cpu:ConvBiasForwardv4X0",
    ],
)
def test_values_that_are_not_known_are_kept_and_not_read(name: str) -> None:
    cache = AlgorithmCache((Category(name, (Entry(b"key", other=b"anything"), Entry(b""))),))
    assert cache_of(bytes_of(cache)) == cache
    assert operators_of(cache) == []


NAMES = st.text(st.characters(min_codepoint=32, max_codepoint=126), min_size=1, max_size=30)
ALGORITHMS = st.builds(
    algorithm,
    NAMES,
    st.floats(0, 10).map(lambda seconds: f"{seconds:g}"),
    st.integers(0, 2**40),
)
SEARCHED = st.builds(
    Entry, st.binary(max_size=40), st.lists(ALGORITHMS, min_size=1, max_size=3).map(tuple)
)
OTHER = st.builds(Entry, st.binary(max_size=40), st.just(()), st.binary(max_size=40))


def category_with(names: list[str], entry: st.SearchStrategy[Entry]) -> st.SearchStrategy[Category]:
    entries = st.lists(entry, max_size=3, unique_by=lambda each: each.key).map(tuple)
    return st.builds(Category, st.sampled_from(names), entries)


CACHES = st.builds(
    AlgorithmCache,
    st.lists(
        category_with(["profile:plat=cpu:Av5X0", "profile:plat=cpu:Bv5X0"], SEARCHED)
        | category_with(["profile:plat=cpu:Av4X0", "jit:x"], OTHER),
        max_size=3,
        unique_by=lambda category: category.name,
    ).map(tuple),
)


@given(CACHES)
def test_what_is_written_is_read(cache: AlgorithmCache) -> None:
    assert cache_of(bytes_of(cache)) == cache


# What is refused


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
        (number_bytes(2) + 2 * (blob_bytes(b"same") + number_bytes(0)), "there twice"),
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
        number_bytes(1) + blob_bytes(algorithm("A").blob) + blob_bytes(b":1;fast;0:\0"),
        number_bytes(1) + blob_bytes(algorithm("A").blob) + blob_bytes(b":1;1e999;0:\0"),
        number_bytes(1) + blob_bytes(algorithm("A").blob) + blob_bytes(b":1;nan;0:\0"),
        number_bytes(1) + blob_bytes(algorithm("A").blob) + blob_bytes(b":1;0.1;0:"),
        number_bytes(1) + blob_bytes(algorithm("A").blob[:-1]) + blob_bytes(b":1;0.1;0:\0"),
        number_bytes(1) + blob_bytes(algorithm("A").blob + b"A") + blob_bytes(b":1;0.1;0:\0"),
        number_bytes(1) + blob_bytes(algorithm("A").blob) + blob_bytes(b":1;0.1;0:\0") + b"A",
    ],
)
def test_a_damaged_search_is_refused(value: bytes) -> None:
    entries = (Entry(b"key", other=value),)
    data = bytes_of(AlgorithmCache((Category("profile:plat=cpu:MatrixMulv5X0", entries),)))
    with pytest.raises(UsageError):
        cache_of(data)


def test_a_key_that_is_there_twice_is_refused() -> None:
    entry = Entry(b"key", (algorithm("A"),))
    category = Category("profile:plat=cpu:MatrixMulv5X0", (entry, entry))
    with pytest.raises(UsageError, match="there twice"):
        cache_of(bytes_of(AlgorithmCache((category,))))


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
    assert bytes_of(cache) == data


@given(st.binary(max_size=200))
def test_random_bytes_are_refused_or_whole(data: bytes) -> None:
    refused_or_whole(data)


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
@settings(max_examples=300)
def test_a_changed_file_is_refused_or_whole(changes: list[tuple[int, int, bytes]]) -> None:
    data = REAL
    for place, removed, added in changes:
        data = data[:place] + added + data[place + removed :]
    refused_or_whole(data)


def test_files_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with open(tmp_path / "large", "wb") as file:
        file.truncate(1 << 40)
    for name, message in (
        ("missing", "no such fast-run cache"),
        (".", "is a folder, not a fast-run cache"),
        ("pipe", "is not a regular file"),
        ("large", "has 1099511627776 bytes; at most"),
    ):
        with pytest.raises(UsageError, match=message):
            read_cache(tmp_path / name)


# Merging


def test_merging_keeps_what_either_knows_and_the_newer_wins() -> None:
    merged = merge_caches(cache_with(a="A1", b="B1"), cache_with(b="B2", c="C2"))
    assert choices_of(merged) == {b"a": "A1", b"b": "B2", b"c": "C2"}
    assert list(choices_of(merged)) == [b"a", b"b", b"c"]


@given(CACHES, CACHES)
def test_merging_loses_nothing(base: AlgorithmCache, newer: AlgorithmCache) -> None:
    merged = merge_caches(base, newer)
    assert cache_of(bytes_of(merged)) == merged
    assert merge_caches(merged, newer) == merged
    assert entries_of(merged) == {**entries_of(base), **entries_of(newer)}


@given(CACHES)
def test_merging_with_itself_or_nothing_changes_nothing(cache: AlgorithmCache) -> None:
    assert merge_caches(cache, cache) == cache
    assert merge_caches(cache, AlgorithmCache()) == cache
    assert merge_caches(AlgorithmCache(), cache) == cache


# The engine

SEARCH = """
import sys
import numpy as np
import megenginelite as lite
model, cache, dumped = sys.argv[1:]
lite.set_log_level(lite.LiteLogLevel.DEBUG)
lite.LiteGlobal.set_persistent_cache(cache)
network = lite.LiteNetwork()
network.set_network_algo_policy(
    lite.LiteAlgoSelectStrategy.LITE_ALGO_PROFILE | lite.LiteAlgoSelectStrategy.LITE_ALGO_OPTIMIZED
)
network.load(model)
network.get_io_tensor("data").set_data_by_copy(np.ones((1, 1, 8, 8), np.float32))
network.forward()
network.wait()
lite.LiteGlobal.dump_persistent_cache(dumped)
"""


def search(cache: Path, dumped: Path) -> str:
    """Run the model with a cache as MegEngine itself does, and return the engine's log."""
    done = subprocess.run(
        [sys.executable, "-c", SEARCH, str(MODEL), str(cache), str(dumped)],
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    return done.stderr


@needs_megengine
def test_the_engine_runs_what_was_chosen_by_hand(tmp_path: Path) -> None:
    searched, edited, dumped = (tmp_path / name for name in ("searched", "edited", "dumped"))

    search(searched, searched)
    cache = read_cache(searched)
    assert bytes_of(cache) == searched.read_bytes()
    operators = operators_of(cache)
    assert sorted(map(str, operators)) == sorted(map(str, operators_of(cache_of(REAL))))

    convolution = find_operator(cache, CONVOLUTION)
    picked = convolution.entry.algorithms[-1].name
    chosen = choose_algorithm(cache, CONVOLUTION, picked)
    write_cache_merged(edited, chosen)
    log = search(edited, dumped)
    ran = re.findall(r"ConvolutionForward: tensor layouts\(\{1\(\d+\),16\(.*algo=(\S+)", log)
    assert ran == [picked]
    assert picked != convolution.chosen.name
    assert "profiling" not in log

    # The engine writes in its own order, and the same choices.
    assert not compare_caches(read_cache(edited), read_cache(dumped))
    assert merge_caches(read_cache(edited), read_cache(dumped)) == read_cache(edited)


@needs_megengine
def test_the_engine_takes_the_longest_category_that_is_read(tmp_path: Path) -> None:
    longest = AlgorithmCache((Category("x" * LONGEST_CATEGORY, (Entry(b"key", other=b"v"),)),))
    path, dumped = tmp_path / "a.cache", tmp_path / "dumped"
    path.write_bytes(bytes_of(merge_caches(cache_of(REAL), longest)))
    search(path, dumped)
    assert longest.categories[0] in read_cache(dumped).categories
