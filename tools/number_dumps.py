"""Makes the models and the dumps of `number_cases`, and returns their paths.

If a side cannot be made, the reason is written to a file KEY.error.
"""

from __future__ import annotations

import logging
import os
import shutil
import tarfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import cache, partial
from itertools import groupby
from multiprocessing import TimeoutError, get_context
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import planted_faults
from network import Array
from number_cases import FORMS, MODELS, Case, Side
from onnx_twin import onnx_of
from processes import ROOT

from lar.options.paths import index_place
from lar.records.run import RunContext
from lar.running.plan import plan_run
from lar.running.steps import make_run

PROCESSES = 2
STANDSTILL_SECONDS = 180  # processes are ended if they finish no network in this time
ATTEMPTS = 8
CPP_DUMPS = ROOT / "tests" / "data" / "load_and_run" / "dumps.tar.xz"


def make_dumps(folder: Path, cases: Iterable[Case]) -> None:
    """Make the missing dumps of some cases, in separate processes.

    The processes are separate since loading MegEngine changes how a process computes. MegEngine may
    hang in a process that traces and runs many networks. Processes that stand still are ended, and
    new processes make the dumps that are still missing.
    """
    if not (folder / "int8_nchw").exists():
        with tarfile.open(CPP_DUMPS) as archive:
            archive.extractall(folder)
    sides = {side for case in cases for side in (case.actual, case.expected) if side.form}
    for _ in range(ATTEMPTS):
        missing = sorted(side for side in sides if not is_made(folder, side))
        if not missing:
            return
        # One process makes all sides of a network, since some sides need the same model file.
        groups = [[*each] for _, each in groupby(missing, lambda side: side.network)]
        with get_context("spawn").Pool(PROCESSES, begin) as pool:
            made = pool.imap_unordered(partial(make_sides, folder), groups)
            with suppress(TimeoutError, StopIteration):
                while True:
                    made.next(STANDSTILL_SECONDS)
    raise SystemExit(f"the dumps of {', '.join(side.key for side in missing)} could not be made")


def dump_of(folder: Path, side: Side) -> Path:
    """Return the folder with the dump of a side."""
    if side.form:
        return folder / side.key.replace("/", "_")
    return ROOT / side.network if "/" in side.network else folder / side.network


def error_of(folder: Path, side: Side) -> Path:
    """Return the file that says why a side cannot be made."""
    return folder / f"{side.key.replace('/', '_')}.error"


def is_made(folder: Path, side: Side) -> bool:
    return index_place(dump_of(folder, side)).exists() or error_of(folder, side).exists()


# In the separate processes


def begin() -> None:
    """Discard the output and the warnings of engines in this process."""
    logging.disable(logging.WARNING)
    onnxruntime.set_default_logger_severity(3)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for target in (1, 2):
        os.dup2(nowhere, target)


def make_sides(folder: Path, sides: Sequence[Side]) -> None:
    """Write the missing models of some sides, and the dumps; write the reason if this fails."""
    for side in sides:
        place = dump_of(folder, side)
        shutil.rmtree(place, ignore_errors=True)
        try:
            inputs = {"input": inputs_of(folder, side.network), "bin_io_dump": str(place)}
            values = {"iter": 1, "warmup_iter": 0, **inputs, **FORMS[side.form].options}
            spec = plan_run(str(make_model(folder, side)), values)
            result = make_run(spec, RunContext(in_process=True))
            assert result.status == "ok", result.failure
        except Exception as error:  # the pair is listed as failed
            error_of(folder, side).write_text(f"{type(error).__name__}: {error}"[:500])


def make_model(folder: Path, side: Side) -> Path:
    """Return a side's model file, which is made if it does not exist yet."""
    form = FORMS[side.form]
    if side.network in MODELS and not form.recipe:
        return ROOT / f"{side.network}.{form.suffix}"
    path = folder / side.model.replace("/", "_")
    if path.exists():
        return path
    if form.suffix == "onnx" and form.recipe:
        import conversions

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
    """Return the input arrays of a network."""
    if network in MODELS:
        (path,) = MODELS[network]
        return {"data": np.load(ROOT / path)}
    random = np.random.RandomState(0)
    return {
        spec.name: random.randint(0, 256, spec.shape).astype(np.uint8)
        if spec.dtype == "uint8"
        else random.normal(0, 3, spec.shape).astype(np.float32)
        for spec in planted_faults.NETWORKS[network]().inputs
    }


@cache
def inputs_of(folder: Path, network: str) -> list[str]:
    """Return the `--input` items of a network."""
    if network in MODELS:
        return [str(ROOT / path) for path in MODELS[network]]
    items = []
    for name, array in feeds_of(network).items():
        # For a .npy, which may be a data set, lar would start a process to read the model.
        onnx.save_tensor(onnx.numpy_helper.from_array(array), folder / f"{network}.{name}.pb")
        items.append(f"{name}:{folder}/{network}.{name}.pb")
    return items
