"""`--share-param-mem`: where the weights are, seen in the memory of a process.

The drivers run in processes of their own. In these this file is the program:

    python tests/engines/megengine/test_shared_weights.py RUNNERS SETTINGS

SETTINGS is JSON; it prints by how much the process's own memory grew with each runner's load.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from lar.engines.megengine.packed_model import write_packed
from tests.conftest import RunLar
from tests.engines.megengine.programs import MODELS, ask
from tests.engines.runs import run_ok

MODEL = MODELS / "mobilenet_v2.mge"


def own_kib() -> int:
    """Return how much memory is this process's alone and no clean copy of a file."""
    text = Path("/proc/self/smaps_rollup").read_text()
    return int(re.findall(r"^Private_Dirty:\s+(\d+) kB", text, re.MULTILINE)[0])


def main(count: str, settings: str) -> None:
    """Load a model for each runner."""
    from lar.engines import engine_named
    from lar.engines.megengine.lite import LiteDriver
    from lar.records.run import RunSpec

    chosen = json.loads(settings)
    spec = RunSpec(model=str(MODEL), engine="megengine", driver="lite", settings=chosen)
    rows = engine_named("megengine").rows
    drivers: list[Any] = []
    grown = []
    for runner in range(1 + int(count)):
        driver = LiteDriver(spec, rows)
        before = own_kib()
        # The first load of all also makes what is made once.
        driver.runner = max(0, runner - 1)
        driver.first = drivers[1] if runner > 1 else driver
        driver.load()
        grown.append(own_kib() - before)
        drivers.append(driver)
    maps = Path("/proc/self/maps").read_text().splitlines()
    areas = [line for line in maps if str(MODEL) in line]
    print(json.dumps({"grown": grown[1:], "areas": areas}), flush=True)
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])


def test_the_weights_are_in_the_mapped_file_and_nowhere_else() -> None:
    weights_kib = MODEL.stat().st_size >> 10
    with ThreadPoolExecutor(2) as pool:
        settings: list[dict[str, bool]] = [{}, {"share_param_mem": True}]
        plain, shared = pool.map(lambda it: ask(__file__, 2, json.dumps(it)), settings)
    saved = [more - less for more, less in zip(plain["grown"], shared["grown"], strict=True)]
    assert len(saved) == 2
    assert all(kib > 0.9 * weights_kib for kib in saved)
    assert not plain["areas"]
    assert shared["areas"]
    assert all(" r--" in area for area in shared["areas"])  # the engine cannot write to it


def test_the_numbers_stay_the_same() -> None:
    def run(options: dict[str, Any]) -> list[str]:
        result = run_ok(MODELS / "multi_input.mge", iter=1, **options)
        return [output.sha256 for output in result.outputs]

    with ThreadPoolExecutor(2) as pool:
        plain, shared = pool.map(run, [{}, {"share_param_mem": True, "thread": 2}])
    assert plain == shared


def test_of_packed_models_those_that_lite_copies_are_refused(
    run_lar: RunLar, tmp_path: Path
) -> None:
    graph = (MODELS / "one_operator.mge").read_bytes()
    write_packed(tmp_path / "plain.lite", graph, "m")
    write_packed(tmp_path / "cache.lite", graph, "m", cache=bytes(4))

    def run(name: str) -> subprocess.CompletedProcess[str]:
        return run_lar("run", name, "--share-param-mem", "--iter", "1", cwd=tmp_path)

    with ThreadPoolExecutor(2) as pool:
        plain, cache = pool.map(run, ["plain.lite", "cache.lite"])
    assert plain.returncode == 0, plain.stderr
    assert cache.returncode == 2
    assert "--share-param-mem: cache.lite: MegEngine cannot share the weights" in cache.stderr
