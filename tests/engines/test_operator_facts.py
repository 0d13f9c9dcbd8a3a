"""The FLOP formulas, and that both engines' readers agree on twins of one network."""

from __future__ import annotations

import importlib
import itertools
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lar.engines.megengine.model_file import read_model as read_mge
from lar.engines.onnx_file.contents import read_model as read_onnx
from lar.engines.operator_facts import FORMULAS, Operation, Shape, count_flops, flops_of
from lar.records.run import ModelInfo
from tests.tables import each_row

ROOT = Path(__file__).resolve().parents[2]
TWINS = sorted(path.stem for path in (ROOT / "models").glob("*.onnx"))
ReadTwins = Callable[[Path, str], tuple[ModelInfo, ModelInfo]]


def operation(kind: str | None, inputs: Any = (), outputs: Any = (), **rest: int) -> Operation:
    return Operation(type="Any", kind=kind, inputs=inputs, outputs=outputs, **rest)


def dump_resnet18(folder: Path) -> None:
    """Make ResNet-18 for both engines."""
    sys.path.insert(0, str(ROOT / "tools"))
    network = importlib.import_module("model_zoo").NETWORKS["resnet18"]()
    importlib.import_module("megengine_twin").dump_megengine(network, folder / "resnet18.mge")
    model = importlib.import_module("onnx_twin").onnx_of(network)
    (folder / "resnet18.onnx").write_bytes(model.SerializeToString())


@pytest.fixture
def read_twins(elsewhere: Callable[..., ModelInfo]) -> ReadTwins:
    """Read the .mge and the .onnx of a network."""

    def read(folder: Path, name: str) -> tuple[ModelInfo, ModelInfo]:
        return elsewhere(read_mge, folder / f"{name}.mge"), read_onnx(folder / f"{name}.onnx")

    return read


@each_row("engines/numbers/formulas")
def test_a_kind_has_its_formula(
    kind: str, inputs: Any, outputs: Any, rest: dict[str, int], flops: int
) -> None:
    """Beside those that the tests of the readers of models have."""
    assert flops_of(operation(kind, tuple(inputs), tuple(outputs), **rest)) == flops


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_convolution_is_what_its_loops_do(groups: int) -> None:
    batch, channels, filters, side, kernel = 2, 4, 8, 5, 3
    out = side - kernel + 1
    macs = sum(
        1
        for _, filter, _, _ in itertools.product(*map(range, (batch, filters, out, out)))
        for channel, _, _ in itertools.product(*map(range, (channels, kernel, kernel)))
        if channel * groups // channels == filter * groups // filters
    )
    data = (batch, channels, side, side)
    weight = (filters, channels // groups, kernel, kernel)
    convolution = operation("convolution", (data, weight), ((batch, filters, out, out),))
    assert flops_of(convolution) == 2 * macs


@pytest.mark.parametrize("kind", sorted(set(FORMULAS) - {"movement"}))
@pytest.mark.parametrize("shape", [None, (None, 4, 4, 4)])
def test_an_unknown_shape_gives_no_number(kind: str, shape: Shape) -> None:
    known = (4, 4, 4, 4)
    for index in range(3):
        shapes: list[Shape] = [known, known, known]
        shapes[index] = shape
        flops = flops_of(operation(kind, tuple(shapes[:2]), tuple(shapes[2:])))
        assert flops is None or flops == flops_of(operation(kind, (known, known), (known,)))
    assert flops_of(operation(kind, (shape, shape), (shape,))) is None
    assert flops_of(operation(kind)) is None


def test_unknown_operators_are_named_once_and_leave_no_total() -> None:
    relu = Operation(type="Relu", kind="elementwise", outputs=((2, 3),))
    custom = Operation(type="Custom", kind=None, outputs=((2, 3),))
    lost = Operation(type="Conv", kind="convolution")
    assert count_flops([relu, relu]) == (12, ())
    assert count_flops([relu, custom, lost, custom]) == (None, ("Conv", "Custom"))
    assert count_flops([]) == (0, ())


def test_the_formulas_need_no_engine() -> None:
    heavy = "{'numpy', 'onnx', 'onnxruntime', 'megengine', 'megenginelite'}"
    check = f"import sys, lar.engines.operator_facts; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", check], cwd=ROOT).returncode == 0


@pytest.mark.parametrize("name", TWINS)
def test_twins_agree(read_twins: ReadTwins, name: str) -> None:
    """In more than `lar info` has to agree in: these twins were made operator by operator, so that
    even the elementwise work is the same."""
    mge, onnx = read_twins(ROOT / "models", name)
    assert onnx.weight_bytes == mge.weight_bytes
    assert onnx.flops == mge.flops is not None
    assert mge.flops_unknown == onnx.flops_unknown == ()


def test_resnet18_is_twice_1_8_billion_multiply_accumulates(
    read_twins: ReadTwins, elsewhere: Callable[..., None], tmp_path: Path
) -> None:
    elsewhere(dump_resnet18, tmp_path)
    for info in read_twins(tmp_path, "resnet18"):
        assert info.flops == pytest.approx(2 * 1.82e9, rel=0.01)
        assert info.parameter_count == pytest.approx(11.69e6, rel=0.01)
    for path in tmp_path.iterdir():
        path.unlink()
