"""Hints at the model that was meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from lar.engines.formats import ONNX, format_in, hint_at_models


def test_a_folder_in_place_of_a_model_names_five_of_its_models(tmp_path: Path) -> None:
    assert hint_at_models(tmp_path) == "give a model file"
    for name in "gfedcba":
        (tmp_path / f"{name}.onnx").touch()
        (tmp_path / f"{name}.txt").touch()
    named = "a.onnx, b.onnx, c.onnx, d.onnx, e.onnx"
    assert hint_at_models(tmp_path) == f"give a model in it: {named}"


def test_a_missing_model_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "digits.onnx").touch()
    near = tmp_path / "digits.onnx"
    assert hint_at_models(tmp_path / "digit.onnx") == f"did you mean {near}?"
    assert hint_at_models(tmp_path / "other.mge") == ""
    assert hint_at_models(near) == ""


@pytest.mark.parametrize(("version", "is_onnx"), [(0, False), (1, True), (32, True), (33, False)])
def test_an_onnx_file_begins_with_a_version_of_at_most_32(version: int, is_onnx: bool) -> None:
    assert (format_in(bytes([8, version, 18, 4])) is ONNX) == is_onnx
