"""Files of testcases as far as their parts, in both of MegEngine's formats, whole and damaged."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lar.datasets.testcases import graphs_in
from tests.refusals import refused


def new_graph(content: bytes) -> bytes:
    body = b"\x10\0\0\0mgv2" + content
    return struct.pack("<I", len(body)) + body


def old_graph(content: bytes) -> bytes:
    weights, body = content[::-1], b"\x10\0\0\0mgb1" + content
    head = b"MGBC" + bytes(12) + struct.pack("<Q", len(weights)) + weights
    return head + struct.pack("<I", len(body)) + body


graphs = st.lists(
    st.builds(
        lambda make, content: make(content),
        st.sampled_from([new_graph, old_graph]),
        st.binary(max_size=40),
    ),
    min_size=2,
    max_size=5,
)


def file_of(parts: list[bytes]) -> bytes:
    return b"mgbtest0" + struct.pack("<I", len(parts) - 1) + b"".join(parts)


@given(graphs)
def test_the_parts_are_found(tmp_path: Path, parts: list[bytes]) -> None:
    path, content = tmp_path / "a.mdl", file_of(parts)
    path.write_bytes(content)
    assert [content[begin:end] for begin, end in graphs_in(str(path))] == parts


@given(graphs, st.data())
def test_a_file_cut_short_is_refused(
    tmp_path: Path, parts: list[bytes], data: st.DataObject
) -> None:
    path, content = tmp_path / "a.mdl", file_of(parts)
    path.write_bytes(content[: data.draw(st.integers(8, len(content) - 1))])
    assert refused("", graphs_in, str(path)).message.startswith(f"{path}: the file is cut short")


@given(st.binary(max_size=200))
def test_garbage_is_refused(tmp_path: Path, garbage: bytes) -> None:
    path = tmp_path / "a.mdl"
    path.write_bytes(b"mgbtest0" + garbage)
    refused(r"damaged|cut short", graphs_in, str(path))


@pytest.mark.parametrize("count", [0, 1, 3, 2**32 - 1])
def test_a_wrong_count_is_refused(tmp_path: Path, count: int) -> None:
    path = tmp_path / "a.mdl"
    parts = [new_graph(b"model"), new_graph(b"first"), new_graph(b"second")]
    path.write_bytes(b"mgbtest0" + struct.pack("<I", count) + b"".join(parts))
    what = "the file is cut short" if count > 2 else "its testcases are damaged"
    problem = f"{path}: {what}: its header counts {count} testcases, it holds 2"
    assert refused("", graphs_in, str(path)).message == problem


def test_a_header_alone_is_a_file_cut_short(tmp_path: Path) -> None:
    path = tmp_path / "a.mdl"
    path.write_bytes(b"mgbtest0" + struct.pack("<I", 3))
    refused("cut short: its header counts 3 testcases, it holds 0$", graphs_in, str(path))
    path.write_bytes(b"mgbtest0" + bytes(3))
    assert refused("", graphs_in, str(path)).message == f"{path}: the file is cut short"


def test_weights_larger_than_any_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.mdl"
    graph = b"MGBC" + bytes(12) + b"\xff" * 8
    path.write_bytes(b"mgbtest0" + struct.pack("<I", 1) + graph + bytes(40))
    refused("cut short", graphs_in, str(path))


def test_another_file_has_no_parts(tmp_path: Path) -> None:
    path = tmp_path / "a.mge"
    path.write_bytes(new_graph(b"model"))
    assert graphs_in(str(path)) == []
