"""Every refusal of an input says what to do about it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from lar.inputs.feed import feed_of
from lar.records.run import TensorInfo
from tests.inputs.test_feed import spec_with
from tests.refusals import refused
from tests.tables import each_row

ROW = TensorInfo(name="data", dtype="float32", shape=(4,))
IMAGE = TensorInfo(name="data", dtype="float32", shape=(1, 3, 4, 5))


def npy_bytes(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def jpg_bytes() -> bytes:
    return bytes(cv2.imencode(".jpg", np.zeros((8, 8, 3), np.uint8))[1])


@pytest.fixture(autouse=True)
def in_tmp_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def hint_of(text: str, info: TensorInfo = ROW, **settings: Any) -> str:
    return refused("", feed_of, [text], [info], spec_with(**settings)).hint


@each_row("inputs/feed/hints of files")
def test_a_file_that_cannot_be_fed(name: str, content: str, hint: str) -> None:
    Path(name).write_text(content, "latin-1")
    assert hint_of(name) == hint


def test_a_file_that_was_cut_short() -> None:
    for name, content in (
        ("cut.npy", npy_bytes(np.zeros(4, np.float32))),
        ("cut.jpg", jpg_bytes()),
    ):
        Path(name).write_bytes(content[: min(100, len(content) - 4)])
        assert hint_of(name) == "copy or save the file again"


@each_row("inputs/feed/hints of texts")
def test_a_text_that_cannot_be_fed(text: str, dtype: str, hint: str) -> None:
    assert hint_of(text, TensorInfo(name="data", dtype=dtype, shape=(4,))) == hint


@each_row("inputs/feed/hints of settings")
def test_settings_that_do_not_go_with_the_data(settings: dict[str, Any], hint: str) -> None:
    np.save("image.npy", np.zeros((1, 3, 4, 5), np.float32))
    assert hint_of("image.npy", IMAGE, **settings) == hint


def test_an_order_of_channels_for_a_gray_image() -> None:
    Path("gray.pgm").write_bytes(b"P5\n5 4\n255\n" + bytes(20))
    info = TensorInfo(name="data", dtype="float32", shape=(1, 1, 4, 5))
    assert hint_of("gray.pgm", info, channels="rgb") == "leave the flag out"


def test_a_model_without_inputs() -> None:
    assert refused("", feed_of, ["1"], [], spec_with()).hint == "leave --input out"
