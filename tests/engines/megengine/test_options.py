"""What each option does to a MegEngine run, seen on the run itself.

The drivers run in processes of their own, since MegEngine changes how a process computes (it
takes subnormal numbers for zero): probe.py. The options that choose algorithms are in
test_algorithms.py.
"""

from __future__ import annotations

import functools
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from lar.engines.megengine.options import ROWS

if TYPE_CHECKING:
    from tests.conftest import RunLar

REPOSITORY = Path(__file__).resolve().parents[3]
PROBE, FORKS = (Path(__file__).with_name(name) for name in ("probe.py", "forks.py"))
MODELS = REPOSITORY / "models"
DIGITS = str(MODELS / "digits_cnn.mge")
INT8 = str(MODELS / "int8.mge")
# Heavy enough that dispatching it takes far less time than computing it.
MOBILENET = "mobilenet_v2"


class Probed:
    """What a driver gave in its process."""

    def __init__(self, facts: Mapping[str, Any], log: str, dump: str) -> None:
        self.log, self.dump = log, dump
        self.new_threads: list[str] = facts["new_threads"]
        self.calling_thread: str = facts["calling_thread"]
        self.times: list[tuple[float, float]] = facts["times"]
        self.outputs: list[dict[str, Any]] = facts["outputs"]
        self.operators: list[dict[str, Any]] = facts.get("operators", [])
        self.memory: list[tuple[int, int]] = facts.get("memory", [])

    @property
    def types(self) -> Counter[str]:
        return Counter(operator["type"] for operator in self.operators)

    @property
    def first_dispatch(self) -> float:
        """The part of the first iteration that its dispatch takes."""
        end_to_end, host = self.times[0]
        return host / end_to_end

    @property
    def dispatch(self) -> float:
        """The part of an iteration that its dispatch takes: the median, without the first."""
        return statistics.median(host / end_to_end for end_to_end, host in self.times[1:])

    def formats(self, kind: str) -> set[str]:
        return {each["format"] for each in self.operators if each["type"] == kind}

    def dumped(self) -> dict[str, list[tuple[str, tuple[int, ...]]]]:
        """Return the layouts in the text dump: for each type of operator what it gave."""
        pattern = r" layout=\{(.*?) \w+\} owner_opr=.*\{(\w+)\} opr\d+$"
        found: dict[str, list[tuple[str, tuple[int, ...]]]] = {}
        for layout, kind in re.findall(pattern, self.dump, re.MULTILINE):
            shape = tuple(int(size) for size in re.findall(r"(\d+)\(", layout))
            found.setdefault(kind, []).append((layout, shape))
        return found

    def shapes(self, kind: str) -> list[tuple[int, ...]]:
        return [shape for _, shape in self.dumped().get(kind, [])]


@functools.cache
def ask(question: str, attempt: int = 0) -> Probed:
    """Put a question to a new process, once for each attempt."""
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, PROBE, question],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            capture_output=True,
            text=True,
            errors="replace",
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        facts, dump = Path(folder, "facts.json"), Path(folder, "dump.txt")
        text = dump.read_text(errors="replace") if dump.exists() else ""
        return Probed(json.loads(facts.read_text()), done.stdout + done.stderr, text)


def probe(
    driver: str,
    model: str,
    settings: Mapping[str, Any] | None = None,
    *,
    iterations: int = 2,
    dump: bool = False,
    attempt: int = 0,
) -> Probed:
    """Run a model with settings and tell what happened."""
    question = {
        "driver": driver,
        "model": str(MODELS / f"{model}.mge"),
        "settings": dict(settings or {}),
        "iterations": iterations,
        "dump": dump,
    }
    return ask(json.dumps(question), attempt)


def difference(first: Probed, second: Probed, iteration: int = -1) -> float:
    """Return by how much two runs' outputs differ at most; infinite where one is no number."""
    pairs = zip(first.outputs[iteration].values(), second.outputs[iteration].values(), strict=True)
    most = max(float(np.abs(np.subtract(a, b)).max()) for a, b in pairs)
    return float("inf") if np.isnan(most) else most


# Layouts


@pytest.mark.parametrize(
    ("model", "layout", "shape"),
    [
        ("digits_cnn", "nchw44", (1, 4, 8, 8, 4)),
        ("digits_cnn", "nchw44_dot", (1, 4, 8, 8, 4)),
        ("int8", "nchw44", (1, 4, 8, 8, 4)),
        ("int8", "nchw44_dot", (1, 4, 8, 8, 4)),
        # These two give wrong numbers for int8.mge: the engine's own defect.
        ("int8", "nchw4", (1, 4, 8, 8, 4)),
        ("int8", "nchw32", (1, 1, 4, 4, 32)),
        # nchw64 takes 4-bit numbers; for 8 bits it falls back to nchw32 and nchw4.
        ("int8", "nchw64", (1, 1, 4, 4, 32)),
    ],
)
def test_a_layout_blocks_the_channels_of_convolutions(
    model: str, layout: str, shape: tuple[int, ...]
) -> None:
    probed = probe("lite", model, {f"enable_{layout}": True}, dump=True)
    assert shape in probed.shapes("ConvBiasForward")
    plain = probe("lite", model, dump=True)
    convolutions = plain.shapes("ConvolutionForward") + plain.shapes("ConvBiasForward")
    assert {len(shape) for shape in convolutions} == {4}
    if layout.startswith("nchw44"):
        assert difference(probed, plain) < 1e-4


@pytest.mark.parametrize("layout", ["nchw4", "nchw32", "nchw64"])
def test_a_layout_for_integers_leaves_floats_as_they_are(layout: str) -> None:
    probed = probe("lite", "digits_cnn", {f"enable_{layout}": True}, dump=True)
    # Every layout has bias and activation fused, and this one nothing more.
    assert "ConvolutionForward" not in probed.dumped()
    assert {len(shape) for shape in probed.shapes("ConvBiasForward")} == {4}
    assert difference(probed, probe("lite", "digits_cnn", dump=True)) < 1e-4


@pytest.mark.parametrize("model", ["digits_cnn", "int8"])
def test_nhwcd4_makes_images_of_the_tensors(model: str) -> None:
    probed = probe("lite", model, {"enable_nhwcd4": True}, dump=True)
    plain = probe("lite", model, dump=True)
    assert all("I2D" in layout for layout, _ in probed.dumped()["ConvBiasForward"])
    assert "RelayoutFormat" in probed.dumped()
    assert "I2D" not in plain.dump
    assert difference(probed, plain) < 1e-4


@pytest.mark.parametrize(
    ("model", "layout", "formats"),
    [
        ("digits_cnn", "nchw44", {"NCHW44"}),
        ("digits_cnn", "nchw44_dot", {"NCHW44"}),
        ("int8", "nchw44_dot", {"NCHW44_DOT"}),
        ("int8", "nchw4", {"NCHW4"}),
        ("int8", "nchw32", {"NCHW4", "NCHW32"}),
        ("int8", "nchw64", {"NCHW4", "NCHW32"}),
        # Only a GPU runs it; a CPU refuses at the first iteration.
        ("int8", "chwn4", {"CHWN4"}),
        ("digits_cnn", "chwn4", {"NCHW"}),
    ],
)
def test_the_graph_drivers_operators_have_the_layout(
    model: str, layout: str, formats: set[str]
) -> None:
    probed = probe("graph", model, {f"enable_{layout}": True}, iterations=0)
    assert probed.formats("ConvBiasForward") == formats
    assert "ConvolutionForward" not in probed.types


@pytest.mark.parametrize("layout", ["nchw44", "nchw44_dot"])
def test_the_graph_driver_computes_the_same_in_a_layout(layout: str) -> None:
    probed = probe("graph", "digits_cnn", {f"enable_{layout}": True})
    assert difference(probed, probe("graph", "digits_cnn")) < 1e-4


def test_a_layout_that_the_processor_cannot_run_is_refused_by_name(run_lar: RunLar) -> None:
    done = run_lar("run", INT8, "--enable-chwn4")
    assert done.returncode == 2
    assert "--enable-chwn4" in done.stderr


# Threads


@pytest.mark.parametrize(
    ("settings", "threads"),
    [
        ({}, 1),
        ({"cpu": True}, 1),
        ({"cpu_default": True}, 0),
        ({"multithread": 1}, 1),
        ({"multithread": 3}, 3),
        ({"multithread_default": 1}, 0),
        ({"multithread_default": 3}, 2),
    ],
)
def test_the_engine_has_the_threads_asked_for(settings: dict[str, Any], threads: int) -> None:
    probed = probe("lite", "digits_cnn", settings)
    assert len(probed.new_threads) == threads
    assert difference(probed, probe("lite", "digits_cnn")) < 1e-4


@pytest.mark.parametrize(
    ("settings", "asynchronous"),
    [
        ({}, True),
        ({"const_shape": True}, True),
        ({"cpu_default": True}, False),
        ({"multithread_default": 2}, False),
        ({"record_comp_seq": True}, False),
        ({"record_comp_seq2": True}, False),
    ],
    ids=str,
)
def test_what_computes_in_the_calling_thread(settings: dict[str, Any], asynchronous: bool) -> None:
    probed = probe("lite", MOBILENET, settings, iterations=6)
    assert probed.dispatch < 0.5 if asynchronous else probed.dispatch > 0.9
    assert difference(probed, probe("lite", MOBILENET, iterations=6)) < 1e-4


@pytest.mark.parametrize("key", ["multithread", "multithread_default"])
def test_threads_are_bound_to_their_cores(key: str) -> None:
    cores = sorted(os.sched_getaffinity(0))
    first, last = cores[0], cores[-1]
    settings = {key: 2, "multi_thread_core_ids": f"{first},{last}"}
    probed = probe("lite", "digits_cnn", settings)
    caller = [probed.calling_thread] if key == "multithread_default" else []
    assert sorted(probed.new_threads + caller) == sorted([str(first), str(last)])


def test_all_threads_may_be_bound_to_one_core() -> None:
    core = max(os.sched_getaffinity(0))
    settings = {"multithread": 3, "multi_thread_core_ids": f"{core},{core},{core}"}
    assert probe("lite", "digits_cnn", settings).new_threads == [str(core)] * 3


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--multithread", "2", "--multi-thread-core-ids", "0"], ["1 cores", "2 threads"]),
        (["--multithread", "2", "--multi-thread-core-ids", "0,9999"], ["no core 9999", "cores: "]),
        (["--multi-thread-core-ids", "0,1"], ["--multithread N"]),
        (["--multithread", "2", "--multi-thread-core-ids", "0;1"], ["is not a list of cores"]),
        (["--multithread", "0"], ["--multithread"]),
        (["--multithread", "2", "--driver", "graph"], ["--driver graph", "lite"]),
        (["--multithread", "2", "--cpu-default"], ["--cpu-default", "--multithread"]),
    ],
)
def test_threads_that_cannot_be_are_refused(
    run_lar: RunLar, arguments: list[str], words: list[str]
) -> None:
    done = run_lar("run", DIGITS, *arguments)
    assert done.returncode == 2, done.stderr
    assert all(word in done.stderr for word in words), done.stderr


def test_one_core_for_one_thread_is_either_bound_or_refused_sensibly(run_lar: RunLar) -> None:
    core = min(os.sched_getaffinity(0))
    done = run_lar("run", DIGITS, "--iter", "1", "--multi-thread-core-ids", str(core))
    assert done.returncode in (0, 2)
    assert "1 cores for 1 threads" not in done.stderr


# The first execution, and those after it


@pytest.mark.parametrize("driver", ["lite", "graph"])
def test_without_the_sanity_check_the_first_execution_is_asynchronous(driver: str) -> None:
    def first_dispatch(settings: Mapping[str, Any], attempt: int = 0) -> float:
        return probe(driver, MOBILENET, settings, iterations=6, attempt=attempt).first_dispatch

    assert first_dispatch({}) > 0.9
    # Work of others may hold the dispatch up, not hurry it.
    assert any(first_dispatch({"no_sanity_check": True}, attempt) < 0.8 for attempt in range(3))


def test_a_faked_execution_computes_nothing_and_the_next_one_all() -> None:
    plain = probe("lite", "digits_cnn")
    faked = probe("lite", "digits_cnn", {"fake_first": True})
    assert not difference(faked, plain, iteration=0) < 1e-4
    assert difference(faked, plain, iteration=1) < 1e-4


def test_a_faked_execution_can_be_all_there_is(run_lar: RunLar, tmp_path: Path) -> None:
    hashes = []
    for count in ("1", "2"):
        file = tmp_path / f"{count}.json"
        arguments = ["--warmup-iter", "0", "--iter", count, "--fake-first", "--json", str(file)]
        assert run_lar("run", DIGITS, *arguments).returncode == 0
        hashes.append(json.loads(file.read_text())["outputs"][0]["sha256"])
    assert hashes[0] != hashes[1]


def test_a_recorded_execution_is_replayed() -> None:
    """Where the engine cannot record it says so, and runs as ever."""
    probed = probe("lite", MOBILENET, {"record_comp_seq": True}, iterations=6)
    assert "can not enable CompNodeSeqRecorder" not in probed.log
    assert difference(probed, probe("lite", MOBILENET, iterations=6)) < 1e-4


@pytest.mark.parametrize("flag", ["--const-shape", "--record-comp-seq2"])
def test_a_constant_shape_takes_no_other(run_lar: RunLar, flag: str) -> None:
    arguments = ["run", DIGITS, "--iter", "1", "--input", "{32,1,8,8}"]
    assert run_lar(*arguments).returncode == 0
    done = run_lar(*arguments, flag)
    assert done.returncode == 2
    assert f"error: {flag} fixes the shape of input data to {{1,1,8,8}}" in done.stderr
    assert run_lar("run", DIGITS, "--iter", "1", flag).returncode == 0


# The graph


def test_inference_optimisation_leaves_fewer_operators() -> None:
    plain, optimized = (
        probe("graph", "digits_cnn", settings)
        for settings in ({}, {"optimize_for_inference": True})
    )
    assert optimized.types["Elemwise"] < plain.types["Elemwise"]
    assert optimized.types["ConvolutionForward"] == plain.types["ConvolutionForward"] == 3
    assert difference(optimized, plain) < 1e-4


@pytest.mark.parametrize(
    "key",
    # A sum to fuse (z) needs quantised tensors, which the models have none of.
    ["enable_fuse_conv_bias_nonlinearity", "enable_fuse_conv_bias_with_z"],
)
def test_bias_and_activation_are_fused_into_the_convolution(key: str) -> None:
    fused, plain = probe("graph", "digits_cnn", {key: True}), probe("graph", "digits_cnn")
    assert fused.types["ConvBiasForward"] == plain.types["ConvolutionForward"] == 3
    assert fused.types["ConvolutionForward"] == plain.types["ConvBiasForward"] == 0
    found = {each["nonlinearity"] for each in fused.operators if each["nonlinearity"]}
    assert found == {"RELU"}
    assert difference(fused, plain) < 1e-4


@pytest.mark.parametrize("key", ["weight_preprocess", "winograd_transform"])
@pytest.mark.parametrize("driver", ["lite", "graph"])
def test_weights_transformed_ahead_give_the_same_numbers(driver: str, key: str) -> None:
    """What else it does shows in a search, which only lite can make: test_algorithms.py."""
    probed = probe(driver, "digits_cnn", {key: True})
    assert difference(probed, probe(driver, "digits_cnn")) < 1e-4


@pytest.mark.parametrize("driver", ["lite", "graph"])
def test_a_preprocessed_input_gives_the_same_numbers(driver: str) -> None:
    """It fuses the cast, padding and transposition of a quantised image, which no model has; the
    graph driver optimises the graph for inference with it."""
    fused = probe(driver, "uint8_input", {"enable_fuse_preprocess": True})
    plain = probe(driver, "uint8_input")
    assert difference(fused, plain) < 1e-3
    if driver == "graph":
        assert fused.types["Elemwise"] < plain.types["Elemwise"]


def test_floats_are_halved() -> None:
    """Its numbers are wrong on a CPU, where the engine's max-pooling of float16 is."""
    probed = probe("graph", "digits_cnn", {"enable_ioc16": True})
    for kind in ("ConvolutionForward", "MatrixMul", "PoolingForward"):
        found = {each["dtype"] for each in probed.operators if each["type"] == kind}
        assert found == {"float16"}
    (output,) = probed.outputs[-1].values()
    assert np.shape(output) == (1, 10)
    assert probe("graph", "digits_cnn").operators[-1]["dtype"] == "float32"


def test_integers_that_cannot_be_halved_are_refused_by_the_options_name(run_lar: RunLar) -> None:
    done = run_lar("run", INT8, "--enable-ioc16")
    assert done.returncode == 2
    assert "--enable-ioc16" in done.stderr


def occupied(chunks: Sequence[tuple[int, int]]) -> int:
    """Return how many bytes the chunks take, those that share a place counted once."""
    total, end = 0, 0
    for place, size in sorted(chunks):
        total += max(0, place + size - max(place, end))
        end = max(end, place + size)
    return total


def test_without_memory_optimisation_operators_share_none() -> None:
    plain = probe("graph", "digits_cnn")
    spread = probe("graph", "digits_cnn", {"disable_mem_opt": True})
    assert occupied(spread.memory) == sum(size for _, size in spread.memory)
    assert occupied(plain.memory) < sum(size for _, size in plain.memory)
    assert occupied(spread.memory) > occupied(plain.memory)
    assert difference(spread, plain) < 1e-4


# What the engine tells, and its environment


@pytest.mark.parametrize("driver", ["lite", "graph"])
def test_the_engines_log_is_shown_when_asked_for(run_lar: RunLar, driver: str) -> None:
    arguments = ["run", DIGITS, "--iter", "1", "--driver", driver]
    assert "algo=" in run_lar(*arguments, "--verbose").stderr
    assert "algo=" not in run_lar(*arguments).stderr


@pytest.mark.parametrize(
    ("model", "variable", "shown"),
    [
        (DIGITS, "MKL_VERBOSE=1", "MKL_VERBOSE SGEMM"),
        ("script.fake", "PYTHONVERBOSE=1", "import 'lar.engines.fake'"),
    ],
)
def test_a_variable_reaches_the_engine_and_the_result(
    run_lar: RunLar, tmp_path: Path, model: str, variable: str, shown: str
) -> None:
    (tmp_path / "script.fake").write_text("{}")
    file = tmp_path / "result.json"
    arguments = ["run", model, "--iter", "1", "--verbose", "--json", str(file)]
    twice = ["--engine-env", variable, "--engine-env", "LAR_TEST=a=b"]
    done = run_lar(*arguments, *twice, cwd=tmp_path)
    assert done.returncode == 0
    assert shown in done.stdout + done.stderr
    name, _, value = variable.partition("=")
    assert json.loads(file.read_text())["spec"]["environment"] == {name: value, "LAR_TEST": "a=b"}
    plain = run_lar(*arguments, cwd=tmp_path)
    assert shown not in plain.stdout + plain.stderr


@pytest.mark.parametrize("text", ["KEY", "=1", "1KEY=2", ""])
def test_what_is_no_variable_is_refused(run_lar: RunLar, text: str) -> None:
    done = run_lar("run", DIGITS, f"--engine-env={text}")
    assert done.returncode == 2
    assert "KEY=VALUE" in done.stderr


# The whole table

VALUES: Mapping[str, list[str]] = {
    "engine_fix": ["--engine-fix", "x2apic"],
    "thread": ["--thread", "2"],
    "multithread": ["--multithread", "2"],
    "multithread_default": ["--multithread-default", "2"],
    "multi_thread_core_ids": [
        *("--multithread", "1"),
        *("--multi-thread-core-ids", str(min(os.sched_getaffinity(0)))),
    ],
    "fast_run_algo_policy": ["--fast-run", "--fast-run-algo-policy", "new.cache"],
    "fast_run_shared_batch_size": ["--fast-run", "--fast-run-shared-batch-size", "4"],
    "binary_equal_between_batch": ["--fast-run", "--binary-equal-between-batch"],
    "workspace_limit": ["--workspace-limit", "1M"],
    "tensorrt_cache": ["--tensorrt", "--tensorrt-cache", "new.cache"],
    "range": ["--range", "1000"],
    "check_var_value": ["--check-var-value", "1"],
    "c_opr_lib": ["--c-opr-lib", "missing.so"],
    "get_static_mem_info": ["--get-static-mem-info", "plan"],
    "layout_transform_dump": [
        *("--layout-transform", "cpu", "--engine-fix", "x2apic"),
        *("--layout-transform-dump", "new.mge"),
    ],
    "model_dump": ["--model-dump", "new.mge"],
    "packed_model_dump": ["--packed-model-dump", "new.lite"],
    "pack_info_json": ["--packed-model-dump", "new.lite", "--pack-info-json", "missing.json"],
    "pack_cache": ["--packed-model-dump", "new.lite", "--pack-cache", "missing.cache"],
    "io_dump": ["--io-dump", "new.txt"],
    "bin_io_dump": ["--bin-io-dump", "new"],
    "bin_out_dump": ["--bin-out-dump", "new", "--dump-filter", "."],
    "profile": ["--profile", "new.json"],
    "profile_host": ["--profile-host", "new.json"],
    "profile_raw": ["--profile-raw", "new.json"],
    "profile_memory": ["--profile", "new.json", "--profile-memory"],
    "profile_syscalls": ["--profile", "new.json", "--profile-syscalls"],
    "range_by": ["--profile", "new.json", "--range-by", "conv=body"],
}
# What these lines are refused for: a device that is not here, a file that is missing, a type that
# the flag is not for.
NEED_CUDA = ("cuda", "enable_jit", "tensorrt", "tensorrt_cache")
NEED_A_FILE = ("c_opr_lib", "pack_info_json", "pack_cache")
NOT_ON_INT8 = ("enable_chwn4", "enable_ioc16", "check_var_value")

# One hangs here, others are in layout_transform_dump, io_dump and bin_out_dump.
LEFT_OUT = (
    *("enable_nchw88", "layout_transform"),
    *("io_dump_stdout", "io_dump_stderr", "dump_filter"),
)


@pytest.fixture(scope="module")
def forks() -> Iterator[subprocess.Popen[str]]:
    """The process in whose forks lar runs: the options make too many runs to start each anew."""
    with subprocess.Popen(
        [sys.executable, FORKS],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        yield process
        assert process.stdin is not None
        process.stdin.close()


@pytest.mark.parametrize("key", [row.key for row in ROWS if row.key not in LEFT_OUT])
def test_each_option_ends_in_time_on_each_model(
    forks: subprocess.Popen[str], tmp_path: Path, key: str
) -> None:
    arguments = VALUES.get(key, ["--" + key.replace("_", "-")])
    runs = []
    for name in ("digits_cnn", "int8", "one_operator"):
        folder = tmp_path / name
        folder.mkdir()
        words = ["run", str(MODELS / f"{name}.mge"), *arguments, "--iter", "2", "--in-process"]
        runs.append((words, str(folder), 30))
    assert forks.stdin is not None
    assert forks.stdout is not None
    forks.stdin.write(json.dumps(runs) + "\n")
    forks.stdin.flush()
    for code, (_, place, _) in zip(json.loads(forks.stdout.readline()), runs, strict=True):
        said = Path(place, "output").read_text(errors="replace")
        refused = key in NEED_A_FILE or (key in NOT_ON_INT8 and Path(place).name == "int8")
        # One that hung was killed, one that crashed has a signal's code too.
        assert code in ((0, 2) if key in NEED_CUDA else (2,) if refused else (0,)), (code, said)
        assert "Traceback" not in said
        assert ("lar: error: " in said) == bool(code)
        assert "expected one argument" not in said


# Options that cannot go together, or not here


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("--enable-chwn4", "--fast-run"),
        ("--enable-ioc16", "--fake-first"),
        ("--disable-mem-opt", "--enable-nhwcd4"),
        ("--optimize-for-inference", "--const-shape"),
    ],
)
def test_options_that_need_different_drivers_are_both_named(
    run_lar: RunLar, first: str, second: str
) -> None:
    done = run_lar("run", DIGITS, first, second)
    assert done.returncode == 2
    error, hint = done.stderr.strip().splitlines()
    assert first in error
    assert second in error
    assert re.search(rf"{first} needs (the driver )?graph", hint)
    assert re.search(rf"{second} needs (the driver )?lite", hint)


@pytest.mark.parametrize(
    ("model", "flags", "error", "hint"),
    [
        (
            "digits_cnn",
            ["--thread", "2", "--record-comp-seq2"],
            "--thread and --record-comp-seq2 cannot go together: ",
            "take --record-comp-seq",
        ),
        (
            "digits_cnn",
            ["--fake-first", "--record-comp-seq"],
            "--fake-first and --record-comp-seq cannot go together: ",
            "leave one",
        ),
        (
            "digits_cnn",
            ["--fake-first", "--enable-nchw44"],
            "--fake-first and --enable-nchw44 cannot go together on ",
            "leave one",
        ),
        (
            "int8",
            ["--fast-run", "--enable-nchw44"],
            "--fast-run: an operator of ",
            "--full-run takes",
        ),
    ],
)
def test_what_the_engine_fails_at_is_told_by_the_flags(
    run_lar: RunLar, model: str, flags: list[str], error: str, hint: str
) -> None:
    done = run_lar("run", str(MODELS / f"{model}.mge"), "--iter", "1", *flags)
    assert done.returncode == 2
    said = done.stderr.splitlines()
    assert any(line.startswith(f"lar: error: {error}") for line in said), done.stderr
    assert any(line.startswith(f"hint: {hint}") for line in said), done.stderr


def test_one_runner_may_record(run_lar: RunLar) -> None:
    done = run_lar("run", DIGITS, "--iter", "1", "--thread", "1", "--record-comp-seq2")
    assert done.returncode == 0, done.stderr


def test_a_crash_that_the_engine_announces_is_told_by_the_flag(run_lar: RunLar) -> None:
    done = run_lar("run", DIGITS, "--iter", "1", "--record-comp-seq2", "--enable-nchw44")
    assert done.returncode == 4
    assert "lar: error: --record-comp-seq2: MegEngine crashes in recording this" in done.stderr
    assert "hint: take --record-comp-seq, or leave the layout out" in done.stderr
    assert "may be damaged" not in done.stderr


@pytest.mark.parametrize(
    "flag", ["--full-run", "--enable-nchw44", "--winograd-transform", "--record-comp-seq2"]
)
def test_an_engine_that_cannot_names_those_that_can(run_lar: RunLar, flag: str) -> None:
    done = run_lar("run", str(MODELS / "digits_cnn.onnx"), flag)
    assert done.returncode == 2
    assert flag in done.stderr
    assert "megengine" in done.stderr


@pytest.mark.parametrize("first", ["nchw4", "nchw44", "nhwcd4"])
@pytest.mark.parametrize("second", ["nchw32", "chwn4", "nchw88"])
def test_two_layouts_exclude_each_other(run_lar: RunLar, first: str, second: str) -> None:
    done = run_lar("run", DIGITS, f"--enable-{first}", f"--enable-{second}")
    assert done.returncode == 2
    assert f"--enable-{first}" in done.stderr
    assert f"--enable-{second}" in done.stderr
