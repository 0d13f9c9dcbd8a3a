"""What each option does in a real session of ONNX Runtime, and that results stay the same."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import lar
from lar.engines.onnxruntime import kernels, providers
from lar.engines.onnxruntime.providers import CudaDevice
from lar.engines.onnxruntime.rules import OF_RUNS, OF_SESSIONS, OPTIMIZERS, REWRITE_RULES
from lar.errors import UsageError
from lar.running.variants import make_variants, parse_vary
from tests.conftest import RunLar
from tests.engines.onnx_models import save_model, text_of
from tests.engines.onnxruntime.drivers import (
    ALWAYS,
    DIGITS,
    MOBILENET,
    bits_of,
    load,
    make_driver,
    run,
)
from tests.engines.runs import failure_of, run_ok

# Providers


@pytest.mark.parametrize("name", ["cpu", "CPU", "CPUExecutionProvider"])
def test_a_provider_has_a_short_name_too(name: str) -> None:
    driver = load(provider=name)
    assert driver.session.get_providers() == ["CPUExecutionProvider"]
    facts = driver.facts()
    assert (facts.device, facts.libraries["provider"]) == ("cpu", "CPUExecutionProvider")


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
    package = "cpu; pip install onnxruntime-openvino in place of this package"
    assert caught.value.hint == f"installed providers: {package}; `lar engines` lists the devices"


def test_a_provider_that_was_not_used_is_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "cuda_devices", lambda: (CudaDevice("a GPU", 9),))
    driver = make_driver(DIGITS, provider="cuda")
    assert driver.facts().device == "cuda:0"
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
    with pytest.raises(UsageError, match="--provider cuda: ONNX Runtime can use only CPU"):
        driver.load()
    assert asked == ["CUDAExecutionProvider"]


def test_a_provider_does_not_fall_back_to_the_cpu(run_lar: RunLar) -> None:
    import onnxruntime

    if "AzureExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("needs a provider that runs no operator of the model")
    ended = run_lar(str(DIGITS), "--provider", "azure", code=2)
    assert "digits_cnn.onnx: the provider azure cannot run " in ended.stderr
    assert "hint: with --provider azure,cpu, the CPU runs the operators that azure" in ended.stderr
    assert run_lar(str(DIGITS), "--provider", "azure,cpu", "--iter", "1").returncode == 0


# Memory


def test_without_memory_optimisation_operators_share_none(run_lar: RunLar, tmp_path: Path) -> None:
    """A chain of 20 operators on tensors of 4 MiB.

    What an operator has released goes back to the C library, which may give it to the next one, or
    to the system where each tensor has a mapping of its own. In one heap, none fits where another
    was.
    """
    in_one_heap = ["--engine-env", f"MALLOC_MMAP_THRESHOLD_={2**30}"]
    nodes = "\n".join(f"t{at + 1} = {('Sin', 'Cos')[at % 2]}(t{at})" for at in range(20))
    text = f"(float[1024,1024] t0) => (float[1024,1024] t20) {{ {nodes} }}"
    path = save_model(tmp_path / "chain.onnx", text)

    def peak(*flags: str) -> int:
        ended = run_lar(str(path), "--iter", "1", "--json", "-", *in_one_heap, *flags, code=0)
        return int(json.loads(ended.stdout)["peak_memory_bytes"])

    # Where the heap begins is drawn anew in each process; from some places one hole fits all.
    assert any(peak("--disable-mem-opt") - peak() > 4 * 4 * 2**20 for _ in range(12))


def test_a_library_of_operators_is_loaded(run_lar: RunLar, tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler, cc")
    source = str(Path(__file__).with_name("operators.c"))
    command = [compiler, "-shared", "-fPIC", "-o", "operators.so", source]
    subprocess.run(command, cwd=tmp_path, check=True, timeout=60)
    run_lar(str(DIGITS), "--c-opr-lib", "operators.so", "--iter", "1", cwd=tmp_path, code=0)
    assert (tmp_path / "called").read_text() == "11"


# Results


def test_reproducible_sets_the_session_and_gives_the_same_bits() -> None:
    drivers = [load(MOBILENET, reproducible=True, multithread=2) for _ in range(2)]
    assert all(driver.options.use_deterministic_compute for driver in drivers)
    assert not load().options.use_deterministic_compute
    first, *others = [bits_of(run(driver)) for driver in drivers for _ in range(3)]
    assert others == [first] * 5


def test_weight_preprocess_prepacks_weights_as_the_default_does() -> None:
    driver = load(MOBILENET, weight_preprocess=True)
    assert driver.options.get_session_config_entry("session.disable_prepacking") == "0"
    assert bits_of(run(driver)) == bits_of(run(load(MOBILENET)))


def test_threads_sleep_and_memory_is_given_back_where_asked_for() -> None:
    driver = load(no_spinning=True, no_arena=True)
    spinning = driver.options.get_session_config_entry("session.intra_op.allow_spinning")
    assert (spinning, driver.options.enable_cpu_mem_arena) == ("0", False)
    assert "logits" in run(driver)
    assert make_driver(DIGITS).options.enable_cpu_mem_arena


# How far a graph is optimised


BLOCKED = "com.microsoft.nchwc"
FUSED = "FusedConv"
BOTH = "ConvActivationFusion,ConvBNFusion"


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


@pytest.fixture
def small_network(tmp_path: Path) -> Path:
    """A convolution, a normalisation that can be folded into it, and an activation."""
    numbers = np.random.default_rng(0)
    weights = {name: numbers.random(16, np.float32) + 1 for name in ("scale", "b", "mean", "var")}
    filters = numbers.random((16, 16, 3, 3), np.float32)
    return save_model(tmp_path / "small.onnx", text_of("normalised"), {"w": filters, **weights})


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


@pytest.mark.parametrize("names", [["ConvBNFusion", "ConvActivationFusion"], [BOTH]])
def test_several_optimisers_are_left_out(
    run_lar: RunLar, small_network: Path, tmp_path: Path, names: list[str]
) -> None:
    place = tmp_path / "optimized.onnx"
    flags = [word for name in names for word in ("--disable-optimizer", name)]
    level = ["--graph-optimization-level", "extended"]
    run_lar(str(small_network), *flags, *level, "--model-dump", str(place), "--iter", "1", code=0)
    nodes = {f"{node.domain}:{node.op_type}" for node in onnx.load(place).graph.node}
    assert nodes == {":Conv", ":BatchNormalization", ":Relu"}


def registered(capfd: pytest.CaptureFixture[str], disabled: list[str]) -> set[str]:
    """Return the optimisers that a session has when some are disabled, as its log tells."""
    driver = make_driver(DIGITS, verbose=True)
    driver.disabled_optimizers = disabled
    capfd.readouterr()
    driver.load()
    return set(re.findall(r"GraphTransformer (\w+) modified", capfd.readouterr().err))


def test_the_names_of_optimisers_are_those_of_the_engine(capfd: pytest.CaptureFixture[str]) -> None:
    assert registered(capfd, []) & OPTIMIZERS > {"ConstantFolding", "ConvActivationFusion"}
    assert registered(capfd, sorted(OPTIMIZERS)) == ALWAYS


def test_the_names_of_rules_are_those_of_the_engine(capfd: pytest.CaptureFixture[str]) -> None:
    """The transformer that runs rules is gone when all of them are, and back with any one."""
    runners = {"Level1_RuleBasedTransformer", "Level2_RuleBasedTransformer"}
    assert not registered(capfd, sorted(REWRITE_RULES)) & runners
    for rule in REWRITE_RULES:
        assert registered(capfd, sorted(REWRITE_RULES - {rule})) & runners, rule


def test_a_processor_without_the_blocked_layout_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine has the layout's operators only where it has the layout."""
    load(enable_nchw88=True)
    probe = kernels.probe().replace(b"ReorderInput", b"NoSuchInput_")
    monkeypatch.setattr(kernels, "probe", lambda: probe)
    with pytest.raises(UsageError, match="has no blocked layout for this processor"):
        load(enable_nchw88=True)


# Configuration entries


DENORMALS = "session.set_denormal_as_zero=1"


def test_entries_reach_the_session_and_its_runs(tmp_path: Path) -> None:
    """The engine writes its statistics of memory only where the entry says so, and refuses an
    arena that is not there in each run."""
    place = tmp_path / "partition"
    entry = f"session.collect_node_memory_stats_to_file={place}"
    result = run_ok(DIGITS, engine_option=[entry, "gpu_graph_id=-1"], iter=1)
    assert result.spec.settings == {"engine_option": f"{entry}\ngpu_graph_id=-1"}
    result = lar.run(DIGITS, engine_option="memory.enable_memory_arena_shrinkage=tpu:0", iter=1)
    assert result.status == "failed"
    assert "shrink" in failure_of(result).message


@pytest.mark.parametrize("entry", ["ep.share_ep_contexts=1", "session.disable_prepacking="])
def test_an_entry_of_a_provider_and_an_empty_value_are_taken(entry: str) -> None:
    assert lar.run(DIGITS, engine_option=entry, iter=1).status == "ok"


def test_no_name_is_of_both_kinds() -> None:
    assert not OF_SESSIONS & OF_RUNS


def test_an_optimised_model_is_written_with_the_entries(tmp_path: Path) -> None:
    packed = tmp_path / "packed.onnx"
    run_ok(DIGITS, model_dump=str(packed), engine_option=[DENORMALS, "ep.x=1"], iter=0)
    assert packed.exists()


def test_variants_differ_in_properties() -> None:
    axis = parse_vary("engine-option=session.disable_prepacking=1,")
    variants = make_variants([str(DIGITS)], [axis], {"engine_option": [DENORMALS]})
    assert [variant.spec and variant.spec.settings for variant in variants] == [
        {"engine_option": f"{DENORMALS}\nsession.disable_prepacking=1"},
        {},
    ]
