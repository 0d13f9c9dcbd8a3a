"""The comparison as a whole: its record, and how much memory it takes."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lar.dumps import Dump, DumpedTensor, DumpIndex
from lar.dumps.index import open_dump
from lar.graphs import signatures
from lar.records.comparison import Comparison, Tolerance, read_comparison
from lar.records.record import record_to_json
from tests.comparison.handmade import Step, dump_of
from tests.comparison.known_engines import compare_dumps
from tests.dumps.blocked_tensors import to_blocked
from tests.dumps.typed_tensors import write_typed
from tests.tables import each_row

ELEMENTS = 1 << 19
TENSORS = 24


def compare_two() -> Comparison:
    x = np.linspace(-1, 1, 40, dtype=np.float32).reshape(2, 20)
    actual, expected = (
        dump_of(
            Step("data", "Input", (), x),
            Step("a", "Conv", ("data", "w"), x + shift, parameters={"pads": [1, 1], "group": 1}),
            Step("b", "Relu", ("a",), np.maximum(x + shift, 0)),
            Step("c", "Tanh", ("b",), np.full((2, 20), np.nan if shift else 1, np.float32)),
        )
        for shift in (0.1, 0.0)
    )
    return compare_dumps(actual, expected)


def test_a_comparison_becomes_json_and_back() -> None:
    comparison = compare_two()
    assert comparison.format == Comparison.format == "lar.comparison/1"
    assert read_comparison(record_to_json(comparison)) == comparison


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": "lar.comparison/1"}', "null"])
def test_what_is_no_comparison_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any reason will do
        read_comparison(text)


def test_other_versions_are_refused() -> None:
    text = record_to_json(compare_two()).replace(b"lar.comparison/1", b"lar.comparison/9")
    with pytest.raises(ValueError, match=r"lar\.comparison/9"):
        read_comparison(text)


def test_the_facts_of_both_sides_are_kept() -> None:
    told: dict[str, Any] = {"engine": "megengine", "settings": {"x": 1}, "complete": False}
    index = DumpIndex(tensors=(), operators=(), model="a.mge", **told)
    dump = Dump("folder", index, lambda tensor: np.zeros(0))
    comparison = compare_dumps(dump, dump, Tolerance(max_error=0.5))
    assert comparison.actual.engine == "megengine"
    assert comparison.expected.settings == {"x": 1}
    assert comparison.tolerance.max_error == 0.5
    assert not comparison.actual.complete


@each_row("comparison/cases/missing files")
def test_missing_files_are_named(missing: str, named: str) -> None:
    x = np.ones((2, 20), np.float32)
    whole = dump_of(Step("data", "Input", (), x), Step("a", "Tanh", ("data",), x))
    part = Dump(
        "part",
        replace(whole.index, tensors=whole.index.tensors[:1]),
        lambda tensor: whole.read(tensor.key),
        missing=tuple(missing),
    )
    comparison = compare_dumps(part, whole)
    assert comparison.notes == (f"the dump A lacks {named}",)
    assert [each.tensor.name for each in comparison.unmatched] == ["a"]


MIB = 1 << 20


def stored_pair(folder: Path, kind: str) -> tuple[Dump, Dump]:
    """Two dumps of one tensor whose files take 8 MiB each, in other layouts or as BFloat16."""
    random = np.random.default_rng(0)
    if kind == "BFloat16":
        for name in "ab":
            (folder / name).mkdir()
            array = random.standard_normal((64, 256, 256)).astype(np.float32)
            write_typed(folder / name / "000001", array, "x", kind)
        return open_dump(folder / "a"), open_dump(folder / "b")
    plain = random.standard_normal((1, 32, 256, 256)).astype(np.float32)
    other = plain * np.float32(1 + 1e-6)
    layouts = ["" if kind == "plain" else kind, "nchw16c"]
    dumps = []
    for layout, array in zip(layouts, (plain, other), strict=True):
        stored = np.ascontiguousarray(to_blocked(array, layout) if layout else array)
        tensor = DumpedTensor(key="x", name="x", dtype="float32", shape=stored.shape, layout=layout)
        index = DumpIndex(tensors=(tensor,), operators=())
        dumps.append(Dump(layout, index, lambda tensor, stored=stored: stored.copy()))  # type: ignore[misc]
    return dumps[0], dumps[1]


@pytest.mark.parametrize("kind", ["plain", "nchw88", "BFloat16"])
def test_layouts_and_types_take_no_more_memory_than_their_files(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dumps = stored_pair(tmp_path, kind)
    whole = compare_dumps(*dumps).tensors[0]
    monkeypatch.setattr(signatures, "LARGE", MIB)
    tracemalloc.start()
    try:
        (found,) = compare_dumps(*dumps).tensors
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found == whole
    # A pair takes 16 MiB, the buffers of a block a little more.
    assert peak < 20 * MIB


def large_dump(kind: str) -> Dump:
    """A chain of tensors that take 2 MB each, made anew when they are read."""

    def read(tensor: DumpedTensor) -> np.ndarray[Any, Any]:
        random = np.random.default_rng(int(tensor.key[1:]))
        return random.random(ELEMENTS, np.float32) + (1e-6 if kind == "Tanh" else 0)

    nothing = np.broadcast_to(np.float32(0), ELEMENTS)
    inputs = [(), *((f"t{number}",) for number in range(TENSORS - 1))]
    steps = (Step(f"t{number}", kind, taken, nothing) for number, taken in enumerate(inputs))
    return Dump(kind, dump_of(*steps).index, read)


@pytest.mark.parametrize("kinds", [("Tanh", "Tanh"), ("Tanh", "Sigmoid")], ids="-".join)
def test_memory_holds_a_few_tensors_however_many_there_are(kinds: tuple[str, str]) -> None:
    dumps = large_dump(kinds[0]), large_dump(kinds[1])
    tracemalloc.start()
    try:
        comparison = compare_dumps(*dumps)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(comparison.tensors) == TENSORS
    # A pair takes 4 MB, the buffers of a block a little more, all tensors 96 MB.
    assert peak < 10e6
