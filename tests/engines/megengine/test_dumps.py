"""Dumps of MegEngine: what is written, that it changes nothing, and what a run does with it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import lar
from lar.dumps.binary import read_header
from lar.dumps.facts import DumpFacts, Kernel
from lar.dumps.layouts import to_plain
from lar.engines.megengine.algorithms import choices_in
from lar.engines.megengine.dumps import describe_dump
from tests.cli.failures import check_error
from tests.engines.megengine.programs import DIGITS, MODELS, REPOSITORY, run_python, run_well
from tests.options.ruling import check, refusal

if TYPE_CHECKING:
    from tests.conftest import RunLar

SEVEN = str(REPOSITORY / "inputs" / "digit_7.npy")


def compute(model: str, settings: dict[str, Any], written: str) -> bytes:
    """Run a model, with a dump if there is a place for it, and return the bits of its outputs."""
    from lar.engines import engine_named
    from lar.engines.megengine.lite import LiteDriver
    from lar.measurement.loop import take_samples
    from lar.measurement.rows import SampleRows
    from lar.records.run import RunContext, RunSpec

    key = "io_dump" if written.endswith(".txt") else "bin_io_dump"
    spec = RunSpec(
        model=str(MODELS / f"{model}.mge"),
        engine="megengine",
        driver="lite",
        settings={**settings, **({key: "there"} if written else {})},
    )
    context = RunContext(written={key: written})
    driver = LiteDriver(spec, engine_named("megengine").rows, context)
    driver.load()
    random = np.random.default_rng(0)
    shapes = {info: [size or 1 for size in info.shape] for info in driver.inputs()}
    feeds = {it.name: (random.random(shape) * 10).astype(it.dtype) for it, shape in shapes.items()}
    driver.feed(feeds)
    take_samples(driver, 2, SampleRows.anonymous(2), None)
    return b"".join(array.tobytes() for array in driver.outputs().values())


def compare_with_dumps(folder: str) -> tuple[int, list[Any]]:
    """Return how many runs with a dump were made, and which differ from those without one."""
    settings: list[dict[str, Any]] = [{}, {"multithread": 2}, {"multithread_default": 2}]
    settings += [{key: True} for key in ("enable_nchw44", "enable_nhwcd4", "weight_preprocess")]
    different, count = [], 0
    for model in ("digits_cnn", "int8", "multi_input", "uint8_input", "dynamic_batch"):
        for chosen in settings:
            plain = compute(model, chosen, "")
            for suffix in ("", ".txt"):
                count += 1
                place = os.path.join(folder, f"{count}{suffix}")
                if compute(model, chosen, place) != plain or not os.path.getsize(place):
                    different.append([model, chosen, suffix])
    return count, different


def test_outputs_with_and_without_a_dump_are_the_same_bits(
    elsewhere: Callable[..., tuple[int, list[Any]]], tmp_path: Path
) -> None:
    assert elsewhere(compare_with_dumps, str(tmp_path)) == (60, [])


# Tensors


def test_a_folder_of_tensors_can_be_understood_alone(run_lar: RunLar, tmp_path: Path) -> None:
    (tmp_path / "cpu").mkdir()
    arguments = ["--input", SEVEN, "--iter", "2", "--bin-io-dump", "cpu", "--json", "r.json"]
    done = run_well(run_lar, DIGITS, *arguments, cwd=tmp_path)
    assert "the times are those of a run with --bin-io-dump" in done.stderr
    dump, result = lar.open_dump(tmp_path / "cpu"), json.loads((tmp_path / "r.json").read_text())
    index = dump.index
    assert (index.complete, index.iteration, index.driver, index.device) == (True, 2, "lite", "cpu")
    assert (index.engine, index.engine_version) == ("megengine", "1.13.0")
    assert (index.outputs, index.left_out) == (("logits",), {})
    assert index.model_sha256 == hashlib.sha256(Path(DIGITS).read_bytes()).hexdigest()
    assert index.settings == {"bin_io_dump": "cpu"}
    names = [tensor.name for tensor in dump]
    assert names[-1] == "logits"
    assert names.index("data") < names.index("relu1") < names.index("pool2")
    last = dump.tensor(dump.index.tensors[-1].key)
    (output,) = result["outputs"]
    assert hashlib.sha256(dump.read(last.key).tobytes()).hexdigest() == output["sha256"]
    data = next(tensor for tensor in dump if tensor.name == "data")
    assert np.array_equal(dump.read(data.key), np.load(SEVEN))
    convolution = next(each for each in index.operators if each.type == "ConvolutionForward")
    assert convolution.inputs[0] == data.key
    assert convolution.parameters["pad_h"] == 1
    assert {each.name for each in index.operators if each.constant} >= {"const{16,1,3,3}[10]"}
    # Nothing but tensors is in the folder, and the file names are not the variables'.
    files = sorted(path.name for path in (tmp_path / "cpu").iterdir())
    assert files == sorted(tensor.key for tensor in dump)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cpu", "cpu.index.json", "r.json"]


@pytest.mark.parametrize("flags", [[], ["--enable-nchw44"]], ids=["plain", "nchw44"])
def test_each_operator_has_the_algorithm_that_ran(
    run_lar: RunLar, tmp_path: Path, flags: list[str]
) -> None:
    arguments = ["--iter", "1", "--bin-io-dump", "dump", "--json", "r.json", *flags]
    done = run_well(run_lar, DIGITS, *arguments, cwd=tmp_path)
    dump = lar.open_dump(tmp_path / "dump")
    found = {
        (each.type, dump.tensor(each.outputs[0]).shape): each.algorithm
        for each in dump.index.operators
        if re.match("Conv|Pooling|MatrixMul", each.type)
    }
    logged = choices_in(run_lar(DIGITS, "--iter", "1", "--verbose", *flags).stderr)
    expected = {(choice.operator, choice.shapes[-1]): choice.algorithm for choice in logged}
    assert len(found) == 6
    assert found == expected
    # What the engine says for that is not the user's.
    assert "[DEBUG]" not in json.loads((tmp_path / "r.json").read_text())["log_tail"]
    assert "[DEBUG]" not in done.stderr


def test_the_engines_log_stays_whole_for_who_asks_for_it(run_lar: RunLar, tmp_path: Path) -> None:
    arguments = ["--iter", "1", "--warmup-iter", "0", "--verbose", "--bin-io-dump", "dump"]
    done = run_well(run_lar, DIGITS, *arguments, cwd=tmp_path)
    told = choices_in(done.stderr)
    assert {choice.operator for choice in told} >= {"ConvolutionForward", "MatrixMul"}
    algorithms = {choice.algorithm for choice in told}
    operators = lar.open_dump(tmp_path / "dump").index.operators
    assert {each.algorithm for each in operators if each.algorithm} == algorithms


def test_algorithms_of_equal_shapes_stand_together(tmp_path: Path) -> None:
    """The engine does not tell the parameters that they differ in."""
    line = "Conv: tensor layouts({{1(1) Float32}} ) -> ({{2(1) Float32}} )): algo={} workspace=0MiB"
    names = ("A", "B", "A")
    (tmp_path / "dump.choices").write_text("".join(line.format(name) + "\n" for name in names))
    facts = describe_dump(tmp_path / "dump")
    assert facts == DumpFacts([], None, {Kernel("Conv", ((1,), (2,))): "A or B"})


COMPARE = """
import sys, warnings
warnings.simplefilter("ignore")
from megengine.tools.compare_binary_iodump import main
main()
"""


def test_megengines_own_tool_compares_dumps_in_a_layout(run_lar: RunLar, tmp_path: Path) -> None:
    for name in ("a", "b"):
        arguments = ["--iter", "1", "--warmup-iter", "0", "--enable-nchw44", "--bin-io-dump", name]
        run_well(run_lar, str(MODELS / "int8.mge"), *arguments, cwd=tmp_path)
    compared = run_python("-c", COMPARE, "a", "b", cwd=tmp_path)
    assert compared.returncode == 0, compared.stderr
    assert compared.stdout == ""
    dump = lar.open_dump(tmp_path / "a")
    layouts = {tensor.name: tensor.layout for tensor in dump}
    assert layouts["conv2"] == layouts["pool3"] == "nchw44"
    assert layouts["data"] == layouts["features"] == ""
    pooled, plain = (
        next(tensor for tensor in dump if re.search(pattern, tensor.name))
        for pattern in ("^pool3$", r"^reshape\(dimshuffle")
    )
    assert pooled.dtype == "QuantizedS8"
    # Weights and biases have other names in blocks, and have kept their scales.
    quantised = [tensor for tensor in dump if tensor.dtype.startswith("Quantized")]
    assert len(quantised) == 14
    scales = {each.name: each.quantization.scale for each in quantised if each.quantization}
    assert len(scales) == 14
    (data,), (pool2,), (conv2,) = (scales[name] for name in ("data.int8", "pool2", "conv2"))
    assert (round(data, 6), pool2) == (0.125984, conv2)
    (bias,) = (scales[each.name] for each in quantised if each.shape == (1, 4, 1, 1, 4))
    assert bias[0] == pytest.approx(data * 0.00121176, rel=1e-5)
    # The engine itself brings this one back, to flatten it.
    assert np.array_equal(to_plain(dump.read(pooled.key), "nchw44"), dump.read(plain.key))


def test_a_name_that_is_not_ascii_is_dumped_too(run_lar: RunLar, tmp_path: Path) -> None:
    """Lite's own profile, which has the parameters too, cannot write such a name."""
    model = tmp_path / "named.mge"
    model.write_bytes(Path(DIGITS).read_bytes().replace(b"conv1.bias", "cév1.bias".encode()))
    run_well(run_lar, str(model), "--iter", "1", "--bin-io-dump", "dump", cwd=tmp_path)
    dump = lar.open_dump(tmp_path / "dump")
    tensor = next(tensor for tensor in dump if tensor.name == "cév1.bias")
    assert dump.read(tensor.key).shape == (1, 16, 1, 1)
    assert any("pad_h" in operator.parameters for operator in dump.index.operators)
    content = (tmp_path / "dump" / tensor.key).read_bytes()
    assert content[40 : read_header(tmp_path / "dump" / tensor.key).offset].isascii()


def test_the_operators_are_known_with_other_dumps_and_executions(
    run_lar: RunLar, tmp_path: Path
) -> None:
    """The first execution of `--fake-first` runs no operator."""
    operators = []
    for name, flags in (
        ("plain", ["--iter", "1"]),
        ("fake", ["--iter", "1", "--fake-first"]),
        ("outputs", ["--iter", "1", "--bin-out-dump", "out"]),
        ("once", ["--iter", "1", "--warmup-iter", "0", "--thread", "2"]),
    ):
        run_well(run_lar, DIGITS, *flags, "--bin-io-dump", name, cwd=tmp_path)
        operators.append(lar.open_dump(tmp_path / name).index.operators)
    assert operators == [operators[0]] * 4
    assert len(lar.open_dump(tmp_path / "out").index.tensors) == 2


def test_an_interrupted_run_leaves_what_there_is(tmp_path: Path) -> None:
    arguments = [str(MODELS / "mobilenet_v2.mge"), "--iter", "100000", "--bin-io-dump", "dump"]
    with subprocess.Popen(
        [sys.executable, "-m", "lar", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout
        for line in process.stdout:
            if line.startswith("iter 0/"):
                process.send_signal(signal.SIGINT)
                break
        errors = process.communicate(timeout=30)[1]
    assert process.returncode == 130
    assert "--bin-io-dump: dump: holds what was dumped before the run ended" in errors
    dump = lar.open_dump(tmp_path / "dump")
    assert not dump.index.complete
    assert dump.index.iteration >= 2
    for tensor in dump:
        assert dump.read(tensor.key).shape == tensor.shape


# Text


def test_the_text_dumps_of_two_equal_runs_are_identical(run_lar: RunLar, tmp_path: Path) -> None:
    for name in ("cpu.txt", "again.txt"):
        run_well(run_lar, DIGITS, "--input", SEVEN, "--iter", "2", "--io-dump", name, cwd=tmp_path)
    first, second = (tmp_path.joinpath(name).read_text() for name in ("cpu.txt", "again.txt"))
    assert first == second
    assert first.count(" produced: name=logits ") == 3  # the warm-up's too
    assert re.search(r"^ val: \[.*\]min=\S+ max=\S+ mean=\S+ l2=\S+ sd=\S+ s$", first, re.MULTILINE)


def test_text_on_standard_output_is_filtered(run_lar: RunLar) -> None:
    words = "--warmup-iter 0 --iter 1 --io-dump-stdout --dump-filter ^pool2$"
    done = run_well(run_lar, DIGITS, *words.split())
    produced = re.findall(r"^var\d+ produced: name=(\S+) ", done.stdout, re.MULTILINE)
    assert produced == ["pool2"]
    assert done.stdout.index("iter 0/1: ") < done.stdout.index(" produced: ")


# The outputs of each run


@pytest.mark.parametrize(("driver", "number"), [("lite", 0), ("graph", 63)])
def test_the_outputs_of_each_run_are_kept(
    run_lar: RunLar, tmp_path: Path, driver: str, number: int
) -> None:
    """The graph driver numbers them as load_and_run does."""
    arguments = ["--input", SEVEN, "--iter", "2", "--bin-out-dump", "out", "--json", "r.json"]
    done = run_well(run_lar, DIGITS, "--driver", driver, *arguments, cwd=tmp_path)
    assert "the times are those of a run with" not in done.stderr
    dump = lar.open_dump(tmp_path / "out")
    assert dump.index.outputs == ("logits",)
    assert [tensor.key for tensor in dump] == [f"run{run}-var{number}" for run in range(3)]
    assert [(tensor.name, tensor.run) for tensor in dump] == [("logits", run) for run in range(3)]
    (output,) = json.loads((tmp_path / "r.json").read_text())["outputs"]
    for tensor in dump:
        assert hashlib.sha256(dump.read(tensor.key).tobytes()).hexdigest() == output["sha256"]


# Refusals


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["bin_io_dump", "io_dump"], ["--io-dump", "--bin-io-dump", "one dump at a time"]),
        (["bin_io_dump", "io_dump_stdout"], ["--io-dump-stdout", "--bin-io-dump"]),
        (["bin_io_dump", "record_comp_seq"], ["--bin-io-dump", "--record-comp-seq"]),
        (["io_dump_stderr", "record_comp_seq2"], ["--io-dump-stderr", "--record-comp-seq2"]),
    ],
)
def test_dumps_that_cannot_be_made_are_refused(settings: list[str], words: list[str]) -> None:
    error = refusal("megengine", dict.fromkeys(settings, "x"))
    assert all(word in error.message for word in words)
    check("megengine", {settings[0]: "x", "bin_out_dump": "out"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--driver", "graph", "--bin-io-dump", "d"], "--driver graph cannot do --bin-io-dump"),
        (["--io-dump", "a", "--bin-io-dump", "d"], "--io-dump and --bin-io-dump exclude each"),
        (["--io-dump-stdout", "--json", "-"], "--io-dump-stdout and --json - exclude each other"),
        (["--bin-io-dump", "d", "--dump-filter", "("], "--dump-filter: '(' is not a regular"),
        (["--iter", "0", "--bin-io-dump", "d"], "--bin-io-dump and --iter 0 exclude each other"),
    ],
)
def test_flags_that_do_not_go_together_leave_nothing(
    run_lar: RunLar, tmp_path: Path, arguments: list[str], message: str
) -> None:
    check_error(run_lar(DIGITS, *arguments, cwd=tmp_path), 2, f"lar: error: {message}")
    assert not any(tmp_path.iterdir())
