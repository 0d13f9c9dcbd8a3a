"""`lar compare --truth`: how far both sides are from what the model should give, and who is off."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import numpy as np
import onnx
import pytest

import lar
from lar.errors import UsageError
from lar.records.comparison import Comparison
from lar.records.record import record_to_json
from lar.reports.comparison_report import report_comparison
from lar.reports.formats import format_csv
from lar.reports.html import format_html
from lar.running.compared_sides import find_truth_model
from tests.cli.marks import needs_megengine
from tests.cli.runs import Array, save_altered
from tests.command_lines import ROOT, run_lar
from tests.running.isolated_runs import finished, known

DIGITS = str(ROOT / "models" / "digits_cnn.onnx")
SEVEN = str(ROOT / "inputs" / "digit_7.npy")
OFF = ("fault", "different")  # from the truth by more than rounding


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model that has a wrong channel in the weights of its second convolution."""

    def change(array: Array) -> None:
        array[3] = -array[3]

    path = tmp_path_factory.mktemp("faulty") / "faulty.onnx"
    return save_altered(path, "digits_cnn.onnx", conv2__weight=change)


@pytest.fixture(scope="module")
def judged(faulty: str) -> Comparison:
    """The faulty model beside the right one, whose truth is computed."""
    return lar.compare(faulty, DIGITS, truth=True, input=SEVEN)


def test_the_side_with_the_fault_is_off_and_the_operator_is_named(judged: Comparison) -> None:
    assert judged.truth is not None
    assert judged.truth.side.model == DIGITS
    assert judged.truth.side.engine == "reference"
    assert judged.truth.actual.finding in OFF
    assert judged.truth.expected.finding not in OFF
    (culprit,) = judged.truth.actual.culprits
    assert {it.type for it in culprit.expected} & {"Conv", "Relu"}
    *_, result = report_comparison(judged).text.splitlines()
    assert result.startswith("result: different; ")
    assert "; by the truth A is off in " in result
    assert result.endswith(", B rounds as it must")


def test_each_operator_has_the_error_of_both_sides(judged: Comparison) -> None:
    (logits,) = (it for it in judged.tensors if it.expected.name == "logits")
    assert known(logits.truth).tensor.dtype == "float64"
    errors = known(logits.truth).actual, known(logits.truth).expected
    far, near = (each.relative_l2 for each in errors if each is not None)
    assert far is not None
    assert near is not None
    assert near < 1e-5 < 1e-2 < far
    assert judged.culprits[0].output.truth is not None
    (header, *_) = re.findall("^tensor .*$", report_comparison(judged).text, re.MULTILINE)
    assert "A to truth  B to truth" in header
    rows = csv.DictReader(format_csv(report_comparison(judged)).splitlines())
    row = next(it for it in rows if it["expected_name"] == "logits")
    assert float(row["truth_actual_relative_l2"]) == far
    assert float(row["truth_expected_relative_l2"]) == near


def test_a_page_has_the_truth_too(judged: Comparison) -> None:
    page = format_html(report_comparison(judged))
    assert f"{DIGITS} (" in page
    assert "by the truth A is off in " in page
    assert '"A to truth"' in page


def test_the_other_side_is_off_where_its_model_is_named(faulty: str) -> None:
    found = lar.compare(DIGITS, faulty, truth=DIGITS, input=SEVEN)
    assert known(found.truth).actual.finding not in OFF
    assert known(found.truth).expected.finding in OFF


def test_a_comparison_with_truth_survives_json(judged: Comparison) -> None:
    assert lar.read_comparison(record_to_json(judged)) == judged


@needs_megengine
def test_a_quantised_model_and_its_twin_of_megengine_round_as_they_must(tmp_path: Path) -> None:
    for name in ("int8.onnx", "int8.mge"):
        (tmp_path / name).write_bytes((ROOT / "models" / name).read_bytes())
    done = run_lar(
        "compare", "int8.mge", "int8.mge --cpu", "--truth", "--input", SEVEN, cwd=tmp_path, code=0
    )
    assert "\ntruth: int8.onnx (" in done.stdout
    *_, result = done.stdout.splitlines()
    assert result.startswith("result: the same within the tolerance (1 output, ")
    assert result.endswith("); by the truth A rounds as it must, B rounds as it must")


@pytest.mark.parametrize("is_first", [True, False])
def test_a_quantised_model_is_judged_by_the_truth_of_its_original(is_first: bool) -> None:
    int8 = DIGITS.replace("digits_cnn", "int8")
    one, other = (int8, DIGITS) if is_first else (DIGITS, int8)
    found = lar.compare(one, other, truth=True, input=SEVEN)
    assert known(found.truth).side.model == DIGITS
    errors = known(next(it.truth for it in found.tensors if it.expected.name == "logits"))
    of_int8, of_floats = (errors.actual, errors.expected)[:: 1 if is_first else -1]
    assert of_int8 is not None
    assert of_floats is not None
    assert (of_int8.relative_l2 or 0) > 1e-3 > 1e-5 > (of_floats.relative_l2 or 0)


def test_inputs_of_other_names_are_fed_in_their_order(tmp_path: Path) -> None:
    model = onnx.load(DIGITS)
    for node in model.graph.node:
        for place, name in enumerate(node.input):
            node.input[place] = "image" if name == "data" else name
    model.graph.input[0].name = "image"
    path = tmp_path / "renamed.onnx"
    onnx.save(model, path)
    found = lar.compare(DIGITS, DIGITS, truth=str(path), input=SEVEN)
    assert known(found.truth).actual.finding not in OFF


def test_dumps_are_judged_too_as_long_as_their_model_is_there(tmp_path: Path) -> None:
    dump, model = str(tmp_path / "dump"), tmp_path / "model.onnx"
    model.write_bytes(Path(DIGITS).read_bytes())
    finished(lar.run(model, SEVEN, bin_io_dump=dump, iter=1, warmup_iter=0))
    found = lar.compare(dump, dump, truth=True)
    assert known(found.truth).side.model == str(model)
    assert known(found.truth).actual.finding not in OFF
    model.write_bytes(Path(DIGITS.replace("digits_cnn", "int8")).read_bytes())
    with pytest.raises(UsageError, match="has changed since"):
        lar.compare(dump, dump, truth=True)


def test_the_truth_is_that_of_the_expected_side_or_of_a_twin_beside_a_model(tmp_path: Path) -> None:
    for name in ("a.mge", "a.onnx", "b.onnx", "c.mge"):
        (tmp_path / name).write_bytes((ROOT / "models" / f"int8{name[1:]}").read_bytes())
    here = [str(tmp_path / name) for name in ("a.mge", "b.onnx", "c.mge")]
    assert find_truth_model("", here).model == str(tmp_path / "a.onnx")
    assert find_truth_model("", here[1:]).model == str(tmp_path / "b.onnx")
    assert find_truth_model(here[1], here).model == here[1]
    with pytest.raises(UsageError) as caught:
        find_truth_model("", here[2:])
    assert caught.value.message.startswith("--truth: no .onnx is among the sides")
    assert caught.value.hint.endswith("--truth MODEL.onnx")
    with pytest.raises(UsageError, match="MegEngine format"):
        find_truth_model(here[0], ())


def test_without_inputs_there_is_no_truth() -> None:
    array = np.zeros(3)
    with pytest.raises(UsageError, match="does not hold the inputs of its run"):
        lar.compare(array, array, truth=DIGITS)
