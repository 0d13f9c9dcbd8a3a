"""Searches that were never made, with all that reports read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lar.measurement.machine import read_machine, read_model_file
from lar.records.choices import Choice, Dimension, OptionValue
from lar.records.facts import EngineFacts, MachineFacts
from lar.records.settings import TunedSettings
from lar.records.tuning import (
    ModelSpace,
    NotTried,
    RankedCandidate,
    TuneRequest,
    TuneResult,
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
SCRIPTED = EngineFacts(name="fake", version="1", driver="script", device="cpu")
ENGINE = EngineFacts(name="megengine", version="1.13.0", driver="lite", device="cpu")

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


NOT_TRIED = (
    NotTried(choice="x2apic fix", why="it is not allowed", allow="engine-fixes"),
    NotTried(choice="spinning", why="it is in the space `full`"),
)


def row(name: str, seconds: float | None = None, **fields: Any) -> RankedCandidate:
    """Return a candidate that took so long, beside a plain run of 0.268 s."""
    choices = () if name == "plain" else tuple(name.split(" + "))
    known = {choice.name: choice for each in SPACE.dimensions for choice in each.choices}
    options = {key: value for it in choices for key, value in known[it].options.items()}
    if seconds is not None:
        ratio = seconds / 0.268
        fields = {
            "value": seconds,
            "ratio": ratio,
            "processes": 4,
            "memory_bytes": 300 << 20,
            "outputs": "within the tolerance",
            "output_error": 3e-6,
            **({} if name == "plain" else {"ratio_low": 0.96 * ratio, "ratio_high": 1.04 * ratio}),
            **fields,
        }
    return RankedCandidate(
        name=name,
        model="resnet50.mge",
        engine="megengine",
        choices=choices,
        options=options,
        **fields,
    )


def made_tune(**fields: Any) -> TuneResult:
    """Return a search of ResNet-50 in which the layout nchw88 with two threads won."""
    ranking = (
        row("nchw88 + 2 threads", 0.0547, is_best=True, verdict="best"),
        row("nchw88 + 2 threads + fast-run", 0.075, verdict="slower than the best"),
        row("2 threads", 0.152, verdict="slower than the best"),
        row("plain", 0.268, verdict="the plain run", outputs="", output_error=None),
        row(
            "nchw44",
            status="wrong",
            outputs="different",
            output_error=0.31,
            verdict="wrong numbers",
            error="its outputs are not the plain run's: fc off by 3.1e-01",
        ),
        row(
            "nchw88",
            status="crashed",
            verdict="crashed",
            error="the engine crashed in phase load: killed by SIGSEGV",
        ),
    )
    given: dict[str, Any] = {
        "request": TuneRequest(spaces=(SPACE,), not_tried=NOT_TRIED),
        "ending": "settled",
        "ranking": ranking,
        "lar_version": "0.1.0",
        "engines": (ENGINE,),
        "machine": MACHINE,
        "rounds": 5,
        "wall_seconds": 88.0,
    }
    return TuneResult(**{**given, **fields})


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
    best = RankedCandidate(
        name="tuned", model=str(model), engine=engine.name, choices=("tuned",), is_best=True
    )
    settings = TunedSettings(
        options=options,
        engine=engine,
        model=read_model_file(Path(model)),
        machine=read_machine(),
        value=seconds,
        baseline_value=2 * seconds,
    )
    return TuneResult(
        request=TuneRequest(spaces=(space,)), ending="settled", ranking=(best,), tuned=settings
    )
