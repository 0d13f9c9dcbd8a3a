"""What the dumps of all engines have in common, whose tensors are their own."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

import lar
from tests.cli.runs import result_of
from tests.conftest import RunLar
from tests.engines.onnx_models import MODELS, REPOSITORY, needs

SEVEN = REPOSITORY / "inputs" / "digit_7.npy"
# Each driver, its engine, and the number of the output among the variables.
DRIVERS: Mapping[str, tuple[str, int]] = {
    "lite": ("megengine", 0),
    "graph": ("megengine", 63),  # as load_and_run numbers them
    "session": ("onnxruntime", 0),
    "compiled": ("openvino", 0),
    "interpreter": ("mnn", 0),
    "evaluator": ("reference", 0),
}


def each_driver(*without: str) -> pytest.MarkDecorator:
    names = [it for it in DRIVERS if it not in without]
    rows = [pytest.param(it, marks=needs(DRIVERS[it][0])) for it in names]
    return pytest.mark.parametrize("driver", rows)


def words_for(driver: str) -> list[str]:
    engine, _ = DRIVERS[driver]
    model = MODELS / ("digits_cnn.mge" if engine == "megengine" else "digits_cnn.onnx")
    return [str(model), "--engine", engine, "--driver", driver, "--input", str(SEVEN)]


@each_driver("graph")
def test_a_dump_can_be_understood_alone_and_changes_no_number(tmp_path: Path, driver: str) -> None:
    words = [*words_for(driver), "--iter", "2"]
    (output,) = result_of(*words).outputs
    assert result_of(*words, "--bin-io-dump", "new/dump", cwd=tmp_path).outputs == (output,)
    dump = lar.open_dump(tmp_path / "new" / "dump")
    index = dump.index
    assert (index.complete, index.engine, index.driver) == (True, DRIVERS[driver][0], driver)
    assert (index.outputs, index.left_out) == (("logits",), {})
    assert index.settings == {"bin_io_dump": "new/dump"}
    assert index.model_sha256 == hashlib.sha256(Path(words[0]).read_bytes()).hexdigest()
    tensors = {tensor.name: tensor for tensor in dump}
    assert np.array_equal(dump.read(tensors["data"].key), np.load(SEVEN))
    assert hashlib.sha256(dump.read(tensors["logits"].key).tobytes()).hexdigest() == output.sha256
    convolution = next(each for each in index.operators if "Conv" in each.type)
    assert convolution.inputs[0] == tensors["data"].key
    # Nothing but tensors is in the folder.
    files = sorted(path.name for path in (tmp_path / "new" / "dump").iterdir())
    assert files == sorted(tensor.key for tensor in dump)
    assert sorted(it.name for it in (tmp_path / "new").iterdir()) == ["dump", "dump.index.json"]


@each_driver()
def test_the_outputs_of_each_run_are_kept(tmp_path: Path, driver: str) -> None:
    flags = ["--iter", "2", "--bin-out-dump", "out"]
    (output,) = result_of(*words_for(driver), *flags, cwd=tmp_path).outputs
    dump = lar.open_dump(tmp_path / "out")
    assert dump.index.outputs == ("logits",)
    assert [tensor.key for tensor in dump] == [
        f"run{it}-var{DRIVERS[driver][1]}" for it in range(3)
    ]
    assert [(tensor.name, tensor.run) for tensor in dump] == [("logits", it) for it in range(3)]
    for tensor in dump:
        assert hashlib.sha256(dump.read(tensor.key).tobytes()).hexdigest() == output.sha256


@each_driver("graph")
def test_two_equal_text_dumps_are_identical(run_lar: RunLar, tmp_path: Path, driver: str) -> None:
    texts = []
    for name in ("one.txt", "two.txt"):
        flags = ["--iter", "1", "--warmup-iter", "0", "--io-dump", name]
        run_lar(*words_for(driver), *flags, cwd=tmp_path, code=0)
        texts.append((tmp_path / name).read_text())
    assert texts[0] == texts[1]
    assert texts[0].count(" produced: name=logits ") == 1
    assert re.search(r"^ val: \[.*\]min=\S+ max=\S+ mean=\S+ l2=\S+ sd=\S+ s$", texts[0], re.M)
