"""Peers of lar that take turns with it: each computes when a line comes, and waits.

    python tools/turn_peers.py bare-loop|onnxruntime-test MODEL

For each line of standard input, which is a number of iterations, it makes some untimed ones and
then so many, and prints the seconds of one: the median of a bare loop on the engine's own
interface, or the mean that ONNX Runtime's own test program prints. That makes a session for each
call; here it gets the same one again, so that only the first call has what a first iteration costs.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import types
from collections.abc import Callable
from typing import Any

UNTIMED = 3  # after a break


def open_bare_loop(model: str) -> Callable[[int], float]:
    """Return what gives the median time of so many iterations of a bare loop."""
    from bare_loop import median_time, open_lite, open_session

    iterate = open_session(model) if model.endswith(".onnx") else open_lite(model)
    return lambda count: median_time(iterate, count)


def open_onnxruntime_test(model: str) -> Callable[[int], float]:
    """Return what gives the mean time that ONNX Runtime's test prints for so many iterations."""
    import onnxruntime
    from onnxruntime.tools import onnxruntime_test as program

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    feeds = program.generate_feeds(session)
    program.onnxrt = types.SimpleNamespace(
        InferenceSession=lambda *_, **__: session,
        get_available_providers=onnxruntime.get_available_providers,
    )

    def measure(count: int) -> float:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            program.run_model(model, count, feeds=feeds)
        found: Any = re.search(r"avg latency: ([0-9.e-]+) ms", printed.getvalue())
        return float(found[1]) / 1e3

    return measure


PEERS = {"bare-loop": open_bare_loop, "onnxruntime-test": open_onnxruntime_test}


def main(peer: str, model: str) -> None:
    measure = PEERS[peer](model)
    measure(UNTIMED)
    print("ready", flush=True)
    for line in sys.stdin:
        measure(UNTIMED)
        print(measure(int(line)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
