"""How far ONNX Runtime optimises a graph: levels, optimisers left out, the blocked layout."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest

from lar.engines.onnxruntime import blocked_layout
from lar.engines.onnxruntime.optimizers import OPTIMIZERS, RULES
from lar.errors import UsageError
from tests.engines.onnxruntime.drivers import DIGITS, MOBILENET, load, make_driver, save_model

if TYPE_CHECKING:
    from tests.conftest import RunLar

BLOCKED = "com.microsoft.nchwc"
FUSED = "FusedConv"


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
    factors = ("scale", "b", "mean", "var")
    text = f"""(float[1,16,8,8] data) => (float[] out) {{
        conv = Conv(data, w)
        norm = BatchNormalization(conv, {", ".join(factors)})
        out = Relu(norm)
    }}"""
    weights = {name: numbers.random(16, np.float32) + 1 for name in factors}
    filters = numbers.random((16, 16, 3, 3), np.float32)
    return save_model(tmp_path / "small.onnx", text, w=filters, **weights)


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


@pytest.mark.parametrize(
    "flags",
    [
        ["--disable-optimizer", "ConvBNFusion", "--disable-optimizer", "ConvActivationFusion"],
        ["--disable-optimizer", "ConvActivationFusion,ConvBNFusion"],
    ],
)
def test_several_optimisers_are_left_out(
    run_lar: RunLar, small_network: Path, tmp_path: Path, flags: list[str]
) -> None:
    place = tmp_path / "optimized.onnx"
    level = ["--graph-optimization-level", "extended"]
    ended = run_lar(str(small_network), *flags, *level, "--model-dump", str(place), "--iter", "1")
    assert ended.returncode == 0, ended.stderr
    nodes = {f"{node.domain}:{node.op_type}" for node in onnx.load(place).graph.node}
    assert nodes == {":Conv", ":BatchNormalization", ":Relu"}


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
    ended = run_lar(str(DIGITS), "--disable-optimizer", "ConvBNFusion,")
    assert ended.returncode == 2
    assert "no optimiser ''" in ended.stderr


@pytest.mark.parametrize(
    ("flags", "other"),
    [
        (["--graph-optimization-level", "extended"], "--graph-optimization-level extended"),
        (["--disable-optimizer", "NchwcTransformer"], "--disable-optimizer NchwcTransformer"),
        (["--disable-optimizer", "ConvBNFusion,NchwcTransformer"], "--disable-optimizer Nchwc"),
    ],
)
def test_the_blocked_layout_needs_what_gives_it(
    run_lar: RunLar, flags: list[str], other: str
) -> None:
    ended = run_lar(str(DIGITS), "--enable-nchw88", *flags)
    assert ended.returncode == 2
    assert f"--enable-nchw88 and {other}" in ended.stderr
    assert " exclude each other" in ended.stderr


def test_the_blocked_layout_goes_with_the_level_all(run_lar: RunLar) -> None:
    ended = run_lar(str(DIGITS), "--enable-nchw88", "--graph-optimization-level", "all")
    assert ended.returncode == 0, ended.stderr


def test_a_processor_without_the_blocked_layout_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine has the layout's operators only where it has the layout."""
    load(enable_nchw88=True)
    probe = blocked_layout.probe().replace(b"ReorderInput", b"NoSuchInput_")
    monkeypatch.setattr(blocked_layout, "probe", lambda: probe)
    with pytest.raises(UsageError, match="has no blocked layout for this processor"):
        load(enable_nchw88=True)
