"""Requests, facts and trials made by hand, for tests of sessions: no engine runs."""

from __future__ import annotations

from collections.abc import Mapping

from lar.records.bench import Turn
from lar.records.choices import Choice, Dimension, OptionValue
from lar.records.facts import EngineFacts, MachineFacts, ModelFile
from lar.records.run import Failure, Samples
from lar.records.tuning import (
    BASELINE,
    Candidate,
    ModelSpace,
    Trial,
    TrialKind,
    TrialRow,
    TuneRequest,
)
from lar.tuning.session import SessionFacts

FAST = Candidate(choices=("blocked", "2 threads"))
SLOW = Candidate(choices=("2 threads",))
BROKEN = Candidate(choices=("blocked",))

DIMENSIONS = (
    Dimension(
        name="layout",
        choices=(
            Choice(name="blocked", options={"enable_nchw88": True}),
            Choice(name="searched", search={"fast_run": True}, cache="fast_run_algo_policy"),
        ),
    ),
    Dimension(name="threads", choices=(Choice(name="2 threads", options={"multithread": 2}),)),
)


def make_request(
    model: str = "models/net.mge",
    budget_seconds: float = 120.0,
    options: Mapping[str, OptionValue] | None = None,
) -> TuneRequest:
    """A request with the options of all runs."""
    space = ModelSpace(
        model=model, engine="fake", dimensions=DIMENSIONS, options=dict(options or {})
    )
    return TuneRequest(spaces=(space,), budget_seconds=budget_seconds)


def make_machine(processor: str = "a processor", cores: int = 4) -> MachineFacts:
    return MachineFacts(
        system="Linux 6.1",
        processor=processor,
        cores=cores,
        usable_cores=2,
        memory_bytes=8 << 30,
        governor="",
        python="3.10.13",
    )


def make_facts(
    processor: str = "a processor",
    sha256: str = "a" * 64,
    model: str = "models/net.mge",
    engines: Mapping[str, str] | None = None,
) -> SessionFacts:
    return SessionFacts(
        machine=make_machine(processor),
        engines=dict(engines or {"fake": "1.0"}),
        models=(ModelFile(path=model, size_bytes=100, sha256=sha256),),
        folder="/somewhere",
    )


def make_row(
    candidate: Candidate, seconds: float = 0.01, *, number: int = 1, cache: str = ""
) -> TrialRow:
    """A candidate of that time; no time, and it has crashed."""
    engine = EngineFacts(name="fake", version="1.0", driver="script", device="cpu")
    if not seconds:
        failure = Failure("it broke")
        return TrialRow(candidate=candidate, status="crashed", failure=failure, engine=engine)
    turns = tuple(
        Turn(
            round=number,
            cycle=cycle,
            began=cycle / 10,
            samples=Samples(end_to_end=(seconds, seconds * (1.01 + cycle / 1000), seconds * 1.02)),
        )
        for cycle in range(6)
    )
    return TrialRow(candidate=candidate, turns=turns, engine=engine, cache=cache, seconds=1.0)


def make_trial(
    number: int,
    times: Mapping[Candidate, float],
    kind: TrialKind = "race",
    plain: float = 0.01,
    cache: str = "",
) -> Trial:
    """A trial of 2 s, 3 s after the one before, with the plain run first."""
    rows = [make_row(BASELINE, plain, number=number)] if kind != "search" else []
    rows += [make_row(each, time, number=number, cache=cache) for each, time in times.items()]
    return Trial(
        number=number,
        kind=kind,
        rows=tuple(rows),
        began=3.0 * number,
        seconds=2.0,
        machine=make_machine(),
    )


def make_trials(count: int = 3) -> list[Trial]:
    """Trials in which one candidate is twice as fast, another slower, and a third crashes."""
    return [
        make_trial(number, {FAST: 0.005, SLOW: 0.012, BROKEN: 0.0})
        for number in range(1, count + 1)
    ]
