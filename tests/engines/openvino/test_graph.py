"""A model with many kinds of operators: what OpenVINO executes, and how it is described."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lar
from lar.records.record import record_to_json
from tests.engines.onnx_models import drawn, needs, save_named, text_of
from tests.engines.runs import run_ok
from tests.engines.test_onnx_engines import own_model

pytestmark = needs("openvino")

EXPECTED = json.loads(Path(__file__).with_name("graph.json").read_text())
FED: dict[str, Any] = {"engine": "openvino", "iter": 1, "input": "x:{2,4,6,6};r:{3,2}"}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    weights: dict[str, Any] = {"w": drawn(4, 4, 1, 1), "v": drawn(3, 5), "one": np.array([1])}
    weights |= {"low": np.float32(-1), "high": np.float32(1)}
    return save_named(tmp_path / "kinds.onnx", text_of("many_kinds"), weights)


def own(names: Iterable[str]) -> list[str]:
    """Return the names without those that OpenVINO has invented for constants."""
    return [name for name in names if not name.startswith("Constant_")]


def test_a_dump_has_the_steps_of_each_operator(model: Path, tmp_path: Path) -> None:
    run_ok(model, **FED, bin_io_dump=str(tmp_path / "dump"))
    dump = lar.open_dump(tmp_path / "dump")
    names = {tensor.key: tensor.name for tensor in dump}

    def named(keys: Iterable[str]) -> list[str]:
        return [names[key] for key in keys if key in names]

    nodes = [it for it in dump.index.operators if "steps" in it.parameters]
    found = [[it.type, it.parameters["steps"], named(it.inputs), named(it.outputs)] for it in nodes]
    assert found == EXPECTED["dumped"]


def test_a_profile_has_the_work_of_each_operator(model: Path, tmp_path: Path) -> None:
    """OpenVINO leaves out nodes whose mean time is under 1 us: another run may have these."""
    found: dict[str, list[Any]] = {}
    for number in range(20):
        profile = tmp_path / f"{number}.json"
        run_ok(model, **FED, thread=2, profile=str(profile))
        for it in lar.read_profile(profile).operators:
            row = [it.type, it.flops, it.size_bytes, own(it.reads), [*it.writes], own(it.weights)]
            if it.flops is not None:
                assert row == found.setdefault(it.name, row)
        if len(found) == len(EXPECTED["profiled"]):
            break
    assert found == {name: row for name, *row in EXPECTED["profiled"]}


def test_its_own_format_is_described(model: Path, tmp_path: Path) -> None:
    info = json.loads(record_to_json(lar.read_info(own_model("openvino", model, tmp_path))))
    assert {name: info[name] for name in EXPECTED["described"]} == EXPECTED["described"]
