"""`lar pack`, and runs of what it packs, on both engines: each case fed, each output judged."""

from __future__ import annotations

import csv
import io
import re
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import lar
from tests.command_lines import ROOT, run_lar
from tests.running.isolated_runs import known

MODELS, INPUTS = ROOT / "models", ROOT / "inputs"

# Inputs of the model of one operator, which is relu: what comes out can be found in the file.
DATA = ("[-1.0,5.5,1,2]", "[-1.0,6.5,1,2]", "#rand(-1,1)")
SECOND_OUTPUT = np.array([0, 6.5, 1, 2], np.float32)


def pack(model: Path, place: Path, *words: str) -> Path:
    run_lar("pack", str(model), *words, "-o", str(place), code=0)
    return place


def of_data(*data: str) -> list[str]:
    return [word for text in data for word in ("-d", text)]


def run(place: Path, *words: str) -> tuple[list[str], lar.RunResult, str]:
    """Run testcases; return the lines, the result and what stands on standard error."""
    report = place.parent / "result.json"
    report.unlink(missing_ok=True)
    done = run_lar(str(place), "--json", str(report), *words)
    result = lar.read_result(report.read_text())
    assert done.returncode == (result.failure.exit_code if result.failure else 0), done.stderr
    return done.stdout.splitlines(), result, done.stderr


@pytest.fixture(scope="module", params=["mge", "onnx"])
def packed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three testcases of the model of one operator, packed once for each engine."""
    place = tmp_path_factory.mktemp("packed") / "one.mdl"
    return pack(MODELS / f"one_operator.{request.param}", place, *of_data(*DATA))


def perturb(packed: Path, place: Path) -> Path:
    """Copy testcases, and change an element of what the second one expects."""
    changed = SECOND_OUTPUT.copy()
    changed[1] = 6
    if packed.is_dir():
        shutil.copytree(packed, place)
        path = place / "test_data_set_1" / "output_0.pb"
        tensor = onnx.TensorProto.FromString(path.read_bytes())
        tensor.raw_data = changed.tobytes()
        path.write_bytes(tensor.SerializeToString())
    else:
        content = packed.read_bytes()
        assert content.count(SECOND_OUTPUT.tobytes()) == 1
        place.write_bytes(content.replace(SECOND_OUTPUT.tobytes(), changed.tobytes()))
    return place


# Running


def test_all_testcases_are_run(packed: Path) -> None:
    lines, result, _ = run(packed, "--iter", "2", "--csv", str(packed.parent / "a.csv"))
    assert [line.split(":")[0] for line in lines if line.startswith("=== ")] == [
        "=== going to run 3 testcases; output vars",
        "=== prepare",
        *(
            text
            for number in range(3)
            for text in (
                f"=== going to run test #{number} for 2 times",
                f"=== finished test #{number}",
            )
        ),
        "=== total time",
    ]
    assert len([line for line in lines if line.startswith("assertequal: err=0 ")]) == 1 + 3 * 2
    assert [case.passed for case in result.cases] == [True, True, True]
    assert result.samples.case == (0, 0, 1, 1, 2, 2)
    assert [len(result.warmup.end_to_end), len(result.fed)] == [1, 3]
    rows = list(csv.DictReader(io.StringIO((packed.parent / "a.csv").read_text())))
    assert [(row["case"], row["index"]) for row in rows] == [
        ("", "0"),
        *((str(case), str(index)) for case in range(3) for index in range(2)),
    ]


def test_the_first_wrong_element_ends_the_run(packed: Path, tmp_path: Path) -> None:
    lines, result, errors = run(perturb(packed, tmp_path / "bad.mdl"), "--iter", "2")
    assert (result.status, known(result.failure).exit_code) == ("failed", 1)
    assert next(line for line in errors.splitlines() if "error" in line) == (
        "lar: error: test #1: output[1] is 6.5, expected 6.0 (err=0.0833333, allowed 0.0001)"
    )
    assert [case.passed for case in result.cases] == [True, False]
    (verdict,) = result.cases[1].verdicts
    assert (verdict.index, verdict.actual, verdict.expected) == ((1,), "6.5", "6.0")
    assert verdict.error == pytest.approx(0.5 / 6)
    # The error stands before the times of its iteration, as ever.
    place = lines.index("=== going to run test #1 for 2 times")
    assert lines[place + 1].startswith("assertequal: err=0.0833333 ")
    assert lines[place + 2].startswith("iter 0/2: ")
    assert not any(line.startswith("=== total time") for line in lines)


def test_the_run_goes_on_where_that_is_asked_for(packed: Path, tmp_path: Path) -> None:
    place = perturb(packed, tmp_path / "bad.mdl")
    lines, result, errors = run(place, "--iter", "2", "--disable-assert-throw")
    assert result.status == "ok"
    assert [case.passed for case in result.cases] == [True, False, True]
    assert len(result.samples.end_to_end) == 6
    assert "lar: warning: test #1: output[1] is 6.5, expected 6.0 " in errors
    assert "testcases: 2 of 3 as expected, largest err=0.0833333" in lines


def test_the_warm_up_alone_is_judged_too(packed: Path) -> None:
    _, result, _ = run(packed, "--iter", "0", "--warmup-iter", "2")
    assert [case.passed for case in result.cases] == [True]
    lines, result, _ = run(packed, "--iter", "0")
    assert (result.status, result.cases) == ("ok", ())
    assert lines[-2] == "=== total time: 0.000ms"


def test_the_testcases_are_counted_by_info(packed: Path) -> None:
    done = run_lar("info", str(packed))
    assert "testcases: 3" in done.stdout.splitlines()
    assert re.search(r"^output +output +float32 +\{4\}$", done.stdout, re.MULTILINE)


def test_inputs_and_testcases_stand_in_the_file_once(packed: Path, tmp_path: Path) -> None:
    done = run_lar(str(packed), "--input", "[1.0,2,3,4]", code=2)
    assert "lar: error: --input and the testcases of " in done.stderr
    done = run_lar("pack", str(packed), "-d", "#rand(0,1)", "-o", str(tmp_path / "out"), code=2)
    assert "holds testcases already" in done.stderr


# Packing


def test_what_is_packed_is_told(tmp_path: Path) -> None:
    done = run_lar(
        *("pack", str(MODELS / "multi_input.onnx"), "-d", "a:[[1.0,2,3],[4,5,6]];b:#rand(0,1)"),
        *("-o", str(tmp_path / "out")),
    )
    assert done.stdout.splitlines() == [
        "testcase 0: a float32 {2,3} from [[1.0,2,3],[4,5,6]], b float32 {3,4} from #rand(0,1)",
        f"{tmp_path / 'out'}: 1 testcase; expected outputs: product float32 {{2,4}}, "
        "rectified float32 {2,3}",
    ]


def test_a_folder_has_the_form_of_onnx(tmp_path: Path) -> None:
    model = MODELS / "multi_input.onnx"
    place = pack(model, tmp_path / "out", *of_data("#rand(0,1)", "#rand(1,2)"))
    assert (place / "model.onnx").read_bytes() == model.read_bytes()
    arrays = {
        str(path.relative_to(place)): onnx.TensorProto.FromString(path.read_bytes())
        for path in place.rglob("*.pb")
    }
    assert sorted(arrays) == [
        f"test_data_set_{number}/{kind}_{position}.pb"
        for number in (0, 1)
        for kind in ("input", "output")
        for position in (0, 1)
    ]
    a, b, product, rectified = (
        arrays[f"test_data_set_1/{name}.pb"]
        for name in ("input_0", "input_1", "output_0", "output_1")
    )
    assert [each.name for each in (a, b, product)] == ["a", "b", "product"]
    values = [numpy_helper.to_array(each) for each in (a, b, product, rectified)]
    np.testing.assert_allclose(values[0] @ values[1], values[2], rtol=1e-5)
    np.testing.assert_array_equal(values[0], values[3])


def test_the_errors_allowed_and_shown_are_packed(tmp_path: Path) -> None:
    words = ["--max-err", "0.0625123", "--silent", *of_data(*DATA[:2])]
    place = pack(MODELS / "one_operator.onnx", tmp_path / "out", *words)
    lines, result, _ = run(place, "--iter", "1")
    assert [each.limit for case in result.cases for each in case.verdicts] == [0.0625123, 0.0625123]
    assert not any(line.startswith("assertequal") for line in lines)


@pytest.mark.parametrize("suffix", ["mge", "onnx"])
def test_inputs_may_be_packed_alone(tmp_path: Path, suffix: str) -> None:
    model = MODELS / f"one_operator.{suffix}"
    place = pack(model, tmp_path / "out.mdl", "--no-assert", *of_data(*DATA[:2]))
    _, result, _ = run(place, "--iter", "1")
    assert [case.passed for case in result.cases] == [None, None]
    assert [output.maximum for output in result.outputs] == [6.5]


def test_a_file_may_list_the_testcases(tmp_path: Path) -> None:
    (tmp_path / "list").write_text("[1.0,2,3,4]\n\n  #rand(0,1)\n")
    place = pack(MODELS / "one_operator.onnx", tmp_path / "out", "-d", f"@{tmp_path / 'list'}")
    assert len([*place.glob("test_data_set_*")]) == 2


def test_an_optimised_model_is_one_for_any_processor(tmp_path: Path) -> None:
    model = MODELS / "digits_cnn.onnx"
    place = pack(model, tmp_path / "out", "--optimize", "-d", str(INPUTS / "digit_7.npy"))
    optimised = onnx.load(place / "model.onnx")
    assert optimised.SerializeToString() != model.read_bytes()
    assert {node.domain for node in optimised.graph.node} <= {"", "ai.onnx"}
    _, result, _ = run(place, "--iter", "1")
    assert [case.passed for case in result.cases] == [True]


def test_weights_in_files_of_their_own_are_packed_too(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    onnx.save(
        onnx.load(MODELS / "digits_cnn.onnx"),
        source / "m.onnx",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    place = pack(source / "m.onnx", tmp_path / "out", "-d", str(INPUTS / "digit_7.npy"))
    shutil.rmtree(source)
    _, result, _ = run(place, "--iter", "1")
    assert [case.passed for case in result.cases] == [True]


def test_images_are_packed_as_their_settings_say(tmp_path: Path) -> None:
    image = str(INPUTS / "cat.pgm")
    words = ["-d", image, "--resize", "8x8", "--input-layout", "nchw", "--scale", "0.01"]
    place = pack(MODELS / "digits_cnn.onnx", tmp_path / "out", *words)
    _, result, _ = run(place, "--iter", "1")
    assert [case.passed for case in result.cases] == [True]
