"""The figures of comparing: their cases, and how an answer is judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bench_numbers
import number_cases
import numpy.typing as npt
import pytest
from number_cases import Case, Side

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
