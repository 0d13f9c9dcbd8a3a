"""What each option does in a real session of ONNX Runtime, and that results stay the same."""

from __future__ import annotations

import _ctypes
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from lar.engines import ENGINES, rows_of
from lar.engines.onnxruntime import blocked_layout
from lar.engines.onnxruntime.optimizers import OPTIMIZERS, RULES
from lar.engines.onnxruntime.session import SessionDriver
from lar.errors import UsageError
from lar.records import RunSpec

RunLar = Callable[..., "subprocess.CompletedProcess[str]"]

MODELS = Path(__file__).resolve().parents[3] / "models"
MOBILENET = MODELS / "mobilenet_v2.onnx"
DIGITS = MODELS / "digits_cnn.onnx"
BLOCKED = "com.microsoft.nchwc"
FUSED = "FusedConv"

usable_cores = sorted(os.sched_getaffinity(0))
two_cores = pytest.mark.skipif(len(usable_cores) < 2, reason="needs two cores")


def make_driver(model: Path, **settings: Any) -> SessionDriver:
    spec = RunSpec(
        model=str(model), engine="onnxruntime", driver="session", settings=dict(settings)
    )
    return SessionDriver(spec, rows_of(ENGINES["onnxruntime"]))


def load(model: Path = DIGITS, **settings: Any) -> SessionDriver:
    driver = make_driver(model, **settings)
    driver.load()
    return driver


def run(driver: SessionDriver) -> dict[str, Any]:
    """Run a loaded driver once, on numbers that are always the same."""
    numbers = np.random.default_rng(0)
    driver.feed(
        {
            info.name: numbers.random([size or 1 for size in info.shape], np.float32)
            for info in driver.inputs()
        }
    )
    driver.start()
    driver.wait()
    return {name: np.array(value) for name, value in driver.outputs().items()}


def optimized_nodes(model: Path, folder: Path, **settings: Any) -> Counter[str]:
    """Count the nodes that a session runs, as `domain:operator`."""
    driver = make_driver(model, **settings)
    path = folder / "optimized.onnx"
    driver.options.optimized_model_filepath = str(path)
    driver.options.log_severity_level = 3  # or it warns that the model is for this CPU alone
    driver.load()
    return Counter(f"{node.domain}:{node.op_type}" for node in onnx.load(path).graph.node)


def has_blocked_nodes(nodes: Mapping[str, int]) -> bool:
    return any(name.startswith(BLOCKED) for name in nodes)


def threads_of_process() -> set[str]:
    return set(os.listdir("/proc/self/task"))


# ---- threads ----


@pytest.mark.parametrize(
    ("settings", "threads"),
    [
        ({"cpu_default": True}, 1),
        ({"multithread": 1}, 1),
        ({"multithread": 3}, 3),
        ({"multithread_default": 3}, 3),
    ],
)
def test_threads_are_as_many_as_asked_for_with_the_calling_one(
    settings: dict[str, Any], threads: int
) -> None:
    before = threads_of_process()
    driver = load(**settings)
    run(driver)
    assert len(threads_of_process() - before) == threads - 1


# In a process of its own: the calling thread stays bound.
BIND = """
import json, os, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from lar.engines import ENGINES, rows_of
from lar.engines.onnxruntime.session import SessionDriver
from lar.records import RunSpec

def cores():
    found = {}
    for status in Path("/proc/self/task").glob("*/status"):
        (line,) = [x for x in status.read_text().splitlines() if x.startswith("Cpus_allowed_list")]
        found[int(status.parent.name)] = line.split()[1]
    return found

before = cores()
spec = RunSpec(
    model=sys.argv[2], engine="onnxruntime", driver="session", settings=json.loads(sys.argv[3])
)
driver = SessionDriver(spec, rows_of(ENGINES["onnxruntime"]))
driver.load()
expected, deadline = json.loads(sys.argv[4]), time.monotonic() + 10
while True:
    after = cores()
    started = [after[thread] for thread in sorted(after) if thread not in before]
    found = [after[os.getpid()], *started]
    # A thread that the engine starts binds itself, in its own time.
    if found == expected or time.monotonic() > deadline:
        break
    time.sleep(0.01)
print(json.dumps(found))
"""


def check_cores(expected: list[str], **settings: Any) -> None:
    """Check the core that each thread is bound to, the calling thread's first."""
    arguments = [str(MODELS.parent), str(DIGITS), json.dumps(settings), json.dumps(expected)]
    ended = subprocess.run(
        [sys.executable, "-c", BIND, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert json.loads(ended.stdout) == expected


@two_cores
@pytest.mark.parametrize(
    "threads", [{}, {"multithread": 2}, {"multithread_default": 2}], ids=["", "n", "default"]
)
def test_threads_are_bound_to_the_cores_in_their_order(threads: dict[str, int]) -> None:
    first, second = map(str, usable_cores[:2])
    check_cores([first, second], multi_thread_core_ids=f"{first},{second}", **threads)
    check_cores([second, first], multi_thread_core_ids=f"{second},{first}", **threads)


def test_one_core_binds_the_calling_thread_alone() -> None:
    core = str(usable_cores[-1])
    check_cores([core], multi_thread_core_ids=core)
    check_cores([core], multi_thread_core_ids=core, cpu_default=True)


def test_a_core_for_every_thread_even_where_two_share_one() -> None:
    core = str(usable_cores[0])
    check_cores([core] * 3, multi_thread_core_ids=f"{core},{core},{core}")


def test_a_core_that_cannot_be_used_is_refused(run_lar: RunLar) -> None:
    ended = run_lar(str(DIGITS), "--multi-thread-core-ids", "9999")
    assert ended.returncode == 2
    assert "--multi-thread-core-ids 9999: core 9999 cannot be used here" in ended.stderr
    assert f"usable cores: {', '.join(map(str, usable_cores))}" in ended.stderr


@pytest.mark.parametrize(
    "threads", [["--multithread", "3"], ["--multithread-default", "1"], ["--cpu-default"]]
)
def test_cores_must_be_as_many_as_threads(run_lar: RunLar, threads: list[str]) -> None:
    core = usable_cores[0]
    ended = run_lar(str(DIGITS), "--multi-thread-core-ids", f"{core},{core}", *threads)
    assert ended.returncode == 2
    assert f"{threads[0]} and --multi-thread-core-ids {core},{core} do not fit" in ended.stderr


# ---- providers ----


@pytest.mark.parametrize("name", ["cpu", "CPU", "CPUExecutionProvider"])
def test_a_provider_has_a_short_name_too(name: str) -> None:
    driver = load(provider=name)
    assert driver.session.get_providers() == ["CPUExecutionProvider"]
    facts = driver.facts()
    assert (facts.device, facts.libraries["provider"]) == ("cpu", "CPUExecutionProvider")


def test_a_run_records_its_provider(run_lar: RunLar) -> None:
    ended = run_lar(str(DIGITS), "--provider", "cpu", "--json", "-", "--iter", "1")
    assert ended.returncode == 0, ended.stderr
    engine = json.loads(ended.stdout)["engine"]
    assert engine["libraries"]["provider"] == "CPUExecutionProvider"


def test_an_unknown_provider_is_refused(run_lar: RunLar) -> None:
    ended = run_lar(str(DIGITS), "--provider", "gpuu")
    assert ended.returncode == 2
    assert "no provider 'gpuu'" in ended.stderr
    assert "cpu" in ended.stderr.split("installed:")[1]


def test_a_provider_of_another_package_is_refused_naming_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = make_driver(DIGITS, provider="openvino")
    monkeypatch.setattr(
        driver.onnxruntime, "get_available_providers", lambda: ["CPUExecutionProvider"]
    )
    assert "provider" not in driver.facts().libraries
    with pytest.raises(UsageError, match="no provider 'openvino'") as caught:
        driver.load()
    assert caught.value.hint == "installed: cpu; pip install onnxruntime-openvino in its place"


def test_a_provider_that_was_not_used_is_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    driver = make_driver(DIGITS, provider="cuda")
    facts = driver.facts()
    assert facts.device == "cuda:0"
    monkeypatch.setattr(
        driver.onnxruntime,
        "get_available_providers",
        lambda: ["CUDAExecutionProvider", "CPUExecutionProvider"],
    )
    session = driver.onnxruntime.InferenceSession
    asked: list[Any] = []

    def fall_back(*args: Any, providers: Any, **keywords: Any) -> Any:
        """Do what ONNX Runtime does without --provider: run on the CPU."""
        asked.extend(providers)
        key = "session.disable_cpu_ep_fallback"
        assert driver.options.get_session_config_entry(key) == "1"
        return session(str(DIGITS))

    monkeypatch.setattr(driver.onnxruntime, "InferenceSession", fall_back)
    with pytest.raises(UsageError, match="--provider cuda: ONNX Runtime could not use the device"):
        driver.load()
    assert asked == ["CUDAExecutionProvider"]


def test_a_provider_does_not_fall_back_to_the_cpu(run_lar: RunLar) -> None:
    import onnxruntime

    if "AzureExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("needs a provider that runs no operator of the model")
    ended = run_lar(str(DIGITS), "--provider", "azure")
    assert ended.returncode == 2
    assert "the provider cannot run it, or not all of its operators" in ended.stderr


@pytest.mark.parametrize("flag", ["cpu", "cpu_default"])
def test_a_provider_and_the_cpu_exclude_each_other(
    flag: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = make_driver(DIGITS, provider="cuda", **{flag: True})
    monkeypatch.setattr(
        driver.onnxruntime, "get_available_providers", lambda: ["CUDAExecutionProvider"]
    )
    with pytest.raises(UsageError, match="and --provider cuda exclude each other"):
        driver.load()


# ---- optimisation ----


@pytest.fixture
def small_network(tmp_path: Path) -> Path:
    """A convolution, a normalisation that can be folded into it, and an activation."""
    numbers = np.random.default_rng(0)
    constants = {
        "w": numbers.random((16, 16, 3, 3), np.float32),
        **{name: numbers.random(16, np.float32) + 1 for name in ("scale", "b", "mean", "var")},
    }
    nodes = [
        helper.make_node("Conv", ["data", "w"], ["conv"]),
        helper.make_node("BatchNormalization", ["conv", "scale", "b", "mean", "var"], ["norm"]),
        helper.make_node("Relu", ["norm"], ["out"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("data", TensorProto.FLOAT, [1, 16, 8, 8])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    path = tmp_path / "small.onnx"
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, path)
    return path


def test_each_level_optimises_further(small_network: Path, tmp_path: Path) -> None:
    def nodes(level: str) -> set[str]:
        return set(optimized_nodes(small_network, tmp_path, graph_optimization_level=level))

    assert nodes("disable") == {":Conv", ":BatchNormalization", ":Relu"}
    assert nodes("basic") == {":Conv", ":Relu"}
    assert nodes("extended") == {f"com.microsoft:{FUSED}"}
    assert nodes("all") == set(optimized_nodes(small_network, tmp_path))


@pytest.mark.parametrize("model", [MOBILENET, DIGITS], ids=lambda path: path.stem)
def test_the_blocked_layout_is_on_until_it_is_disabled(model: Path, tmp_path: Path) -> None:
    default = optimized_nodes(model, tmp_path)
    if not has_blocked_nodes(default):
        pytest.skip("ONNX Runtime has no blocked layout for this CPU")
    assert optimized_nodes(model, tmp_path, enable_nchw88=True) == default
    without = optimized_nodes(model, tmp_path, disable_optimizer="NchwcTransformer")
    assert not has_blocked_nodes(without)
    assert without[f"com.microsoft:{FUSED}"] > 0
    extended = optimized_nodes(model, tmp_path, graph_optimization_level="extended")
    assert not has_blocked_nodes(extended)


def test_a_disabled_rule_is_left_out(small_network: Path, tmp_path: Path) -> None:
    without = optimized_nodes(small_network, tmp_path, disable_optimizer="ConvBNFusion")
    assert without[":BatchNormalization"] == 1


def registered(capfd: pytest.CaptureFixture[str], disabled: list[str]) -> set[str]:
    """Return the optimisers that a session has when some are disabled, as its log tells."""
    driver = make_driver(DIGITS, verbose=True)
    driver.disabled_optimizers = disabled
    capfd.readouterr()
    driver.load()
    return set(re.findall(r"GraphTransformer (\w+) modified", capfd.readouterr().err))


def test_the_names_of_optimisers_are_those_of_the_engine(
    capfd: pytest.CaptureFixture[str],
) -> None:
    assert registered(capfd, []) & OPTIMIZERS > {"ConstantFolding", "ConvActivationFusion"}
    # What is left cannot be left out at all.
    assert registered(capfd, sorted(OPTIMIZERS)) == {
        "CastFloat16Transformer",
        "EnsureUniqueDQForNodeUnit",
        "MemcpyTransformer",
        "RemoveDuplicateCastTransformer",
    }


def test_the_names_of_rules_are_those_of_the_engine(capfd: pytest.CaptureFixture[str]) -> None:
    """The transformer that runs rules is gone when all of them are, and back with any one."""
    runners = {"Level1_RuleBasedTransformer", "Level2_RuleBasedTransformer"}
    assert not registered(capfd, sorted(RULES)) & runners
    for rule in RULES:
        assert registered(capfd, sorted(RULES - {rule})) & runners, rule


def test_a_misspelt_optimiser_is_refused_with_the_nearest_name(run_lar: RunLar) -> None:
    ended = run_lar(str(DIGITS), "--disable-optimizer", "nchwcTransfomer")
    assert ended.returncode == 2
    assert "no optimiser 'nchwcTransfomer'" in ended.stderr
    assert "did you mean NchwcTransformer?" in ended.stderr


@pytest.mark.parametrize(
    "other", ["--graph-optimization-level extended", "--disable-optimizer NchwcTransformer"]
)
def test_the_blocked_layout_needs_what_gives_it(run_lar: RunLar, other: str) -> None:
    ended = run_lar(str(DIGITS), "--enable-nchw88", *other.split())
    assert ended.returncode == 2
    assert f"--enable-nchw88 and {other} exclude each other" in ended.stderr


def test_the_blocked_layout_goes_with_the_level_all(run_lar: RunLar) -> None:
    ended = run_lar(str(DIGITS), "--enable-nchw88", "--graph-optimization-level", "all")
    assert ended.returncode == 0, ended.stderr


def test_a_processor_without_the_blocked_layout_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine has the layout's operators only where it has the layout."""
    load(enable_nchw88=True)
    probe = blocked_layout.PROBE.replace(b"ReorderInput", b"NoSuchInput_")
    monkeypatch.setattr(blocked_layout, "PROBE", probe)
    with pytest.raises(UsageError, match="has no blocked layout for this processor"):
        load(enable_nchw88=True)


# ---- memory ----


def test_without_memory_optimisation_operators_share_none(run_lar: RunLar, tmp_path: Path) -> None:
    """A chain of 20 operators on tensors of 4 MiB."""
    shape, names = [1024, 1024], [f"t{index}" for index in range(21)]
    nodes = [
        helper.make_node(("Sin", "Cos")[index % 2], [before], [after])
        for index, (before, after) in enumerate(pairwise(names))
    ]
    graph = helper.make_graph(
        nodes,
        "chain",
        *(
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)]
            for name in (names[0], names[-1])
        ),
    )
    path = tmp_path / "chain.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path
    )

    def peak(*flags: str) -> int:
        ended = run_lar(str(path), "--iter", "1", "--json", "-", *flags)
        assert ended.returncode == 0, ended.stderr
        return int(json.loads(ended.stdout)["peak_memory_bytes"])

    assert peak("--disable-mem-opt") - peak() > 4 * 4 * 2**20


# ---- libraries of operators ----

# It is called with the session's options and the engine's interface, and has no operators.
LIBRARY = """
#include <stdio.h>
void *RegisterCustomOps(void *options, const void *api) {
    FILE *file = fopen("called", "a");
    fprintf(file, "%d%d", options != 0, api != 0);
    fclose(file);
    return 0;
}
"""


def test_a_library_of_operators_is_loaded(run_lar: RunLar, tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler, cc")
    (tmp_path / "operators.c").write_text(LIBRARY)
    command = [compiler, "-shared", "-fPIC", "-o", "operators.so", "operators.c"]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    ended = run_lar(str(DIGITS), "--c-opr-lib", "operators.so", "--iter", "1", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert (tmp_path / "called").read_text() == "11"


@pytest.mark.parametrize(
    ("name", "complaint", "hint"),
    [
        ("nowhere.so", "no such file", "check the path"),
        (str(MODELS), "no such file", "check the path"),
        (str(DIGITS), "is not a library of operators", "invalid ELF header"),
        (_ctypes.__file__, "is not a library of operators", "must export RegisterCustomOps"),
    ],
)
def test_what_is_no_library_of_operators_is_refused(name: str, complaint: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        load(c_opr_lib=name)
    assert caught.value.message.startswith(f"--c-opr-lib: {name}: {complaint}")
    assert hint in caught.value.hint


# ---- results ----


def test_reproducible_sets_the_session_and_gives_the_same_bits() -> None:
    drivers = [load(MOBILENET, reproducible=True, multithread=2) for _ in range(2)]
    assert all(driver.options.use_deterministic_compute for driver in drivers)
    assert not load().options.use_deterministic_compute
    first, *others = [run(driver) for driver in drivers for _ in range(3)]
    for other in others:
        assert all(first[name].tobytes() == other[name].tobytes() for name in first)


def test_weight_preprocess_prepacks_weights_as_the_default_does() -> None:
    driver = load(MOBILENET, weight_preprocess=True)
    assert driver.options.get_session_config_entry("session.disable_prepacking") == "0"
    default, packed = run(load(MOBILENET)), run(driver)
    assert all(np.array_equal(default[name], packed[name]) for name in default)


@pytest.mark.parametrize(
    "settings",
    [
        {"cpu_default": True},
        {"multithread": 2},
        {"multithread_default": 2},
        {"provider": "cpu"},
        {"graph_optimization_level": "disable"},
        {"graph_optimization_level": "basic"},
        {"graph_optimization_level": "extended"},
        {"graph_optimization_level": "all"},
        {"disable_optimizer": "NchwcTransformer"},
        {"enable_nchw88": True},
        {"reproducible": True},
        {"weight_preprocess": True},
        {"disable_mem_opt": True},
    ],
    ids=lambda settings: " ".join(f"{key}={value}" for key, value in settings.items()),
)
@pytest.mark.parametrize("model", [MOBILENET, DIGITS], ids=lambda path: path.stem)
def test_results_stay_those_of_the_default(model: Path, settings: dict[str, Any]) -> None:
    expected, found = run(load(model)), run(load(model, **settings))
    assert expected.keys() == found.keys()
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-4)
