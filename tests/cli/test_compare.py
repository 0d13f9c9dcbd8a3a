"""`lar compare`, from the command line, on models and on dumps."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from lar.cli.main import main
from lar.comparison import metrics, pairs
from lar.dumps.binary import write_tensor
from lar.records.comparison import Figures
from tests.running.isolated_runs import eventually

if TYPE_CHECKING:
    from tests.conftest import RunLar

DIGIT = "inputs/digit_7.npy"


@pytest.fixture(scope="module")
def altered(root: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The model of digits with one weight of its second convolution changed."""
    model = onnx.load(root / "models/digits_cnn.onnx")
    weight = next(it for it in model.graph.initializer if it.name == "conv2.weight")
    array = numpy_helper.to_array(weight).copy()
    array[3, 2, 1, 1] += 0.5
    weight.CopyFrom(numpy_helper.from_array(array, weight.name))
    path = tmp_path_factory.mktemp("altered") / "altered.onnx"
    onnx.save(model, path)
    return str(path)


@pytest.fixture(scope="module")
def dumped(root: Path, tmp_path_factory: pytest.TempPathFactory, run_lar: RunLar) -> str:
    """A dump of the model of digits, in MegEngine's blocked layout."""
    folder = str(tmp_path_factory.mktemp("dumped") / "nchw44")
    flags = ["--input", DIGIT, "--iter", "1", "--enable-nchw44", "--bin-io-dump", folder]
    done = run_lar("models/digits_cnn.mge", *flags, cwd=root)
    assert done.returncode == 0, done.stderr
    return folder


def test_two_models_are_run_on_the_same_data_and_compared(root: Path, run_lar: RunLar) -> None:
    done = run_lar("compare", "models/digits_cnn.mge", "models/digits_cnn.onnx", cwd=root)
    assert (done.returncode, done.stderr) == (0, "")
    first, second, *_, result = done.stdout.splitlines()
    assert first.startswith("A: models/digits_cnn.mge (20 tensors, megengine 1.13.0 lite cpu)")
    assert second.startswith("B: models/digits_cnn.onnx (")
    assert re.fullmatch(
        r"result: the same within the tolerance \(1 output, \d+ computed tensors\)", result
    )
    assert len(done.stdout.splitlines()) <= 20


def test_the_culprit_between_models_is_named_in_every_report(
    root: Path, run_lar: RunLar, altered: str, tmp_path: Path
) -> None:
    reports = [str(tmp_path / f"out.{suffix}") for suffix in ("html", "json", "csv")]
    done = run_lar(
        *("compare", f"{altered} --graph-optimization-level basic", "models/digits_cnn.mge"),
        *("--input", DIGIT, "--report", reports[0], "--report", reports[1]),
        *("--report", reports[2]),
        cwd=root,
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


def dump_run(run_lar: RunLar, root: Path, model: str, folder: Path) -> str:
    flags = ["--input", DIGIT, "--iter", "1", "--warmup-iter", "0", "--bin-io-dump", str(folder)]
    done = run_lar(model, *flags, cwd=root)
    assert done.returncode == 0, done.stderr
    return str(folder)


def test_a_culprit_is_proven_as_long_as_the_models_of_dumps_are_there(
    root: Path, run_lar: RunLar, altered: str, tmp_path: Path
) -> None:
    models = [str(tmp_path / name) for name in ("a.onnx", "b.onnx")]
    for source, model in zip((altered, "models/digits_cnn.onnx"), models, strict=True):
        Path(model).write_bytes((root / source).read_bytes())
    dumps = [dump_run(run_lar, root, model, Path(model[:-5])) for model in models]
    done = run_lar("compare", *dumps, cwd=root)
    assert (done.returncode, done.stderr) == (1, "")
    proof = done.stdout.partition("\nculprit: ")[2].splitlines()[1]
    assert re.fullmatch(
        r"  alone, on the same inputs, off by 0\.\d+ \(relative; worst element \{0,3,\d,\d\}: "
        r"[-.\d]+ in A, [-.\d]+ in B\)",
        proof,
    )
    Path(models[1]).unlink()
    done = run_lar("compare", *dumps, cwd=root)
    doubt = done.stdout.partition("\nsuspect: ")[2].splitlines()[1]
    said = f"  not proven: B is a dump whose model {models[1]} is not there; worst element {{0,3,"
    assert doubt.startswith(said)
    assert "\nresult: different; suspect: " in done.stdout


def test_operators_are_called_as_in_the_model_whatever_the_engine_makes_of_them(
    root: Path, run_lar: RunLar, altered: str
) -> None:
    """On a CPU with blocks of channels or without: in both the convolution and its activation are
    one operator, which the engine names after one of them."""
    done = run_lar("compare", altered, "models/digits_cnn.onnx", "--input", DIGIT, cwd=root)
    assert done.returncode == 1, done.stderr
    line = next(it for it in done.stdout.splitlines() if it.startswith("culprit: "))
    form = r"\(run as (conv2|relu2_nchwc, nchw\d+c)\)"
    assert re.fullmatch(rf"culprit: (Fused)?Conv conv2 \+ relu2 {form}", line)
    assert "worst element {0,3," in done.stdout
    assert "reorder_token" not in done.stdout.partition("without a twin")[0]


def test_the_text_that_the_cpp_program_wrote_is_compared_with_a_run_here(
    root: Path, run_lar: RunLar
) -> None:
    """It ran on another machine, in plain axes; here the layout is another one."""
    text = "tests/data/digits_cnn_io.txt"
    model = "models/digits_cnn.mge --enable-nchw44"
    done = run_lar("compare", model, text, "--input", DIGIT, "--all", cwd=root)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert "result: the same within the tolerance" in done.stdout
    names = [line.split()[0] for line in done.stdout.splitlines() if line]
    assert {"relu1", "pool3", "features", "MatrixMul", "logits"} <= set(names)


def test_a_dump_is_given_its_model(root: Path, run_lar: RunLar, dumped: str) -> None:
    done = run_lar("compare", dumped, dumped, "--model", "models/digits_cnn.mge", cwd=root)
    assert (done.returncode, done.stderr) == (0, "")
    done = run_lar("compare", dumped, dumped, "--model", "C=models/digits_cnn.mge", cwd=root)
    assert done.stderr.startswith("lar: error: --model: models/digits_cnn.mge: C is no dump")


def test_a_dump_made_elsewhere_is_compared_with_a_model_on_the_dumps_own_input(
    root: Path, run_lar: RunLar, dumped: str, altered: str
) -> None:
    done = run_lar("compare", dumped, "models/digits_cnn.onnx", cwd=root)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "fed with other data" not in done.stdout
    done = run_lar("compare", altered, dumped, cwd=root)
    assert done.returncode == 1
    assert "relu2" in done.stdout.partition("culprit: ")[2].partition("\n")[0]


@pytest.mark.parametrize("level", ["basic", "all"])
def test_the_weight_of_an_onnx_file_that_differs_is_named(
    root: Path, run_lar: RunLar, altered: str, level: str
) -> None:
    sides = [
        f"{model} --graph-optimization-level {level}"
        for model in (altered, "models/digits_cnn.onnx")
    ]
    done = run_lar("compare", *sides, "--input", DIGIT, cwd=root)
    assert done.returncode == 1
    body = done.stdout.partition("culprit: ")[2].partition("tensors that differ:")[0]
    assert "weights: conv2.weight differs by 5.25% of its length, most at {3,2,1,1}: " in body
    assert "parameters as on the other side" not in body


@pytest.fixture
def folders(tmp_path: Path) -> tuple[str, str]:
    """Two dumps, of which one tensor differs by 0.01."""
    for name, shift in (("one", 0.0), ("other", 0.01)):
        (tmp_path / name).mkdir()
        for tensor, value in (("000001", 1.0), ("000002", 2.0 + shift)):
            array = np.full((2, 3), value, np.float32)
            write_tensor(tmp_path / name / tensor, array, f"tensor {tensor}")
    return str(tmp_path / "one"), str(tmp_path / "other")


@pytest.mark.parametrize(
    ("flags", "code"),
    [
        ([], 1),
        (["-e", "0.1"], 0),
        (["--max-err", "1e-3"], 1),
        (["--max-err=0.01"], 0),
        (["--rtol", "0.01", "--atol", "0"], 0),
        (["--rtol", "0", "--atol", "0.001"], 1),
        (["--atol", "0.02"], 0),
    ],
    ids=str,
)
def test_the_tolerance_decides_on_the_exit_code(
    folders: tuple[str, str], flags: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *folders, *flags]) == code
    assert ("tensors that differ:" in capsys.readouterr().out) == bool(code)


def test_a_report_on_standard_output_stands_there_alone(
    folders: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "out.md"
    assert main(["compare", *folders, "--report", "-", "--report", str(file)]) == 1
    text = capsys.readouterr().out
    assert text == file.read_text()
    assert text.startswith("- A: ")
    assert "\n\n| tensor | type | off by | SNR dB |\n|---|---|---|---|\n| tensor 000002 |" in text
    assert main(["compare", *folders, "--report", "-", "--format", "csv"]) == 1
    assert capsys.readouterr().out.startswith("passed,depth,constant,")
    assert main(["compare", *folders, "--report=-", "--format=json"]) == 1
    assert json.loads(capsys.readouterr().out)["finding"] == "different"


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
    monkeypatch.setattr("lar.cli.progress_line.LateLine.SECONDS", 0.0)

    def measure_slowly(*words: Any, **others: Any) -> Figures:
        eventually(lambda: "tensors compared, 0 s" in shown.getvalue())
        return metrics.measure(*words, **others)

    monkeypatch.setattr(pairs, "measure", measure_slowly)
    assert main(["compare", *folders]) == 1
    assert "0 of 2 tensors compared, 0 s" in shown.getvalue()
    assert shown.getvalue().endswith(" \r")


def test_a_report_spoils_no_dump_that_is_compared(
    folders: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = folders
    for report, told in (
        (f"{one}.index.json", "this is the index of a dump that is compared"),
        (f"{other}/report.json", f"is inside {other}, a dump that is compared"),
    ):
        assert main(["compare", one, other, "--report", report]) == 2
        assert told in capsys.readouterr().err
        assert not Path(report).exists()


def interrupt(*_: object, **__: object) -> None:
    raise KeyboardInterrupt


def test_an_interrupt_is_told(
    folders: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lar.running.compared_dumps.compare", interrupt)
    assert main(["compare", *folders]) == 130
    assert capsys.readouterr() == ("", "lar: error: interrupted\n")


def test_all_tensors_are_listed_on_request(
    folders: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    main(["compare", *folders])
    assert "tensor 000001" not in capsys.readouterr().out
    main(["compare", *folders, "--all"])
    assert "tensor 000001" in capsys.readouterr().out


def test_single_files_are_compared(
    folders: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", f"{folders[0]}/000001", f"{folders[1]}/000001"]) == 0
    assert main(["compare", f"{folders[0]}/000002", f"{folders[1]}/000002"]) == 1
    assert "1 tensor compared" in capsys.readouterr().out


def test_layers_from_elsewhere_are_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    layers = {"first": np.ones((2, 3), np.float32), "last": np.zeros((2, 3), np.float32)}
    (tmp_path / "layers").mkdir()
    for name, array in layers.items():
        np.save(tmp_path / "layers" / f"{name}.npy", array)
    np.savez(tmp_path / "layers.npz", **layers)
    (tmp_path / "text").write_text("first\tlast\n")
    sides = [str(tmp_path / "layers"), str(tmp_path / "layers.npz")]
    assert main(["compare", *sides]) == 0
    assert "2 tensors compared: 2 equal" in capsys.readouterr().out
    assert main(["compare", str(tmp_path / "text"), sides[0]]) == 2
    assert "text: holds no tensors that lar reads" in capsys.readouterr().err


@pytest.mark.parametrize("count", [2, 3])
def test_sides_that_share_nothing_end_with_a_code_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], count: int
) -> None:
    for name, sizes in (("one", (3,)), ("two", (5, 7))):
        arrays = {f"{name}{size}": np.arange(float(size)) for size in sizes}
        np.savez(tmp_path / f"{name}.npz", **arrays)
    sides = [str(tmp_path / f"{name}.npz") for name in ("one", "two", "one")][:count]
    assert main(["compare", *sides]) == 2
    assert "result: nothing compared: " in capsys.readouterr().out


def test_what_was_made_up_for_the_inputs_is_printed(root: Path, run_lar: RunLar) -> None:
    done = run_lar("compare", "models/dynamic_batch.mge", "models/dynamic_batch.onnx", cwd=root)
    assert (done.returncode, done.stderr) == (0, "")
    assert [line for line in done.stdout.splitlines() if line.startswith("note: ")] == [
        "note: the data of data {1,16} was generated: uniform, seed 0",
        "note: B: axes of any size: data {batch,16} was run as {1,16}",
    ]
    assert " on: " not in done.stdout  # it is one machine


def test_data_that_was_given_is_not_mentioned(root: Path, run_lar: RunLar) -> None:
    words = ("compare", "models/digits_cnn.mge", "models/digits_cnn.mge", "--input", DIGIT)
    assert "note: " not in run_lar(*words, cwd=root).stdout


def test_an_operator_in_a_body_is_named(tmp_path: Path, run_lar: RunLar) -> None:
    for name, factor in (("a", 2.0), ("b", 3.0)):
        write_model_with_body(tmp_path / f"{name}.onnx", factor)
    done = run_lar("compare", str(tmp_path / "a.onnx"), str(tmp_path / "b.onnx"))
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    name = r"Mul If_0/then/Mul \(tensor If_0/then/then_branch.y\)"
    assert re.fullmatch(rf"result: different; (culprit|suspect): {name}", lines[-1])
    assert any(line.startswith("  A and B: Mul If_0/then/Mul") for line in lines)


def write_model_with_body(path: Path, factor: float) -> None:
    """Write a model of an If, whose first branch multiplies by a factor."""
    number = onnx.TensorProto.FLOAT
    branches = {}
    for name, scale in (("then_branch", factor), ("else_branch", 1.0)):
        branches[name] = onnx.helper.make_graph(
            [onnx.helper.make_node("Mul", ["x", f"{name}.scale"], [f"{name}.y"])],
            name,
            [],
            [onnx.helper.make_tensor_value_info(f"{name}.y", number, [4])],
            [numpy_helper.from_array(np.full(4, scale, np.float32), f"{name}.scale")],
        )
    graph = onnx.helper.make_graph(
        [
            onnx.helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
            onnx.helper.make_node("Greater", ["sum", "zero"], ["positive"]),
            onnx.helper.make_node("If", ["positive"], ["y"], **branches),
        ],
        "body",
        [onnx.helper.make_tensor_value_info("x", number, [4])],
        [onnx.helper.make_tensor_value_info("y", number, [4])],
        [numpy_helper.from_array(np.float32(0), "zero")],
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8), path)


@pytest.mark.parametrize("more", [[], ["models/digits_cnn.onnx"]], ids=["two", "three"])
def test_an_option_that_a_sides_engine_lacks_is_to_be_quoted_with_the_other(
    root: Path, run_lar: RunLar, more: list[str]
) -> None:
    sides = ["models/digits_cnn.mge", "models/digits_cnn.onnx", *more]
    done = run_lar("compare", *sides, "--input", DIGIT, "--enable-nchw44", cwd=root)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.splitlines() == [
        "lar: error: --enable-nchw44: models/digits_cnn.onnx: ONNX Runtime cannot do this",
        'hint: for one side alone, quote it with that: "models/digits_cnn.mge --enable-nchw44"',
    ]


@pytest.mark.parametrize("count", [2, 3])
def test_an_option_for_all_sides_and_another_value_for_one(
    root: Path, run_lar: RunLar, count: int
) -> None:
    model = "models/digits_cnn.onnx"
    sides = [model, f"{model} --graph-optimization-level basic", model][:count]
    words = ["--input", DIGIT, "--graph-optimization-level", "disable", "--report=-"]
    done = run_lar("compare", *sides, *words, "--format=json", cwd=root)
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    settings = [it["settings"] for it in found.get("sides") or (found["actual"], found["expected"])]
    levels = [each["graph_optimization_level"] for each in settings]
    assert levels == ["disable", "basic", "disable"][:count]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["A"], "give two sides: A B"),
        (["A", "no/such/dump"], "no/such/dump: no such dump, tensor file or model"),
        (["A", "A", "-e", "0.1", "--rtol", "1"], "--max-err and --rtol exclude each other: --max"),
        (["A", "A", "-e", "0.1", "--atol", "0"], "leave one of them out"),
        (["A", "A", "--input", "x.npy"], "--input: no side is a model, and only a model is run"),
        (["A", "A", "--bgr"], "leave --bgr out, or give a model as a side"),
        (["A", "A", "-e", "-1"], "is not a limit"),
        (["A", "A", "--rtol", "x"], "--rtol: 'x' is not a number"),
        (["A", "A", "--report", "out.txt"], "--report: out.txt: its format is not known"),
        (["A", "A", "--format", "csv"], "--format csv: no report needs it"),
        (["A", "A", "--report", "-", "--report", "-"], "go to the same place"),
        (["A", "A", "--report", "no/folder/out.csv"], "cannot be written"),
        (["A", "A", "--raport", "x.csv"], "unknown flag --raport"),
        (["A", "A", "--cpu"], "--cpu: no side is a model, and only a model is run"),
        (["A", "A", "--scheduler", "dask://no"], "--scheduler: no side is a model"),
        (["models/none.mge --cpu", "A"], "no such model file"),
        (["B", "B", "--iter", "3"], 'quoted with it: "model.onnx --iter N"'),
        (["B", "B", "--nonsense"], 'is quoted with it: "model.onnx --cpu"'),
        (["B", "B", "--graph-optimization-level", "x"], "invalid choice: 'x'"),
        (["B", "B", "--multithread", "x"], "--multithread: 'x' is not a number"),
        (["models/none.mge --cpu", "B"], "no such model file"),
        (["A", "models/one_operator.onnx --itre 3"], "itre"),
        (["B", "models/one_operator.onnx --iter x"], "--iter"),
        (["A", "README.md"], "README.md: holds no tensors that lar reads"),
        (["A", "A", "--map", "names.txt"], "values and graphs say which tensor is which"),
        (["A", "A", "--wide"], "--report FILE.html and FILE.csv have every column"),
        (["A", "models"], "models"),
    ],
)
def test_wrong_command_lines_end_with_a_line(
    words: list[str],
    message: str,
    folders: tuple[str, str],
    root: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(root)
    meant = {"A": folders[0], "B": "models/one_operator.onnx"}
    assert main(["compare", *(meant.get(word, word) for word in words)]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert "Traceback" not in error
    assert len(error.splitlines()) <= 2


def test_damaged_dumps_end_with_a_line(
    folders: tuple[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    file = Path(folders[1]) / "000002"
    file.write_bytes(file.read_bytes()[:-4])
    assert main(["compare", *folders]) == 2
    assert "000002" in capsys.readouterr().err


def test_the_scales_of_a_folder_without_an_index_are_those_of_its_model(
    root: Path, run_lar: RunLar, tmp_path: Path
) -> None:
    """As the C++ program leaves it: types alone stand in the files of its tensors."""
    folder = tmp_path / "int8"
    flags = ["--input", DIGIT, "--iter", "1", "--warmup-iter", "0", "--bin-io-dump", str(folder)]
    assert run_lar("models/int8.mge", *flags, cwd=root).returncode == 0
    sides = str(folder), "models/digits_cnn.mge"
    with_index = run_lar("compare", *sides, cwd=root)
    Path(f"{folder}.index.json").unlink()
    unknown = run_lar("compare", *sides, cwd=root)
    assert "note: nothing says which numbers 12 quantised tensors" in unknown.stdout
    known = run_lar("compare", *sides, "--model", "A=models/int8.mge", "--all", cwd=root)
    assert (known.returncode, known.stderr) == (0, "")
    assert "int8 x 0.0371 = float32" in known.stdout
    last = known.stdout.splitlines()[-1]
    assert last == with_index.stdout.splitlines()[-1]
    assert last.startswith("result: the same as int8 rounds: 3")
    raw = run_lar("compare", *sides, "--model", "A=models/int8.mge", "--raw", cwd=root)
    assert raw.returncode == 1
    assert "-58.3" in raw.stdout
