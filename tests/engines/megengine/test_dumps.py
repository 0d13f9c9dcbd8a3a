"""Dumps of MegEngine: what is written, that it changes nothing, and what a run does with it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lar
from lar.dumps import DumpedOperator, DumpFacts, Kernel
from lar.dumps.binary import read_header
from lar.dumps.layouts import to_plain
from lar.engines.megengine.algorithms import choices_in
from lar.engines.megengine.dumps import describe_dump
from lar.engines.megengine.operator_kinds import elementwise_steps
from lar.records.run import OutputSummary
from tests.conftest import RunLar
from tests.engines.megengine.probe import say_with_tool
from tests.engines.megengine.programs import DIGITS, MODELS, REPOSITORY
from tests.engines.megengine.traced import dump_traced
from tests.engines.runs import run_ok
from tests.tables import each_row

SEVEN = str(REPOSITORY / "inputs" / "digit_7.npy")


@each_row("engines/megengine/cases/dumped outputs")
def test_outputs_with_and_without_a_dump_are_the_same_bits(
    tmp_path: Path, model: str, settings: dict[str, Any]
) -> None:
    def outputs(**dump: Path) -> tuple[OutputSummary, ...]:
        result = run_ok(MODELS / f"{model}.mge", iter=1, **settings, **dump)
        assert all(place.stat().st_size for place in dump.values())
        return result.outputs

    expected = outputs()
    assert outputs(bin_io_dump=tmp_path / "dump") == expected
    assert outputs(io_dump=tmp_path / "dump.txt") == expected


# Tensors


def test_operators_have_their_names_and_parameters(run_lar: RunLar, tmp_path: Path) -> None:
    done = run_lar(DIGITS, "--iter", "2", "--bin-io-dump", "cpu", cwd=tmp_path, code=0)
    assert "the times are those of a run with --bin-io-dump" in done.stderr
    index = lar.open_dump(tmp_path / "cpu").index
    assert (index.iteration, index.device, index.engine_version) == (2, "cpu", "1.13.0")
    names = [tensor.name for tensor in index.tensors]
    assert names.index("data") < names.index("relu1") < names.index("pool2")
    convolution = next(each for each in index.operators if each.type == "ConvolutionForward")
    assert convolution.parameters["pad_h"] == 1
    assert {each.name for each in index.operators if each.constant} >= {"const{16,1,3,3}[10]"}


@pytest.mark.parametrize("flags", [[], ["--enable-nchw44"]], ids=["plain", "nchw44"])
def test_each_operator_has_the_algorithm_that_ran(
    run_lar: RunLar, tmp_path: Path, flags: list[str]
) -> None:
    arguments = ["--iter", "1", "--bin-io-dump", "dump", "--json", "r.json", *flags]
    done = run_lar(DIGITS, *arguments, cwd=tmp_path, code=0)
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
    told = choices_in(run_lar(DIGITS, *arguments, cwd=tmp_path, code=0).stderr)
    assert {choice.operator for choice in told} >= {"ConvolutionForward", "MatrixMul"}
    algorithms = {choice.algorithm for choice in told}
    operators = lar.open_dump(tmp_path / "dump").index.operators
    assert {each.algorithm for each in operators if each.algorithm} == algorithms


def test_algorithms_of_equal_shapes_stand_together(tmp_path: Path) -> None:
    """The engine does not tell the parameters that they differ in."""
    line = "Conv: tensor layouts({{1(1) Float32}} ) -> ({{2(1) Float32}} )): algo={} workspace=0MiB"
    (tmp_path / "dump.choices").write_text("".join(line.format(name) + "\n" for name in "ABA"))
    facts = describe_dump(tmp_path / "dump")
    assert facts == DumpFacts([], None, {Kernel("Conv", ((1,), (2,))): "A or B"})


def test_megengines_own_tool_compares_dumps_in_a_layout(
    run_lar: RunLar, elsewhere: Callable[..., list[str]], tmp_path: Path
) -> None:
    for name in ("a", "b"):
        arguments = ["--iter", "1", "--warmup-iter", "0", "--enable-nchw44", "--bin-io-dump", name]
        run_lar(str(MODELS / "int8.mge"), *arguments, cwd=tmp_path, code=0)
    folders = [str(tmp_path / name) for name in ("a", "b")]
    assert elsewhere(say_with_tool, "compare_binary_iodump", folders) == [""]
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
    run_lar(str(model), "--iter", "1", "--bin-io-dump", "dump", cwd=tmp_path, code=0)
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
        run_lar(DIGITS, *flags, "--bin-io-dump", name, cwd=tmp_path, code=0)
        operators.append(lar.open_dump(tmp_path / name).index.operators)
    assert operators == [operators[0]] * 4
    assert len(lar.open_dump(tmp_path / "out").index.tensors) == 2


def pick(data: Any) -> Any:
    return data[:, 1:, 2:] + 1


def test_an_operator_that_picks_elements_has_a_list_of_parameters(
    run_lar: RunLar, elsewhere: Callable[..., None], tmp_path: Path
) -> None:
    data = np.zeros((2, 3, 4), np.float32)
    elsewhere(dump_traced, tmp_path / "pick.mge", pick, {"data": data})
    run_lar("pick.mge", "--iter", "1", "--bin-io-dump", "dump", cwd=tmp_path, code=0)
    kept = lar.open_dump(tmp_path / "dump").index.operators
    (picked,) = (each for each in kept if each.type == "Subtensor")
    assert picked.parameters["items"]
    run_lar("compare", "dump", "pick.mge --multithread 2", cwd=tmp_path, code=0)


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


def test_text_on_standard_output_is_filtered(run_lar: RunLar) -> None:
    words = "--warmup-iter 0 --iter 1 --io-dump-stdout --dump-filter ^pool2$"
    done = run_lar(DIGITS, *words.split(), code=0)
    assert re.findall(r"^var\d+ produced: name=(\S+) ", done.stdout, re.MULTILINE) == ["pool2"]
    assert done.stdout.index("iter 0/1: ") < done.stdout.index(" produced: ")


# The steps of elementwise operators, by their modes


@each_row("engines/megengine/profiled_operators/elementwise")
def test_an_elementwise_operator_has_the_steps_of_its_mode(
    name: str, parameters: dict[str, Any], steps: list[str]
) -> None:
    for type in ("Elemwise", "ElemwiseMultiType"):
        operator = DumpedOperator(key="1", name=name, type=type, parameters=parameters)
        assert [*elementwise_steps(operator)] == steps
    other = DumpedOperator(key="1", name=name, type="Reduce", parameters=parameters)
    assert elementwise_steps(other) == ()
