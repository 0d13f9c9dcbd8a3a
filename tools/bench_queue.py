"""A queue of requests at a rate, against queueing theory: does lar count waiting right?

    uv run tools/bench_queue.py [--rate 20] [--load 0.6] [--seconds 100] [MODEL]

Without a model, the scripted engine sleeps service times that scatter, with the mean that makes the
load at that rate. With a model, the rate is what makes the load of its own service time. The mean
wait is compared with that of Pollaczek and Khinchine for the measured service times, and with
Lindley's recursion on the measured arrivals and service times, which has no error of sampling.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
from pathlib import Path
from typing import NamedTuple

import lar
from lar.measurement.queueing import expected_wait, waits_by_recursion


class QueueFigure(NamedTuple):
    """Mean waits in seconds: measured, and as two theories expect them."""

    requests: int
    load: float
    measured: float
    expected: float
    recursion: float

    @property
    def error(self) -> float:
        """The measured wait's difference from the expected one, relative."""
        return self.measured / self.expected - 1


def measure_queue(model: str, rate: float, seconds: float) -> QueueFigure:
    """Have requests arrive for so long, and return how long they waited."""
    result = lar.run(model, rate=rate, duration=seconds, timeout=2 * seconds + 60)
    assert result.status == "ok", result.failure
    services = result.samples.end_to_end
    waits = [wait or 0.0 for wait in result.samples.queueing]
    arrivals = [
        (began or 0.0) - wait for began, wait in zip(result.samples.began, waits, strict=True)
    ]
    return QueueFigure(
        len(waits),
        rate * statistics.fmean(services),
        statistics.fmean(waits),
        expected_wait(rate, services),
        statistics.fmean(waits_by_recursion(arrivals, services)),
    )


def write_script(folder: Path, mean: float) -> str:
    """Write a script of service times that scatter around a mean."""
    draw = random.Random(1)
    times = [mean * (0.8 + 0.1 * draw.random() + 1.5 * (draw.random() < 0.1)) for _ in range(997)]
    path = folder / "service.fake"
    path.write_text(json.dumps({"times": [[each, 0.0, None] for each in times], "real_time": True}))
    return str(path)


def main() -> None:
    """Print the figure."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", nargs="?")
    parser.add_argument("--rate", type=float, default=20.0)
    parser.add_argument("--load", type=float, default=0.6)
    parser.add_argument("--seconds", type=float, default=100.0)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model, rate = asked.model, asked.rate
        if model is None:
            model = write_script(Path(folder), asked.load / rate)
        else:
            alone = lar.run(model, duration=2)
            rate = asked.load / statistics.fmean(alone.samples.end_to_end)
        figure = measure_queue(model, rate, asked.seconds)
    print(f"{figure.requests} requests, {rate:.4g} a second, load {100 * figure.load:.1f} %")
    print(f"mean wait measured:            {1e3 * figure.measured:.3f} ms")
    for name, wait in (
        ("Pollaczek and Khinchine: ", figure.expected),
        ("Lindley's recursion:     ", figure.recursion),
    ):
        change = 100 * (figure.measured / wait - 1)
        print(f"  {name}    {1e3 * wait:.3f} ms ({change:+.1f} %)")


if __name__ == "__main__":
    main()
