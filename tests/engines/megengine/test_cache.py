"""Fast-run cache files: read strictly, decoded, merged, edited, written by several at once.

`tests/data/digits_cnn.cache` was made as `search` below does it: models/digits_cnn.mge, policy
PROFILE | OPTIMIZED, by MegEngine 1.13.0 on an x86 processor.
"""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import stat
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lar.engines.megengine.cache import (
    LONGEST_CATEGORY,
    Algorithm,
    AlgorithmCache,
    Category,
    Entry,
    blob_bytes,
    bytes_of,
    cache_of,
    merge_caches,
    number_bytes,
    read_cache,
)
from lar.engines.megengine.cache_choices import (
    choose_algorithm,
    compare_caches,
    find_operator,
    operators_of,
)
from lar.engines.megengine.cache_key import (
    attributes_of,
    format_key,
    key_of,
    profile_of,
    value_of,
    winograd_of,
)
from lar.engines.megengine.cache_write import update_cache, write_cache_merged
from lar.errors import UsageError

REPOSITORY = Path(__file__).resolve().parents[3]
REAL_FILE = REPOSITORY / "tests" / "data" / "digits_cnn.cache"
REAL = REAL_FILE.read_bytes()
MODEL = REPOSITORY / "models" / "digits_cnn.mge"
CONVOLUTION = "{1,16,8,8} {32,16,3,3} -> {1,32,8,8} Float32, pad 1"
WINOGRAD = "CONVOLUTION_DEFAULT_WINOGRAD:FB_GI_F32_MK4_4x8:4:4:24:3"
EMPTY_FILE = number_bytes(0)
needs_megengine = pytest.mark.skipif(
    importlib.util.find_spec("megenginelite") is None, reason="MegEngine is not installed"
)


def algorithm(name: str, seconds: str = "1.5e-05", workspace: int = 64) -> Algorithm:
    """An algorithm as the engine writes it."""
    blob = number_bytes(1) + number_bytes(3) + number_bytes(0) + blob_bytes(name.encode())
    result = f":1;{seconds};{workspace}:\0".encode()
    return Algorithm(name, float(seconds), workspace, 1, blob, result)


def cache_with(**entries: str) -> AlgorithmCache:
    """A cache with an entry for each key, which has the named algorithm."""
    made = tuple(Entry(key.encode(), (algorithm(name),)) for key, name in entries.items())
    return AlgorithmCache((Category("profile:plat=cpu:MatrixMulv5DEFAULT", made),))


def choices_of(cache: AlgorithmCache) -> dict[bytes, str]:
    return {each.entry.key: each.chosen.name for each in operators_of(cache)}


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
        (MODEL.read_bytes(), "is no name"),
        (b"a text file, not a cache", "should follow byte"),
        (number_bytes(1) + number_bytes(0) + number_bytes(0), "is no name"),
        (number_bytes(1) + blob_bytes(b"x" * 256) + number_bytes(0), "name of a category"),
        (number_bytes(1) + blob_bytes("ü".encode("latin1")) + number_bytes(0), "is no name"),
        (number_bytes(1) + blob_bytes(b"a\0b") + number_bytes(0), "is no name"),
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
        began = time.perf_counter()
        with pytest.raises(UsageError):
            cache_of(data)
        assert time.perf_counter() - began < 1


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
        ("missing", "cannot be read: no such file"),
        (".", "is not a file"),
        ("pipe", "is not a file"),
        ("large", "too large"),
    ):
        with pytest.raises(UsageError, match=message):
            read_cache(tmp_path / name)


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
        ("profile:plat=cpu:ConvBiasForwardv5X0", ("plat=cpu", "ConvBiasForward", 5)),
        ("profile:plat=cpu:Convolution3DForwardv5F0", ("plat=cpu", "Convolution3DForward", 5)),
        ("profile:plat=cpu:MatrixMulv5DEFAULT", ("plat=cpu", "MatrixMul", 5)),
        (
            "profile:plat=cuda;dev=NVIDIA H200;cap=9.0;runtime=10:ConvolutionForwardv5CUDA CONV",
            ("plat=cuda;dev=NVIDIA H200;cap=9.0;runtime=10", "ConvolutionForward", 5),
        ),
        ("layout_transform_profile:plat=cpu", None),
        ("profile:plat=cpu", None),
    ],
)
def test_what_a_category_tells(category: str, expected: tuple[str, str, int] | None) -> None:
    profile = profile_of(category)
    found = profile and (profile.device, profile.operator, profile.version)
    assert found == expected


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
    assert format_key(key_of(operator, blob)) == expected


def test_a_value_without_a_name_is_its_number() -> None:
    key = key_of("ConvolutionForward", parameters(*[0] * 8, 99, 0))
    assert {part.name: value_of(part, number) for part, number in key.settings}["format"] == 99


@given(st.sampled_from(["ConvolutionForward", "MatrixMul", "New"]), st.binary(max_size=80))
def test_any_key_can_be_told(operator: str, blob: bytes) -> None:
    assert format_key(key_of(operator, blob)).isprintable()


def test_the_attributes_are_named() -> None:
    assert attributes_of(9) == ("reproducible", "depends on batch")
    assert attributes_of(0) == ()
    assert attributes_of(16) == ()


# Merging, comparing, choosing


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


# Writing


def test_a_new_file_is_made_with_the_usual_permissions(tmp_path: Path) -> None:
    path = tmp_path / "new.cache"
    old_mask = os.umask(0o027)
    try:
        write_cache_merged(path, cache_with(a="A"))
    finally:
        os.umask(old_mask)
    assert choices_of(read_cache(path)) == {b"a": "A"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == ["new.cache"]


def test_writing_adds_to_what_is_there_and_keeps_the_permissions(tmp_path: Path) -> None:
    path = tmp_path / "a.cache"
    path.write_bytes(bytes_of(cache_with(a="A", b="B")))
    path.chmod(0o604)
    write_cache_merged(path, cache_with(b="B2", c="C"))
    assert choices_of(read_cache(path)) == {b"a": "A", b"b": "B2", b"c": "C"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


def test_a_link_to_a_cache_stays_one(tmp_path: Path) -> None:
    (tmp_path / "real.cache").write_bytes(EMPTY_FILE)
    (tmp_path / "link.cache").symlink_to("real.cache")
    write_cache_merged(tmp_path / "link.cache", cache_with(a="A"))
    assert (tmp_path / "link.cache").is_symlink()
    assert choices_of(read_cache(tmp_path / "real.cache")) == {b"a": "A"}


def test_nothing_new_leaves_the_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.cache"
    path.write_bytes(REAL)
    before = path.stat()
    write_cache_merged(path, cache_of(REAL))
    assert (path.stat().st_ino, path.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("content", [b"", b"my notes\n", MODEL.read_bytes(), REAL[:-9]])
def test_a_file_that_is_no_cache_is_never_overwritten(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "precious"
    path.write_bytes(content)
    with pytest.raises(UsageError, match="is not a fast-run cache"):
        write_cache_merged(path, cache_with(a="A"))
    assert path.read_bytes() == content
    assert os.listdir(tmp_path) == ["precious"]


@pytest.mark.parametrize(
    ("name", "message"),
    [("no/such/folder/a.cache", "cannot be written: no such file"), (".", "is not a file")],
)
def test_a_place_that_cannot_be_written_is_told(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "inner").mkdir()
    with pytest.raises(UsageError, match=message):
        write_cache_merged(tmp_path / "inner" / name, cache_with(a="A"))


def test_a_file_without_permission_to_write_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.cache"
    path.write_bytes(EMPTY_FILE)
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may write everywhere
    with pytest.raises(UsageError, match="permission denied"):
        write_cache_merged(path, cache_with(a="A"))
    assert path.read_bytes() == EMPTY_FILE
    assert os.listdir(tmp_path) == ["a.cache"]


def test_an_interrupted_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.cache"
    path.write_bytes(REAL)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    for name in ("replace", "fsync"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, interrupt)
            with pytest.raises(KeyboardInterrupt):
                write_cache_merged(path, cache_with(a="A"))
        assert path.read_bytes() == REAL
        assert os.listdir(tmp_path) == ["a.cache"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.cache"
    path.write_bytes(REAL)

    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(UsageError, match=r"a\.cache: cannot be written: no space left on device"):
        write_cache_merged(path, cache_with(a="A"))
    assert path.read_bytes() == REAL
    assert os.listdir(tmp_path) == ["a.cache"]


def test_what_a_killed_process_left_behind_is_in_nobodys_way(tmp_path: Path) -> None:
    (tmp_path / "a.cache.lock").write_bytes(b"")
    (tmp_path / ".a.cache.new").write_bytes(b"half a file")
    write_cache_merged(tmp_path / "a.cache", cache_with(a="A"))
    assert os.listdir(tmp_path) == ["a.cache"]


def test_one_writer_waits_for_another(tmp_path: Path) -> None:
    path = tmp_path / "a.cache"
    inside, go_on = threading.Event(), threading.Event()

    def change_slowly(old: AlgorithmCache) -> AlgorithmCache:
        inside.set()
        go_on.wait(30)
        return merge_caches(old, cache_with(a="A"))

    slow = threading.Thread(target=update_cache, args=(path, change_slowly))
    others = [
        threading.Thread(target=write_cache_merged, args=(path, cache_with(**{name: "B"})))
        for name in "bcd"
    ]
    slow.start()
    assert inside.wait(30)
    for other in others:
        other.start()
    time.sleep(0.1)
    assert all(other.is_alive() for other in others)
    assert not path.exists()
    go_on.set()
    for thread in (slow, *others):
        thread.join(30)
    assert choices_of(read_cache(path)) == {b"a": "A", b"b": "B", b"c": "B", b"d": "B"}
    assert os.listdir(tmp_path) == ["a.cache"]


WRITER = """
import sys
from lar.engines.megengine.cache import AlgorithmCache, Category, Entry, cache_of
from lar.engines.megengine.cache_write import write_cache_merged
path, writer, count, like = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
algorithms = cache_of(open(like, "rb").read()).categories[0].entries[0].algorithms
for index in range(count):
    entry = Entry(f"{writer}-{index}".encode(), algorithms)
    new = Category("profile:plat=cpu:MatrixMulv5DEFAULT", (entry,))
    write_cache_merged(path, AlgorithmCache((new,)))
"""


def start_writer(path: Path, name: str, count: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(path), name, str(count), str(REAL_FILE)], cwd=REPOSITORY
    )


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "shared.cache"
    path.write_bytes(EMPTY_FILE)
    writers = [start_writer(path, name, 40) for name in "abcd"]
    while any(writer.poll() is None for writer in writers):
        read_cache(path)  # whole at any time
    assert [writer.returncode for writer in writers] == [0] * 4
    expected = {f"{name}-{index}".encode() for name in "abcd" for index in range(40)}
    assert set(choices_of(read_cache(path))) == expected
    assert os.listdir(tmp_path) == ["shared.cache"]


def test_a_killed_writer_leaves_a_whole_file_and_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "shared.cache"
    path.write_bytes(EMPTY_FILE)
    for delay in (0.0, 0.001, 0.003):
        before = len(choices_of(read_cache(path)))
        writer = start_writer(path, str(delay), 100_000)
        while len(choices_of(read_cache(path))) == before:
            assert writer.poll() is None
        time.sleep(delay)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        read_cache(path)
    write_cache_merged(path, cache_with(a="A"))
    assert choices_of(read_cache(path))[b"a"] == "A"
    assert os.listdir(tmp_path) == ["shared.cache"]


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
    write_cache_merged(edited, choose_algorithm(cache, CONVOLUTION, picked))
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
