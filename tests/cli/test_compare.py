"""`lar compare`, from the command line, on models and on dumps."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lar.cli.main import main
from lar.comparison import metrics, pairs
from lar.dumps.binary import write_tensor
from lar.records.comparison import Figures
from tests.cli.runs import Array, save_altered
from tests.command_lines import ROOT, run_lar
from tests.engines.onnx_models import save_model, text_of
from tests.running.isolated_runs import eventually
from tests.tables import each_row

DIGIT = "inputs/digit_7.npy"


def dump_run(model: str, folder: Path, *flags: str) -> str:
    words = ["--input", DIGIT, "--iter", "1", "--warmup-iter", "0", "--bin-io-dump", str(folder)]
    run_lar(model, *words, *flags, cwd=ROOT, code=0)
    return str(folder)


@pytest.fixture(scope="module")
def altered(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The model of digits with one weight of its second convolution changed."""

    def change(array: Array) -> None:
        array[3, 2, 1, 1] += 0.5

    path = tmp_path_factory.mktemp("altered") / "altered.onnx"
    return save_altered(path, "digits_cnn.onnx", conv2__weight=change)


@pytest.fixture(scope="module")
def dumped(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A dump of the model of digits, in MegEngine's blocked layout."""
    folder = tmp_path_factory.mktemp("dumped") / "nchw44"
    return dump_run("models/digits_cnn.mge", folder, "--enable-nchw44")


def test_two_models_are_run_on_the_same_data_and_compared() -> None:
    done = run_lar("compare", "models/digits_cnn.mge", "models/digits_cnn.onnx", cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    first, second, *_, result = done.stdout.splitlines()
    assert first.startswith("A: models/digits_cnn.mge (20 tensors, megengine 1.13.0 lite cpu)")
    assert second.startswith("B: models/digits_cnn.onnx (")
    assert re.fullmatch(
        r"result: the same within the tolerance \(1 output, \d+ computed tensors\)", result
    )
    assert len(done.stdout.splitlines()) <= 20


def test_the_culprit_between_models_is_named_in_every_report(altered: str, tmp_path: Path) -> None:
    reports = [str(tmp_path / f"out.{suffix}") for suffix in ("html", "json", "csv")]
    done = run_lar(
        *("compare", f"{altered} --graph-optimization-level basic", "models/digits_cnn.mge"),
        *("--input", DIGIT, "--report", reports[0], "--report", reports[1]),
        *("--report", reports[2]),
        cwd=ROOT,
    )
    assert (done.returncode, done.stderr) == (1, "")
    line = next(it for it in done.stdout.splitlines() if it.startswith("culprit: "))
    blamed = (
        "Conv conv2 + Relu relu2 in A, "
        "ConvolutionForward Convolution[1] + Elemwise FUSE_ADD_RELU conv2 + relu2 in B"
    )
    assert line == f"culprit: {blamed}"
    assert "tensors that differ:" in done.stdout
    page, text, table = (Path(name).read_text() for name in reports)
    assert blamed in page
    (culprit,) = json.loads(text)["culprits"]
    assert culprit["actual"][0]["output"] == "conv2"
    assert "conv2.weight" in culprit["expected"][0]["name"]
    (parameter,) = culprit["parameters"]
    assert parameter["expected"]["name"] == "conv2.weight"
    assert parameter["figures"]["max_absolute"] == pytest.approx(0.5)
    assert "  parameter  conv2.weight" in done.stdout
    assert ",relu2," in table
    algorithm = culprit["expected"][0]["algorithm"]
    assert algorithm
    assert f"; algorithm {algorithm}\n" in done.stdout.partition("tensors that differ:")[0]
    assert algorithm in page


def test_a_culprit_is_proven_as_long_as_the_models_of_dumps_are_there(
    altered: str, tmp_path: Path
) -> None:
    models = [str(tmp_path / name) for name in ("a.onnx", "b.onnx")]
    for source, model in zip((altered, "models/digits_cnn.onnx"), models, strict=True):
        Path(model).write_bytes((ROOT / source).read_bytes())
    dumps = [dump_run(model, Path(model[:-5])) for model in models]
    done = run_lar("compare", *dumps, cwd=ROOT)
    assert (done.returncode, done.stderr) == (1, "")
    assert re.fullmatch(
        r"  alone, on the same inputs, off by 0\.\d+ \(relative; worst element \{0,3,\d,\d\}: "
        r"[-.\d]+ in A, [-.\d]+ in B\)",
        done.stdout.partition("\nculprit: ")[2].splitlines()[1],
    )
    Path(models[1]).unlink()
    done = run_lar("compare", *dumps, cwd=ROOT)
    doubt = done.stdout.partition("\nsuspect: ")[2].splitlines()[1]
    said = f"  not proven: B is a dump of the model {models[1]}, which does not exist; worst"
    assert doubt.startswith(said)
    assert "\nresult: different; suspect: " in done.stdout


def test_the_text_that_the_cpp_program_wrote_is_compared_with_a_run_here() -> None:
    """It ran on another machine, in plain axes; here the layout is another one."""
    text = "tests/data/digits_cnn_io.txt"
    model = "models/digits_cnn.mge --enable-nchw44"
    done = run_lar("compare", model, text, "--input", DIGIT, "--all", cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "result: the same within the tolerance" in done.stdout
    names = [line.split()[0] for line in done.stdout.splitlines() if line]
    assert {"relu1", "pool3", "features", "MatrixMul", "logits"} <= set(names)


def test_a_dump_is_given_its_model(dumped: str) -> None:
    done = run_lar("compare", dumped, dumped, "--model", "models/digits_cnn.mge", cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    done = run_lar("compare", dumped, dumped, "--model", "C=models/digits_cnn.mge", cwd=ROOT)
    assert done.stderr.startswith("lar: error: --model: models/digits_cnn.mge: C is no dump")


def test_a_dump_made_elsewhere_is_compared_with_a_model_on_the_dumps_own_input(
    dumped: str, altered: str
) -> None:
    done = run_lar("compare", dumped, "models/digits_cnn.onnx", cwd=ROOT, code=0)
    assert "fed with other data" not in done.stdout
    done = run_lar("compare", altered, dumped, cwd=ROOT, code=1)
    assert "relu2" in done.stdout.partition("culprit: ")[2].partition("\n")[0]


@each_row("cli/cases/names of fused operators")
def test_operators_and_weights_are_called_as_in_the_model(
    altered: str, level: str, culprit: str
) -> None:
    sides = [
        f"{model} --graph-optimization-level {level}"
        for model in (altered, "models/digits_cnn.onnx")
    ]
    done = run_lar("compare", *sides, "--input", DIGIT, cwd=ROOT, code=1)
    line, _, body = done.stdout.partition("\nculprit: ")[2].partition("\n")
    assert re.fullmatch(culprit, line)
    body = body.partition("tensors that differ:")[0]
    assert "weights: conv2.weight differs by 5.25% of its length, most at {3,2,1,1}: " in body
    assert "parameters as on the other side" not in body
    assert "worst element {0,3," in done.stdout
    assert "reorder_token" not in done.stdout.partition("without a twin")[0]


@pytest.fixture
def folders(tmp_path: Path) -> tuple[str, str]:
    """Two dumps, of which one tensor differs by 0.01."""
    for name, shift in (("one", 0.0), ("other", 0.01)):
        (tmp_path / name).mkdir()
        for tensor, value in (("000001", 1.0), ("000002", 2.0 + shift)):
            array = np.full((2, 3), value, np.float32)
            write_tensor(tmp_path / name / tensor, array, f"tensor {tensor}")
    return str(tmp_path / "one"), str(tmp_path / "other")


@each_row("cli/cases/tolerances")
def test_the_tolerance_decides_on_the_exit_code(
    folders: tuple[str, str], flags: list[str], code: int
) -> None:
    done = run_lar("compare", *folders, *flags, code=code)
    assert ("tensors that differ:" in done.stdout) == bool(code)


def test_a_report_on_standard_output_stands_there_alone(
    folders: tuple[str, str], tmp_path: Path
) -> None:
    file = tmp_path / "out.md"
    text = run_lar("compare", *folders, "--report", "-", "--report", str(file), code=1).stdout
    assert text == file.read_text()
    assert text.startswith("- A: ")
    assert "\n\n| tensor | type | off by | SNR dB |\n|---|---|---|---|\n| tensor 000002 |" in text
    done = run_lar("compare", *folders, "--report", "-", "--format", "csv", code=1)
    assert done.stdout.startswith("passed,depth,constant,")
    done = run_lar("compare", *folders, "--report=-", "--format=json", code=1)
    assert json.loads(done.stdout)["finding"] == "different"


def test_a_long_comparison_says_on_a_terminal_how_far_it_is(
    folders: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    shown = Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    assert main(["compare", *folders]) == 1
    assert shown.getvalue() == ""
    monkeypatch.setattr("lar.cli.outlet.LateLine.SECONDS", 0.0)

    def measure_slowly(*words: Any, **others: Any) -> Figures:
        eventually(lambda: "tensors compared, 0 s" in shown.getvalue())
        return metrics.measure(*words, **others)

    monkeypatch.setattr(pairs, "measure", measure_slowly)
    assert main(["compare", *folders]) == 1
    assert "0 of 2 tensors compared, 0 s" in shown.getvalue()
    assert shown.getvalue().endswith(" \r")


def test_all_tensors_are_listed_on_request(folders: tuple[str, str]) -> None:
    assert "tensor 000001" not in run_lar("compare", *folders).stdout
    assert "tensor 000001" in run_lar("compare", *folders, "--all").stdout


def test_single_files_are_compared(folders: tuple[str, str]) -> None:
    for code, name in enumerate(("000001", "000002")):
        done = run_lar("compare", *(f"{folder}/{name}" for folder in folders), code=code)
        assert "1 tensor compared" in done.stdout


def test_layers_from_elsewhere_are_compared(tmp_path: Path) -> None:
    layers = {"first": np.ones((2, 3), np.float32), "last": np.zeros((2, 3), np.float32)}
    (tmp_path / "layers").mkdir()
    for name, array in layers.items():
        np.save(tmp_path / "layers" / f"{name}.npy", array)
    np.savez(tmp_path / "layers.npz", **layers)
    done = run_lar("compare", "layers", "layers.npz", cwd=tmp_path, code=0)
    assert "2 tensors compared: 2 equal" in done.stdout


@pytest.mark.parametrize("sides", [["one", "two"], ["one", "two", "one"]])
def test_sides_that_share_nothing_end_with_a_code_of_their_own(
    tmp_path: Path, sides: list[str]
) -> None:
    np.savez(tmp_path / "one", one3=np.arange(3.0))
    np.savez(tmp_path / "two", two5=np.arange(5.0), two7=np.arange(7.0))
    done = run_lar("compare", *(f"{side}.npz" for side in sides), cwd=tmp_path, code=2)
    assert "result: nothing compared: " in done.stdout


def test_what_was_made_up_for_the_inputs_is_printed() -> None:
    done = run_lar("compare", "models/dynamic_batch.mge", "models/dynamic_batch.onnx", cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line for line in done.stdout.splitlines() if line.startswith("note: ")] == [
        "note: the data of data {1,16} was generated: uniform, seed 0",
        "note: B: axes of any size: data {batch,16} was run as {1,16}",
    ]
    assert " on: " not in done.stdout  # it is one machine
    words = ("compare", "models/digits_cnn.mge", "models/digits_cnn.mge", "--input", DIGIT)
    assert "note: " not in run_lar(*words, cwd=ROOT).stdout


BODY = text_of("scaled_or_same")


def test_an_operator_in_a_body_is_named(tmp_path: Path) -> None:
    for name, factor in (("a", 2), ("b", 3)):
        save_model(tmp_path / f"{name}.onnx", BODY, {"factor": np.float32(factor)})
    lines = run_lar("compare", "a.onnx", "b.onnx", cwd=tmp_path, code=1).stdout.splitlines()
    name = r"Mul If_0/then/Mul \(tensor If_0/then/scaled\)"
    assert re.fullmatch(rf"result: different; (culprit|suspect): {name}", lines[-1])
    assert any(line.startswith("  A and B: Mul If_0/then/Mul") for line in lines)


@pytest.mark.parametrize("count", [2, 3])
def test_an_option_for_all_sides_and_another_value_for_one(count: int) -> None:
    model = "models/digits_cnn.onnx"
    sides = [model, f"{model} --graph-optimization-level basic", model][:count]
    words = ["--input", DIGIT, "--graph-optimization-level", "disable", "--report=-"]
    done = run_lar("compare", *sides, *words, "--format=json", cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    settings = [it["settings"] for it in found.get("sides") or (found["actual"], found["expected"])]
    levels = [each["graph_optimization_level"] for each in settings]
    assert levels == ["disable", "basic", "disable"][:count]


def test_the_scales_of_a_folder_without_an_index_are_those_of_its_model(tmp_path: Path) -> None:
    """As the C++ program leaves it: types alone stand in the files of its tensors."""
    sides = dump_run("models/int8.mge", tmp_path / "int8"), "models/digits_cnn.mge"
    with_index = run_lar("compare", *sides, cwd=ROOT)
    (tmp_path / "int8.index.json").unlink()
    unknown = run_lar("compare", *sides, cwd=ROOT)
    assert "note: 12 quantised tensors of A have no known scale" in unknown.stdout
    known = run_lar("compare", *sides, "--model", "A=models/int8.mge", "--all", cwd=ROOT)
    assert (known.returncode, known.stderr) == (0, "")
    assert "int8 x 0.0371 = float32" in known.stdout
    last = known.stdout.splitlines()[-1]
    assert last == with_index.stdout.splitlines()[-1]
    assert last.startswith("result: the same as int8 rounds: 3")
    raw = run_lar("compare", *sides, "--model", "A=models/int8.mge", "--raw", cwd=ROOT, code=1)
    assert "-58.3" in raw.stdout
