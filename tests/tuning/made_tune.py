"""Searches that were never made, and what scripts of the scripted engine offer to them."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec

from lar.measurement.machine import read_machine, read_model_file
from lar.records.run import EngineFacts
from lar.records.tuning import (
    Choice,
    Dimension,
    ModelSpace,
    OptionValue,
    RankedCandidate,
    TunedSettings,
    TuneRequest,
    TuneResult,
)

SCRIPTED = EngineFacts(name="fake", version="1", driver="script", device="cpu")
ENGINE = EngineFacts(name="megengine", version="1.13.0", driver="lite", device="cpu")

LANDSCAPES = json.loads((Path(__file__).parent / "landscapes.json").read_text())


def dimensions_of(landscape: str) -> tuple[Dimension, ...]:
    return msgspec.convert(LANDSCAPES[landscape], tuple[Dimension, ...])


def tune_of_script(
    model: str | Path, options: dict[str, OptionValue], engine: EngineFacts = SCRIPTED
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
        value=0.01,
        baseline_value=0.02,
    )
    return TuneResult(
        request=TuneRequest(spaces=(space,)), ending="settled", ranking=(best,), tuned=settings
    )
