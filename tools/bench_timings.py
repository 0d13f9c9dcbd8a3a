"""Measures how far lar's timings can be trusted while other processes disturb the machine.

    uv run python tools/bench_timings.py [--count N] [--budget S] [--seed N] [FIGURE ...]

prints a table of `lar help benchmarks`. All figures with all repetitions take some hours; `--count`
sets a smaller number of repetitions. The tool starts the disturbing processes itself.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import random
import signal
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx
from disturbance import disturbed
from figures import Figures, Outcome, Settings, measure_in_turns, note, repeat
from processes import MOBILENET, MOBILENET_ONNX, PEERS, run_model, write_script
from queueing_theory import expected_wait, waits_by_recursion
from real_networks import network_of

import lar
from lar.measurement.differences import compare_pairs
from lar.measurement.statistics import percentile_of
from lar.options.command_line import parse_values
from lar.records.run import RunContext
from lar.running.plan import plan_run
from lar.running.rounds import TurnTaker, await_all

# With two threads, nearly every iteration would be disturbed by the hogs.
ONE_THREAD = f"{MOBILENET_ONNX} --multithread 1"
LAYERS = 33  # one more layer adds 3 % to the time
RECORDED_LAYERS, RECORDINGS = 8, 8
PIECE = 100  # iterations, which take some tenths of a second
RATE, LOAD = 20.0, 0.6
# Turns of lar and of a peer, timed iterations in a turn, and untimed iterations before them.
TURNS, IN_TURN, UNTIMED = 40, 20, 3
FIGURES = Figures("bench_timings", budget_seconds=60.0)


# Proven differences


@FIGURES.row("same")
def measure_same(settings: Settings) -> Outcome:
    verdicts = compare_disturbed(settings, ONE_THREAD, ONE_THREAD)
    wrong = sum(verdict in ("faster", "slower") for verdict, _ in verdicts)
    return Outcome(f"{wrong} of {len(verdicts)}", wrong <= 0.05 * len(verdicts))


@FIGURES.row("slower-model")
def measure_slower(settings: Settings) -> Outcome:
    models = (write_chain(settings.folder, layers) for layers in (LAYERS, LAYERS + 1))
    verdicts = compare_disturbed(settings, *(f"{model} --multithread 1" for model in models))
    right = sum(verdict == "slower" for verdict, _ in verdicts)
    middle = statistics.median(seconds for _, seconds in verdicts)
    return Outcome(
        f"{right} of {len(verdicts)}, median {middle:.0f} s",
        right >= 0.9 * len(verdicts) and middle < 60,
    )


@FIGURES.row("order")
def measure_order(settings: Settings) -> Outcome:
    """Compare two optimisation levels, of which noise easily makes the wrong one look faster."""
    levels = (f"{ONE_THREAD} --graph-optimization-level {level}" for level in ("basic", "all"))
    verdicts = compare_disturbed(settings, *levels)
    right = sum(verdict == "faster" for verdict, _ in verdicts)
    return Outcome(f"{right} of {len(verdicts)}", right == len(verdicts))


def compare_disturbed(settings: Settings, *specs: str) -> list[tuple[str, float]]:
    """Compare two variants again and again while the machine is disturbed.

    Return, for each comparison, the verdict on the second variant and the seconds it took.
    """
    verdicts: list[tuple[str, float]] = []
    with disturbed(settings.seed):
        for number in repeat(settings):
            result = lar.bench(
                specs, budget_seconds=settings.budget_seconds, seed=settings.seed + number
            )
            difference = result.variants[1].difference
            note(f"{result.wall_seconds:.1f} s, {result.rounds} rounds: {difference}")
            # No difference: the budget was spent before anything could be judged.
            verdict = difference.verdict if difference else "not judged"
            verdicts.append((verdict, result.wall_seconds))
    return verdicts


# Medians and their intervals


@FIGURES.row("spread")
def measure_spread(settings: Settings) -> Outcome:
    reported, means = [], []
    with disturbed(settings.seed):
        for _ in repeat(settings):
            # Long enough for some quiet moments: a short run may lie within one burst of work.
            result = run_model(MOBILENET_ONNX, fill="ones", multithread=1, duration=3)
            reported.append(reported_median(result))
            means.append(statistics.fmean(result.samples.end_to_end))
            note(f"{reported[-1] * 1e3:.3f} ms, mean {means[-1] * 1e3:.3f} ms")
    share = statistics.stdev(reported) / statistics.stdev(means)
    return Outcome(f"{share:.2f}x", share < 0.25)


def reported_median(result: lar.RunResult) -> float:
    """Return the median that a run's summary recommends."""
    summary = result.summary
    assert summary
    medians = {"undisturbed latency": summary.undisturbed_median, "cpu": summary.cpu_median}
    return medians.get(summary.trust) or summary.median


@FIGURES.row("coverage")
def measure_coverage(settings: Settings) -> Outcome:
    """Count how many confidence intervals contain the true median.

    The times of a model are recorded while the machine is disturbed. A scripted engine then plays
    random pieces of a recording, whose median is known. There are several recordings, since noise
    differs from time to time.
    """
    chance = random.Random(settings.seed)
    recordings = [record_times(settings, settings.seed + it, 8000) for it in range(RECORDINGS)]
    held = known = 0
    for number in repeat(settings):
        recorded = recordings[number % RECORDINGS]
        truth = percentile_of(sorted(recorded), 50)
        model = write_times(settings, list(itertools.islice(resample(recorded, chance), 1000)))
        result = run_model(model, iter=1000, warmup_iter=0)
        assert result.summary
        if interval := result.summary.interval:
            known += 1
            held += interval.low <= truth <= interval.high
    return Outcome(f"{held / known:.1%} of {known} intervals", 0.92 <= held / known <= 0.98)


def resample(values: Sequence[float], chance: random.Random) -> Iterator[float]:
    """Yield values for ever, in pieces of random length, each from a random place in `values`.

    This is the stationary bootstrap (D. N. Politis and J. P. Romano, 1994). Within a piece, the
    order is kept, so that neighbours stay correlated. The expected median is that of all `values`,
    even if they drift.
    """
    while True:
        place = chance.randrange(len(values))
        yield values[place]
        while chance.random() > 1 / PIECE:
            place = (place + 1) % len(values)
            yield values[place]


def record_times(settings: Settings, seed: int, count: int) -> list[float]:
    """Return the times of a model's iterations while the machine is disturbed.

    Each iteration takes some milliseconds.
    """
    with disturbed(seed):
        model = write_chain(settings.folder, RECORDED_LAYERS)
        result = run_model(model, fill="ones", iter=count)
    return list(result.samples.end_to_end)


# The loop


@FIGURES.row("added")
def measure_added(settings: Settings) -> Outcome:
    """Measure the time between iterations, in which lar reads counters and runs its loop."""
    longest = 0.0
    for model, threads in itertools.product((MOBILENET_ONNX, MOBILENET), (None, 2)):
        runs = (
            run_model(model, fill="ones", iter=50, multithread=threads).samples
            for _ in repeat(settings)
        )
        middle = statistics.median(statistics.median(gaps_of(each)) for each in runs)
        longest = max(longest, middle)
    return Outcome(f"{longest * 1e6:.0f} us", longest < 150e-6)


def gaps_of(samples: Any) -> Iterator[float]:
    """Yield the seconds from the end of each iteration to the start of the next iteration."""
    ends = [began + took for began, took in zip(samples.began, samples.end_to_end, strict=True)]
    yield from (began - ended for ended, began in zip(ends, samples.began[1:], strict=False))


@FIGURES.row("bare-loop")
def measure_bare_loop(settings: Settings) -> Outcome:
    return measure_agreement(settings, "loop", MOBILENET, statistics.median)


@FIGURES.row("onnxruntime-test")
def measure_onnxruntime_test(settings: Settings) -> Outcome:
    """Compare lar's mean time of an `.onnx` with the mean that ONNX Runtime's own test prints.

    The test also counts the time that Python takes for each call, some 10 us, which lar leaves out.
    So the model is large: 10 us are a thousandth of its time.
    """
    model = write_chain(settings.folder, 3 * LAYERS)
    return measure_agreement(settings, "onnxruntime-test", model, statistics.fmean)


def measure_agreement(
    settings: Settings, peer: str, model: str, centre: Callable[[Sequence[float]], float]
) -> Outcome:
    """Compare lar with a peer in the way in which `lar bench` compares variants.

    Each round starts fresh processes. They take turns, so that only one computes at a time.
    """
    found = compare_pairs([play_round(settings, peer, model, centre) for _ in repeat(settings)])
    if found is None or found.interval is None:
        return Outcome("no interval", False)
    low, high = (100 * (it - 1) for it in (found.interval.low, found.interval.high))
    return Outcome(f"{low:+.2f} to {high:+.2f} %", low >= -1 and high <= 1)


def play_round(
    settings: Settings, peer: str, model: str, centre: Callable[[Sequence[float]], float]
) -> list[float]:
    """Return log(lar's time / the peer's time) for each pair of neighbouring turns."""
    spec = plan_run(model, parse_values({"fill": "ones"}))
    with contextlib.ExitStack() as stack:
        ours = TurnTaker(stack, spec, RunContext(work_folder=str(settings.folder)))
        theirs = stack.enter_context(peer_process(peer, model))
        await_all([ours])

        def take_turn() -> float:
            samples = ours.take_turn(UNTIMED, IN_TURN)
            assert samples is not None
            return centre(samples.end_to_end)

        pairs = measure_in_turns(take_turn, lambda: theirs(IN_TURN), TURNS)
        ratios = [math.log(mine / other) for mine, other in pairs]
    note(f"{math.exp(statistics.median(ratios)):.4f}")
    return ratios


@contextlib.contextmanager
def peer_process(peer: str, model: str) -> Iterator[Callable[[int], float]]:
    """Start a process of `peers.py`; yield a function that lets the process compute for one turn.

    The function returns the seconds of an iteration. Between turns, the process is stopped, as lar
    stops its worker.
    """
    with subprocess.Popen(
        [*PEERS, peer, model], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        asked, answers = process.stdin, process.stdout

        def take_turn(count: int) -> float:
            print(UNTIMED, count, file=asked, flush=True)
            process.send_signal(signal.SIGCONT)
            answer = answers.readline()
            process.send_signal(signal.SIGSTOP)
            return float(answer.split()[0])

        try:
            answers.readline()
            process.send_signal(signal.SIGSTOP)
            yield take_turn
        finally:
            process.kill()


# Queues


@FIGURES.row("queue")
def measure_queue(settings: Settings) -> Outcome:
    """Serve requests in real time, and compare the mean wait with the wait that theory gives.

    The theory gets the measured arrivals and service times.
    """
    chance, mean = random.Random(settings.seed), LOAD / RATE
    times = [mean * chance.uniform(0.5, 1.5) for _ in range(1000)]
    model = write_times(settings, times, True)
    result = run_model(model, rate=RATE, duration=settings.repetitions / RATE, seed=settings.seed)
    waits, samples = waits_of(result), result.samples
    begins = [began or 0.0 for began in samples.began]
    arrivals = [began - wait for began, wait in zip(begins, waits, strict=True)]
    return compare_waits(waits, statistics.fmean(waits_by_recursion(arrivals, samples.end_to_end)))


@FIGURES.row("long-queue")
def measure_long_queue(settings: Settings) -> Outcome:
    """Serve requests on the scripted engine's own clock, and compare the mean wait with theory.

    On this clock, nothing is late. There are so many requests that their mean wait is near the
    expected wait for their rate.
    """
    chance, mean = random.Random(settings.seed), LOAD / RATE
    model = write_times(settings, [chance.gammavariate(4, mean / 4) for _ in range(10_000)])
    result = run_model(model, rate=RATE, iter=settings.repetitions, seed=settings.seed)
    return compare_waits(waits_of(result), expected_wait(RATE, result.samples.end_to_end))


def waits_of(result: lar.RunResult) -> list[float]:
    return [wait or 0.0 for wait in result.samples.queueing]


def compare_waits(waits: Sequence[float], expected: float) -> Outcome:
    share = statistics.fmean(waits) / expected
    return Outcome(f"{share - 1:+.1%}", abs(share - 1) < 0.1)


# Models


def write_chain(folder: Path, layers: int) -> str:
    """Write a model of `layers` equal convolutions with a small output; return the path."""
    weights = [f"float[32,32,3,3] w{number}" for number in range(layers)]
    nodes = [f"x{it + 1} = Conv <pads = [1,1,1,1]> (x{it}, w{it})" for it in range(layers)]
    nodes.append(f"mean = GlobalAveragePool (x{layers})")
    chain = network_of("float[1,32,28,28] x0", "float[1,32,1,1] mean", weights, nodes)
    path = str(folder / f"chain{layers}.onnx")
    onnx.save(chain.model, path)
    return path


def write_times(settings: Settings, times: Sequence[float], real_time: bool = False) -> str:
    """Write a model of the scripted engine whose iterations take these times; return its path."""
    return write_script(
        settings.folder,
        inputs=[{"name": "data", "dtype": "float32", "shape": [1]}],
        outputs={"sum": [1.0]},
        times=[[time, time / 100, time] for time in times],
        real_time=real_time,
    )


if __name__ == "__main__":
    sys.exit(FIGURES.main(__doc__))
