"""Makes the models and the dumps of `number_cases`, and says where they are.

    python tools/number_dumps.py FOLDER < SIDES

makes those of the lines of standard input: a network, a fault and a form, with commas between
them. Where a side cannot be made, FOLDER has a file KEY.error with the reason.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

import conversions
import numpy as np
import onnx
import onnxruntime
import planted_faults
from network import Array
from number_cases import FORMS, MODELS, Case, Side
from onnx_twin import onnx_of
from planted_networks import NETWORKS
from processes import PYTHON, ROOT

from lar.dumps.index import index_place
from lar.records.run import RunContext
from lar.running.plan import plan_run
from lar.running.steps import make_run

PROCESSES = 2
STANDSTILL_SECONDS = 30  # after which a process that has made no dump is ended
ATTEMPTS = 8
CPP_DUMPS = ROOT / "tests" / "data" / "load_and_run" / "dumps.tar.xz"


def make_dumps(folder: Path, cases: Iterable[Case]) -> None:
    """Make the dumps of some cases that are not there yet, in processes of their own: MegEngine
    changes how the process that loads it computes."""
    if not (folder / "int8_nchw").exists():
        with tarfile.open(CPP_DUMPS) as archive:
            archive.extractall(folder)
    sides = {side for case in cases for side in (case.actual, case.expected) if side.form}
    missing = sorted(
        side
        for side in sides
        if not dump_of(folder, side).exists() and not error_of(folder, side).exists()
    )
    networks = sorted({side.network for side in missing})
    shares = [
        [side for side in missing if side.network in networks[number::PROCESSES]]
        for number in range(PROCESSES)
    ]
    with ThreadPoolExecutor(PROCESSES) as pool:
        list(pool.map(lambda each: run_maker(folder, each), filter(None, shares)))


def run_maker(folder: Path, sides: Sequence[Side]) -> None:
    """Make some dumps in another process.

    MegEngine now and then waits for ever where one process traces and runs many networks: a process
    that stands still is ended, and another one goes on behind what it has made.
    """
    with tempfile.TemporaryFile("w+") as asked:
        asked.writelines(",".join(side) + "\n" for side in sides)
        for _ in range(ATTEMPTS):
            asked.seek(0)
            with subprocess.Popen(
                [PYTHON, __file__, str(folder)],
                stdin=asked,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,  # the engines' warnings
            ) as process:
                made = -1
                while process.poll() is None:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(STANDSTILL_SECONDS)
                    if process.poll() is None and made == (made := len(os.listdir(folder))):
                        process.kill()
                if process.returncode == 0:
                    return
    raise SystemExit(f"the dumps of {', '.join(side.key for side in sides)} could not be made")


def dump_of(folder: Path, side: Side) -> Path:
    """Return where the dump of a side is."""
    if side.form:
        return folder / side.key.replace("/", "_")
    return ROOT / side.network if "/" in side.network else folder / side.network


def error_of(folder: Path, side: Side) -> Path:
    """Return the file that says why a side cannot be made."""
    return folder / f"{side.key.replace('/', '_')}.error"


# In the other process


def make_side(folder: Path, side: Side) -> None:
    """Write a side's model, if it is not there yet, and its dump, or why it cannot be made."""
    place = dump_of(folder, side)
    if index_place(place).exists():
        return  # made by an earlier process, which was ended
    shutil.rmtree(place, ignore_errors=True)
    try:
        inputs = {"input": inputs_of(folder, side.network), "bin_io_dump": str(place)}
        values = {"iter": 1, "warmup_iter": 0, **inputs, **FORMS[side.form].options}
        spec = plan_run(str(make_model(folder, side)), values)
        result = make_run(spec, RunContext(in_process=True))
        assert result.status == "ok", result.failure
    except Exception as error:  # the pair is listed as one that failed
        error_of(folder, side).write_text(f"{type(error).__name__}: {error}"[:500])


def make_model(folder: Path, side: Side) -> Path:
    """Return a side's model file, which is made if it is not there yet."""
    form = FORMS[side.form]
    if side.network in MODELS and not form.recipe:
        return ROOT / f"{side.network}.{form.suffix}"
    path = folder / side.model.replace("/", "_")
    if path.exists():
        return path
    if form.suffix == "onnx" and form.recipe:
        model = onnx.load(make_model(folder, side._replace(form="basic")))
        if form.recipe == "float16":
            model = conversions.halve(model)
        else:
            model = conversions.quantize(form.recipe, model, feeds_of(side.network))
        planted = planted_faults.FAULTS.get(side.fault)
        if planted and planted.quantized:
            planted.quantized(model)
        onnx.save(model, path)
        return path
    network = planted_faults.describe(side.network, side.fault)
    if form.suffix == "onnx":
        path.write_bytes(onnx_of(network).SerializeToString())
        return path
    from megengine_twin import dump_megengine

    if form.recipe == "half":
        planted_faults.halve(network)
    dump_megengine(network, path)
    return path


@cache
def feeds_of(network: str) -> dict[str, Array]:
    """Return what a network is fed with."""
    if network in MODELS:
        (path,) = MODELS[network]
        return {"data": np.load(ROOT / path)}
    random = np.random.RandomState(0)
    return {
        spec.name: random.randint(0, 256, spec.shape).astype(np.uint8)
        if spec.dtype == "uint8"
        else random.normal(0, 3, spec.shape).astype(np.float32)
        for spec in NETWORKS[network]().inputs
    }


@cache
def inputs_of(folder: Path, network: str) -> list[str]:
    """Return the `--input` items of a network."""
    if network in MODELS:
        return [str(ROOT / path) for path in MODELS[network]]
    items = []
    for name, array in feeds_of(network).items():
        np.save(folder / f"{network}.{name}.npy", array)
        items.append(f"{name}:{folder}/{network}.{name}.npy")
    return items


def main(folder: Path) -> None:
    logging.disable(logging.WARNING)
    onnxruntime.set_default_logger_severity(3)
    for line in sys.stdin:
        make_side(folder, Side(*line.strip().split(",")))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
    sys.stdout.flush()
    os._exit(0)  # the engine's own destructors may crash
