"""A cache's operators as timing again sees them: read, written with choices, found in a profile."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lar.engines.megengine.cache import AlgorithmCache, bytes_of, read_cache
from lar.engines.megengine.cache_choices import Operator, operators_of
from lar.engines.megengine.cache_files import CACHES, key_text_of
from lar.engines.onnxruntime.cache import CACHES as MODEL_CACHES
from lar.errors import UsageError
from lar.records.profile import ProfiledOperator, TensorFact
from tests.engines.megengine.caches import REAL_FILE, choices_of

FILES = [str(REAL_FILE)]


def test_operators_have_the_choice_first() -> None:
    first, *_ = found = CACHES.read_operators(FILES, {})
    assert len(found) == 9
    assert len({each.key for each in found}) == 9
    known = operators_of(read_cache(REAL_FILE))[0]
    assert first.name == "ConvolutionForward"
    assert first.shapes == known.shapes
    assert first.algorithms[0] == (known.chosen.name, known.chosen.seconds)
    assert len(first.algorithms) == 16


def test_algorithms_that_the_options_forbid_are_left_out() -> None:
    [every, few] = [
        CACHES.read_operators(FILES, settings)[0].algorithms
        for settings in ({}, {"workspace_limit": 20_000})
    ]
    assert 0 < len(few) < len(every)


def test_choices_are_written(tmp_path: Path) -> None:
    first = CACHES.read_operators(FILES, {})[0]
    output = tmp_path / "chosen.cache"
    CACHES.write_choices(FILES, {first.key: first.algorithms[3].name}, str(output))
    before, after = (operators_of(read_cache(path)) for path in (FILES[0], output))
    assert after[0].chosen.name == first.algorithms[3].name
    assert [each.entry for each in after[1:]] == [each.entry for each in before[1:]]
    # Without choices it is the file itself.
    CACHES.write_choices(FILES, {}, str(tmp_path / "same.cache"))
    assert (tmp_path / "same.cache").read_bytes() == REAL_FILE.read_bytes()


def test_what_others_have_added_meanwhile_stays(tmp_path: Path) -> None:
    cache = read_cache(REAL_FILE)
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_bytes(bytes_of(AlgorithmCache(cache.categories[:1])))
    second.write_bytes(bytes_of(AlgorithmCache(cache.categories[1:])))
    CACHES.write_choices([str(first)], {}, str(second))
    assert choices_of(read_cache(second)) == choices_of(cache)


def profiled(operator: Operator, **parameters: object) -> ProfiledOperator:
    """An operator as a profile names it."""
    tensors = [TensorFact(each.shape) for each in operator.key.operands if each.shape]
    return ProfiledOperator(
        id="1",
        type=operator.name,
        name="x",
        inputs=tuple(tensors[:-1]),
        outputs=(tensors[-1], TensorFact((7,))),
        parameters=parameters,
    )


def test_executed_operators_are_found_by_shapes_and_parameters() -> None:
    operators = operators_of(read_cache(REAL_FILE))
    convolution = next(each for each in operators if each.name == "ConvolutionForward")
    matrix = next(each for each in operators if each.name == "MatrixMul")
    parts = {part.name: number for part, number in matrix.key.settings}
    transposed = {
        "transposeA": bool(parts["transpose_a"]),
        "transposeB": bool(parts["transpose_b"]),
    }
    executed = [
        profiled(convolution, pad_h=1, mode="CROSS_CORRELATION"),
        profiled(convolution, pad_h=2),  # another one of these shapes
        profiled(matrix, **transposed),
        profiled(convolution, pad_h=1),
        ProfiledOperator(id="2", type="Elemwise", name="y"),
    ]
    assert CACHES.find_executed(FILES, executed) == {
        key_text_of(convolution): (0, 3),
        key_text_of(matrix): (2,),
    }


def test_operators_that_cannot_be_told_apart_have_no_place(tmp_path: Path) -> None:
    cache = read_cache(REAL_FILE)
    category = cache.categories[0]
    entry = category.entries[0]
    twin = replace(entry, key=entry.key[:-4] + b"\1\0\0\0")  # a field that the profile lacks
    path = tmp_path / "twins.cache"
    path.write_bytes(
        bytes_of(AlgorithmCache((replace(category, entries=(entry, twin)), *cache.categories[1:])))
    )
    operators = operators_of(read_cache(path))
    found = CACHES.find_executed([str(path)], [profiled(operators[0], pad_h=1)])
    assert found == {key_text_of(each): () for each in operators[:2]}


def test_another_engines_cache_has_no_algorithms(tmp_path: Path) -> None:
    missing = [str(tmp_path / "x")]
    with pytest.raises(UsageError):
        MODEL_CACHES.read_operators(missing, {})
    with pytest.raises(UsageError):
        MODEL_CACHES.write_choices(missing, {}, "y")
