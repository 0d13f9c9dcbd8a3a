"""Models as people have them: each is run, dumped, compared, packed and profiled.

It gives what ONNX Runtime gives when it is run directly.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import lar
from tests.cli.runs import save_kinds
from tests.command_lines import run_lar
from tests.running.isolated_runs import finished

TABLES = json.loads(Path(__file__).with_name("input_kinds.json").read_text())

# The kinds of models in `kinds/`, and the flags that feed each.
KINDS = TABLES["kinds"]
each_kind = pytest.mark.parametrize(("kind", "flags"), KINDS)
# Text, many inputs of one name, a type that NumPy lacks, no inputs, nothing in them, an output of
# another shape than the model says.
ODDEST = ("classifier", "joined", "bfloat16", "without_inputs", "empty", "declared", "ranked")
each_odd_kind = pytest.mark.parametrize(("kind", "flags"), [it for it in KINDS if it[0] in ODDEST])


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the models."""
    return save_kinds(tmp_path_factory.mktemp("kinds") / "kinds")


@each_kind
def test_every_kind_is_compared_with_the_truth(kinds: Path, kind: str, flags: list[str]) -> None:
    model = str(kinds / f"{kind}.onnx")
    done = run_lar("compare", model, model, "--truth", *flags, code=0)
    assert "result: the same within the tolerance" in done.stdout
    assert "A rounds as it must" in done.stdout


@each_odd_kind
def test_a_kind_is_profiled_and_its_outputs_are_dumped(
    kinds: Path, kind: str, flags: list[str], tmp_path: Path
) -> None:
    written = ["--profile", "p.json", "--bin-out-dump", "out"]
    run_lar(str(kinds / f"{kind}.onnx"), "--iter", "2", *flags, *written, cwd=tmp_path, code=0)
    assert {tensor.run for tensor in lar.open_dump(tmp_path / "out")} == {0, 1, 2}
    assert run_lar("report", "p.json", cwd=tmp_path).returncode == 0


@each_odd_kind
def test_a_kind_is_packed_and_judged(
    kinds: Path, kind: str, flags: list[str], tmp_path: Path
) -> None:
    data = ["-d", flags[-1]] if "--input" in flags else ["-d", "#rand(0,1)", *flags]
    run_lar("pack", str(kinds / f"{kind}.onnx"), *data, "-o", "packed", cwd=tmp_path, code=0)
    for engine in ("onnxruntime", "reference"):
        run_lar("packed", "--iter", "1", "--engine", engine, cwd=tmp_path, code=0)


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        ("decoder", {"past": np.zeros((1, 2, 0, 4), "f4"), "x": np.ones((1, 2, 3, 4), "f4")}),
        ("optional", {"x": np.ones(3, "f4"), "w": np.full(3, 10, "f4")}),
        ("optional", {"x": np.ones(3, "f4")}),
        ("without_inputs", {}),
        ("classifier", {"x": np.array([["a"], ["b"]])}),
        ("window", {"x": np.ones((2, 4, 5), "f4"), "z": np.ones((2, 4), "f4")}),
        ("split", {"x": np.arange(6, dtype="f4").reshape(2, 3)}),
        ("any_rank", {"x": np.full((2, 1, 3), -1, "f4")}),
    ],
)
def test_every_kind_gives_what_onnx_runtime_gives(
    kinds: Path, kind: str, given: dict[str, Any]
) -> None:
    model = str(kinds / f"{kind}.onnx")
    found = finished(lar.run(model, given or None, iter=2, keep_outputs=True))
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    wanted: dict[str, Any] = {}
    for output, expected in zip(session.get_outputs(), session.run(None, given), strict=True):
        if not isinstance(expected, list):
            wanted[output.name] = expected
        elif isinstance(expected[0], dict):
            for key in expected[0]:
                wanted[f"{output.name}[{key}]"] = [each[key] for each in expected]
        else:
            wanted |= {f"{output.name}[{at}]": each for at, each in enumerate(expected)}
    assert [*found.arrays] == [*wanted]
    for name, array in found.arrays.items():
        np.testing.assert_array_equal(array, wanted[name])


def test_only_what_is_given_must_be_given(kinds: Path) -> None:
    done = run_lar("window.onnx", "--iter", "1", "--input", "x:{3,4,9}", cwd=kinds, code=0)
    assert "--input: z is not given, and generated: float32 {3,4} (uniform, seed 0)" in done.stderr


@each_odd_kind
def test_what_a_dump_was_fed_with_feeds_the_other_side(
    kinds: Path, kind: str, flags: list[str], tmp_path: Path
) -> None:
    model = str(kinds / f"{kind}.onnx")
    run_lar(model, *flags, "--bin-io-dump", "dump", "--iter", "1", cwd=tmp_path, code=0)
    done = run_lar("compare", "dump", model, cwd=tmp_path, code=0)
    assert "result: the same within the tolerance" in done.stdout


def test_a_shape_is_recorded_and_varies(kinds: Path) -> None:
    vary = ["--vary", "shape={batch=1,n=9},{batch=4,n=9}", "--budget", "0.1", "--json", "-"]
    bench = lar.read_bench(run_lar("bench", "window.onnx", *vary, cwd=kinds, code=0).stdout)
    specs = [variant.spec for variant in bench.variants]
    assert [spec.shape for spec in specs if spec] == [{"batch": 1, "n": 9}, {"batch": 4, "n": 9}]


def test_info_counts_at_a_shape(kinds: Path) -> None:
    lines = run_lar("info", "window.onnx", cwd=kinds).stdout
    assert "input   x     float32  {batch,4,n}" in lines
    assert "FLOPs: N/A" in lines
    for flags in (["--shape", "batch=2,n=9"], ["--input", "x:{2,4,9}"]):
        lines = run_lar("info", "window.onnx", *flags, cwd=kinds).stdout
        assert "FLOPs: 1,408;" in lines
        assert "memory: inputs 320 B, outputs 32 B, between operators 288 B" in lines
        assert "at: x {2,4,9}, z {2,4}" in lines
    assert "optional input  w " in run_lar("info", "optional.onnx", cwd=kinds).stdout
    assert "{?,3}" in run_lar("info", "negative.onnx", cwd=kinds).stdout
