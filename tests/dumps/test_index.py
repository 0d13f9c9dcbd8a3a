"""Dumps on disk: with an index, without, with one that belongs to another dump."""

from __future__ import annotations

import io
import json
import os
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lar
from lar.dumps import Dump, DumpIndex
from lar.dumps.binary import Variable, format_name, write_tensor
from lar.dumps.index import dump_of_arrays, is_tensor, open_dump, read_index, write_index
from lar.errors import DumpError
from lar.options.paths import index_place
from tests.refusals import refused
from tests.tables import each_row


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A dump without an index, as load_and_run leaves it: an input, and what is made of it."""
    folder = tmp_path / "dump"
    folder.mkdir()
    shape = (2, 3)
    data = Variable(id=1, shape=shape, operator="h2d[0]", operator_type="Input", name="data")
    relu = replace(data, id=3, operator="RELU(data)[2]", operator_type="Elemwise", name="relu")
    values = np.arange(6, dtype=np.float32).reshape(shape)
    write_tensor(folder / "000001", values - 2, format_name(data))
    write_tensor(folder / "000003", np.maximum(values - 2, 0), format_name(relu, [data]))
    return folder


def index_of(folder: Path) -> DumpIndex:
    return lar.open_dump(folder).index


def test_a_folder_without_an_index_is_understood_from_its_names(folder: Path) -> None:
    dump = lar.open_dump(folder)
    assert [tensor.name for tensor in dump] == ["data", "relu"]
    assert (len(dump), "000003" in dump, "000002" in dump) == (2, True, False)
    (computed,) = (it for it in dump.index.operators if it.key == dump.tensor("000003").operator)
    assert computed.inputs == ("000001",)
    assert dump.read("000003").tolist() == [[0, 0, 0], [1, 2, 3]]
    alone = lar.open_dump(str(folder / "000003"))
    assert [(tensor.name, alone.read(tensor.key).shape) for tensor in alone] == [("relu", (2, 3))]
    with pytest.raises(KeyError):
        dump.tensor("nothing")


def test_the_index_beside_a_folder_is_taken(folder: Path) -> None:
    found = index_of(folder)
    told = replace(found, model="r.mge", complete=False, iteration=4, settings={"cpu": True})
    write_index(index_place(folder), told)
    assert index_place(folder) == folder.parent / "dump.index.json"
    assert index_of(folder) == told == read_index(index_place(folder))
    assert lar.open_dump(index_place(folder)).index == told
    assert lar.open_dump(f"{folder}/").index == told
    assert {path.name for path in folder.parent.iterdir()} == {"dump", "dump.index.json"}


def test_an_index_of_other_files_is_passed_by(folder: Path) -> None:
    found = index_of(folder)
    write_index(index_place(folder), replace(found, model="other.mge", tensors=found.tensors[:1]))
    assert index_of(folder) == found


@each_row("dumps/excerpts/indexes")
def test_a_damaged_index_is_told(folder: Path, content: str, message: str) -> None:
    index_place(folder).write_text(content, "latin-1")
    refused(message, lar.open_dump, folder, kind=DumpError)


def test_an_index_leads_to_no_file_elsewhere(folder: Path) -> None:
    dump = lar.open_dump(folder)
    with pytest.raises(DumpError, match="the index names files outside the dump"):
        dump.reader(replace(dump.tensor("000001"), key="../secret"))


def test_a_tensor_that_changed_or_went_away_is_told_when_it_is_read(folder: Path) -> None:
    dump = lar.open_dump(folder)
    write_tensor(folder / "000001", np.zeros(5, np.float32), "other")
    refused(r"holds an array \(5,\), but the index says \(2", dump.read, "000001", kind=DumpError)
    (folder / "000003").unlink()
    refused("no such file", dump.read, "000003", kind=DumpError)


def test_what_is_no_dump_is_told(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (folder / ".hidden").touch()
    assert len(lar.open_dump(folder)) == 2
    refused("holds no dumped tensors", lar.open_dump, tmp_path / "empty", kind=DumpError)
    refused("no such file", lar.open_dump, tmp_path / "missing", kind=DumpError)
    (folder / "notes.txt").write_text("not a tensor, but long enough for its header")
    refused(r"notes\.txt: holds no tensors that", lar.open_dump, folder, kind=DumpError)


def test_a_missing_file_does_not_cost_the_index(folder: Path) -> None:
    told = replace(index_of(folder), model="r.mge")
    write_index(index_place(folder), told)
    assert lar.open_dump(folder).missing == ()
    (folder / "000001").unlink()
    dump = lar.open_dump(folder)
    assert dump.missing == ("000001",)
    assert dump.index == replace(told, tensors=told.tensors[1:])
    assert dump.read("000003").shape == (2, 3)
    # Of a file that another dump has under this name, the index tells nothing.
    write_tensor(folder / "000003", np.zeros(5, np.float32), "other")
    dump = lar.open_dump(folder)
    assert (dump.missing, dump.index.model) == ((), "")


def test_a_pipe_is_no_dump(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    for opened in (folder, folder / "pipe"):
        refused("pipe: is not a regular file", lar.open_dump, opened, kind=DumpError)
    refused("pipe: is not a regular file", lar.load_tensor_binary, folder / "pipe", kind=DumpError)
    assert not is_tensor(folder / "pipe")
    (folder / "pipe").unlink()
    os.mkfifo(index_place(folder))
    refused("json: is not a regular file", lar.open_dump, folder, kind=DumpError)


def test_the_index_is_plain_json_for_all_who_may_read_the_tensors(folder: Path) -> None:
    write_index(index_place(folder), index_of(folder))
    assert index_place(folder).stat().st_mode == (folder / "000001").stat().st_mode
    read = json.loads(index_place(folder).read_text())
    assert read["format"] == "lar.dump/1"
    assert read["tensors"][0] == {
        "key": "000001",
        "name": "data",
        "dtype": "float32",
        "shape": [2, 3],
        "layout": "",
        "operator": "opr0",
        "slot": 0,
        "run": 0,
        "origin": "",
        "quantization": None,
    }


def test_an_index_that_is_nested_too_deeply_is_refused(folder: Path) -> None:
    index_place(folder).write_bytes(b'{"tensors":' + b"[" * 100_000)
    with pytest.raises(DumpError, match=r"is not the index of a dump: .*nested too deeply"):
        lar.open_dump(folder)


ARRAYS: dict[str, np.ndarray[Any, Any]] = {
    "conv1": np.arange(12, dtype=np.float32).reshape(1, 3, 2, 2),
    "layer1.0.relu": np.asfortranarray(np.arange(6, dtype=">i2").reshape(2, 3)),
    "one": np.array(2.5),
    "none": np.zeros((0, 3), np.uint8),
}


def save_folder(folder: Path) -> Path:
    folder.mkdir()
    for name, array in ARRAYS.items():
        np.save(folder / f"{name}.npy", array)
    return folder


def save_archive(path: Path) -> Path:
    np.savez(path, **ARRAYS)
    return path


def assert_holds(dump: Dump) -> None:
    assert {tensor.name for tensor in dump} == set(ARRAYS)
    assert dump.index.operators == ()
    for tensor in dump:
        array, expected = dump.read(tensor.key), ARRAYS[tensor.name]
        assert (tensor.shape, tensor.dtype) == (expected.shape, expected.dtype.name)
        assert array.dtype.isnative
        np.testing.assert_array_equal(array, expected)


def test_folders_archives_and_arrays_in_memory_hold_the_same(tmp_path: Path) -> None:
    folder = save_folder(tmp_path / "folder")
    (folder / "notes.txt").write_text("layers of another framework")
    assert_holds(open_dump(folder))
    assert_holds(open_dump(save_archive(tmp_path / "layers.npz")))
    assert_holds(dump_of_arrays(ARRAYS))
    assert [tensor.name for tensor in open_dump(folder / "layer1.0.relu.npy")] == ["layer1.0.relu"]


def write_cut(path: Path) -> None:
    np.save(path, np.ones(100))
    path.write_bytes(path.read_bytes()[:-9])


def write_archive_of_text(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "no array")


def write_archive_of_zeros(path: Path) -> None:
    np.savez_compressed(path, a=np.zeros(20_000_000, np.float32))


def write_archive_of_promises(path: Path) -> None:
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(  # type: ignore[no-untyped-call]
        head, {"shape": (10**14,), "fortran_order": False, "descr": "<f4"}
    )
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("a.npy", head.getvalue() + bytes(64))


def write_archive_of_damage(path: Path) -> None:
    path.write_bytes(save_archive(path).read_bytes().replace(b"NUMPY", b"NIMPY"))


@pytest.mark.parametrize(
    ("name", "write", "problem"),
    [
        ("damaged.npz", write_archive_of_damage, "damaged.npz: conv1: cannot be read: "),
        ("zeros.npz", write_archive_of_zeros, "bytes and unpacks to more than 67108864, "),
        ("promises.npz", write_archive_of_promises, "promises.npz: a: cannot be read: Unable to"),
        ("cut.npy", write_cut, "cannot be read: mmap length is greater"),
        ("no.npy", lambda path: path.write_text("no array"), "cannot be read"),
        ("empty.npy", lambda path: path.write_bytes(b""), "cannot be read"),
        ("text.npy", lambda path: np.save(path, np.array(["a"])), "holds elements of dtype <U1"),
        (
            "objects.npy",
            lambda path: np.save(path, np.array([{}]), allow_pickle=True),
            "cannot be read: ",
        ),
        ("no.npz", lambda path: path.write_text("no archive"), "cannot be read"),
        ("text.npz", write_archive_of_text, "text.npz: notes.txt: holds no array"),
        ("void.npz", lambda path: np.savez(path), "holds no arrays"),
        ("notes.md", lambda path: path.write_text("# notes"), "holds no tensors that lar reads"),
        ("picture", lambda path: path.write_bytes(b"\x89PNG" * 99), "holds no tensors that lar"),
        ("empty", lambda path: path.write_bytes(b""), "holds no tensors that lar reads"),
    ],
)
def test_what_holds_no_arrays_ends_in_one_line(
    tmp_path: Path, name: str, write: Any, problem: str
) -> None:
    write(tmp_path / name)
    caught = refused("", open_dump, tmp_path / name, kind=DumpError)
    assert caught.message.startswith(f"{tmp_path / name}")
    assert problem in caught.message
    assert caught.hint


def test_arrays_in_memory_that_are_no_numbers_are_refused() -> None:
    for arrays in ({}, {"a": np.array(["text"])}, {"a": object()}):
        refused("array", dump_of_arrays, arrays, kind=DumpError)
