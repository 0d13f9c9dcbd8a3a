"""Which testcases a path stands for."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from lar.datasets.testcases import Source, cases_of, source_of
from lar.errors import UsageError
from lar.running.plan import plan_run
from tests.refusals import refused
from tests.tables import each_row


def make_folder(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"\x08\x08 something")
    return folder


def test_a_model_alone_has_none(tmp_path: Path) -> None:
    path = str(make_folder(tmp_path, "a.onnx") / "a.onnx")
    assert source_of(path) == Source(path)
    for other in (tmp_path / "missing.onnx", tmp_path):
        assert source_of(str(other)) == Source(str(other))


def test_those_of_a_folder_come_in_the_order_of_their_numbers(tmp_path: Path) -> None:
    make_folder(
        tmp_path,
        "net.onnx",
        "test_data_set_10/input_0.pb",
        "test_data_set_2/input_0.pb",
        "test_data_set_2/output_1.pb",
        "test_data_set_2/output_0.pb",
        "test_data_set_x/input_0.pb",
    )
    source = source_of(str(tmp_path))
    assert source.model == str(tmp_path / "net.onnx")
    first, second = cases_of(source)
    assert (first.name, second.name) == ("test_data_set_2", "test_data_set_10")
    assert [(Path(each.file).name, each.id) for each in first.expected] == [
        ("output_0.pb", 0),
        ("output_1.pb", 1),
    ]


def test_model_onnx_is_taken_before_others(tmp_path: Path) -> None:
    make_folder(tmp_path, "a.onnx", "model.onnx", "test_data_set_0/input_0.pb")
    assert source_of(str(tmp_path)).model == str(tmp_path / "model.onnx")


@each_row("datasets/testcases/parts")
def test_a_folder_that_is_not_whole_is_refused(
    tmp_path: Path, names: list[str], words: str
) -> None:
    refused(words, source_of, str(make_folder(tmp_path, *names)))


def test_those_in_a_file_are_counted_whatever_its_name(tmp_path: Path) -> None:
    graph = struct.pack("<I", 8) + b"\0\0\0\0mgv2"
    path = tmp_path / "resnet50.bin"
    path.write_bytes(b"mgbtest0" + struct.pack("<I", 2) + 3 * graph)
    spec = plan_run(str(path), {"iter": 5})
    assert spec.engine == "megengine"
    assert spec.sample_count == 1 + 2 * 5
    assert [case.name for case in spec.cases] == ["testcase 0", "testcase 1"]


@each_row("datasets/testcases/others")
def test_what_would_feed_something_else_is_refused(
    tmp_path: Path, values: dict[str, object], flag: str
) -> None:
    graph = struct.pack("<I", 8) + b"\0\0\0\0mgv2"
    path = tmp_path / "a.mdl"
    path.write_bytes(b"mgbtest0" + struct.pack("<I", 1) + 2 * graph)
    refused(
        f"^{flag} .*and the testcases of .*a.mdl exclude each other", plan_run, str(path), values
    )
    plan_run(str(path), {"thread": 1})


def test_more_samples_than_can_be_held_are_refused(tmp_path: Path) -> None:
    make_folder(tmp_path, "a.onnx", *(f"test_data_set_{n}/input_0.pb" for n in range(5)))
    with pytest.raises(UsageError, match="--iter 9000000: too many for 5 testcases"):
        plan_run(str(tmp_path), {"iter": 9_000_000})
