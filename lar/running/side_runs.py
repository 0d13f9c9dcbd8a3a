"""The models among the sides of a comparison, each run once, on the same inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from lar.comparison.compare import Progress
from lar.dumps.dump import Dump
from lar.dumps.index import open_dump
from lar.records.run import RunContext, RunResult
from lar.running.compared_sides import ModelRun, Side, naming_side, plan_of
from lar.running.shared_inputs import brings_inputs, describe_fed, describe_fill, inputs_for

if TYPE_CHECKING:
    from lar.records.run import RunSpec

MakeOn: TypeAlias = Callable[["RunSpec", RunContext, str], RunResult]
"""What makes a run on another machine, one that has a label."""


class Place(NamedTuple):
    """Which testcase is run, of models that have several, and what runs it if another machine
    does."""

    case: int = 0
    make_on: MakeOn | None = None


HERE = Place()


def run_sides(
    sides: Sequence[Side],
    folder: Path,
    options: Mapping[str, Any],
    place: Place,
    progress: Progress,
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
        side = sides[number]
        if isinstance(side, ModelRun):
            inputs = inputs_for(number, sides, dumps, options, folder)
            values = {**options, **({"input": inputs} if inputs else {})}
            # What is given to two models without a word of the user is generated for both.
            untold = bool(inputs) and not any(map(brings_inputs, sides))
            generated = describe_fill(options) if untold else ""
            progress(f"running {side.text}")
            with naming_side(side, sides, options):
                side, result = run_side(side, values, folder / f"side{number}", place)
            fed[number] = tuple(describe_fed(result, generated))
        dumps[number] = side
    return [dumps[number] for number in range(len(sides))], fed


def run_side(
    side: ModelRun, options: Mapping[str, Any], folder: Path, place: Place = HERE
) -> tuple[Dump, RunResult]:
    """Run a model once and open what it dumped; its own options come before those of both.

    Raises:
        UsageError: an option cannot be used.
        LarError: it did not run.
    """
    # Not before: two dumps are compared without what a run needs.
    from lar.running.steps import make_run
    from lar.running.tasks import failure_of

    once = {"iter": 1, "warmup_iter": 0, "bin_io_dump": str(folder), **options}
    spec = plan_of(side, once, elsewhere=place.make_on is not None)
    if side.item is not None:
        spec = replace(spec, items=spec.items[side.item : side.item + 1])
    # What an `--input` expects is not judged: the two sides are compared.
    cases = spec.cases[place.case : place.case + 1] if side.has_testcases else ()
    spec = replace(spec, cases=cases)
    values = {**once, **side.options}
    context = RunContext(overwrite=values.get("overwrite", False))
    make_on = place.make_on
    result = make_on(spec, context, side.label) if make_on else make_run(spec, context)
    if result.status == "interrupted":
        raise KeyboardInterrupt
    if result.status != "ok":
        failure = failure_of(result).called({side.model: ""})  # which the side's text names
        raise failure.within(side.text).to_error()
    return open_dump(values["bin_io_dump"]), result
