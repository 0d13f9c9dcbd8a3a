"""What a side of a comparison is: a dump, tensors, or a model with its options."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lar.dumps import Dump
from lar.dumps.binary import write_tensor
from lar.errors import UsageError
from lar.running.compared_sides import ModelRun, side_of
from tests.command_lines import ROOT


def test_a_side_is_a_model_with_options_in_one_text() -> None:
    side = side_of("'a b.mge' --cpu --input 'x y.npy'")
    assert side == ModelRun(
        "'a b.mge' --cpu --input 'x y.npy'", "a b.mge", {"cpu": True, "input": ["x y.npy"]}
    )
    model = str(ROOT / "models/digits_cnn.mge")
    assert side_of(model) == ModelRun(model, model, {})


def test_a_side_is_a_folder_or_a_file_of_a_dump(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    write_tensor(tmp_path / "d" / "t", np.ones(3, np.float32), "t")
    assert isinstance(side_of(str(tmp_path / "d")), Dump)
    # Its first bytes, the length of the name, may look like an ONNX model's.
    file = tmp_path / "tensor"
    write_tensor(file, np.ones(3, np.float32), "n" * 0x0108)
    assert file.read_bytes()[:2] == b"\x08\x01"
    assert isinstance(side_of(str(file)), Dump)
    (tmp_path / "empty.txt").touch()
    with pytest.raises(UsageError, match="holds no tensors"):
        side_of(str(tmp_path / "empty.txt"))


def test_a_model_may_have_more_options_than_a_file_name_has_letters() -> None:
    side = side_of(f"{ROOT}/models/digits_cnn.onnx " + "--seed 1 " * 60)
    assert isinstance(side, ModelRun)
    assert side.options == {"seed": "1"}


def test_a_side_in_a_folder_that_may_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: object, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patched:
        patched.setattr("os.stat", refuse)
        with pytest.raises(UsageError) as caught:
            side_of(str(tmp_path / "a.npy"))
    assert caught.value.message == f"{tmp_path / 'a.npy'}: cannot be read: permission denied"
