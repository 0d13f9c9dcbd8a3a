"""Inputs that are counted, not named, are those of the model file, on both drivers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from lar.engines.megengine.graph_operators import open_graph, sort_inputs
from lar.engines.megengine.packed_model import write_packed
from tests.cli.runs import result_of
from tests.conftest import RunLar
from tests.engines.megengine.traced import dump_traced

NAMES = ["zeta", "b", "m", "a", "q"]
# As the outputs lead to them, depth first.
IN_FILE = ["b", "a", "q", "m", "zeta"]


def dump_models(folder: str) -> None:
    """Dump a model of five inputs in each format."""
    from megengine.functional import exp

    def compute(zeta: Any, b: Any, m: Any, a: Any, q: Any) -> Any:
        return exp((q * 2 + a) * b - (m + exp(zeta)) * q), q + 1

    inputs = {name: np.ones((2, 3), np.float32) for name in NAMES}
    for name in ("FBS", "FBS_V2"):
        how: dict[str, Any] = {"optimize_for_inference": False, "dump_format": name}
        dump_traced(Path(folder, f"{name}.mge"), compute, inputs, **how)


@pytest.fixture(scope="module")
def folder(elsewhere: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with these models, and one of them packed."""
    folder = tmp_path_factory.mktemp("orders")
    elsewhere(dump_models, str(folder))
    write_packed(folder / "packed.mge", (folder / "FBS_V2.mge").read_bytes(), "five")
    return folder


@pytest.mark.parametrize("name", ["FBS", "FBS_V2", "packed"])
def test_names_are_sorted_as_in_the_file(folder: Path, name: str) -> None:
    for names in (NAMES, NAMES[::-1], sorted(NAMES)):
        assert sort_inputs(names, str(folder / f"{name}.mge")) == IN_FILE


def test_a_file_of_another_format_leaves_the_order(tmp_path: Path) -> None:
    (tmp_path / "model.mge").write_bytes(b"MGBS" + bytes(100))
    assert sort_inputs(NAMES, str(tmp_path / "model.mge")) == NAMES


def test_a_damaged_file_is_found(folder: Path) -> None:
    graph = (folder / "FBS_V2.mge").read_bytes()
    with pytest.raises(ValueError, match="points to byte"):
        open_graph(memoryview(graph[:100]))


@pytest.mark.parametrize(
    "flags", ["--driver lite", "--driver graph", "--driver graph --optimize-for-inference"]
)
def test_each_driver_has_them_in_the_order_of_the_file(
    run_lar: RunLar, folder: Path, flags: str
) -> None:
    result = result_of(str(folder / "FBS_V2.mge"), "--iter", "0", *flags.split())
    assert [each.name for each in result.inputs] == IN_FILE
    assert [each.name for each in result.fed] == IN_FILE


def test_the_order_is_that_which_info_prints(run_lar: RunLar, folder: Path) -> None:
    lines = run_lar("info", str(folder / "FBS_V2.mge")).stdout.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("input ")] == IN_FILE


def test_files_that_are_numbered_feed_the_inputs_so_numbered(
    run_lar: RunLar, root: Path, tmp_path: Path
) -> None:
    for number, shape in enumerate(((2, 3), (3, 4))):
        tensor = numpy_helper.from_array(np.full(shape, number, np.float32))
        (tmp_path / f"input_{number}.pb").write_bytes(tensor.SerializeToString())
    for driver in ("lite", "graph"):
        words = ("models/multi_input.mge", "--driver", driver, "--iter", "0")
        result = result_of(*words, "--input", str(tmp_path), cwd=root)
        fed = {each.name: Path(each.source).name for each in result.fed}
        assert fed == {"a": "input_0.pb", "b": "input_1.pb"}
