from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as st_np

from lar import inputs
from lar.datasets.items import shapes_of
from lar.dumps.index import open_dump
from lar.errors import DumpError, UsageError, one_line
from lar.files import unpacking
from lar.files.input_file import VARIABLE
from lar.inputs import Loaded
from lar.inputs.readers import read_path
from tests.refusals import refused

ARRAYS = st_np.arrays(
    st_np.boolean_dtypes()
    | st_np.integer_dtypes(endianness="?")
    | st_np.floating_dtypes(endianness="?")
    | st_np.complex_number_dtypes(endianness="?"),
    st_np.array_shapes(min_dims=0, max_dims=4, max_side=4),
)


def npy_bytes(array: Any, version: tuple[int, int] | None = None) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version)  # type: ignore[no-untyped-call]
    return stream.getvalue()


def read_bytes(data: bytes, path: Path) -> tuple[Loaded, ...]:
    path.write_bytes(data)
    return read_path(str(path))


@given(ARRAYS, st.booleans())
def test_what_numpy_saves_is_read(tmp_path: Path, array: Any, fortran_order: bool) -> None:
    array = np.asfortranarray(array) if fortran_order and array.ndim else array
    for version in ((1, 0), (2, 0)):
        (read,) = read_bytes(npy_bytes(array, version), tmp_path / "a.npy")
        assert read.array.dtype == array.dtype
        np.testing.assert_array_equal(read.array, array)
        assert (read.source, read.name, read.kind) == (str(tmp_path / "a.npy"), "", "tensor")


@given(st.dictionaries(st.text("ab/.é", min_size=1), ARRAYS, min_size=1, max_size=3))
def test_what_numpy_saves_as_an_archive_is_read(tmp_path: Path, arrays: dict[str, Any]) -> None:
    for save in (np.savez, np.savez_compressed):
        save(str(tmp_path / "a.npz"), **arrays)
        read = {each.name: each.array for each in read_path(str(tmp_path / "a.npz"))}
        assert list(read) == list(arrays)
        for name in arrays:
            np.testing.assert_array_equal(read[name], arrays[name])


def test_an_archive_gives_the_wanted_array(tmp_path: Path) -> None:
    path = str(tmp_path / "a.npz")
    np.savez(path, a=np.zeros(2), labels=np.array([{}]))
    (read,) = read_path(path, "a")
    assert read.name == "a"
    refused("'labels': holds Python objects", read_path, path)
    assert refused("no array 'b'", read_path, path, "b").hint == "it holds a, labels"


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (npy_bytes(np.zeros((4, 5)))[:200], "truncated: the header promises 160 bytes, 72 are"),
        (npy_bytes(np.zeros(4))[:20], "not a .npy file"),
        (b"\x93NUMPY", "not a .npy file"),
        (b"", "empty"),
        (b"\x93NUMPY\x03\x00" + bytes(20), "version 3.0"),
        (b"GIF89a" + bytes(20), "not a .npy file"),
        (npy_bytes(np.array([{}])), "Python objects"),
        (npy_bytes(np.zeros(2, "i4,f4")), "elements of dtype"),
        (npy_bytes(np.zeros(2, "M8[s]")), "elements of dtype datetime64"),
    ],
)
def test_broken_and_foreign_files_are_refused(tmp_path: Path, data: bytes, problem: str) -> None:
    caught = refused(problem, read_bytes, data, tmp_path / "a.npy")
    assert caught.message.startswith(f"--input: {tmp_path / 'a.npy'}: ")


def test_an_archive_that_is_unpacked_in_blocks_of_any_size_is_refused(tmp_path: Path) -> None:
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with zipfile.ZipFile(tmp_path / "a.npz", "w", method) as archive:
            archive.writestr("a.npy", npy_bytes(np.zeros((9, 3))))
        refused("is not packed as NumPy packs", read_path, str(tmp_path / "a.npz"))
        refused("is not packed as NumPy packs", open_dump, tmp_path / "a.npz", kind=DumpError)
        assert shapes_of(str(tmp_path / "a.npz")) == {}


def test_an_archive_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(tmp_path / "a.npz")
    np.savez_compressed(path, a=np.zeros(20_000), b=np.zeros(20_000))
    monkeypatch.setattr(unpacking, "FREE_BYTES", 170_000)  # for one of them, but not for both
    refused(f"{path}: has .* and unpacks to more than", read_path, path, "a")
    monkeypatch.setenv(VARIABLE, "400000")
    assert len(read_path(path)) == 2
    np.savez(path, a=np.zeros(20_000), b=np.zeros(30_000))
    monkeypatch.delenv(VARIABLE)
    assert len(read_path(path)) == 2  # not packed


@pytest.mark.parametrize("shape", [(0,), (2, 0), (1,) * 32])
def test_an_axis_may_be_empty(tmp_path: Path, shape: tuple[int, ...]) -> None:
    (loaded,) = read_bytes(npy_bytes(np.ones(shape, np.float32)), tmp_path / "a.npy")
    assert loaded.array.shape == shape


@pytest.mark.parametrize("shape", ["(-1,)", "(-2,-2)", "(99999999999999999999,)", "(1,)*33"])
def test_impossible_shapes_allocate_nothing(tmp_path: Path, shape: str) -> None:
    text = shape if "*" not in shape else str((1,) * 33)
    header = f"{{'descr':'<f4','fortran_order':False,'shape':{text}}}\n".encode()
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(200)
    problem = "truncated" if "9" in shape else "the header's shape .* is impossible"
    refused(problem, read_bytes, data, tmp_path / "a.npy")


def test_a_file_larger_than_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inputs, "memory_bytes", lambda: 1000)
    with pytest.raises(UsageError, match="more than this machine's memory"):
        read_bytes(npy_bytes(np.zeros(500, np.uint8))[:1] * 1001, tmp_path / "a.npy")
    np.savez_compressed(str(tmp_path / "a.npz"), a=np.zeros(5000, np.uint8))
    refused("needs 5000 bytes, more than this machine's memory", read_path, str(tmp_path / "a.npz"))


def test_names_in_a_file_cannot_break_the_message(tmp_path: Path) -> None:
    np.savez(str(tmp_path / "a.npz"), **{"a\n\x1b": np.zeros(1), "b": np.zeros(1)})
    caught = refused("", read_path, str(tmp_path / "a.npz"), "c\n")
    assert caught.message.endswith(r"holds no array 'c\n'")
    assert one_line(caught.hint) == r"it holds a \u001b, b"


def test_broken_archives_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(str(path), a=np.zeros(9))
    whole = path.read_bytes()
    changed = whole[:90] + bytes([whole[90] ^ 1]) + whole[91:]
    for data in (whole[:100], whole[:-9], whole[9:], changed, b"PK\x03\x04", b"nothing"):
        refused(r"a\.npz: is damaged, or not a \.npz archive", read_bytes, data, path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("notes.txt", "hello")
    refused(r"notes\.txt, which is not a \.npy", read_path, str(path))
    with zipfile.ZipFile(path, "w"):
        pass
    refused("holds no arrays", read_path, str(path))
