"""A model with its settings in one file: what it holds is what it does when it is loaded alone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lar
from lar.engines.megengine.cache import CACHES, cache_of, operators_of, read_cache, winograd_of
from lar.engines.megengine.packed_model import open_packed
from lar.options.command_line import parse_values
from lar.options.option import flag_of
from lar.records.tuning import ModelSpace, OptionValue
from lar.running.plan import plan_run
from lar.tuning.outcome import write_packed
from tests.conftest import RunLar

MODELS = Path(__file__).resolve().parents[2] / "models"
DIGITS, ONNX = str(MODELS / "digits_cnn.mge"), str(MODELS / "digits_cnn.onnx")


OPTIONS: dict[str, Any] = {"multithread": 2, "engine_env": ["A=1", "B=2"]}


def pack(model: str, engine: str, options: dict[str, OptionValue], place: Path) -> list[str]:
    space = ModelSpace(model=model, engine=engine, dimensions=())
    return write_packed(space, plan_run(model, parse_values(options)), str(place))


def test_a_packed_model_alone_does_what_the_settings_say(tmp_path: Path, run_lar: RunLar) -> None:
    searched, edited = tmp_path / "searched.cache", tmp_path / "edited.cache"
    layout: dict[str, Any] = {"enable_nchw44": True}
    search = lar.run(
        DIGITS, **layout, fast_run=True, fast_run_algo_policy=searched, iter=0, warmup_iter=1
    )
    assert search.status == "ok", search.failure
    # An algorithm that a run without the cache does not take.
    operator = next(it for it in operators_of(read_cache(searched)) if len(it.algorithms) > 1)
    picked = operator.algorithms[-1].name
    CACHES.pick(str(searched), str(operator.number), picked, str(edited))
    options: dict[str, Any] = {**layout, "fast_run_algo_policy": str(edited), "multithread": 2}

    out = tmp_path / "out.mge"
    said = pack(DIGITS, "megengine", {**options, "no_spinning": True}, out)
    assert said[0] == (
        f"packed: {out}: --multithread 2 --enable-nchw44, the cache of --fast-run-algo-policy"
    )
    assert said[1] == "not in the file: --no-spinning: add this to each run of the file"
    packed = open_packed(out)
    assert packed.cache == edited.read_bytes()
    assert packed.info
    info = json.loads(packed.info)
    assert info["device"] == {"type": "CPU", "number_threads": 2}
    assert info["extra_info"]["not_held"] == {"no_spinning": True}

    wanted = lar.run(DIGITS, **options, iter=1, keep_outputs=True)
    edited.unlink()
    searched.unlink()
    alone = lar.run(out, iter=1, keep_outputs=True)
    assert alone.status == "ok", alone.failure
    for name, array in wanted.arrays.items():
        np.testing.assert_allclose(alone.arrays[name], array, rtol=1e-4, atol=1e-5)
    assert picked in re.findall(r"algo=(\S+)", run_lar(str(out), "--iter", "1", "--verbose").stderr)


def test_winograd_is_chosen_in_the_cache_that_is_packed(tmp_path: Path) -> None:
    cache, out = tmp_path / "found.cache", tmp_path / "out.mge"
    layout: dict[str, Any] = {"enable_nchw44": True, "winograd_transform": True}
    search = lar.run(DIGITS, **layout, fast_run=True, fast_run_algo_policy=cache, iter=0)
    assert search.status == "ok", search.failure
    said = pack(DIGITS, "megengine", {**layout, "fast_run_algo_policy": str(cache)}, out)
    assert "--winograd-transform" in said[0]
    packed = open_packed(out)
    assert packed.info
    assert packed.cache
    assert json.loads(packed.info)["options"] == {"weight_preprocess": True}
    for operator in operators_of(cache_of(packed.cache)):
        names = [each.name for each in operator.algorithms]
        assert bool(winograd_of(names[0])) == any(map(winograd_of, names))
    wanted = lar.run(DIGITS, **layout, fast_run_algo_policy=cache, iter=1, keep_outputs=True)
    alone = lar.run(out, iter=1, keep_outputs=True)
    for name, array in wanted.arrays.items():
        np.testing.assert_array_equal(alone.arrays[name], array)


def test_of_onnx_runtime_it_is_the_optimised_model(tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    said = pack(ONNX, "onnxruntime", {**OPTIONS, "graph_optimization_level": "all"}, out)
    assert said == [
        f"packed: {out}: --graph-optimization-level all",
        "not in the file: --multithread 2: add this to each run of the file",
        "not in the file: the environment variables A=1 B=2",
    ]
    wanted, alone = (lar.run(model, iter=1, keep_outputs=True) for model in (ONNX, out))
    for name, array in wanted.arrays.items():
        np.testing.assert_allclose(alone.arrays[name], array, rtol=1e-4, atol=1e-5)
    assert out.read_bytes() != Path(ONNX).read_bytes()


def test_a_file_that_is_named_as_another_format_is_said(tmp_path: Path) -> None:
    out = tmp_path / "out.mge"
    assert pack(ONNX, "onnxruntime", {}, out) == [
        f"packed: {out}: the model",
        f"note: {out}: named .mge, but its content is a model in the ONNX format; "
        "rename it to .onnx, or give --engine onnxruntime",
    ]


def test_what_cannot_be_written_leaves_what_was_there(tmp_path: Path) -> None:
    out = tmp_path / "out.mge"
    out.write_bytes(b"old")
    space = ModelSpace(model=DIGITS, engine="megengine", dimensions=())
    spec = plan_run(DIGITS, {"c_opr_lib": __file__})
    with pytest.raises(lar.LarError) as caught:
        write_packed(space, spec, str(out))
    assert caught.value.message.startswith("--packed-model-dump: ")
    assert flag_of("c_opr_lib") in caught.value.message
    assert out.read_bytes() == b"old"
    assert [each.name for each in tmp_path.iterdir()] == ["out.mge"]
