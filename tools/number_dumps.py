"""Makes the models and the dumps of `number_cases`, of the networks that are named.

    python tools/number_dumps.py FOLDER NETWORK ...

Where a side cannot be made, FOLDER has a file KEY.error with the reason.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import conversions
import megengine_twin
import number_cases
import numpy as np
import onnx
import onnxruntime
import planted_twins
from megengine_twin import dump_megengine
from network import Array
from number_cases import FAULTS, FORMS, MODELS, ROOT, Side
from onnx_twin import onnx_of

from lar.dumps.index import index_place

megengine_twin.OPERATORS["narrow"] = lambda node, weights, x: x.astype("float16")


def make_side(folder: Path, side: Side) -> None:
    """Write a side's model, if it is not there yet, and its dump."""
    form = FORMS[side.form]
    model = make_model(folder, side)
    inputs = inputs_of(folder, side.network)
    place = folder / side.key.replace("/", "_")
    if index_place(place).exists():
        return  # made by an earlier process, which was ended
    shutil.rmtree(place, ignore_errors=True)
    planted_twins.dump(model, place, inputs, **dict(form.options))


def make_model(folder: Path, side: Side) -> Path:
    """Return a side's model file, which is made if it is not there yet."""
    form = FORMS[side.form]
    of_repository = side.network in MODELS
    path = folder / side.model.replace("/", "_")
    if of_repository and not form.recipe:
        return ROOT / f"{side.network}.{form.suffix}"
    if path.exists():
        return path
    if form.recipe == "half":
        network = number_cases.describe(side.network, side.fault)
        number_cases.halve(network)
        dump_megengine(network, path)
    elif form.recipe:
        converted = onnx.load(make_model(folder, side._replace(form="basic")))
        if form.recipe == "float16":
            converted = conversions.halve(converted)
        else:
            feeds = feeds_of(folder, side.network)
            converted = conversions.quantize(form.recipe, converted, feeds)
        word, _, number = side.fault.partition("-")
        if word == "new" and (alter := FAULTS[int(number)].quantized):
            alter(converted)
        onnx.save(converted, path)
    elif form.suffix == "mge":
        dump_megengine(number_cases.describe(side.network, side.fault), path)
    else:
        network = number_cases.describe(side.network, side.fault)
        path.write_bytes(onnx_of(network).SerializeToString())
    return path


@cache
def feeds_of(folder: Path, network: str) -> dict[str, Array]:
    """Return what a network is fed with, to calibrate it."""
    if network in MODELS:
        (path,) = MODELS[network]
        return {"data": np.load(ROOT / path)}
    return planted_twins.draw_inputs(number_cases.DESCRIPTIONS[network]())


@cache
def inputs_of(folder: Path, network: str) -> list[str]:
    """Return the `--input` items of a network."""
    if network in MODELS:
        return [str(ROOT / path) for path in MODELS[network]]
    items = []
    for name, array in feeds_of(folder, network).items():
        np.save(folder / f"{network}.{name}.npy", array)
        items.append(f"{name}:{folder}/{network}.{name}.npy")
    return items


def sides_of(networks: list[str]) -> Iterator[Side]:
    """Yield the sides of all cases that are of some networks, each once."""
    sides = (side for case in number_cases.all_cases() for side in (case.actual, case.expected))
    return (side for side in dict.fromkeys(sides) if side.form and side.network in networks)


def try_side(folder: Path, side: Side) -> None:
    """Make a side, or a file that says why it cannot be made."""
    try:
        make_side(folder, side)
    except Exception as error:  # the pair is listed as one that failed
        place = folder / f"{side.key.replace('/', '_')}.error"
        place.write_text(f"{type(error).__name__}: {error}"[:500])


def main(folder: Path, networks: list[str]) -> None:
    logging.disable(logging.WARNING)
    onnxruntime.set_default_logger_severity(3)
    for side in sides_of(networks):
        try_side(folder, side)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])
    sys.stdout.flush()
    os._exit(0)  # the engine's own destructors may crash
