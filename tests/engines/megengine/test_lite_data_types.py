"""Types of inputs and outputs that lite, or its tables in Python, lack."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lar
from tests.cli.failures import check_error
from tests.conftest import RunLar
from tests.engines.megengine.traced import dump_traced


def dump_models(folder: str) -> None:
    """Dump a model for each type."""
    ones = np.ones((2, 3), np.float32)
    functions: dict[str, tuple[Callable[[Any], Any], Any]] = {
        "half": (lambda x: x * 2, ones.astype(np.float16)),
        "bool": (lambda x: x > 0, ones),
        "uint16_out": (lambda x: x.astype("uint16"), ones),
        "uint16_in": (lambda x: x.astype("float32"), ones.astype(np.uint16)),
    }
    for name, (function, data) in functions.items():
        dump_traced(Path(folder, f"{name}.mge"), function, {"data": data}, output_names=["out"])


@pytest.fixture(scope="module")
def folder(elsewhere: Callable[..., None], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("types")
    elsewhere(dump_models, str(folder))
    return folder


@pytest.mark.parametrize("flags", [(), ("--thread", "2"), ("--batch-size", "2")])
def test_float16_goes_in_and_comes_out(
    run_lar: RunLar, folder: Path, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    data = np.array([[0.5, -1.25, 3], [60000, 6e-8, 0]], np.float16)
    np.save(tmp_path / "data.npy", data[:1] if "--batch-size" in flags else data)
    command = [str(folder / "half.mge"), "--input", "data.npy", "--iter", "2", *flags]
    run_lar(*command, "--bin-out-dump", "out", "--copy-to-host", cwd=tmp_path, code=0)
    expected = np.repeat(data[:1], 2, axis=0) if "--batch-size" in flags else data
    for tensor in lar.open_dump(tmp_path / "out"):
        array = lar.open_dump(tmp_path / "out").read(tensor.key)
        assert array.dtype == np.float16
        with np.errstate(over="ignore"):
            np.testing.assert_array_equal(array, expected * np.float16(2))


@pytest.mark.parametrize("name", ["bool", "uint16_in", "uint16_out"])
def test_a_type_that_lite_lacks_is_named(run_lar: RunLar, folder: Path, name: str) -> None:
    done = run_lar(str(folder / f"{name}.mge"))
    kind = name.partition("_")[0].capitalize()
    check_error(done, 2, f"an input or output is of type {kind}, which MegEngine's lite lacks")
    check_error(done, 2, "--driver graph accepts this type", "cast the tensor to float32 or int32")
    assert "load model" not in done.stdout


@pytest.mark.parametrize("name", ["bool", "uint16_in"])
def test_the_graph_driver_takes_what_lite_lacks(run_lar: RunLar, folder: Path, name: str) -> None:
    run_lar(str(folder / f"{name}.mge"), "--driver", "graph", "--iter", "1", code=0)
