"""The models among the sides of a comparison, each run once, on the same inputs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from lar.comparison.compare import Request
from lar.dumps.dump import Dump
from lar.dumps.index import open_dump
from lar.records.run import RunContext, RunResult
from lar.running.compared_sides import ModelRun, Side, naming_side, plan_of
from lar.running.shared_inputs import brings_inputs, describe_fed, describe_fill, inputs_for

if TYPE_CHECKING:
    from lar.records.run import RunSpec

MakeOn: TypeAlias = Callable[["RunSpec", RunContext, str], RunResult]
"""What makes a run on another machine, one that has a label."""


@dataclass(frozen=True, kw_only=True)
class Asked(Request):
    """What a comparison is asked for, besides its sides: see `compare`.

    `options` are the flags of `lar run` for all models, by key.
    """

    case: int | None = None
    truth: bool | str | os.PathLike[str] = False
    models: Mapping[str, str | os.PathLike[str]] | str | os.PathLike[str] | None = None
    make_on: MakeOn | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


def run_sides(
    sides: Sequence[Side], folder: Path, asked: Asked
) -> tuple[list[Dump], dict[int, tuple[str, ...]]]:
    """Run the models among the sides, on the same inputs; their dumps go into a folder.

    Returns the dumps, and notes on what each model that was run was fed with.

    Raises:
        UsageError: an option cannot be used, or it is not clear what to feed.
        LarError: a run did not end well.
    """
    dumps: dict[int, Dump] = {}
    fed: dict[int, tuple[str, ...]] = {}
    # A dump, and a run that brings its own inputs, come first: the other side gets the same.
    order = sorted(range(len(sides)), key=lambda number: brings_inputs(sides[number]), reverse=True)
    for number in order:
        side, options = sides[number], asked.options
        if isinstance(side, ModelRun):
            inputs = inputs_for(number, sides, dumps, options, folder)
            # What is given to two models without a word of the user is generated for both.
            untold = bool(inputs) and not any(map(brings_inputs, sides))
            generated = describe_fill(options) if untold else ""
            values = {**options, **({"input": inputs} if inputs else {})}
            asked.progress(f"running {side.text}")
            with naming_side(side, sides, options):
                place = folder / f"side{number}"
                side, result = run_side(side, place, replace(asked, options=values))
            fed[number] = tuple(describe_fed(result, generated))
        dumps[number] = side
    return [dumps[number] for number in range(len(sides))], fed


def run_side(side: ModelRun, folder: Path, asked: Asked) -> tuple[Dump, RunResult]:
    """Run a model once and open what it dumped; its own options come before those of all.

    Raises:
        UsageError: an option cannot be used.
        LarError: it did not run.
    """
    # Not before: two dumps are compared without what a run needs.
    from lar.running.steps import make_run
    from lar.running.tasks import require_ok

    once = {"iter": 1, "warmup_iter": 0, "bin_io_dump": str(folder), **asked.options}
    spec = plan_of(side, once, elsewhere=asked.make_on is not None)
    if side.item is not None:
        spec = replace(spec, items=spec.items[side.item : side.item + 1])
    # What an `--input` expects is not judged: the two sides are compared.
    case = asked.case or 0
    spec = replace(spec, cases=spec.cases[case : case + 1] if side.has_testcases else ())
    values = {**once, **side.options}
    context = RunContext(overwrite=values.get("overwrite", False))
    make_on = asked.make_on
    result = make_on(spec, context, side.label) if make_on else make_run(spec, context)
    # The side's text names the model.
    require_ok(result, within=side.text, names={side.model: ""})
    return open_dump(values["bin_io_dump"]), result
