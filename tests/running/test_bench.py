"""Variants measured in turns: verdicts, rows, crashes, outputs, shapes, the budget."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lar
from lar.records.bench import BenchResult, Turn
from lar.records.run import FedInput, RunResult, RunSpec, Samples
from lar.running.bench import BenchProgress, Campaign, run_bench
from lar.running.rounds import Member, Rounds
from lar.running.variants import Variant, make_variants
from tests.cli.marks import needs_megengine
from tests.command_lines import ROOT, run_lar
from tests.conftest import WriteScript
from tests.running.isolated_runs import known
from tests.tables import each_row

pytestmark = pytest.mark.usefixtures("nothing_left")

INPUT = [{"name": "data", "dtype": "float32", "shape": [1, 4]}]
OK = RunResult(spec=RunSpec(model="net", engine="e", driver="d"), status="ok", phase="done")


def script(write: WriteScript, seconds: float, **fields: Any) -> str:
    """A model whose iterations take so long, on a clock that stands still while others run."""
    fields = {"inputs": INPUT, "outputs": {"prob": [0.25, 0.75]}, **fields}
    return write(times=[[seconds, 0.0, None]], **fields)


def verdicts(bench: BenchResult) -> list[str]:
    return [each.difference.verdict if each.difference else "" for each in bench.variants]


def agreements(bench: BenchResult) -> list[str]:
    found = [each.output_difference for each in bench.variants]
    return [each.agreement if each else "" for each in found]


def test_the_slower_one_is_slower(write_script: WriteScript) -> None:
    models = [script(write_script, seconds) for seconds in (0.010, 0.0103, 0.0098)]
    bench = lar.bench(models)
    assert bench.stopped == "clear"
    assert verdicts(bench) == ["", "slower", "faster"]
    assert known(bench.variants[1].difference).ratio == pytest.approx(1.03)
    assert known(bench.variants[0].latency).median == pytest.approx(0.010)
    assert [each.values for each in bench.variants] == [{"model": model} for model in models]
    assert agreements(bench) == ["", "equal", "equal"]
    assert lar.read_bench(bench.to_json()) == bench


@pytest.mark.parametrize(("do", "at"), [("raise", "load"), ("abort", "start")])
def test_a_variant_that_crashes_is_a_row(write_script: WriteScript, do: str, at: str) -> None:
    faults = [{"at": at, "do": do, "index": 9 if at == "start" else 0}]
    models = [script(write_script, 0.01), script(write_script, 0.01, faults=faults)]
    bench = lar.bench([*models, script(write_script, 0.02)])
    failed = "failed" if do == "raise" else "crashed"
    assert [each.status for each in bench.variants] == ["ok", failed, "ok"]
    assert verdicts(bench) == ["", "", "slower"]
    assert bench.variants[1].failure is not None
    assert bench.failure is None


def test_a_variant_that_hangs_is_timed_out(write_script: WriteScript) -> None:
    faults = [{"at": "start", "do": "hang", "index": 30}]
    models = [script(write_script, 0.01), script(write_script, 0.01, faults=faults)]
    bench = lar.bench(models, stall_timeout=2)
    assert [each.status for each in bench.variants] == ["ok", "timed_out"]


def test_the_time_of_others_does_not_count(write_script: WriteScript) -> None:
    """Each has its limit of time for itself."""
    models = [script(write_script, 0.01), script(write_script, 0.05, real_time=True)]
    bench = lar.bench(models, timeout=5, budget_seconds=3)
    assert [each.status for each in bench.variants] == ["ok", "ok"]


def test_outputs_are_compared(write_script: WriteScript) -> None:
    outputs = [[0.25, 0.75], [0.25, 0.750001], [0.25, 0.5], [0.25]]
    models = [script(write_script, 0.01, outputs={"prob": each}) for each in outputs]
    bench = lar.bench(models, margin=0.5)
    found = [each.output_difference for each in bench.variants]
    assert agreements(bench) == ["", "within the tolerance", "different", "different"]
    assert known(found[2]).max_error == pytest.approx(0.25)
    assert known(found[3]).reason == "shape {1} instead of {2}"


def test_shapes_are_reported_by_themselves(write_script: WriteScript) -> None:
    flexible = [{"name": "data", "dtype": "float32", "shape": [None, 4]}]
    bench = lar.bench(script(write_script, 0.01, inputs=flexible), vary={"batch_size": [1, 4]})
    assert bench.stopped == "single"
    assert [each.shape for each in bench.variants] == ["1x4", "4x4"]
    assert verdicts(bench) == ["", ""]
    rates = [each.latency.items_per_second for each in bench.variants if each.latency]
    assert rates == pytest.approx([100, 400])


def test_within_each_shape_variants_are_compared(write_script: WriteScript) -> None:
    flexible = [{"name": "data", "dtype": "float32", "shape": [None, 4]}]
    models = [script(write_script, seconds, inputs=flexible) for seconds in (0.01, 0.02)]
    bench = lar.bench(models, vary=["batch-size=1,4"])
    first, second = models
    baselines = [f"{first} batch-size={size}" for size in (1, 4)]
    assert [each.baseline for each in bench.variants] == ["", "", *baselines]
    assert verdicts(bench) == ["", "", "slower", "slower"]
    assert [each.values["model"] for each in bench.variants] == [first, first, second, second]


def test_an_interrupt_keeps_the_verdicts_so_far(write_script: WriteScript) -> None:
    models = [script(write_script, seconds) for seconds in (0.01, 0.02)]

    def interrupt(progress: BenchProgress) -> None:
        if progress.rounds == 4:
            raise KeyboardInterrupt

    bench = run_bench(make_variants(models, [], {}), report=interrupt)
    assert bench.stopped == "interrupted"
    assert [each.status for each in bench.variants] == ["ok", "ok"]
    assert verdicts(bench) == ["", "slower"]
    assert bench.differences[models[1]].processes == 3


def test_an_interrupt_of_the_first_round_keeps_its_turns(write_script: WriteScript) -> None:
    model = script(write_script, 0.01)
    turns = 0

    def interrupt(progress: BenchProgress) -> None:
        nonlocal turns
        turns += 1
        if turns == 4:
            raise KeyboardInterrupt

    bench = run_bench(make_variants([model, model], [], {}), report=interrupt)
    assert [each.status for each in bench.variants] == ["interrupted", "interrupted"]
    assert [len(each.turns) for each in bench.variants] == [3, 3]
    assert bench.variants[0].latency is not None


def test_inputs_of_other_names_get_the_same_data(write_script: WriteScript) -> None:
    other = [{"name": "image", "dtype": "float32", "shape": [1, 4]}]
    models = [script(write_script, 0.01), script(write_script, 0.01, inputs=other)]
    bench = lar.bench(models, margin=0.5)
    assert agreements(bench) == ["", "equal"]
    assert bench.variants[1].fed[0].source == "generated as for the baseline"
    assert known(bench.variants[1].spec).inputs == ()


def test_outputs_of_other_data_are_not_compared(write_script: WriteScript) -> None:
    bench = lar.bench(script(write_script, 0.01), vary={"seed": [0, 1]}, margin=0.5)
    assert agreements(bench) == ["", ""]
    assert verdicts(bench) == ["", "no difference shown"]


def test_arrays_are_fed_and_given_back(write_script: WriteScript) -> None:
    data = np.zeros((1, 4), np.float32)
    model = script(write_script, 0.01)
    bench = lar.bench([model, model], inputs={"data": data}, margin=0.5, keep_outputs=True)
    assert [each.arrays["prob"].tolist() for each in bench.variants] == [[0.25, 0.75]] * 2
    assert bench.variants[0].fed[0].source == "the array given for 'data'"
    assert known(bench.variants[0].spec).inputs == ("data:the array given for 'data'",)
    assert lar.read_bench(bench.to_json()).variants[0].arrays == {}


@needs_megengine
def test_a_model_with_testcases_is_fed_with_the_first(tmp_path: Path) -> None:
    packed = str(tmp_path / "packed.mge")
    data = str(ROOT / "inputs/digit_7.npy")
    run_lar("pack", str(ROOT / "models/digits_cnn.mge"), "-d", data, "-o", packed, code=0)
    bench = lar.bench(packed, vary={"enable_nchw44": None}, budget_seconds=0.1)
    assert [each.status for each in bench.variants] == ["ok", "ok"]
    assert [each.source for each in bench.variants[0].fed] == ["testcase 0"]
    assert agreements(bench)[1] in ("equal", "within the tolerance")


def turn_of(number: int, seconds: float, queue_delay: float = 0.0) -> Turn:
    samples = Samples(end_to_end=(seconds,) * 2, queue_delay=(queue_delay,) * 2)
    return Turn(round=number, cycle=0, began=0, samples=samples)


class Played(Rounds):
    """Rounds of variants whose times are computed, by number; `groups` has who was measured."""

    def __init__(self, variants: list[dict[str, Any]], deadline: float) -> None:
        super().__init__(folder="", began=0, deadline=deadline, order=random.Random(0))
        self.variants, self.groups, self.told = variants, list[str](), list[BenchProgress]()

    def play(self, number: int, members: Sequence[Member]) -> None:
        self.groups.append("".join(str(each.number) for each in members))
        for each in members:
            own = self.variants[each.number]
            fed = FedInput(name="x", dtype="f4", shape=(own.get("rows", 1),), source="")
            status = "crashed" if own.get("fails") == number else "ok"
            each.result = replace(OK, status=status, fed=(fed,))  # type: ignore[arg-type]
            seconds = own["seconds"] * self.order.lognormvariate(0, own.get("noise", 0))
            each.turns.append(turn_of(number, seconds))


@each_row("running/cases/benches")
def test_rounds_are_played_until_nothing_new_would_be_shown(
    variants: list[dict[str, Any]],
    limits: dict[str, Any],
    told: list[Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    places = limits.get("places", 8)
    monkeypatch.setattr("lar.running.bench.places_in_memory", lambda members: places)
    made = [Variant(str(it["seconds"]), "net", {}, spec=OK.spec) for it in variants]
    played = Played(variants, limits.get("deadline", math.inf))
    campaign = Campaign(made, limits.get("baseline", 0), played, limits.get("margin", 0.01))
    played.show = lambda: played.told.append(campaign.progress)
    stopped = campaign.run()
    found = [each.difference and each.difference.verdict for each in campaign.entries]
    progress = [
        [it.rounds, it.decided, it.comparisons, it.detectable and round(it.detectable, 4)]
        for it in played.told[:: max(1, len(played.told) // 2)]
    ]
    assert [" ".join(played.groups), stopped, [it or "" for it in found], progress] == told
