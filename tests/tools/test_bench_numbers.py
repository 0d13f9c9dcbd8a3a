"""The figures of comparing: their cases, and how an answer is judged."""

from __future__ import annotations

import shlex
from collections import Counter
from pathlib import Path

import bench_dumps
import bench_numbers
import number_cases
import numpy as np
import onnx
import onnxruntime
import planted_faults
import pytest
import random_edits
import real_networks
import real_pairs
from number_cases import Case, Side

from lar.records.comparison import (
    Comparison,
    Culprit,
    OperatorFacts,
    SideFacts,
    TensorComparison,
    TensorFacts,
    Tolerance,
)
from tests.tables import each_row


def test_there_are_as_many_cases_as_the_figures_say() -> None:
    groups = Counter(word.partition("-")[0] for word in planted_faults.FAULTS)
    assert groups == {"old": 50, "new": 45}
    assert len(list(number_cases.healthy_cases())) == 268
    cases = *number_cases.faulty_cases(), *number_cases.healthy_cases()
    names = [case.name for case in cases]
    assert len(names) == len(set(names)) == 268 + 218 + 164


def test_every_fault_can_be_made() -> None:
    for word, fault in planted_faults.FAULTS.items():
        assert planted_faults.describe(fault.network, word).outputs
        assert {*fault.operators, *fault.others} <= {
            node.name for node in planted_faults.NETWORKS[fault.network]().nodes
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


def test_a_side_that_cannot_be_made_is_listed(tmp_path: Path) -> None:
    case = Case("group", "", Side("net", form="basic"), Side("net", form="all"))
    (tmp_path / "net.clean.all.error").write_text("TypeError: no")
    pair = bench_numbers.compare_case(tmp_path, case)
    assert pair.found == "net.clean.all could not be made: TypeError: no"
    line = pair.describe("a problem")
    assert line.endswith(f"lar compare {tmp_path}/net.clean.basic {tmp_path}/net.clean.all")


@pytest.mark.parametrize("name", real_networks.NETWORKS)
def test_real_networks_are_drawn_the_same_and_run(name: str) -> None:
    model, feeds = real_networks.make_network(name)
    assert real_networks.make_network(name).model.SerializeToString() == model.SerializeToString()
    onnx.checker.check_model(model)
    outputs = onnxruntime.InferenceSession(model.SerializeToString()).run(None, feeds)
    floats = [each for each in outputs if getattr(each, "dtype", None) == np.float32]
    assert all(np.isfinite(each).all() for each in floats)
    assert len(outputs) == len(model.graph.output)


def test_edits_are_drawn_the_same_and_show() -> None:
    for number in (0, 2, 24, 49):
        edit, again = random_edits.draw_edit(number), random_edits.draw_edit(number)
        assert again.network.model == edit.network.model
        assert edit.operators
        name, form = random_edits.SUBJECTS[number % len(random_edits.SUBJECTS)]
        original = real_networks.make_network(name, form)
        outputs = [random_edits.run_model(each) for each in (edit.network, original)]
        assert None not in outputs
        assert not random_edits.agree(*outputs)
        assert random_edits.agree(outputs[1], outputs[1])


def found_with(*culprits: tuple[tuple[str, ...], tuple[str, ...]], finding: str) -> Comparison:
    tensor = TensorFacts(key="t", name="t", dtype="float32", shape=(1,))
    output = TensorComparison(actual=tensor, expected=tensor, matched_by="name", passed=False)
    side = SideFacts(source="", tensors=1)

    def operators(names: tuple[str, ...]) -> tuple[OperatorFacts, ...]:
        return tuple(OperatorFacts(key="", name="", type="", output=name) for name in names)

    return Comparison(
        actual=side,
        expected=side,
        tolerance=Tolerance(),
        finding=finding,  # type: ignore[arg-type]
        culprits=tuple(
            Culprit(
                actual=operators(one),
                expected=operators(other),
                inputs=(),
                output=output,
                proven=True,
            )
            for one, other in culprits
        ),
    )


@each_row("tools/cases/judged culprits")
def test_culprits_of_an_edit_are_judged(
    actual: list[str], expected: list[str], verdict: str
) -> None:
    network = real_networks.RealNetwork(onnx.ModelProto(), {})
    edit = random_edits.Edited(network, "", frozenset({"conv"}), frozenset({"relu"}))
    found = found_with((tuple(actual), tuple(expected)), finding="fault")
    assert bench_numbers.judge_culprits(found, edit)[0] == verdict


def test_an_edit_without_culprit_is_the_same_or_wrong() -> None:
    network = real_networks.RealNetwork(onnx.ModelProto(), {})
    edit = random_edits.Edited(network, "", frozenset({"conv"}), frozenset())
    judged = [
        bench_numbers.judge_culprits(found_with(finding=finding), edit)[0]
        for finding in ("same", "different")
    ]
    assert judged == ["the same", "wrong"]


def test_the_fault_of_a_chain_reaches_its_output(tmp_path: Path) -> None:
    sides = bench_dumps.chain_sides(tmp_path, 40)
    network = bench_dumps.make_chain(40)
    faulty = network._replace(model=onnx.load(sides[0].partition(" ")[0]))
    assert len(network.model.graph.node) == 40
    outputs = [random_edits.run_model(each) for each in (faulty, network)]
    assert None not in outputs
    assert not random_edits.agree(*outputs)


def test_a_side_of_a_real_pair_is_a_command_line(tmp_path: Path) -> None:
    side = real_pairs.RealSide("sequence", "optimised", "basic").command(tmp_path)
    model, *flags = shlex.split(side)
    assert onnx.load(model).graph.output[0].name == "levels"
    inputs = f"input:{tmp_path}/sequence.optimised.inputs/input.npy"
    assert flags == ["--graph-optimization-level", "basic", "--input", inputs]
