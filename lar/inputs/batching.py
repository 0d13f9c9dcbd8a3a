"""`--batch-size`: the data that is fed, repeated along the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lar.errors import UsageError
from lar.inputs.loaded import Array
from lar.records import FedInput, TensorInfo


def repeat_batch(name: str, array: Array, info: TensorInfo, size: int) -> Array:
    """Return the array with a first axis of that size: its items over and over.

    Raises:
        UsageError: the model's input has no batch of any size.
    """
    if array.ndim == 0 or not (info.resizable or info.shape[0] in (None, size)):
        wanted = "no batch" if array.ndim == 0 else f"a batch of {info.shape[0]} alone"
        raise UsageError(
            f"--batch-size {size}: input {name} takes {wanted}",
            "leave it out, or export the model with a batch of any size",
        )
    return np.ascontiguousarray(array[np.arange(size) % len(array)])


def repeat_batches(
    arrays: dict[str, Array], fed: Sequence[FedInput], infos: Sequence[TensorInfo], size: int
) -> tuple[dict[str, Array], tuple[FedInput, ...]]:
    """Return all inputs with that batch, and what the result says of them.

    Raises:
        UsageError: an input has no batch of any size, or the model's inputs have no batch in
            common.
    """
    sizes = {info.name: info.shape[0] for info in infos if info.shape and info.shape[0] is not None}
    if len(set(sizes.values())) > 1:
        told = ", ".join(f"{name} {first}" for name, first in sizes.items())
        raise UsageError(
            f"--batch-size {size}: the model's inputs have no batch in common: {told}",
            "leave it out, and feed each input with --input",
        )
    repeated = {info.name: repeat_batch(info.name, arrays[info.name], info, size) for info in infos}
    return repeated, tuple(replace(each, shape=repeated[each.name].shape) for each in fed)
