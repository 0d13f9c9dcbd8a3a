"""A run that goes well: each form of input, each spelling, each report, on both engines."""

from __future__ import annotations

import csv
import functools
import importlib.util
import io
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import lar

RunLar = Callable[..., "subprocess.CompletedProcess[str]"]
WriteScript = Callable[..., str]

needs_megengine = pytest.mark.skipif(
    importlib.util.find_spec("megengine") is None, reason="MegEngine is not installed"
)
each_format = pytest.mark.parametrize(
    "suffix", [pytest.param("mge", marks=needs_megengine), "onnx"]
)

ROOT = Path(__file__).resolve().parents[2]
ONE = [{"name": "data", "dtype": "float32", "shape": [4]}]


def without_hints(text: str) -> list[str]:
    """The lines but for the hint at a defect of the engine that costs speed on this processor."""
    return [line for line in text.splitlines() if not line.startswith("hint: MKL")]


def result_of(run_lar: RunLar, *words: str, **keywords: Any) -> lar.RunResult:
    """The result of a run that ends well, from `--json -`."""
    first = 1 if words[0] == "run" else 0
    done = run_lar(*words[:first], "--json", "-", *words[first:], **keywords)
    assert done.returncode == 0, done.stderr
    return lar.read_result(done.stdout)


def outputs_of(run_lar: RunLar, *words: str, **keywords: Any) -> list[tuple[str, str]]:
    """Name and hash of each output after a single run."""
    result = result_of(run_lar, "--iter", "0", "--warmup-iter", "1", *words, **keywords)
    assert result.outputs
    return [(output.name, output.sha256) for output in result.outputs]


# What is fed


@pytest.fixture(scope="module")
def cat_outputs(run_lar: RunLar, root: Path) -> Callable[[str], list[tuple[str, str]]]:
    """What mobilenet_v2 answers to inputs/cat.npy, by format of the model."""
    known: dict[str, list[tuple[str, str]]] = {}

    def outputs(suffix: str) -> list[tuple[str, str]]:
        if suffix not in known:
            words = (f"models/mobilenet_v2.{suffix}", "--input", "inputs/cat.npy")
            known[suffix] = outputs_of(run_lar, *words, cwd=root)
        return known[suffix]

    return outputs


CAT_FORMS: dict[str, list[str]] = {
    "json": ["--input", "data:inputs/cat.json"],
    "ppm": ["--input", "inputs/cat.ppm", "--input-layout", "nchw", "--bgr"],
    "jpg": ["--input", "inputs/cat.jpg", "--input_layout=nchw"],
    "jpg, --bgr": ["--input=data:inputs/cat.jpg", "--input-layout=nchw", "--bgr"],
    "resized to its own size": [
        *("--input", "inputs/cat.ppm", "--input-layout", "nchw", "--bgr"),
        *("--resize", "224x224", "--mean", "0", "--scale", "1,1,1"),
    ],
}


@each_format
@pytest.mark.parametrize("form", CAT_FORMS)
def test_all_forms_of_the_cat_give_the_same(
    run_lar: RunLar, root: Path, cat_outputs: Any, suffix: str, form: str
) -> None:
    if (suffix, form) == ("mge", "jpg, --bgr"):
        pytest.skip("forms do not know the engine, and this model is slow to start on it")
    model = f"models/mobilenet_v2.{suffix}"
    assert outputs_of(run_lar, model, *CAT_FORMS[form], cwd=root) == cat_outputs(suffix)


@each_format
@pytest.mark.parametrize(
    "flags",
    [
        ["--rgb"],
        ["--bgr", "--mean", "1"],
        ["--bgr", "--scale", "0.5"],
        ["--bgr", "--resize", "112x112", "--resize", "224,224", "--mean=1,2,3"],
    ],
)
def test_other_image_settings_give_something_else(
    run_lar: RunLar, root: Path, cat_outputs: Any, suffix: str, flags: list[str]
) -> None:
    if suffix == "mge" and flags != ["--rgb"]:
        pytest.skip("the settings do not know the engine, and this model is slow to start on it")
    words = (f"models/mobilenet_v2.{suffix}", "--input", "inputs/cat.ppm", "--input-layout", "nchw")
    assert outputs_of(run_lar, *words, *flags, cwd=root) != cat_outputs(suffix)


def save_model(
    path: Path, operator: str, shape: list[int] | None, output: Any = None, **attributes: Any
) -> str:
    """Save an ONNX model of one operator, from float32 `data` to `output`."""
    data = onnx.helper.make_tensor_value_info("data", onnx.TensorProto.FLOAT, shape)
    if output is None:
        output = onnx.helper.make_tensor_type_proto(onnx.TensorProto.FLOAT, shape)
    node = onnx.helper.make_node(operator, ["data"], ["output"], **attributes)
    graph = onnx.helper.make_graph(
        [node], "model", [data], [onnx.helper.make_value_info("output", output)]
    )
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("ai.onnx.ml", 3)]
    onnx.save(onnx.helper.make_model(graph, ir_version=8, opset_imports=opsets), path)
    return str(path)


def test_mean_and_scale_are_applied_in_this_order(run_lar: RunLar, tmp_path: Path) -> None:
    pixels = np.arange(48, dtype=np.float32).reshape(1, 3, 4, 4)
    mean, scale = (np.array(x, np.float32)[:, None, None] for x in ([1, -2, 3], [0.5, 2, -1]))
    np.save(tmp_path / "raw.npy", pixels)
    np.save(tmp_path / "ready.npy", (pixels - mean) * scale)
    model = save_model(tmp_path / "relu.onnx", "Relu", [1, 3, 4, 4])
    raw, ready = (("--input", str(tmp_path / f"{name}.npy")) for name in ("raw", "ready"))
    flags = ("--mean=1,-2,3", "--scale", "0.5,2,-1")
    expected = outputs_of(run_lar, model, *ready)
    assert outputs_of(run_lar, model, *raw, *flags) == expected
    # A negative first number needs no equals sign.
    assert outputs_of(run_lar, model, *raw, "--mean", "-1,2,3") != expected


@pytest.fixture(scope="module")
def uint8_cat_outputs(
    run_lar: RunLar, root: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], list[tuple[str, str]]]:
    """What uint8_input answers to the pixels of the cat, by format of the model."""
    path = tmp_path_factory.mktemp("pixels") / "cat.npy"
    np.save(path, np.load(root / "inputs/cat.npy").transpose(0, 2, 3, 1).astype(np.uint8))

    @functools.cache
    def outputs(suffix: str) -> list[tuple[str, str]]:
        model = str(root / f"models/uint8_input.{suffix}")
        return outputs_of(run_lar, model, "--input", str(path))

    return outputs


@each_format
@pytest.mark.parametrize(
    ("image", "flags"), [("cat.ppm", ["--bgr"]), ("cat.jpg", []), ("cat.jpg", ["--bgr"])]
)
def test_images_feed_a_uint8_model_as_they_are(
    run_lar: RunLar, root: Path, uint8_cat_outputs: Any, suffix: str, image: str, flags: list[str]
) -> None:
    words = (f"models/uint8_input.{suffix}", "--input", f"inputs/{image}")
    assert outputs_of(run_lar, *words, *flags, cwd=root) == uint8_cat_outputs(suffix)


def test_gray_image(run_lar: RunLar, root: Path, write_script: WriteScript) -> None:
    gray = [{"name": "data", "dtype": "uint8", "shape": [1, 224, 224, 1]}]
    script = write_script(inputs=gray, outputs={"prob": [1.0]})
    (fed,) = result_of(run_lar, script, "--input", "inputs/cat.pgm", cwd=root).fed
    assert (fed.name, fed.dtype, fed.shape) == ("data", "uint8", (1, 224, 224, 1))


@pytest.fixture(scope="module")
def forms_of_four(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The numbers 1.5, -2, 3, 4 in each form that `--input` takes."""
    folder = tmp_path_factory.mktemp("forms")
    four = np.array([1.5, -2, 3, 4], np.float32)
    np.save(folder / "four.npy", four)
    np.save(folder / "big_endian.npy", four.astype(">f4"))
    np.savez(folder / "four.npz", data=four)
    np.savez(folder / "two.npz", data=four, other=four[:2])
    four.tofile(folder / "four.bin")
    tensor = onnx.numpy_helper.from_array(four, "data")
    (folder / "four.pb").write_bytes(tensor.SerializeToString())
    (folder / "test_data_set_0").mkdir()
    (folder / "test_data_set_0/input_0.pb").write_bytes(tensor.SerializeToString())
    entry = {"shape": [4], "type": "float32", "raw": four.tolist()}
    (folder / "four.json").write_text(json.dumps({"data": entry}))
    return {
        "npy": f"{folder}/four.npy",
        "npy, big-endian": f"{folder}/big_endian.npy",
        "npz": f"{folder}/four.npz",
        "npz, of several": f"data:{folder}/two.npz",
        "json": f"{folder}/four.json",
        "pb": f"{folder}/four.pb",
        "folder of pb": f"{folder}/test_data_set_0",
        "bin": f"{folder}/four.bin",
        "bin, spelled out": f"{folder}/four.bin,float32,4",
        "inline": "1.5,-2,3,4",
        "inline, named": "data:1.5,-2,3,4",
        "inline, in brackets": "[1.5,-2,3,4]",
        "inline, spaced": " data : 1.5, -2, 3, 4 ;",
    }


FORMS_OF_FOUR = (
    *("npy", "npy, big-endian", "npz", "npz, of several", "json", "pb", "folder of pb", "bin"),
    *("bin, spelled out", "inline", "inline, named", "inline, in brackets", "inline, spaced"),
)


@pytest.mark.parametrize("form", FORMS_OF_FOUR)
def test_all_forms_give_the_same(
    run_lar: RunLar, root: Path, forms_of_four: dict[str, str], form: str
) -> None:
    model = str(root / "models/one_operator.onnx")
    result = result_of(run_lar, model, "--input", forms_of_four[form], "--iter", "1")
    (fed,), (output,) = result.fed, result.outputs
    assert (fed.name, fed.dtype, fed.shape, fed.generated) == ("data", "float32", (4,), False)
    assert (output.minimum, output.maximum, output.mean) == (0, 4, 2.125)
    assert result.warnings == ()


@needs_megengine
def test_forms_give_the_same_on_megengine(
    run_lar: RunLar, root: Path, forms_of_four: dict[str, str]
) -> None:
    model = str(root / "models/one_operator.mge")
    answers = [
        outputs_of(run_lar, model, "--input", forms_of_four[form])
        for form in ("npy", "npz", "json", "pb", "inline")
    ]
    assert all(answer == answers[0] for answer in answers)


def test_inline_values_may_begin_with_a_minus(run_lar: RunLar, root: Path) -> None:
    model = str(root / "models/one_operator.onnx")
    expected = outputs_of(run_lar, model, "--input=-1,0,1,2")
    assert outputs_of(run_lar, model, "--input", "-1,0,1,2") == expected


@each_format
def test_several_inputs(run_lar: RunLar, root: Path, tmp_path: Path, suffix: str) -> None:
    tensors = json.loads((root / "inputs/multi_input.json").read_text())
    arrays = {
        name: np.array(tensor["raw"], np.float32).reshape(tensor["shape"])
        for name, tensor in tensors.items()
    }
    np.savez(tmp_path / "both.npz", **arrays)
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    a, b = (f"{name}:{tmp_path / name}.npy" for name in "ab")
    inline = f"a:{arrays['a'].tolist()};b:{arrays['b'].tolist()}"
    model = f"models/multi_input.{suffix}"
    expected = outputs_of(run_lar, model, "--input", "inputs/multi_input.json", cwd=root)
    assert dict(expected).keys() == {"product", "rectified"}
    for words in (
        ["--input", f"{a};{b}"],
        ["--input", b, "--input", a],
        ["--input", str(tmp_path / "both.npz")],
        ["--input", inline],
    ):
        assert outputs_of(run_lar, model, *words, cwd=root) == expected, words


def test_number_for_an_input_without_axes(run_lar: RunLar, tmp_path: Path) -> None:
    model = save_model(tmp_path / "model.onnx", "Relu", [])
    for text in ("3", "{}"):
        assert result_of(run_lar, model, "--iter", "1", "--input", text).fed[0].shape == ()


@each_format
def test_generated_data(run_lar: RunLar, root: Path, suffix: str) -> None:
    model = f"models/dynamic_batch.{suffix}"
    answers = {}
    for flags in ("", "--seed 0", "--seed 1", "--fill normal", "--fill zeros", "--fill=ones"):
        words = (*flags.split(), "--input", "data:{3,16}")
        result = result_of(run_lar, model, *words, "--iter", "1", cwd=root)
        (fed,), (output,) = result.fed, result.outputs
        assert fed.generated
        assert (fed.shape, output.shape) == ((3, 16), (3, 8))
        answers[flags] = output.sha256
    assert answers[""] == answers["--seed 0"]
    assert len(set(answers.values())) == 5


def test_generated_data_is_announced(run_lar: RunLar, root: Path) -> None:
    done = run_lar("models/multi_input.onnx", "--seed", str(10**30), "--iter", "0", cwd=root)
    (line,) = done.stderr.splitlines()
    assert line.startswith("lar: note: no --input: data is generated (uniform, seed 1000")
    assert "a float32 (2, 3), b float32 (3, 4)" in line
    done = run_lar("models/dynamic_batch.onnx", "--input", "{2,16}", "--iter", "0", cwd=root)
    assert "no --input" not in done.stderr


# How it is typed


def lines_of(text: str) -> list[str]:
    """Printed lines with their numbers left out."""
    return [re.sub(r"\d+(\.\d+)?", "N", line) for line in text.splitlines()]


@pytest.mark.parametrize(
    "words",
    [
        "run {model} --warmup-iter 2 --iter 3 --input {four}",
        "{model} --warmup_iter 2 --iter 3 --input {four}",
        "{model} --warmup_iter=2 --iter=3 --input={four}",
        "--warmup-iter=2 --iter 3 --input {four} {model}",
        "--iter 3 {model} --warmup_iter 2 --input {four}",
        "run --iter 9 --warmup-iter=2 {model} --input {four} --iter 3",
        "--iter 3 --warmup-iter 2 --input {four} -- {model}",
    ],
)
def test_spellings(run_lar: RunLar, write_script: WriteScript, words: str) -> None:
    script = write_script(inputs=ONE, outputs={"prob": [1.0]})
    result = result_of(run_lar, *words.format(model=script, four="data:1,2,3,4").split())
    assert (result.spec.model, result.spec.engine) == (script, "fake")
    assert (result.spec.warmup_iterations, result.spec.iterations) == (2, 3)
    assert result.spec.inputs == ("data:1,2,3,4",)
    assert (len(result.warmup.end_to_end), len(result.samples.end_to_end)) == (2, 3)


def test_cuda_reaches_the_spec(run_lar: RunLar, root: Path) -> None:
    # Whether there is a device or not: it never becomes a run on the CPU.
    for flag, device in (("--cuda", "cuda:0"), ("--cuda:1", "cuda:1"), ("--cuda=0", "cuda:0")):
        done = run_lar("models/one_operator.onnx", flag, "--json", "-", cwd=root)
        assert lar.read_result(done.stdout).spec.device == device


def test_no_iterations(run_lar: RunLar, write_script: WriteScript) -> None:
    script = write_script(load_seconds=0.198, prepare_seconds=0.005, outputs={"prob": [1.0]})
    done = run_lar(script, "--iter", "0")
    assert done.returncode == 0
    assert done.stdout.splitlines()[1:3] == ["load model: 198.000ms", "=== prepare: 5.000ms"]
    assert not re.search(r"warmup|iter|finished|latency", done.stdout)
    result = result_of(run_lar, script, "--iter", "0")
    assert (result.status, result.phase, result.outputs) == ("ok", "done", ())
    assert result.samples.end_to_end == result.warmup.end_to_end == ()


def test_no_warmup(run_lar: RunLar, write_script: WriteScript) -> None:
    done = run_lar(write_script(), "--warmup-iter", "0", "--iter", "1")
    assert done.returncode == 0
    assert "warmup" not in done.stdout
    assert "sd=N/A" in done.stdout
    assert "nan" not in done.stdout


def test_default_counts(run_lar: RunLar, write_script: WriteScript) -> None:
    lines = run_lar(write_script()).stdout.splitlines()
    assert len([line for line in lines if line.startswith("warmup ")]) == 1
    assert len([line for line in lines if re.match(r"iter \d/10: ", line)]) == 10


# What it prints and writes


def ms(seconds: float | None) -> str:
    return "N/A" if seconds is None else f"{seconds * 1e3:.3f}"


@pytest.mark.parametrize(
    "model",
    [
        pytest.param("models/multi_input.mge", marks=needs_megengine),
        "models/multi_input.onnx",
        "script",
    ],
)
def test_json_says_what_the_lines_say(
    run_lar: RunLar, root: Path, tmp_path: Path, write_script: WriteScript, model: str
) -> None:
    times = [[0.581, 0.01, 0.58], [0.245, 0.01, 0.242], [0.237, 0.011, 0.236]]
    if model == "script":
        model = write_script(times=times, load_seconds=0.2, outputs={"prob": [0.5, 1]})
    report = tmp_path / "report.json"
    done = run_lar(model, "--warmup-iter", "2", "--iter", "4", "--json", str(report), cwd=root)
    assert done.returncode == 0
    result = lar.read_result(report.read_bytes())
    assert (result.status, result.phase, result.failure) == ("ok", "done", None)
    assert result.engine is not None
    samples, warmup = result.samples, result.warmup
    expected = [
        f"load model: {ms(result.load_seconds)}ms",
        f"=== prepare: {ms(result.prepare_seconds)}ms; going to warmup",
        *(f"warmup {i}: {ms(seconds)}ms" for i, seconds in enumerate(warmup.end_to_end)),
        "=== going to run input for 4 times",
        *(
            f"iter {i}/4: {ms(end)}ms (exec={ms(host)},device={ms(device)})"
            for i, (end, host, device) in enumerate(
                zip(samples.end_to_end, samples.host, samples.device, strict=True)
            )
        ),
    ]
    lines = done.stdout.splitlines()
    assert result.engine.version in lines[0]
    assert lines[1 : 1 + len(expected)] == expected
    finished = lines[1 + len(expected)]
    total, least, most = sum(samples.end_to_end), min(samples.end_to_end), max(samples.end_to_end)
    assert finished.startswith(f"=== finished test #0: time={ms(total)}ms avg_time={ms(total / 4)}")
    assert finished.endswith(f"minmax={ms(least)},{ms(most)}")
    assert f"sd={ms(float(np.std(samples.end_to_end, ddof=1)))}ms" in finished
    assert list(tmp_path.glob(".*")) == []


@each_format
def test_report_on_stdout_stands_there_alone(run_lar: RunLar, root: Path, suffix: str) -> None:
    words = (f"models/one_operator.{suffix}", "--iter", "2", "--verbose", "--model-info")
    done = run_lar(*words, "--json", "-", cwd=root)
    result = lar.read_result(done.stdout)
    assert len(done.stdout.splitlines()) == 1
    assert len(result.samples.end_to_end) == 2
    assert "=== finished test #0" in done.stderr
    done = run_lar(*words, "--csv", "-", cwd=root)
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [(row["phase"], row["index"]) for row in rows] == [
        *(("warmup", "0"), ("iterations", "0"), ("iterations", "1"))
    ]


def test_csv_and_json_files_agree(
    run_lar: RunLar, tmp_path: Path, write_script: WriteScript
) -> None:
    names = [str(tmp_path / name) for name in ("report.json", "report.csv")]
    script = write_script(times=[[0.25, 0.125, None]], outputs={"prob": [1.0]})
    done = run_lar(script, "--iter", "2", "--json", names[0], "--csv", names[1])
    assert done.returncode == 0
    assert "=== finished test #0: time=500.000ms" in done.stdout
    result = lar.read_result(Path(names[0]).read_text())
    rows = list(csv.DictReader(io.StringIO(Path(names[1]).read_text())))
    times = [float(row["end_to_end_seconds"]) for row in rows if row["phase"] == "iterations"]
    assert times == list(result.samples.end_to_end) == [0.25, 0.25]
    assert {row["model"] for row in rows} == {script}
    assert result.model is not None
    assert {row["sha256"] for row in rows} == {result.model.sha256}
    assert {row["status"] for row in rows} == {"ok"}


def test_report_replaces_what_the_name_leads_to(
    run_lar: RunLar, tmp_path: Path, write_script: WriteScript
) -> None:
    target, link = tmp_path / "target.json", tmp_path / "link.json"
    target.write_text("old")
    target.chmod(0o600)
    link.symlink_to(target)
    assert run_lar(write_script(), "--json", str(link)).returncode == 0
    assert link.is_symlink()
    assert target.stat().st_mode & 0o777 == 0o600
    assert lar.read_result(target.read_bytes()).status == "ok"


def test_report_of_the_longest_name(
    run_lar: RunLar, tmp_path: Path, write_script: WriteScript
) -> None:
    report = tmp_path / ("x" * 250 + ".json")
    assert run_lar(write_script(), "--json", str(report)).returncode == 0
    assert lar.read_result(report.read_bytes()).status == "ok"


@each_format
def test_model_info(run_lar: RunLar, root: Path, suffix: str) -> None:
    model = f"models/multi_input.{suffix}"
    info = run_lar("info", model, cwd=root).stdout
    done = run_lar(model, "--model-info", "--iter", "1", cwd=root)
    assert info
    assert done.stdout.startswith(info)
    assert "=== finished test #0" in done.stdout.removeprefix(info)


@each_format
def test_engine_speaks_only_when_asked(run_lar: RunLar, root: Path, suffix: str) -> None:
    words = (f"models/multi_input.{suffix}", "--iter", "1")
    fed = ("--input", "inputs/multi_input.json")
    quiet = run_lar(*words, *fed, cwd=root)
    assert (quiet.returncode, without_hints(quiet.stderr)) == (0, [])
    generated = run_lar(*words, cwd=root)
    assert len(without_hints(generated.stderr)) == 1  # the note about the data
    verbose = run_lar(*words, *fed, "--verbose", cwd=root)
    assert verbose.returncode == 0
    assert len(verbose.stderr.splitlines()) > 5
    assert lines_of(verbose.stdout)[:5] == lines_of(quiet.stdout)[:5]


def test_verbose_shows_all_that_a_script_prints(run_lar: RunLar, write_script: WriteScript) -> None:
    script = write_script(prints="engine: loading")
    done = run_lar(script, "--verbose")
    assert done.stderr.count("engine: loading") == 2
    assert "engine:" not in done.stdout


def test_engine_that_prints_leaves_no_trace(run_lar: RunLar, write_script: WriteScript) -> None:
    done = run_lar(write_script(prints="engine: loading"))
    assert (done.returncode, done.stderr) == (0, "")
    assert "engine:" not in done.stdout


def type_of(kind: str) -> tuple[str, Any, dict[str, Any]]:
    """An operator on three numbers, the type that it gives, and its attributes."""
    helper, types = onnx.helper, onnx.TensorProto
    number = helper.make_tensor_type_proto(types.FLOAT, [])
    if kind == "map":
        maps = helper.make_sequence_type_proto(helper.make_map_type_proto(types.INT64, number))
        return "ZipMap", maps, {"domain": "ai.onnx.ml", "classlabels_int64s": [0, 1, 2]}
    if kind == "sequence":
        three = helper.make_tensor_type_proto(types.FLOAT, [1, 3])
        return "SequenceConstruct", helper.make_sequence_type_proto(three), {}
    number_of_type = {"text": types.STRING, "bfloat16": types.BFLOAT16}[kind]
    return "Cast", helper.make_tensor_type_proto(number_of_type, [1, 3]), {"to": number_of_type}


@pytest.mark.parametrize("kind", ["map", "sequence", "text", "bfloat16"])
def test_outputs_that_numpy_does_not_hold(run_lar: RunLar, tmp_path: Path, kind: str) -> None:
    # Their times count all the same. Classifiers from scikit-learn give maps.
    operator, output, attributes = type_of(kind)
    model = save_model(tmp_path / "model.onnx", operator, [1, 3], output, **attributes)
    first, second = (result_of(run_lar, model, "--iter", "2") for _ in range(2))
    assert first.status == "ok"
    assert len(first.samples.end_to_end) == 2
    assert [output.name for output in first.outputs] == ["output"]
    # No hash is better than one that changes from run to run.
    assert first.outputs == second.outputs


# Drivers, engines, processes


@pytest.fixture(scope="module")
def run_twice(run_lar: RunLar, root: Path) -> Callable[[str, str], lar.RunResult]:
    """Two iterations of a model of the repository with a driver; each pair runs once."""

    @functools.cache
    def run(model: str, driver: str) -> lar.RunResult:
        words = (f"models/{model}", "--driver", driver, "--iter", "2", "--stall-timeout", "20")
        return result_of(run_lar, *words, cwd=root)

    return run


@needs_megengine
@pytest.mark.parametrize("model", ["multi_input", "digits_cnn", "uint8_input"])
def test_graph_driver_gives_what_lite_gives(
    run_twice: Callable[[str, str], lar.RunResult], model: str
) -> None:
    lite, graph = (run_twice(f"{model}.mge", driver) for driver in ("lite", "graph"))
    assert graph.engine is not None
    assert graph.engine.driver == "graph"
    assert graph.sources.device == "engine"
    assert all(seconds is not None and seconds >= 0 for seconds in graph.samples.device)
    assert {info.name for info in graph.inputs} == {info.name for info in lite.inputs}
    for actual, expected in zip(
        sorted(graph.outputs, key=lambda output: output.name),
        sorted(lite.outputs, key=lambda output: output.name),
        strict=True,
    ):
        assert (actual.name, actual.shape) == (expected.name, expected.shape)
        assert actual.mean == pytest.approx(expected.mean, rel=1e-5, abs=1e-6)


def test_scripted_engine_by_name(run_lar: RunLar, write_script: WriteScript) -> None:
    script = write_script(outputs={"prob": [1.0]})
    assert result_of(run_lar, script, "--engine", "fake").spec.engine == "fake"
    renamed = Path(script).with_suffix(".json")
    Path(script).rename(renamed)
    assert result_of(run_lar, str(renamed), "--engine=fake").spec.engine == "fake"


@each_format
def test_in_process(run_lar: RunLar, root: Path, tmp_path: Path, suffix: str) -> None:
    words = (f"models/multi_input.{suffix}", "--input", "inputs/multi_input.json")
    files = tmp_path / "alone.json", tmp_path / "apart.json"
    done = run_lar(*words, "--in_process", "--json", str(files[0]), cwd=root)
    usual = run_lar(*words, "--json", str(files[1]), cwd=root)
    alone, apart = (lar.read_result(file.read_bytes()) for file in files)
    assert alone.status == "ok"
    assert alone.outputs == apart.outputs
    assert alone.model == apart.model
    assert alone.machine == apart.machine
    assert len(alone.samples.end_to_end) == 10
    assert alone.started_at
    # A device time is told where the iteration was long enough.
    lines, expected = (
        [line.replace("device=N/A", "device=N") for line in lines_of(each.stdout)[:14]]
        for each in (done, usual)
    )
    assert lines == expected
    assert without_hints(done.stderr) == []


@needs_megengine
def test_a_model_without_suffix_is_known_by_its_content(
    run_lar: RunLar, root: Path, tmp_path: Path
) -> None:
    for suffix, engine in (("mge", "megengine"), ("onnx", "onnxruntime")):
        shutil.copy(root / f"models/one_operator.{suffix}", tmp_path / "model")
        assert result_of(run_lar, str(tmp_path / "model")).spec.engine == engine


# Paths


@each_format
@pytest.mark.parametrize(
    "name",
    [
        "a model.{}",
        "модель 模型 🐈 é.{}",
        "-dash.{}",
        "--two_dashes.{}",
        "semi;colon:equals=.{}",
        "line\nbreak\ttab.{}",
        "%s {{}} $HOME 'quote\".{}",
        "x" * 245 + ".{}",
    ],
)
def test_odd_model_names(
    run_lar: RunLar, root: Path, tmp_path: Path, suffix: str, name: str
) -> None:
    name = name.format(suffix)
    shutil.copy(root / f"models/one_operator.{suffix}", tmp_path / name)
    result = result_of(run_lar, "--iter", "1", "--", name, cwd=tmp_path)
    assert result.spec.model == name
    assert result.status == "ok"


@pytest.mark.skipif(sys.platform != "linux", reason="names must be text elsewhere")
@each_format
def test_model_name_that_is_no_text(
    run_lar: RunLar, root: Path, tmp_path: Path, suffix: str
) -> None:
    name = os.fsdecode(b"b\xff." + suffix.encode())
    shutil.copy(root / f"models/one_operator.{suffix}", tmp_path / name)
    for words in (["run", name, "--iter", "1"], ["info", name]):
        done = run_lar(*words, cwd=tmp_path)
        assert "Traceback" not in done.stderr
        # It may work or be refused, clearly.
        assert done.returncode == 0 or done.stderr.startswith("lar: error: ")


@each_format
def test_ways_to_the_model(run_lar: RunLar, root: Path, tmp_path: Path, suffix: str) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    shutil.copy(root / f"models/one_operator.{suffix}", folder / f"model.{suffix}")
    (tmp_path / f"link.{suffix}").symlink_to(folder / f"model.{suffix}")
    folder.chmod(0o555)
    for path in (
        f"models/model.{suffix}",
        f"./models/../models/model.{suffix}",
        f"link.{suffix}",
        str(folder / f"model.{suffix}"),
    ):
        result = result_of(run_lar, path, "--iter", "1", cwd=tmp_path)
        assert (result.status, result.spec.model) == ("ok", path)
    folder.chmod(0o755)
    assert [file.name for file in folder.iterdir()] == [f"model.{suffix}"]


@each_format
def test_files_in_the_current_folder_stand_in_for_nothing(
    root: Path, tmp_path: Path, suffix: str
) -> None:
    # The command itself: `python -m` puts the current folder first, before lar can do anything.
    command = Path(sys.executable).with_name("lar")
    if not command.exists():
        pytest.skip("the lar command is not installed")
    trap = "raise SystemExit('the wrong module')"
    for name in ("numpy", "json", "onnxruntime", "megengine", "megenginelite", "cv2", "onnx"):
        (tmp_path / f"{name}.py").write_text(trap)
    (tmp_path / "lar").mkdir()
    (tmp_path / "lar/__init__.py").write_text(trap)
    for words in (["run", "--iter", "1"], ["info"]):
        done = subprocess.run(
            [str(command), *words, str(root / f"models/multi_input.{suffix}")],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert "wrong module" not in done.stdout + done.stderr


def test_runs_at_once_write_one_report(
    run_lar: RunLar, tmp_path: Path, write_script: WriteScript
) -> None:
    report = tmp_path / "report.json"
    script = write_script(real_time=True, times=[[0.01, 0.005, None]], outputs={"prob": [1.0]})
    with ThreadPoolExecutor(3) as pool:
        runs = [
            pool.submit(run_lar, script, "--json", str(report), "--seed", str(seed))
            for seed in range(3)
        ]
        assert [run.result().returncode for run in runs] == [0, 0, 0]
    result = lar.read_result(report.read_bytes())
    assert result.status == "ok"
    assert result.spec.seed in range(3)
    assert {path.name for path in tmp_path.iterdir()} == {"report.json", Path(script).name}


RUNS = [
    *((model.name, "session") for model in sorted((ROOT / "models").glob("*.onnx"))),
    *(
        pytest.param(model.name, driver, marks=needs_megengine)
        for model in sorted((ROOT / "models").glob("*.mge"))
        for driver in ("lite", "graph")
    ),
]


@pytest.mark.parametrize(("model", "driver"), RUNS)
def test_every_model_runs(
    run_twice: Callable[[str, str], lar.RunResult], model: str, driver: str
) -> None:
    result = run_twice(model, driver)
    assert (result.status, len(result.samples.end_to_end)) == ("ok", 2)
    assert result.outputs
    assert all(output.nonfinite_count == 0 for output in result.outputs)


def test_a_run_in_process_has_the_engines_environment(
    root: Path, write_script: WriteScript
) -> None:
    words = [write_script(), "--in-process", "--engine-env", "LAR_TEST_VARIABLE=seen"]
    code = f"import os, lar.cli; lar.cli.main({words!r}); print(os.environ['LAR_TEST_VARIABLE'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=root)
    assert done.stdout.splitlines()[-1] == "seen", done.stderr
