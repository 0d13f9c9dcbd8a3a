"""Searches that were never made, with a ranking, trials and everything else that reports read."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from lar.measurement.machine import read_machine, read_model_file
from lar.records.bench import OutputDifference, Turn
from lar.records.choices import Choice, Dimension, OptionValue
from lar.records.facts import EngineFacts, MachineFacts, ModelFile
from lar.records.run import Failure, FedInput, Samples
from lar.records.summary import Difference, Interval, Summary
from lar.records.tuning import (
    Candidate,
    Contribution,
    ModelSpace,
    NotTried,
    RankedCandidate,
    Trial,
    TrialRow,
    TuneRequest,
    TuneResult,
    name_of,
)

MACHINE = MachineFacts(
    system="Linux 6.1",
    processor="EPYC 9B45",
    cores=2,
    usable_cores=2,
    memory_bytes=8 << 30,
    governor="",
    python="3.10.13",
)
MODEL = ModelFile(path="resnet50.mge", size_bytes=102_000_000, sha256="5e" * 32)
SCRIPTED = EngineFacts(name="fake", version="1", driver="script", device="cpu")
ENGINE = EngineFacts(name="megengine", version="1.13.0", driver="lite", device="cpu")
FED = FedInput(name="data", dtype="float32", shape=(1, 3, 224, 224), source="uniform")
CRASH = Failure(
    problem="the engine crashed in phase load: killed by SIGSEGV", hint="try fewer options"
)
REFUSAL = Failure(
    problem="--enable-nchw44 and --record-comp-seq exclude each other: it is a test", exit_code=2
)


def difference_of(ratio: float, spread: float = 0.02) -> Difference:
    verdict: Literal["faster", "slower", "no difference shown"] = "no difference shown"
    if ratio * (1 + spread) < 1:
        verdict = "faster"
    elif ratio * (1 - spread) > 1:
        verdict = "slower"
    return Difference(
        ratio=ratio,
        interval=Interval(ratio * (1 - spread), ratio * (1 + spread), 0.99),
        verdict=verdict,
        smallest_detectable=0.02,
        processes=4,
        pairs=40,
    )


def summary_of(seconds: float) -> Summary:
    return Summary(
        count=40,
        mean=seconds,
        standard_deviation=seconds / 50,
        minimum=seconds,
        maximum=seconds,
        median=seconds,
    )


def turns_of(process: int, seconds: float, began: float) -> tuple[Turn, ...]:
    return tuple(
        Turn(
            round=process,
            cycle=cycle,
            began=began + cycle,
            samples=Samples(end_to_end=(seconds,) * 4),
        )
        for cycle in range(3)
    )


SPACE = ModelSpace(
    model="resnet50.mge",
    engine="megengine",
    options={"input": ("data:{1,3,224,224}",)},
    dimensions=(
        Dimension(
            name="layout",
            choices=(
                Choice(name="nchw44", options={"enable_nchw44": True}),
                Choice(name="nchw88", options={"enable_nchw88": True}),
            ),
        ),
        Dimension(name="threads", choices=(Choice(name="2 threads", options={"multithread": 2}),)),
        Dimension(
            name="execution",
            choices=(Choice(name="recorded", options={"record_comp_seq": True}),),
        ),
        Dimension(
            name="algorithms",
            choices=(
                Choice(
                    name="fast-run",
                    search={"fast_run": True},
                    cache="fast_run_algo_policy",
                    cache_depends=("layout",),
                ),
            ),
        ),
    ),
)

PLAIN, THREADS = Candidate(), Candidate(choices=("2 threads",))
NCHW44, NCHW88 = Candidate(choices=("nchw44",)), Candidate(choices=("nchw88",))
BEST = Candidate(choices=("nchw88", "2 threads"))
CACHED = Candidate(choices=("nchw88", "2 threads", "fast-run"))
RECORDED = Candidate(choices=("recorded",))
SECONDS = {PLAIN: 0.268, THREADS: 0.152, NCHW44: 0.322, NCHW88: 0.079, BEST: 0.0547, CACHED: 0.075}


def row_of(candidate: Candidate, process: int, began: float) -> TrialRow:
    if candidate == RECORDED:
        return TrialRow(candidate=candidate, status="crashed", failure=CRASH, seconds=0.4)
    return TrialRow(
        candidate=candidate,
        turns=turns_of(process, SECONDS[candidate], began),
        engine=ENGINE,
        fed=(FED,),
        load_seconds=0.2,
        peak_memory_bytes=300 << 20,
        seconds=1.5,
    )


def made_trials() -> tuple[Trial, ...]:
    """Return a screening, a search, two races and a confirmation, one after another."""
    plan: list[tuple[Literal["screen", "race", "confirm"], tuple[Candidate, ...]]] = [
        ("screen", (PLAIN, THREADS, NCHW44, NCHW88, RECORDED)),
        ("race", (PLAIN, BEST, NCHW88)),
        ("race", (PLAIN, BEST, CACHED)),
        ("confirm", (PLAIN, BEST)),
    ]
    trials: list[Trial] = []
    began = 0.0
    for kind, candidates in plan:
        rows = [row_of(each, len(trials), began) for each in candidates]
        seconds = 4.0 + 2 * len(candidates)
        trials.append(
            Trial(
                number=len(trials),
                kind=kind,
                rows=tuple(rows),
                began=began,
                seconds=seconds,
                machine=MACHINE,
            )
        )
        began += seconds
        if len(trials) == 2:
            search = TrialRow(candidate=CACHED, engine=ENGINE, cache="nchw88.cache", seconds=31.0)
            trials.append(Trial(number=2, kind="search", rows=(search,), began=began, seconds=31.0))
            began += 31.0
    return tuple(trials)


def ranked(candidate: Candidate, verdict: str, **fields: object) -> RankedCandidate:
    made = RankedCandidate(
        candidate=candidate,
        name=name_of(candidate, (SPACE,)),
        verdict=verdict,
        looks=4 if candidate in SECONDS else 0,
    )
    if candidate in SECONDS:
        seconds = SECONDS[candidate]
        made = replace(
            made,
            value=seconds,
            latency=summary_of(seconds),
            difference=None
            if candidate == PLAIN
            else difference_of(seconds / SECONDS[PLAIN], 0.04 if candidate == BEST else 0.02),
            output_difference=None
            if candidate == PLAIN
            else OutputDifference(agreement="within the tolerance", output="fc", max_error=3e-6),
            peak_memory_bytes=300 << 20,
        )
    return replace(made, **fields)  # type: ignore[arg-type]


WRONG = OutputDifference(agreement="different", output="fc", max_error=0.31)


def made_tune() -> TuneResult:
    """Return a search of ResNet-50 in which the layout nchw88 with two threads won."""
    return TuneResult(
        request=TuneRequest(spaces=(SPACE,), seed=7),
        ending="settled",
        ranking=(
            ranked(BEST, ""),
            ranked(CACHED, "slower than the winner"),
            ranked(NCHW88, "slower than the winner"),
            ranked(THREADS, "slower than the winner"),
            ranked(PLAIN, ""),
            ranked(NCHW44, "", status="wrong", output_difference=WRONG),
            ranked(RECORDED, "", status="crashed", failure=CRASH),
            ranked(
                Candidate(choices=("nchw44", "recorded")), "", status="refused", failure=REFUSAL
            ),
        ),
        contributions=(
            Contribution(
                model=0,
                choice="nchw88",
                ratio=0.33,
                low=0.295,
                high=0.36,
                pairs=2,
                difference=difference_of(0.33),
            ),
            Contribution(
                model=0,
                choice="2 threads",
                ratio=0.63,
                low=0.567,
                high=0.692,
                pairs=2,
                difference=difference_of(0.63),
            ),
            Contribution(model=0, choice="fast-run", ratio=1.37, low=1.37, high=1.37, pairs=1),
        ),
        trials=made_trials(),
        lar_version="0.1.0",
        started_at="2026-01-02T03:04:05+00:00",
        models=(MODEL,),
        not_tried=(
            NotTried(choice="x2apic fix", why="it is not allowed", allow="engine-fixes"),
            NotTried(choice="spinning", why="it is in the space `full`"),
        ),
        machine=MACHINE,
        wall_seconds=88.0,
    )


def tune_of_script(
    model: str | Path,
    options: dict[str, OptionValue],
    seconds: float = 0.01,
    engine: EngineFacts = SCRIPTED,
) -> TuneResult:
    """Return a search on this machine in which these options won, of a script."""
    choice = Choice(name="tuned", options=options)
    space = ModelSpace(
        model=str(model), engine=engine.name, dimensions=(Dimension(name="all", choices=(choice,)),)
    )
    best = Candidate(choices=("tuned",))
    rows = [
        TrialRow(
            candidate=each,
            engine=engine,
            turns=turns_of(process, seconds * (2 - process % 2), 0.0),
        )
        for process, each in enumerate((PLAIN, best) * 3)
    ]
    trial = Trial(number=0, kind="race", rows=tuple(rows))
    return TuneResult(
        request=TuneRequest(spaces=(space,)),
        ending="settled",
        ranking=(
            RankedCandidate(
                candidate=best,
                name="tuned",
                options=options,
                value=seconds,
                difference=difference_of(0.5),
                latency=summary_of(seconds),
            ),
            RankedCandidate(candidate=PLAIN, name="plain", value=2 * seconds),
        ),
        trials=(trial,),
        models=(read_model_file(Path(model)),),
        machine=read_machine(),
        started_at="2026-01-02T03:04:05+00:00",
    )
