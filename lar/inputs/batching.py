"""`--batch-size`: the data that is fed, repeated along the batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lar.errors import UsageError
from lar.inputs.loaded import Array
from lar.records.run import FedInput, TensorInfo


def without_batch(infos: Sequence[TensorInfo], size: int | None) -> list[TensorInfo]:
    """Return inputs with an open batch if theirs is the size asked for: data is repeated for it."""
    return [
        replace(info, shape=(None, *info.shape[1:])) if info.shape[:1] == (size,) else info
        for info in infos
    ]


def repeat_batch(array: Array, info: TensorInfo, size: int, *, is_generated: bool) -> Array:
    """Return the array with a first axis of that size: its items over and over.

    Only as much generated data is taken as is needed.

    Raises:
        UsageError: the model's input has no batch of any size, or items of the user would be left
            out.
    """
    if array.ndim == 0 or not (info.resizable or info.shape[0] in (None, size)):
        wanted = "no batch" if array.ndim == 0 else f"a batch of {info.shape[0]} alone"
        raise UsageError(
            f"input {info.name} takes {wanted}",
            "leave it out, or export the model with a batch of any size",
            flag=f"--batch-size {size}",
        )
    if len(array) > size and not is_generated:
        raise UsageError(
            f"input {info.name} is fed {len(array)} items",
            f"give {len(array)} or more; to run them one after the other, feed a folder, a list or "
            "a .npz",
            flag=f"--batch-size {size}",
        )
    return np.ascontiguousarray(array[np.arange(size) % len(array)])


def repeat_batches(
    arrays: dict[str, Array], fed: Sequence[FedInput], infos: Sequence[TensorInfo], size: int
) -> tuple[dict[str, Array], tuple[FedInput, ...]]:
    """Return all inputs with that batch, and what the result says about them.

    Raises:
        UsageError: an input has no batch of any size, or is fed more items than that, or the
            model's inputs have no batch in common.
    """
    sizes = {info.name: info.shape[0] for info in infos if info.shape and info.shape[0] is not None}
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name} {first}" for name, first in sizes.items())
        raise UsageError(
            f"the model's inputs have no batch in common: {listed}",
            "leave it out, and feed each input with --input",
            flag=f"--batch-size {size}",
        )
    generated = {each.name for each in fed if each.generated}
    repeated = {
        info.name: repeat_batch(arrays[info.name], info, size, is_generated=info.name in generated)
        for info in infos
        if info.name in arrays
    }
    return repeated, tuple(replace(each, shape=repeated[each.name].shape) for each in fed)
