"""Data sets: which texts of `--input` stand for many items, and which files these are."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lar.cli.main import main
from lar.datasets import items as items_module
from lar.datasets.classes import Labels, find_classes, read_labels
from lar.datasets.items import is_one_run, items_in, shape_in, stack_in
from lar.errors import UsageError
from lar.records.run import TensorInfo
from tests.inputs.test_feed import infos_in
from tests.known import known
from tests.refusals import refused
from tests.tables import each_row


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "set"
    made.mkdir()
    for name in ("b.npy", "a.npy", "c.PPM", "d.bin", "notes.md", ".hidden.npy"):
        (made / name).write_bytes(b"x")
    return made


def test_a_folder_is_its_files_in_order(folder: Path) -> None:
    names = ("a.npy", "b.npy", "c.PPM", "d.bin")
    assert items_in([str(folder)]) == [(name, (("", str(folder / name)),)) for name in names]


def test_a_list_names_files_from_its_own_folder(folder: Path) -> None:
    listed = folder / "list.txt"
    listed.write_text("# two of them\n\nb.npy\n../set/a.npy\n")
    items = known(items_in([f"data:{listed}"]))
    assert [name for name, _ in items] == ["b.npy", "a.npy"]
    assert items[0][1] == (("data", str(folder / "b.npy")),)


def test_files_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for name in ("x", "y"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.npy").write_bytes(b"x")
    (tmp_path / "list.lst").write_text("x/0.npy\ny/0.npy\n")
    items = known(items_in([str(tmp_path / "list.lst")]))
    assert [name for name, _ in items] == ["x/0.npy", "y/0.npy"]


def test_each_input_has_a_source_of_its_own(folder: Path) -> None:
    assert known(items_in([f"a:{folder};b:{folder}"]))[1] == (
        "b.npy",
        (("a", str(folder / "b.npy")), ("b", str(folder / "b.npy"))),
    )


@pytest.mark.parametrize("text", ["[1,2]", "{1,3}", "data:[1.5]", "a:b:nothing.npy", "nothing"])
def test_other_texts_are_no_data_set(folder: Path, text: str) -> None:
    alone = items_in([str(folder / "a.npy")], with_arrays=False)
    assert items_in([text]) is items_in([]) is alone is None


@pytest.mark.parametrize("text", ["no.npy", "a: no.PNG", "b:[1];a:no.bin,float32,2", "[1];no.json"])
def test_a_file_that_is_not_there_is_refused_before_a_run(text: str) -> None:
    refused("no such file", items_in, [text])


def test_a_test_set_of_onnx_is_one_run(tmp_path: Path) -> None:
    (tmp_path / "input_0.pb").write_bytes(b"x")
    assert items_in([str(tmp_path)]) is None


def test_a_folder_of_more_items_than_there_may_be_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(items_module, "MOST_ITEMS", 4)
    assert len(known(items_in([str(folder)]))) == 4
    monkeypatch.setattr(items_module, "MOST_ITEMS", 3)
    refused("holds 4 items, at most 3", items_in, [str(folder)])


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    refused("holds no file that lar reads", items_in, [str(tmp_path)])


@each_row("datasets/items/lists")
def test_a_list_that_leads_nowhere_is_refused(tmp_path: Path, content: str, words: str) -> None:
    (tmp_path / "list.txt").write_text(content, "latin-1")
    refused(words, items_in, [str(tmp_path / "list.txt")])


def test_sources_must_agree(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("set/a.npy\n")
    refused(r"holds 1 item, .* holds 4", items_in, [f"a:{folder};b:{tmp_path / 'list.txt'}"])
    refused("feeds one run", items_in, [f"a:{folder};b:[1,2]"])


def test_the_items_of_a_stack_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "stack.npz"
    np.savez(path, a=np.zeros((5, 2)), b=np.zeros((5, 1, 3)))
    assert stack_in([str(path)]) == 5
    np.savez(path, a=np.zeros((5, 2)), b=np.zeros((4, 1, 3)))
    assert stack_in([str(path)]) == 0
    np.savez(path, a=np.float32(1))
    assert stack_in([str(path)]) == 0
    path.write_bytes(b"no archive")
    assert stack_in([str(path)]) == 0
    refused("is damaged", items_in, [str(path)])


@pytest.mark.parametrize(
    ("count", "is_stack"), [(0, False), (1, False), (2, True), (3, True), (4, False)]
)
def test_a_stack_has_two_items_or_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, is_stack: bool
) -> None:
    monkeypatch.setattr(items_module, "MOST_ITEMS", 3)
    path = str(tmp_path / "a.npz")
    np.savez(path, a=np.zeros((count, 2)), b=np.zeros(count))
    assert [name for name, _ in items_in([path]) or ()] == [*map(str, range(count * is_stack))]


def test_stacks_of_other_lengths_are_one_run(tmp_path: Path) -> None:
    first, second = str(tmp_path / "a.npz"), str(tmp_path / "b.npz")
    np.savez(first, a=np.zeros((2, 2)))
    np.savez(second, b=np.zeros((2, 3)))
    assert len(known(items_in([first, second]))) == 2
    np.savez(second, b=np.zeros((3, 3)))
    assert items_in([first, second]) is None


@given(st.lists(st.integers(0, 9), max_size=7))
def test_the_shape_is_read_from_the_header(shape: list[int]) -> None:
    file = io.BytesIO()
    np.save(file, np.zeros(shape, np.float16))
    assert shape_in(file.getvalue()) == tuple(shape)


@each_row("datasets/items/classes")
def test_labels_are_classes_of_items_or_names_of_classes(
    tmp_path: Path, text: str, truths: list[int], names: list[str]
) -> None:
    (tmp_path / "labels.txt").write_text(text)
    found = read_labels(str(tmp_path / "labels.txt"), ["a.npy", "b.npy"])
    assert found == Labels(truths=tuple(truths), names=tuple(names))


@each_row("datasets/items/labels")
def test_labels_that_do_not_fit_are_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "labels.txt").write_text(text)
    refused(words, read_labels, str(tmp_path / "labels.txt"), ["a.npy", "b.npy"])
    refused("no such file", read_labels, str(tmp_path / "gone.txt"), ["a.npy"])


def test_names_without_suffixes_are_those_of_one_item_each(tmp_path: Path) -> None:
    labels = tmp_path / "labels.txt"
    labels.write_text("a 3\nb 1\n")
    refused(r"has no class of a\.npy", read_labels, str(labels), ["a.npy", "a.jpg", "b.npy"])
    labels.write_text("a.npy 3\na.jpg 2\nb.npy 1\n")
    assert read_labels(str(labels), ["a.npy", "a.jpg", "b.npy"]).truths == (3, 2, 1)


def test_a_name_that_no_result_can_hold_is_refused(tmp_path: Path) -> None:
    (tmp_path / "\udcff.npy").write_bytes(b"x")
    refused("the name is not UTF-8", items_in, [str(tmp_path)])


def taking(**shapes: tuple[int | None, ...]) -> list[TensorInfo]:
    return [TensorInfo(name=name, dtype="float32", shape=it) for name, it in shapes.items()]


def stack_of(items: int) -> bytes:
    """Return a .npz whose two arrays have so many items each."""
    file = io.BytesIO()
    np.savez_compressed(file, a=np.zeros((items, 3), np.float32), b=np.ones(items, np.int8))
    return file.getvalue()


@each_row("datasets/items/runs")
def test_a_stack_holds_one_run_or_many_items(
    tmp_path: Path, texts: str, arrays: dict[str, Any], infos: str, is_one: bool
) -> None:
    for name, shapes in arrays.items():
        if name.endswith(".npy"):
            np.save(tmp_path / name, np.zeros(shapes, np.int8))
        else:
            np.savez(tmp_path / name, **{key: np.zeros(it) for key, it in shapes.items()})
    placed = [re.sub(r"\w+\.np", lambda it: f"{tmp_path}/{it[0]}", text) for text in texts.split()]
    assert is_one_run(placed, infos_in(infos)) == is_one


@each_row("datasets/items/scores")
def test_the_classes_of_an_item_are_those_with_the_highest_scores(
    output: Any, classes: list[int], scores: list[float]
) -> None:
    found = find_classes(output if isinstance(output, str) else np.array(output))
    assert [*map(list, found)] == [classes, scores]


STACK = stack_of(4)


def test_an_encrypted_or_oddly_compressed_stack_is_refused_in_one_line(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "set.npz"
    entry = STACK.index(b"PK\x01\x02")
    # The flag "encrypted", and the methods Deflate64, LZMA and one that does not exist, in both
    # headers of the first array.
    for local, central, value in ((6, 8, 1), (8, 10, 9), (8, 10, 14), (8, 10, 77)):
        content = bytearray(STACK)
        content[local] = content[entry + central] = value
        path.write_bytes(content)
        assert items_in([str(path)], with_arrays=False) is None
        assert (
            main([str(root / "models/digits_cnn.onnx"), "--input", str(path), "--iter", "1"]) == 2
        )
        (error,) = [each for each in capsys.readouterr().err.splitlines() if "error" in each]
        assert error.startswith(f"lar: error: --input: {path}: ")
        assert ("is encrypted" in error) == (local == 6)
        assert "<ZipInfo" not in error


@settings(max_examples=100)
@given(
    changes=st.lists(st.tuples(st.integers(0, len(STACK) - 1), st.integers(0, 255)), max_size=6),
    length=st.integers(0, len(STACK)) | st.just(len(STACK)),
)
def test_a_damaged_stack_is_counted_or_left_to_its_reader(
    changes: list[tuple[int, int]], length: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    content = bytearray(STACK)
    for place, byte in changes:
        content[place] = byte
    path = tmp_path_factory.getbasetemp() / "damaged.npz"
    path.write_bytes(content[:length])
    with contextlib.suppress(UsageError):
        items_in([str(path)])
        is_one_run([f"a:{path}"], taking(a=(4, 3)))
        is_one_run([str(path)], taking(a=(4, 3), b=(4,)))
