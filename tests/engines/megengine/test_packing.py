"""`--packed-model-dump` and what runs of a packed model do.

The drivers run in processes of their own. In these this file is the program:

    python tests/engines/megengine/test_packing.py MODEL SETTINGS

SETTINGS is JSON; it prints how many threads the engine has started and what it has computed.
"""

from __future__ import annotations

import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import lar
from lar.engines.megengine.packed_model import open_packed, write_packed
from lar.errors import UsageError
from lar.running.plan import plan_run
from tests.cli.failures import check_error
from tests.engines.megengine.programs import MODELS, ask, run_well

if TYPE_CHECKING:
    from tests.conftest import RunLar

DIGITS = MODELS / "digits_cnn.mge"
INFO: dict[str, Any] = {"name": "digits", "valid": True, "version": "1.13.0"}
INPLACE = {"device": {"type": "CPU", "enable_inplace_model": True}}


def count_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


def main(model: str, settings: str) -> None:
    """Run a model with the lite driver; or with lite itself, where the settings are null."""
    from lar.engines import engine_named
    from lar.engines.megengine.lite import LiteDriver, import_lite
    from lar.records.run import RunSpec

    lite = import_lite()
    before = count_threads()
    if settings == "null":
        network = lite.LiteNetwork()
        network.load(model)
    else:
        chosen = json.loads(settings)
        spec = RunSpec(model=model, engine="megengine", driver="lite", settings=chosen)
        driver = LiteDriver(spec, engine_named("megengine").rows)
        driver.load()
        network = driver.network
    data = np.random.RandomState(0).rand(1, 1, 8, 8).astype(np.float32)
    network.get_io_tensor("data").set_data_by_copy(data)
    network.forward()
    network.wait()
    output = network.get_io_tensor(network.get_all_output_name()[0]).to_numpy()
    print(json.dumps({"threads": count_threads() - before, "output": output.tolist()}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])


@pytest.fixture(scope="module")
def folder(run_lar: RunLar, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a cache, settings, and a packed model with each."""
    folder = tmp_path_factory.mktemp("packed")
    search = ["--fast-run", "--fast-run-algo-policy", "found.cache", "--iter", "0"]
    run_well(run_lar, "run", str(DIGITS), *search, "--warmup-iter", "1", cwd=folder)
    (folder / "info.json").write_text(json.dumps(INFO | INPLACE))
    for name, option in (("cache", "pack-cache=found.cache"), ("info", "pack-info-json=info.json")):
        arguments = ["--packed-model-dump", f"{name}.lite", f"--{option}", "--iter", "0"]
        run_well(run_lar, "run", str(DIGITS), *arguments, cwd=folder)
    return folder


def test_what_is_packed_is_what_was_given(folder: Path) -> None:
    info, cache = open_packed(folder / "info.lite"), open_packed(folder / "cache.lite")
    assert info.info == (folder / "info.json").read_bytes()
    assert cache.cache == (folder / "found.cache").read_bytes()
    assert (info.cache, cache.info) == (None, None)
    assert (info.name, cache.name) == ("digits", "digits_cnn")
    assert bytes(info.graph) == bytes(cache.graph) == DIGITS.read_bytes()


def test_of_a_packed_model_the_rest_is_kept(run_lar: RunLar, folder: Path) -> None:
    arguments = ["--packed-model-dump", "both.lite", "--pack-info-json", "info.json", "--iter", "0"]
    assert run_lar("run", "cache.lite", *arguments, cwd=folder).returncode == 0
    both = open_packed(folder / "both.lite")
    assert both.cache == (folder / "found.cache").read_bytes()
    assert both.info == (folder / "info.json").read_bytes()
    assert bytes(both.graph) == DIGITS.read_bytes()


def test_lite_and_lar_run_it_in_the_mode_that_is_asked_for(folder: Path) -> None:
    """Settings and a cache have lite set the device anew, which once lost the inplace mode."""
    asked: list[tuple[str, dict[str, Any] | None, int]] = [
        ("info", None, 0),
        ("info", {}, 0),
        ("cache", None, 1),
        ("cache", {"cpu_default": True}, 0),
        ("cache", {"multithread_default": 2}, 1),
    ]
    with ThreadPoolExecutor(2) as pool:
        expected = pool.submit(ask, __file__, DIGITS, "{}")
        found = list(
            pool.map(lambda it: ask(__file__, folder / f"{it[0]}.lite", json.dumps(it[1])), asked)
        )
    assert [told["threads"] for told in found] == [threads for *_, threads in asked]
    for told in found:
        np.testing.assert_allclose(told["output"], expected.result()["output"], atol=1e-5)


def test_a_search_reads_the_cache_inside(run_lar: RunLar, folder: Path) -> None:
    def search(model: str) -> str:
        done = run_well(run_lar, "run", model, "--fast-run", "--verbose", "--iter", "1", cwd=folder)
        return done.stderr

    plain, packed = search(str(DIGITS)), search("cache.lite")
    assert "profiling Convolution" in plain
    assert "profiling Convolution" not in packed


def test_the_graph_driver_unpacks_it(folder: Path) -> None:
    plain = folder / "plain.mge"
    result = lar.run(folder / "info.lite", driver="graph", model_dump=plain, iter=1)
    assert result.status == "ok", result.failure
    assert result.outputs[0].name == "logits"
    assert lar.read_info(plain).metadata.get("packed") is None
    metadata = lar.read_info(folder / "info.lite").metadata
    assert metadata["packed"] == "digits, with settings"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--pack-info-json", "info.json"], ["--pack-info-json needs --packed-model-dump"]),
        (["--pack-cache", "found.cache"], ["--pack-cache needs --packed-model-dump"]),
        (["--packed-model-dump", "."], ["--packed-model-dump", "is a folder"]),
    ],
)
def test_what_cannot_be_packed_is_refused_at_once(
    run_lar: RunLar, folder: Path, arguments: list[str], words: list[str]
) -> None:
    done = run_lar("run", str(DIGITS), *arguments, cwd=folder)
    assert done.returncode == 2
    assert all(word in done.stderr for word in words), done.stderr


@pytest.mark.parametrize(
    ("option", "content", "problem"),
    [
        ("pack_info_json", "{", "lite does not read it"),
        ("pack_info_json", '{"name": "x", "valid": true}', "lite does not read it: Object missing"),
        ("pack_cache", "{}", "is not a fast-run cache"),
    ],
)
def test_files_that_lite_cannot_read_are_refused_before_a_worker_is_started(
    tmp_path: Path, option: str, content: str, problem: str
) -> None:
    (tmp_path / "file").write_text(content)
    values = {"packed_model_dump": str(tmp_path / "never"), option: str(tmp_path / "file")}
    with pytest.raises(UsageError, match=f"--{option.replace('_', '-')}: .*file: {problem}"):
        plan_run(str(DIGITS), values)


def test_options_at_odds_with_the_packed_model_are_refused(
    run_lar: RunLar, folder: Path, tmp_path: Path
) -> None:
    settings = json.dumps(INFO | {"options": {"const_shape": False}}).encode()
    write_packed(tmp_path / "odd.lite", DIGITS.read_bytes(), "digits", settings)
    damaged = bytearray((folder / "cache.lite").read_bytes())
    damaged[12:16] = b"\xff\xff\xff\x7f"
    (tmp_path / "damaged.lite").write_bytes(damaged)
    runs = [
        (tmp_path / "odd.lite", ["--const-shape"], "--const-shape: "),
        (folder / "cache.lite", ["--fast-run", "--fast-run-algo-policy", "x"], "--fast-run-algo"),
        (folder / "cache.lite", ["--fast-run", "--winograd-transform"], "--winograd-transform: "),
        (tmp_path / "damaged.lite", [], "a packed model that is damaged"),
    ]

    for model, arguments, said in runs:
        done = run_lar("run", str(model), *arguments, cwd=tmp_path)
        check_error(done, 2, said)
        assert "Traceback" not in done.stderr
