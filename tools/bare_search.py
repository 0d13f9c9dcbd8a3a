"""The peer of `lar --fast-run`: the engine's own search in a bare script.

    python tools/bare_search.py MODEL

prints the seconds of the first iteration, in which MegEngine measures the algorithms, with the
policy of --fast-run and an empty cache file. The inputs are ones.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import megenginelite as lite
import numpy as np

PROFILE, OPTIMIZED = 2, 8


def search(model: str, cache: Path) -> float:
    """Search a model's algorithms into a cache file; return the seconds it took."""
    cache.write_bytes(bytes(4))  # no categories
    lite.LiteGlobal.set_persistent_cache(str(cache), True)
    network = lite.LiteNetwork()
    network.set_network_algo_policy(PROFILE | OPTIMIZED, 0, False)
    network.load(model)
    for name in network.get_all_input_name():
        tensor = network.get_io_tensor(name)
        tensor.set_data_by_copy(np.ones(tensor.layout.shapes, tensor.layout.dtype))
    began = time.perf_counter()
    network.forward()
    network.wait()
    return time.perf_counter() - began


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        print(search(sys.argv[1], Path(folder) / "found.cache"))
