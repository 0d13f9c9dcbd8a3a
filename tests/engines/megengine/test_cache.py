"""Fast-run cache files: read strictly, decoded, merged, and taken by the engine itself.

`tests/data/digits_cnn.cache` was made as `search` below does it: models/digits_cnn.mge, policy
PROFILE | OPTIMIZED, by MegEngine 1.13.0 on an x86 processor.
"""

from __future__ import annotations

import importlib.util
import os
import re
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lar.engines.caches import Algorithm
from lar.engines.megengine.cache import (
    LONGEST_CATEGORY,
    AlgorithmCache,
    Entry,
    Place,
    blob_bytes,
    bytes_of,
    cache_of,
    number_bytes,
    read_cache,
)
from lar.engines.megengine.cache_operators import find_operator, operators_of
from lar.errors import UsageError
from tests.engines.megengine.caches import (
    EMPTY_FILE,
    MODEL,
    REAL,
    REAL_FILE,
    algorithm,
    choose_algorithm,
    compare_caches,
)
from tests.engines.megengine.programs import run_python

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
    algorithm,
    NAMES,
    st.floats(0, 10).map(lambda seconds: f"{seconds:g}"),
    st.integers(0, 2**40),
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
        *(
            number_bytes(1) + blob_bytes(algorithm("A").blob) + blob_bytes(result)
            for result in (b":1;fast;0:\0", b":1;1e999;0:\0", b":1;nan;0:\0", b":1;0.1;0:")
        ),
        number_bytes(1) + blob_bytes(algorithm("A").blob[:-1]) + blob_bytes(b":1;0.1;0:\0"),
        number_bytes(1) + blob_bytes(algorithm("A").blob + b"A") + blob_bytes(b":1;0.1;0:\0"),
        number_bytes(1) + blob_bytes(algorithm("A").blob) + blob_bytes(b":1;0.1;0:\0") + b"A",
    ],
)
def test_a_damaged_search_is_refused(value: bytes) -> None:
    with pytest.raises(UsageError):
        cache_of(bytes_of({("profile:plat=cpu:MatrixMulv5X0", b"key"): value}))


def test_a_key_that_is_there_twice_is_refused() -> None:
    entry = blob_bytes(b"key") + blob_bytes(b"value")
    data = number_bytes(1) + blob_bytes(b"jit:x") + number_bytes(2) + 2 * entry
    with pytest.raises(UsageError, match="there twice"):
        cache_of(data)


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
    done = run_python("-c", SEARCH, MODEL, cache, dumped, timeout=100)
    done.check_returncode()
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
    picked = convolution.algorithms[-1].name
    edited.write_bytes(bytes_of(choose_algorithm(cache, CONVOLUTION, picked)))
    log = search(edited, dumped)
    ran = re.findall(r"ConvolutionForward: tensor layouts\(\{1\(\d+\),16\(.*algo=(\S+)", log)
    assert ran == [picked]
    assert picked != convolution.chosen.name
    assert "profiling" not in log

    # The engine writes in its own order, and the same choices.
    assert not compare_caches(read_cache(edited), read_cache(dumped)).differing
    assert read_cache(edited) == read_cache(dumped)


@needs_megengine
def test_the_engine_takes_the_longest_category_that_is_read(tmp_path: Path) -> None:
    place: Place = "x" * LONGEST_CATEGORY, b"key"
    path, dumped = tmp_path / "a.cache", tmp_path / "dumped"
    path.write_bytes(bytes_of({**cache_of(REAL), place: b"v"}))
    search(path, dumped)
    assert read_cache(dumped)[place] == b"v"
