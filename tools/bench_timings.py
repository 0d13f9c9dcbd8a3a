"""Measures how far lar's timings can be trusted, beside other work that it makes itself.

    uv run python tools/bench_timings.py [--count N] [--budget S] [--seed N] [FIGURE ...]

prints the table of `lar help benchmarks`. All figures with all repetitions take some hours;
`--count` makes fewer of each.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench import MOBILENET, PYTHON, ROOT
from disturbance import disturbed
from figures import Figure, Outcome, Settings, measure_figures, note, repeat, run_json
from queueing_theory import expected_wait, waits_by_recursion
from turn_peers import UNTIMED

import lar
from lar.measurement.differences import compare_pairs
from lar.measurement.statistics import percentile_of
from lar.records.run import RunContext
from lar.running.plan import parse_values, plan_run
from lar.running.turns import TurnTaker, await_all

MOBILENET_ONNX = str(ROOT / "models" / "mobilenet_v2.onnx")
# Where hogs have a part of the CPUs, two threads are disturbed nearly all the time.
ONE_THREAD = f"{MOBILENET_ONNX} --multithread 1"
LAYERS = 33  # one more is 3 % of the time
SLOWER = 1.03
RECORDED_LAYERS, RECORDINGS = 8, 8
PIECE = 100  # iterations, some tenths of a second
RATE, LOAD = 20.0, 0.6
# Turns of lar and of a peer in two processes, and the iterations of each.
TURNS, IN_TURN = 40, 20


# Proven differences


def measure_same(settings: Settings) -> Outcome:
    """Compare a model with itself: "faster" and "slower" are wrong."""
    with disturbed(settings.seed):
        verdicts = [run_bench(settings, at, ONE_THREAD, ONE_THREAD) for at in repeat(settings)]
    wrong = sum(verdict in ("faster", "slower") for verdict, _ in verdicts)
    return Outcome(f"{wrong} of {len(verdicts)}", wrong <= 0.05 * len(verdicts))


def measure_slower_model(settings: Settings) -> Outcome:
    """Compare a chain of convolutions with one that has one more."""
    with tempfile.TemporaryDirectory() as folder:
        models = [str(Path(folder, f"chain{layers}.onnx")) for layers in (LAYERS, LAYERS + 1)]
        for layers, model in zip((LAYERS, LAYERS + 1), models, strict=True):
            write_chain(model, layers)
        return measure_slower(settings, *(f"{model} --multithread 1" for model in models))


def measure_slower_script(settings: Settings) -> Outcome:
    """Compare the scripted engine with itself, slowed; its times are those of a model."""
    with tempfile.TemporaryDirectory() as folder:
        times = record_times(settings.seed, 2000)
        models = [str(Path(folder, f"{name}.fake")) for name in "ab"]
        for model, factor in zip(models, (1.0, SLOWER), strict=True):
            write_script(model, [factor * time for time in times], real_time=True)
        return measure_slower(settings, *models)


def measure_slower(settings: Settings, first: str, second: str) -> Outcome:
    """Compare two models of which the second is slower."""
    with disturbed(settings.seed):
        verdicts = [run_bench(settings, at, first, second) for at in repeat(settings)]
    right = sum(verdict == "slower" for verdict, _ in verdicts)
    middle = statistics.median(seconds for _, seconds in verdicts)
    return Outcome(
        f"{right} of {len(verdicts)}, median {middle:.0f} s",
        right >= 0.9 * len(verdicts) and middle < 60,
    )


def measure_order(settings: Settings) -> Outcome:
    """Compare two optimisation levels of ONNX Runtime that are easily taken the wrong way round."""
    first, second = (f"{ONE_THREAD} --graph-optimization-level {it}" for it in ("basic", "all"))
    with disturbed(settings.seed):
        verdicts = [run_bench(settings, at, first, second) for at in repeat(settings)]
    right = sum(verdict == "faster" for verdict, _ in verdicts)
    return Outcome(f"{right} of {len(verdicts)}", right == len(verdicts))


def run_bench(settings: Settings, number: int, *specs: str) -> tuple[str, float]:
    """Compare two specs; return the verdict on the second, and the seconds that it took."""
    words = ["bench", *specs, "--budget", f"{settings.budget_seconds:g}", "--json", "-"]
    answer = run_json(*words, "--seed", str(settings.seed + number))
    difference = answer["variants"][1]["difference"]
    note(f"{answer['wall_seconds']:.1f} s, {answer['rounds']} rounds: {difference}")
    # Without one the budget was spent before there was anything to judge.
    verdict = difference["verdict"] if difference else "not judged"
    return verdict, answer["wall_seconds"]


# Medians and their intervals


def measure_spread(settings: Settings) -> Outcome:
    """Compare how the reported median varies between runs with how their raw mean does."""
    reported, means = [], []
    with disturbed(settings.seed):
        for _ in repeat(settings):
            # So long that some moments are quiet: a shorter run may lie within one burst.
            result = lar.run(MOBILENET_ONNX, fill="ones", multithread=1, duration=3)
            reported.append(reported_median(result))
            means.append(statistics.fmean(result.samples.end_to_end))
            note(f"{reported[-1] * 1e3:.3f} ms, mean {means[-1] * 1e3:.3f} ms")
    share = statistics.stdev(reported) / statistics.stdev(means)
    return Outcome(f"{share:.2f}x", share < 0.25)


def reported_median(result: lar.RunResult) -> float:
    """Return the median that a run's summary says to trust."""
    summary = result.summary
    assert summary is not None, result.failure
    medians = {"undisturbed latency": summary.undisturbed_median, "cpu": summary.cpu_median}
    return medians.get(summary.trust) or summary.median


def measure_coverage(settings: Settings) -> Outcome:
    """Play noise that was recorded beside a model, whose median is known, and count the intervals
    that hold it. It is recorded several times: no two times are alike."""
    chance = random.Random(settings.seed)
    recordings = [record_times(settings.seed + number, 8000) for number in range(RECORDINGS)]
    held = known = 0
    with tempfile.TemporaryDirectory() as folder:
        model = str(Path(folder, "recorded.fake"))
        for number in repeat(settings):
            recorded = recordings[number % RECORDINGS]
            truth = percentile_of(sorted(recorded), 50)
            write_script(model, list(itertools.islice(resample(recorded, chance), 1000)))
            result = lar.run(model, iter=1000, warmup_iter=0)
            assert result.summary is not None, result.failure
            if interval := result.summary.interval:
                known += 1
                held += interval.low <= truth <= interval.high
    return Outcome(f"{held / known:.1%} of {known} intervals", 0.92 <= held / known <= 0.98)


def resample(values: Sequence[float], chance: random.Random) -> Iterator[float]:
    """Yield values for ever, in pieces as they follow each other, of random lengths and places.

    This is the stationary bootstrap (D. N. Politis and J. P. Romano, 1994): neighbours stay
    correlated as they were, and the median is that of all values, however it drifted meanwhile.
    """
    while True:
        place = chance.randrange(len(values))
        yield values[place]
        while chance.random() > 1 / PIECE:
            place = (place + 1) % len(values)
            yield values[place]


def record_times(seed: int, count: int) -> list[float]:
    """Return the times of a model's iterations, of some milliseconds, while the machine is
    disturbed."""
    with tempfile.TemporaryDirectory() as folder, disturbed(seed):
        model = str(Path(folder, "chain.onnx"))
        write_chain(model, RECORDED_LAYERS)
        result = lar.run(model, fill="ones", iter=count)
    assert result.status == "ok", result.failure
    return list(result.samples.end_to_end)


# The loop


def measure_added(settings: Settings) -> Outcome:
    """Measure the time between iterations: all that is read there, and the loop itself."""
    longest = 0.0
    for model in (MOBILENET_ONNX, MOBILENET):
        for threads in (None, 2):
            runs = (
                lar.run(model, fill="ones", iter=50, multithread=threads).samples
                for _ in repeat(settings)
            )
            middle = statistics.median(statistics.median(gaps_of(each)) for each in runs)
            longest = max(longest, middle)
    return Outcome(f"{longest * 1e6:.0f} us", longest < 150e-6)


def gaps_of(samples: Any) -> Iterator[float]:
    """Yield the seconds between the end of an iteration and the begin of the next."""
    ends = [began + took for began, took in zip(samples.began, samples.end_to_end, strict=True)]
    yield from (began - ended for ended, began in zip(ends, samples.began[1:], strict=False))


def measure_bare_loop(settings: Settings) -> Outcome:
    """Compare the median of a `.mge` with that of a bare loop on lite's C functions."""
    return measure_agreement(settings, "bare-loop", MOBILENET, statistics.median)


def measure_onnxruntime_test(settings: Settings) -> Outcome:
    """Compare the mean of an `.onnx` with what ONNX Runtime's own test prints.

    That includes what Python does in each call, some 10 us, which lar leaves out: the model is so
    long that this is a thousandth of it.
    """
    with tempfile.TemporaryDirectory() as folder:
        model = str(Path(folder, "chain.onnx"))
        write_chain(model, 3 * LAYERS)
        return measure_agreement(settings, "onnxruntime-test", model, statistics.fmean)


def measure_agreement(
    settings: Settings, peer: str, model: str, centre: Callable[[Sequence[float]], float]
) -> Outcome:
    """Compare lar with a peer as `lar bench` compares variants: fresh processes, which take turns,
    of which one computes at a time."""
    chance = random.Random(settings.seed)
    rounds = [play_round(peer, model, centre, chance) for _ in repeat(settings)]
    found = compare_pairs(rounds)
    if found is None or found.interval is None:
        return Outcome("no interval", False)
    low, high = (100 * (it - 1) for it in (found.interval.low, found.interval.high))
    return Outcome(f"{low:+.2f} to {high:+.2f} %", low >= -1 and high <= 1)


def play_round(
    peer: str, model: str, centre: Callable[[Sequence[float]], float], chance: random.Random
) -> list[float]:
    """Return the logarithms of lar's times over the peer's, of neighbouring turns."""
    spec = plan_run(model, parse_values({"fill": "ones"}))
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        ours = TurnTaker(stack, spec, RunContext(work_folder=folder))
        theirs = stack.enter_context(PeerProcess(peer, model))
        await_all([ours])
        ours.take_turn(UNTIMED, UNTIMED)
        ratios = []
        for _ in range(TURNS):
            took = {}
            for side in chance.sample(["ours", "theirs"], 2):
                if side == "theirs":
                    took[side] = theirs.take_turn(IN_TURN)
                else:
                    samples = ours.take_turn(UNTIMED, IN_TURN)
                    assert samples is not None
                    took[side] = centre(samples.end_to_end)
            ratios.append(math.log(took["ours"] / took["theirs"]))
    note(f"{math.exp(statistics.median(ratios)):.4f}")
    return ratios


class PeerProcess:
    """A process of `turn_peers.py`, which is stopped between its turns as lar's are."""

    def __init__(self, peer: str, model: str) -> None:
        self._process = subprocess.Popen(
            [PYTHON, "-W", "ignore", str(ROOT / "tools" / "turn_peers.py"), peer, model],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> PeerProcess:
        self._read()
        self._process.send_signal(signal.SIGSTOP)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def take_turn(self, count: int) -> float:
        """Return the seconds of an iteration."""
        assert self._process.stdin
        self._process.stdin.write(f"{count}\n")
        self._process.stdin.flush()
        self._process.send_signal(signal.SIGCONT)
        answer = self._read()
        self._process.send_signal(signal.SIGSTOP)
        return float(answer)

    def _read(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline()


# Queues


def measure_queue(settings: Settings) -> Outcome:
    """Serve 20 requests a second at 60 % load for real, and compare the mean wait with the theory
    for the service times measured."""
    chance, mean = random.Random(settings.seed), LOAD / RATE
    times = [mean * chance.uniform(0.5, 1.5) for _ in range(1000)]
    with tempfile.TemporaryDirectory() as folder:
        model = str(Path(folder, "service.fake"))
        write_script(model, times, real_time=True)
        result = lar.run(model, rate=RATE, duration=settings.repetitions / RATE, seed=settings.seed)
    return compare_waits(result, waits_by_recursion)


def measure_long_queue(settings: Settings) -> Outcome:
    """The same with the clock of the scripted engine, on which nothing is late, and with so many
    requests that their mean is near that of Pollaczek and Khinchine."""
    chance, mean = random.Random(settings.seed), LOAD / RATE
    times = [chance.gammavariate(4, mean / 4) for _ in range(10_000)]
    with tempfile.TemporaryDirectory() as folder:
        model = str(Path(folder, "service.fake"))
        write_script(model, times)
        result = lar.run(model, rate=RATE, iter=settings.repetitions, seed=settings.seed)
    return compare_waits(result)


def compare_waits(
    result: lar.RunResult,
    recursion: Callable[[Sequence[float], Sequence[float]], list[float]] | None = None,
) -> Outcome:
    """Compare the mean wait of requests with what the theory expects: of their arrivals, with a
    recursion, or of their rate."""
    assert result.status == "ok", result.failure
    samples, services = result.samples, result.samples.end_to_end
    waits = [wait or 0.0 for wait in samples.queueing]
    if recursion is None:
        expected = expected_wait(RATE, services)
    else:
        begins = [began or 0.0 for began in samples.began]
        arrivals = [began - wait for began, wait in zip(begins, waits, strict=True)]
        expected = statistics.fmean(recursion(arrivals, services))
    share = statistics.fmean(waits) / expected
    return Outcome(f"{share - 1:+.1%}", abs(share - 1) < 0.1)


# Models


def write_chain(path: str, layers: int) -> None:
    """Write a model of that many equal convolutions, whose output is small."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    shape, weights = [1, 32, 28, 28], []
    random = np.random.default_rng(0)
    nodes = []
    for layer in range(layers):
        values = random.normal(0, 0.06, (32, 32, 3, 3)).astype(np.float32)
        weights.append(numpy_helper.from_array(values, f"w{layer}"))
        nodes.append(
            helper.make_node("Conv", [f"x{layer}", f"w{layer}"], [f"x{layer + 1}"], pads=[1] * 4)
        )
    nodes.append(helper.make_node("GlobalAveragePool", [f"x{layers}"], ["mean"]))
    graph = helper.make_graph(
        nodes,
        "chain",
        [helper.make_tensor_value_info("x0", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("mean", TensorProto.FLOAT, [1, 32, 1, 1])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.save(model, path)


def write_script(path: str, times: Sequence[float], *, real_time: bool = False) -> None:
    """Write a script of the scripted engine that plays these times."""
    script = {
        "inputs": [{"name": "data", "dtype": "float32", "shape": [1]}],
        "outputs": {"sum": [1.0]},
        "times": [[time, time / 100, time] for time in times],
        "real_time": real_time,
    }
    Path(path).write_text(json.dumps(script))


# The command


FIGURES = (
    Figure(
        "same",
        "wrong verdicts, a model against itself, disturbed",
        "at most 5 %",
        200,
        measure_same,
    ),
    Figure(
        "slower-model",
        "right verdicts on one layer more (3 %), disturbed",
        "90 %, under 60 s",
        100,
        measure_slower_model,
    ),
    Figure(
        "slower-script",
        "right verdicts on scripted times 3 % longer, disturbed",
        "90 %, under 60 s",
        100,
        measure_slower_script,
    ),
    Figure(
        "order",
        "right order of ONNX Runtime's levels basic and all, disturbed",
        "20 of 20",
        20,
        measure_order,
    ),
    Figure(
        "spread",
        "spread of the reported median to that of the raw mean, disturbed",
        "under 0.25x",
        20,
        measure_spread,
    ),
    Figure(
        "coverage",
        "95 % intervals that hold the median of a recording, of eight",
        "92 to 98 %",
        400,
        measure_coverage,
    ),
    Figure(
        "added",
        "median time between iterations, the slowest of four settings",
        "under 150 us",
        7,
        measure_added,
    ),
    Figure(
        "bare-loop",
        "median of a .mge against a bare loop on lite's C functions, 95 % interval",
        "within 1 %",
        20,
        measure_bare_loop,
    ),
    Figure(
        "onnxruntime-test",
        "mean of an .onnx against ONNX Runtime's own test, 95 % interval",
        "within 1 %",
        20,
        measure_onnxruntime_test,
    ),
    Figure(
        "queue",
        "mean wait at 20 requests/s and 60 % load, against Lindley's recursion",
        "within 10 %",
        2000,
        measure_queue,
    ),
    Figure(
        "long-queue",
        "the same on an exact clock, against Pollaczek and Khinchine",
        "within 10 %",
        200_000,
        measure_long_queue,
    ),
)


def main() -> int:
    """Measure the figures that the command line names, and print their table."""
    scripted_engine = str(Path(__file__).parents[1] / "tests" / "engines" / "scripted_engine")
    sys.path.append(scripted_engine)
    os.environ["PYTHONPATH"] = scripted_engine
    return measure_figures(FIGURES, __doc__.splitlines()[0] if __doc__ else "", 60.0)


if __name__ == "__main__":
    sys.exit(main())
