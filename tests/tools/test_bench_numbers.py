"""The figures of comparing: their cases, and how an answer is judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bench_numbers
import layer_ranking
import number_cases
import numpy as np
import numpy.typing as npt
import onnx
import pytest
from number_cases import Case, Side

import lar
from lar.records.comparison import OperatorFacts

Array = npt.NDArray[Any]


def test_there_are_as_many_cases_as_the_figures_say() -> None:
    old = {(case.actual.network, case.actual.fault) for case in number_cases.faulty_cases()}
    assert len(number_cases.FAULTS) == 45
    assert len(old) >= 80
    assert len(list(number_cases.healthy_cases())) >= 200
    names = [case.name for case in number_cases.all_cases()]
    assert len(names) == len(set(names))


def test_every_fault_can_be_made() -> None:
    for number, fault in enumerate(number_cases.FAULTS):
        network = number_cases.describe(fault.network, f"new-{number}")
        assert network.outputs
        assert {name for name in (*fault.operators, *fault.others) if name} <= {
            node.name for node in number_cases.DESCRIPTIONS[fault.network]().nodes
        }


def test_names_are_those_of_the_model_without_what_was_added() -> None:
    def named(output: str, name: str, operator: str = "") -> bool:
        return bench_numbers.is_named(
            OperatorFacts(key="", name=operator, type="", output=output), name
        )

    assert named("conv2_QuantizeLinear_Output", "conv2")
    assert named("b.scaled.scaled", "b.scaled")
    assert named("x", "conv2", "conv2_nchwc[3]")
    assert named("x", "conv2", "CONV(conv2.weight)")
    assert not named("conv21", "conv2")


def test_ranks_are_compared() -> None:
    assert layer_ranking.rank_correlation([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1)
    assert layer_ranking.rank_correlation([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert np.array_equal(layer_ranking.ranks_of(np.array([2.0, 1.0, 2.0])), [1.5, 0, 1.5])


FIRST = np.array([[3, -2], [1, 4], [-5, 2]], np.float32)
SECOND = np.array([[2], [-3]], np.float32)
COARSE = 3.5  # the step of what the first layer gives, whose ReLU is in the range of its integers


def write_model(path: Path, *nodes: onnx.NodeProto, **constants: Array) -> Path:
    helper = onnx.helper
    graph = helper.make_graph(
        nodes,
        "two layers",
        [helper.make_tensor_value_info("data", onnx.TensorProto.FLOAT, [1, 3])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 1])],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def rounded(tensor: str, given: str = "", scale: str = "fine") -> list[onnx.NodeProto]:
    """The nodes that quantise a tensor and give its real numbers."""
    node, by = onnx.helper.make_node, (scale, f"{scale}.zero")
    integers = f"{tensor}_QuantizeLinear_Output"
    return [
        node("QuantizeLinear", [given or tensor, *by], [integers]),
        node("DequantizeLinear", [integers, *by], [f"{tensor}.read"]),
    ]


@pytest.mark.parametrize("whole", [True, False])
def test_a_layer_is_left_in_float(tmp_path: Path, whole: bool) -> None:
    """Weights and data of the first layer are integers: what it loses is what its output rounds."""
    node = onnx.helper.make_node
    plain = write_model(
        tmp_path / "plain.onnx",
        node("MatMul", ["data", "one"], ["hidden"], "first"),
        node("Relu", ["hidden"], ["relu"], "relu"),
        node("MatMul", ["relu", "two"], ["y"], "second"),
        one=FIRST,
        two=SECOND,
    )
    read = [
        node("DequantizeLinear", [f"{name}_quantized", "fine", "fine.zero"], [f"{name}.read"])
        for name in ("one", "two")
    ]
    quantized = write_model(
        tmp_path / "quantized.onnx",
        *read,
        *rounded("data"),
        node("MatMul", ["data.read", "one.read"], ["relu"], "first"),
        *rounded("relu", scale="coarse"),
        node("MatMul", ["relu.read", "two.read"], ["y_QuantizeLinear_Input"], "second"),
        *rounded("y", "y_QuantizeLinear_Input")[:1],
        node("DequantizeLinear", ["y_QuantizeLinear_Output", "fine", "fine.zero"], ["y"]),
        one_quantized=FIRST.astype(np.int8),
        two_quantized=SECOND.astype(np.int8),
        fine=np.array(1, np.float32),
        coarse=np.array(COARSE, np.float32),
        **{"fine.zero": np.array(0, np.int8), "coarse.zero": np.array(-128, np.int8)},
    )
    feeds = [{"data": np.array([each], np.float32)} for each in ([1, 1, -1], [0, 2, 1])]
    relus = [np.maximum(feed["data"] @ FIRST, 0) for feed in feeds]
    changes = [(relu - np.rint(relu / COARSE) * COARSE) @ SECOND for relu in relus]
    lost = float(np.linalg.norm(changes))
    assert lost > 1
    costs = layer_ranking.costs_by_leaving_out(quantized, plain, feeds, whole=whole)
    # The second one takes what the first gives as it is before it is rounded.
    assert costs == pytest.approx({"first": lost if whole else 0, "second": lost})
    if not whole:
        return
    np.save(tmp_path / "data.npy", feeds[0]["data"])
    found = lar.compare(
        f"{quantized} --graph-optimization-level disable",
        str(plain),
        input=str(tmp_path / "data.npy"),
        isolate=True,
    )
    squares = layer_ranking.costs_by_single_errors(found, quantized, whole=True)
    length = float(np.linalg.norm(relus[0] @ SECOND))
    # What the quantiser behind the first one makes of the loss is what is lost.
    lost = float(np.linalg.norm(changes[0]))
    assert squares["first"] ** 0.5 * length == pytest.approx(lost)


def test_a_side_that_cannot_be_made_is_listed(tmp_path: Path) -> None:
    case = Case("group", "", Side("net", form="basic"), Side("net", form="all"))
    (tmp_path / "net.clean.all.error").write_text("TypeError: no")
    found = bench_numbers.compare(tmp_path, case)
    assert found == "net.clean.all could not be made: TypeError: no"
    line = bench_numbers.describe_failing(tmp_path, case, found)
    assert line.endswith(f"lar compare {tmp_path}/net.clean.basic {tmp_path}/net.clean.all")


def test_an_unknown_figure_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["bench_numbers.py", "speeed"])
    with pytest.raises(SystemExit):
        bench_numbers.main()
    assert "no figure speeed" in capsys.readouterr().err
