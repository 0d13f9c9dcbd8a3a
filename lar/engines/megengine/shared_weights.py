"""`--share-param-mem`: the weights are held once.

The model file is mapped and lite computes on it in place, so that all processes that run it share
the pages that the system keeps of it; the copies of `--thread N` share one network's weights.
Weights that the engine transforms, and those of a file in the older format that are not aligned
in it, are copied as ever, once for all copies.
"""

from __future__ import annotations

import numpy as np

from lar.engines.megengine.lite import LiteDriver
from lar.engines.megengine.packed_model import graph_in, is_packed, open_packed
from lar.errors import UsageError


def share_weights(driver: LiteDriver, _: bool) -> None:
    """Have the driver load without a copy."""
    driver.load_file = load_shared


def load_shared(driver: LiteDriver) -> None:
    """Load the first runner's network from the mapped file, the others' from the first's.

    Raises:
        UsageError: it is a packed model with settings, which lite reads from the whole file only,
            and then copies the graph; or an encrypted one.
    """
    if driver.runner:
        driver.network.share_weights_with(driver.first.network)
        return
    model = driver.model_file
    packed = open_packed(model) if is_packed(model) else None
    if packed and (packed.info is not None or packed.cache is not None):
        raise UsageError(
            "of a packed model with settings or a cache MegEngine makes a copy",
            "run the model that it was packed from, or leave the flag out",
            flag="--share-param-mem",
            subject=model,
        )
    # Pages that may only be read: were the engine to write to them, it would crash.
    driver.mapping = graph = graph_in(model)
    address = np.frombuffer(graph, np.uint8).ctypes.data
    with driver.recorder.call("LITE_load_model_from_mem"):
        driver.network._api.LITE_load_model_from_mem(driver.network._network, address, len(graph))
