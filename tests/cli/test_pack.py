"""`lar pack`, and runs of what it packs, on both engines: each case fed, each output judged."""

from __future__ import annotations

import csv
import functools
import io
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import lar
from lar.cli.main import main
from tests.conftest import RunLar

ROOT = Path(__file__).resolve().parents[2]
MODELS, INPUTS = ROOT / "models", ROOT / "inputs"
TIME = r"\d+\.\d{3}"

# Inputs of the model of one operator, which is relu: what comes out can be found in the file.
DATA = ("[-1.0,5.5,1,2]", "[-1.0,6.5,1,2]", "#rand(-1,1)")
SECOND_OUTPUT = np.array([0, 6.5, 1, 2], np.float32)


def pack(run_lar: RunLar, model: Path, place: Path, *words: str) -> Path:
    done = run_lar("pack", str(model), *words, "-o", str(place))
    assert done.returncode == 0, done.stderr
    return place


def of_data(*data: str) -> list[str]:
    return [word for text in data for word in ("-d", text)]


def run(run_lar: RunLar, place: Path, *words: str) -> tuple[list[str], lar.RunResult, str]:
    """Run testcases; return the lines, the result and what stands on standard error."""
    report = place.parent / "result.json"
    report.unlink(missing_ok=True)
    done = run_lar(str(place), "--json", str(report), *words)
    result = lar.read_result(report.read_text())
    assert done.returncode == (result.failure.exit_code if result.failure else 0), done.stderr
    return done.stdout.splitlines(), result, done.stderr


@pytest.fixture(scope="module")
def packed_by_suffix(
    run_lar: RunLar, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """Three testcases of the model of one operator, packed once for each engine."""

    @functools.cache
    def packed(suffix: str) -> Path:
        place = tmp_path_factory.mktemp("packed") / "one.mdl"
        return pack(run_lar, MODELS / f"one_operator.{suffix}", place, *of_data(*DATA))

    return packed


@pytest.fixture(params=["mge", "onnx"])
def packed(request: pytest.FixtureRequest, packed_by_suffix: Callable[[str], Path]) -> Path:
    """The testcases of each engine."""
    return packed_by_suffix(request.param)


@pytest.fixture
def folder(packed_by_suffix: Callable[[str], Path]) -> Path:
    """The testcases of ONNX Runtime."""
    return packed_by_suffix("onnx")


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


# The manual's chapter


def test_the_manuals_chapter_works_as_it_is_typed(run_lar: RunLar, tmp_path: Path) -> None:
    # A small model under the name of the manual's.
    shutil.copy(MODELS / "uint8_input.mge", tmp_path / "resnet50.mge")
    shutil.copy(INPUTS / "cat.jpg", tmp_path)
    command = (
        "python3 dump_with_testcase_mge.py ./resnet50.mge --optimize -d cat.jpg -o resnet50.mdl"
    )
    _, script, *words = shlex.split(command)
    subprocess.run(
        [sys.executable, str(ROOT / "tools" / script), *words],
        cwd=tmp_path,
        check=True,
        timeout=60,
        capture_output=True,
        env={"PYTHONPATH": str(ROOT)},
    )
    done = run_lar("./resnet50.mdl", "--iter", "10", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    name = r"assert_eq\(logits:expect,logits\)\[\d+\]"
    error = rf"assertequal: err=\S+ \(name={name} id=\d+\)"
    patterns = [
        r"lar \S+: using MegEngine \S+ \(lite\) and megdnn \S+",
        rf"load model: {TIME}ms",
        rf"=== going to run 1 testcases; output vars: {name}\{{\}}",
        rf"=== prepare: {TIME}ms; going to warmup",
        error,
        rf"warmup 0: {TIME}ms",
        r"=== going to run test #0 for 10 times",
        *(
            pattern
            for index in range(10)
            for pattern in (
                error,
                rf"iter {index}/10: {TIME}ms \(exec={TIME},device={TIME}\)",
            )
        ),
        rf"=== finished test #0: time={TIME}ms avg_time={TIME}ms sd={TIME}ms "
        rf"minmax={TIME},{TIME}",
        "",
        rf"=== total time: {TIME}ms",
        r"testcases: 1 of 1 as expected, largest err=\S+",
    ]
    lines = done.stdout.splitlines()
    assert len(lines) > len(patterns)
    for line, pattern in zip(lines, patterns, strict=False):
        assert re.fullmatch(pattern, line), line


# Running


def test_all_testcases_are_run(run_lar: RunLar, packed: Path) -> None:
    lines, result, _ = run(run_lar, packed, "--iter", "2", "--csv", str(packed.parent / "a.csv"))
    starts = [line.split(":")[0] for line in lines if line.startswith("=== ")]
    assert starts == [
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


def test_the_first_wrong_element_ends_the_run(
    run_lar: RunLar, packed: Path, tmp_path: Path
) -> None:
    lines, result, errors = run(run_lar, perturb(packed, tmp_path / "bad.mdl"), "--iter", "2")
    assert result.failure is not None
    assert (result.status, result.failure.exit_code) == ("failed", 1)
    first = next(line for line in errors.splitlines() if "error" in line)
    assert first == (
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


def test_the_run_goes_on_where_that_is_asked_for(
    run_lar: RunLar, packed: Path, tmp_path: Path
) -> None:
    place = perturb(packed, tmp_path / "bad.mdl")
    lines, result, errors = run(run_lar, place, "--iter", "2", "--disable-assert-throw")
    assert result.status == "ok"
    assert [case.passed for case in result.cases] == [True, False, True]
    assert len(result.samples.end_to_end) == 6
    assert "lar: warning: test #1: output[1] is 6.5, expected 6.0 " in errors
    assert "testcases: 2 of 3 as expected, largest err=0.0833333" in lines


def test_the_warm_up_alone_is_judged_too(run_lar: RunLar, folder: Path) -> None:
    _, result, _ = run(run_lar, folder, "--iter", "0", "--warmup-iter", "2")
    assert [case.passed for case in result.cases] == [True]
    lines, result, _ = run(run_lar, folder, "--iter", "0")
    assert (result.status, result.cases) == ("ok", ())
    assert lines[-2] == "=== total time: 0.000ms"


def test_the_testcases_are_counted_by_info(run_lar: RunLar, packed: Path) -> None:
    done = run_lar("info", str(packed))
    assert "testcases: 3" in done.stdout.splitlines()
    assert re.search(r"^output +output +float32 +\{4\}$", done.stdout, re.MULTILINE)


def test_inputs_stand_in_the_file_alone(capsys: pytest.CaptureFixture[str], packed: Path) -> None:
    assert main([str(packed), "--input", "[1.0,2,3,4]"]) == 2
    assert "lar: error: --input and the testcases of " in capsys.readouterr().err


# Packing


def test_what_is_packed_is_told(run_lar: RunLar, tmp_path: Path) -> None:
    done = run_lar(
        *("pack", str(MODELS / "multi_input.onnx"), "-d", "a:[[1.0,2,3],[4,5,6]];b:#rand(0,1)"),
        *("-o", str(tmp_path / "out")),
    )
    assert done.stdout.splitlines() == [
        "testcase 0: a float32 {2,3} from [[1.0,2,3],[4,5,6]], b float32 {3,4} from #rand(0,1)",
        f"{tmp_path / 'out'}: 1 testcase; expected outputs: product float32 {{2,4}}, "
        "rectified float32 {2,3}",
    ]


def test_a_folder_has_the_form_of_onnx(run_lar: RunLar, tmp_path: Path) -> None:
    model = MODELS / "multi_input.onnx"
    place = pack(run_lar, model, tmp_path / "out", *of_data("#rand(0,1)", "#rand(1,2)"))
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


def test_the_errors_allowed_and_shown_are_packed(run_lar: RunLar, tmp_path: Path) -> None:
    words = ["--max-err", "0.0625123", "--silent", *of_data(*DATA[:2])]
    place = pack(run_lar, MODELS / "one_operator.onnx", tmp_path / "out", *words)
    lines, result, _ = run(run_lar, place, "--iter", "1")
    assert [each.limit for case in result.cases for each in case.verdicts] == [0.0625123, 0.0625123]
    assert not any(line.startswith("assertequal") for line in lines)


@pytest.mark.parametrize("suffix", ["mge", "onnx"])
def test_inputs_may_be_packed_alone(run_lar: RunLar, tmp_path: Path, suffix: str) -> None:
    model = MODELS / f"one_operator.{suffix}"
    place = pack(run_lar, model, tmp_path / "out.mdl", "--no-assert", *of_data(*DATA[:2]))
    _, result, _ = run(run_lar, place, "--iter", "1")
    assert [case.passed for case in result.cases] == [None, None]
    assert [output.maximum for output in result.outputs] == [6.5]


def test_a_file_may_list_the_testcases(run_lar: RunLar, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("[1.0,2,3,4]\n\n  #rand(0,1)\n")
    model = MODELS / "one_operator.onnx"
    place = pack(run_lar, model, tmp_path / "out", "-d", f"@{tmp_path / 'list'}")
    assert len([*place.glob("test_data_set_*")]) == 2


def test_an_optimised_model_is_one_for_any_processor(run_lar: RunLar, tmp_path: Path) -> None:
    model = MODELS / "digits_cnn.onnx"
    words = ("--optimize", "-d", str(INPUTS / "digit_7.npy"))
    place = pack(run_lar, model, tmp_path / "out", *words)
    optimised = onnx.load(place / "model.onnx")
    assert optimised.SerializeToString() != model.read_bytes()
    assert {node.domain for node in optimised.graph.node} <= {"", "ai.onnx"}
    _, result, _ = run(run_lar, place, "--iter", "1")
    assert [case.passed for case in result.cases] == [True]


def test_weights_in_files_of_their_own_are_packed_too(run_lar: RunLar, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    onnx.save(
        onnx.load(MODELS / "digits_cnn.onnx"),
        source / "m.onnx",
        save_as_external_data=True,
        location="weights.bin",
        size_threshold=0,
    )
    place = pack(run_lar, source / "m.onnx", tmp_path / "out", "-d", str(INPUTS / "digit_7.npy"))
    shutil.rmtree(source)
    _, result, _ = run(run_lar, place, "--iter", "1")
    assert [case.passed for case in result.cases] == [True]


def test_images_are_packed_as_their_settings_say(run_lar: RunLar, tmp_path: Path) -> None:
    image = str(INPUTS / "cat.pgm")
    words = ["-d", image, "--resize", "8x8", "--input-layout", "nchw", "--scale", "0.01"]
    place = pack(run_lar, MODELS / "digits_cnn.onnx", tmp_path / "out", *words)
    _, result, _ = run(run_lar, place, "--iter", "1")
    assert [case.passed for case in result.cases] == [True]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-d", "no_such.npy"], "-d: no_such.npy: no such file"),
        (["-d", "#rand(0,1)", "--bgr"], "--bgr needs data from files: random numbers are"),
        (["-d", "#rand(0,1)", "--repeat", "2"], "leave --repeat out, or give a file with -d"),
        (["-d", "#rand(0,1)", "--resize-input"], "--resize-input needs data from files"),
        (["-d", "#rand(0,1)", "--input-transform", "data"], "--input-transform needs data"),
        (["-d", "a.jpg", "--resize", "8x8", "--resize-input"], "--resize and --resize-input exc"),
        (["-d", "a.jpg", "--bgr", "--rgb"], "--bgr and --rgb exclude each other"),
        (["-d", "[1.0,2]"], "-d: [1.0,2]: its shape {2} is not {4}"),
        (["-d", "#rand(0,1)", "--no-assert", "--silent"], "--no-assert and --silent exclude"),
        (["-d", "#rand(0,1)", "--no-assert", "--max-err", "1"], "without expected outputs, a run"),
        (["-d", "[1.0]", "--input-transform", "data +"], "is not a Python expression"),
        (["-d", "@no_such_list"], "-d @LIST: no_such_list: no such list"),
        ([], "required: -d/--data"),
    ],
)
def test_what_is_wrong_is_told_and_nothing_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, words: list[str], message: str
) -> None:
    model = str(MODELS / "one_operator.onnx")
    assert main(["pack", model, *words, "-o", str(tmp_path / "out")]) == 2
    told = capsys.readouterr().err
    assert message in told
    assert "Traceback" not in told
    assert [*tmp_path.iterdir()] == []


def test_a_place_that_does_not_fit_is_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    model = str(MODELS / "one_operator.onnx")
    for place, message in (
        (tmp_path / "full", "the folder is not empty"),
        (tmp_path / "full" / "file", "is not a folder"),
    ):
        assert main(["pack", model, "-d", "#rand(0,1)", "-o", str(place)]) == 2
        assert message in capsys.readouterr().err
    assert [*tmp_path.iterdir()] == [tmp_path / "full"]


@pytest.mark.parametrize("data", ["own.npy", "data:own.npy", "data:own.npy;", "@list", "link.npy"])
@pytest.mark.parametrize("place", ["own.npy", "link.npy", "hard.npy"])
def test_what_is_packed_is_not_replaced(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    data: str,
    place: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("own.npy", np.ones((1, 1, 28, 28), np.float32))
    Path("link.npy").symlink_to("own.npy")
    Path("hard.npy").hardlink_to("own.npy")
    Path("list").write_text("own.npy\n")
    model = str(MODELS / "digits_cnn.mge")
    assert main(["pack", model, "-d", data, "-o", place]) == 2
    assert f"-o: {place}: this file is read by the same command" in capsys.readouterr().err
    assert np.load("own.npy").sum() == 784
    assert main(["pack", model, "-d", "@list", "-o", "list"]) == 2
    assert Path("list").read_text() == "own.npy\n"


def test_an_interrupt_is_told_and_nothing_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("lar.running.tasks.run_task", interrupt)
    model = str(MODELS / "one_operator.onnx")
    assert main(["pack", model, "-d", "#rand(0,1)", "-o", str(tmp_path / "out")]) == 130
    assert capsys.readouterr() == ("", "lar: error: interrupted\n")
    assert [*tmp_path.iterdir()] == []


def test_testcases_are_not_packed_twice(
    capsys: pytest.CaptureFixture[str], packed: Path, tmp_path: Path
) -> None:
    assert main(["pack", str(packed), "-d", "#rand(0,1)", "-o", str(tmp_path / "out")]) == 2
    assert "holds testcases already" in capsys.readouterr().err
