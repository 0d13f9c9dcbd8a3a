"""The summary of a run, and which of its figures it says to trust."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lar.measurement import summary
from lar.measurement.statistics import causes_of
from lar.measurement.summary import precision_of, relative_half_width, summarize, windows_agree
from lar.records import run as records
from lar.records.run import EngineFacts, FedInput, Pacing, RunResult, RunSpec, Samples, read_result
from lar.records.summary import Summary, Trust
from tests.conftest import RunLar, WriteScript
from tests.known import known
from tests.tables import each_row

SPEC = RunSpec(model="m.fake", engine="fake", driver="script")
FACTS = EngineFacts(name="fake", version="1", driver="script", device="cpu", threads=1)
RESULT = RunResult(spec=SPEC, status="ok", phase="done", engine=FACTS)


def summary_of(samples: Samples, **changes: Any) -> Summary:
    return known(summarize(replace(RESULT, samples=samples, **changes)))


def test_a_run_without_iterations_has_none() -> None:
    assert summarize(RESULT) is None


def test_causes_are_what_took_a_notable_part_of_an_iteration() -> None:
    samples = Samples(
        end_to_end=(1.0,) * 7,
        queue_delay=(0.0, 0.06, 0.05, None, 0.5, 0.0, 0.0),
        steal=(0.0, 0.0, 0.1, 0.1, 0.0, 0.0, 0.0),
        throttled=(0.0, 0.0, 0.0, 0.0, 0.2, 0.0, 0.0),
        frequency=(2e9, None, 2e9, 1.79e9, 2.1e9, 2e9, 1.8e9),
    )
    assert causes_of(samples) == {
        "queue delay": (1, 4),
        "steal": (2, 3),
        "throttling": (4,),
        "frequency": (3,),
    }
    assert causes_of(Samples(end_to_end=(1.0,))) == {}
    summary = summary_of(samples)
    assert summary.disturbed == {"queue delay": 2, "steal": 2, "throttling": 1, "frequency": 1}
    assert (summary.disturbed_count, summary.undisturbed_median) == (4, 1.0)


def waiting(calm: int, disturbed: int, **columns: Any) -> Samples:
    """Iterations that take 10 ms of CPU time; the disturbed ones wait for three times as long."""
    samples = Samples(
        end_to_end=(0.01,) * calm + (0.04,) * disturbed,
        queue_delay=(0.0,) * calm + (0.03,) * disturbed,
        busiest_thread=(0.01,) * (calm + disturbed),
    )
    return replace(samples, **columns)


@each_row("measurement/cases/what to trust")
def test_what_to_trust(
    why: str, calm: int, disturbed: int, columns: dict[str, Any], threads: int | None, trust: Trust
) -> None:
    given = {name: values * (calm + disturbed) for name, values in columns.items()}
    samples = waiting(calm, disturbed, **given)
    summary = summary_of(samples, engine=replace(FACTS, threads=threads))
    assert summary.trust == trust, why
    assert summary.median == samples.end_to_end[len(samples.end_to_end) // 2]


@pytest.mark.parametrize(("spin", "trust"), [(0.009, "cpu"), (0.01, "nothing")])
def test_cpu_time_that_a_thread_may_spin_is_not_trusted(spin: float, trust: Trust) -> None:
    assert summary_of(waiting(0, 9), engine=replace(FACTS, spin_seconds=spin)).trust == trust


def test_the_undisturbed_have_a_median_and_an_interval_of_their_own() -> None:
    times = tuple(0.01 + 0.0001 * (7 * index % 20) for index in range(20))
    samples = Samples(end_to_end=times + (0.05,) * 15, queue_delay=(0.0,) * 20 + (0.04,) * 15)
    summary = summary_of(samples)
    interval, median = known(summary.undisturbed_interval), known(summary.undisturbed_median)
    assert 0.01 < interval.low <= median <= interval.high < 0.02
    assert summary.median > median


FED = FedInput(name="data", dtype="float32", shape=(4, 3), source="uniform, seed 0")


@each_row("measurement/cases/throughput")
def test_throughput_is_in_iterations_and_in_items(
    spec: dict[str, Any], shape: list[int], seconds: float | None, rates: list[float | None]
) -> None:
    given = {**spec, "pacing": Pacing(**spec.get("pacing", {})), "percentiles": (50,)}
    changes = {"fed": (replace(FED, shape=tuple(shape)),), "iterations_seconds": seconds}
    found = summary_of(Samples(end_to_end=(0.5, 0.5)), spec=replace(SPEC, **given), **changes)
    assert [found.iterations_per_second, found.items_per_second] == rates
    assert found.percentiles == {50: 0.5}


@each_row("measurement/cases/requests")
def test_requests_have_waits_latencies_and_rates(
    why: str,
    first: int,
    last: int,
    seconds: float | None,
    rates: list[float | None],
    waits: list[float],
    latencies: list[float],
) -> None:
    spec = replace(SPEC, pacing=Pacing(rate=4.0), settings={"thread": 2}, percentiles=(50,))
    samples = Samples(
        end_to_end=(0.25, 0.5, 0.25, 0.25),
        began=(1.0, 1.5, 2.0, 2.5),
        queueing=(0.0, None, 0.5, 0.25),
    ).part(slice(first, last))
    queue = known(summary_of(samples, spec=spec, iterations_seconds=seconds).queue)
    own = [*vars(queue).values()]
    assert own[:5] == rates, why
    assert [*own[5:8], *queue.waiting_percentiles.values()] == waits, why
    assert [*own[9:12], *queue.latency_percentiles.values()] == latencies, why


@each_row("measurement/cases/trusted")
def test_a_run_prints_first_what_to_trust(
    run_lar: RunLar,
    write_script: WriteScript,
    tmp_path: Path,
    delays: list[float],
    threads: int,
    trust: Trust,
    first: str,
) -> None:
    file = tmp_path / "result.json"
    noise = {"queue_delays": delays, "busiest_thread": [0.004] * 11, "threads": threads}
    script = write_script(times=[[0.01, 0.001, None]], **noise)
    done = run_lar(script, "--iter", "10", "--json", str(file))
    assert done.stdout.partition("=== finished test #0")[2].splitlines()[1].startswith(first)
    result = read_result(file.read_bytes())
    assert known(result.summary).trust == trust
    assert result.summary == summarize(result)


def drawn(count: int, seed: int = 0, spread: float = 0.05) -> list[float]:
    draw = random.Random(seed)
    return [draw.gauss(1.0, spread) for _ in range(count)]


@each_row("measurement/cases/windows")
def test_windows_agree_where_each_has_its_median_well_within_the_other(
    case: str, earlier: list[float], later: list[float], agree: bool
) -> None:
    assert windows_agree(earlier, later) is agree, case


def test_the_half_width_of_the_interval_shrinks_with_the_samples() -> None:
    narrow, wide = (known(relative_half_width(drawn(count))) for count in (6400, 400))
    # 1.96 standard errors of a median, each 1.2533 of that of the mean.
    assert wide == pytest.approx(1.96 * 1.2533 * 0.05 / 20, rel=0.3)
    assert narrow == pytest.approx(wide / 4, rel=0.35)
    assert relative_half_width([1.0, 2.0] * 50) == pytest.approx(1 / 3)


@pytest.mark.parametrize("times", [[], [1.0], [1.0, 2.0, 3.0]])
def test_too_few_samples_have_no_interval(times: list[float]) -> None:
    assert relative_half_width(times) is None


def test_the_samples_of_several_runners_are_taken_in_turn() -> None:
    first, second = drawn(301, 1), [2 * each for each in drawn(300, 2)]
    mixed = [each for pair in zip(first, second, strict=False) for each in pair] + [first[-1]]
    together = Samples(end_to_end=(*first, *second), runner=(0,) * 301 + (1,) * 300)
    assert precision_of(together) == (relative_half_width(mixed), False)


def test_where_some_were_disturbed_the_median_of_the_others_is_looked_at() -> None:
    calm, slow = drawn(200), [9.0 + 7 * each for each in drawn(100, 5)]
    times, delays = [], []
    for index, time in enumerate(calm):
        times += [time, slow[index // 2]] if index % 2 else [time]
        delays += [0.0, 8.0] if index % 2 else [0.0]
    disturbed = Samples(end_to_end=tuple(times), queue_delay=tuple(delays))
    assert precision_of(disturbed) == (relative_half_width(calm), True)
    plain = Samples(end_to_end=tuple(times), queue_delay=(None,) * len(times))
    assert precision_of(plain) == (relative_half_width(times), False)


def test_where_nearly_all_were_disturbed_all_are_looked_at() -> None:
    """As where a model runs on more threads than there are CPUs."""
    times = drawn(200)
    delays = tuple(0.5 if index > 10 else 0.0 for index in range(200))
    found = precision_of(Samples(end_to_end=tuple(times), queue_delay=delays))
    assert found == (relative_half_width(times), False)


def test_of_many_samples_some_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(summary, "MOST_LOOKED_AT", 500)
    times = drawn(1001)
    assert relative_half_width(times) == relative_half_width(times[::3])
    assert relative_half_width(times[:499]) != relative_half_width(times[:499:2])


@each_row("measurement/cases/batches")
def test_the_batch_is_the_size_that_inputs_share(
    inputs: dict[str, tuple[list[int | None], list[str], list[int]]], batch: int | None
) -> None:
    infos = [
        records.TensorInfo(name=name, dtype="float32", shape=tuple(shape), axes=tuple(axes))
        for name, (shape, axes, _) in inputs.items()
    ]
    fed = [
        FedInput(name=name, dtype="float32", shape=tuple(shape), source="")
        for name, (*_, shape) in inputs.items()
    ]
    assert summary.batch_of(fed, infos) == batch
