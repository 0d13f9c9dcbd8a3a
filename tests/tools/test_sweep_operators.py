"""The sweep of operators: a part of it here, and what it says of a wrong one."""

from __future__ import annotations

import itertools

import pytest
import sweep_operators
from operator_variants import Case, variants

from lar.engines.reference import operators


@pytest.fixture(scope="module")
def cases() -> list[Case]:
    return [*variants()]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of onnx, by NumPy
def test_no_operator_is_silently_wrong(cases: list[Case]) -> None:
    assert len(cases) > 5000
    # The first of those of each operator that follow each other.
    groups = itertools.groupby(cases, lambda case: case.name.partition("@")[0])
    tried = [sweep_operators.try_case(next(each)) for _, each in groups]
    verdicts = [each.verdict for each in tried]
    assert not [each.says for each in tried if each.verdict == sweep_operators.DIFFERENT]
    assert verdicts.count(sweep_operators.SAME) > 0.7 * len(tried)


def test_a_wrong_operator_is_printed(
    cases: list[Case], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(operators.OWN, ("", "Softsign"), lambda call: call.inputs[0] * 2)
    counts = sweep_operators.sweep(each for each in cases if each.name == "Softsign@13 2x3x4")
    assert counts == {sweep_operators.DIFFERENT: 1}
    assert "different: Softsign@13 2x3x4: o0: off by" in capsys.readouterr().out


def test_what_has_no_truth_is_counted_by_its_reason(
    cases: list[Case], capsys: pytest.CaptureFixture[str]
) -> None:
    counts = sweep_operators.sweep(each for each in cases if "RandomNormalLike" in each.name)
    assert counts == {sweep_operators.WITHOUT_TRUTH: 1}
    assert "RandomNormalLike of opset 17: it draws random numbers (1)" in capsys.readouterr().out
