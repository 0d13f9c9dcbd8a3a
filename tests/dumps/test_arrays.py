"""Dumps of plain arrays: folders of .npy, archives, single files, arrays in memory."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lar.dumps import Dump
from lar.dumps.arrays import dump_of_arrays
from lar.dumps.index import open_dump
from lar.errors import DumpError
from tests.refusals import refused

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
