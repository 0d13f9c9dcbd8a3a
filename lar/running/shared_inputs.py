"""What the models of a comparison are fed with: the same data on all sides."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar.dumps.dump import Dump
from lar.engines import operator_kinds_of
from lar.errors import UsageError, count_of
from lar.graphs.graph import Graph
from lar.records.run import RunResult, TensorInfo
from lar.running.compared_sides import ModelRun, Side, plan_of

if TYPE_CHECKING:
    from lar.inputs.loaded import Array

# A note names so many inputs, and counts the others.
MOST_NAMED = 3


def items_of_sides(sides: Sequence[Side], options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the items of the data set that both sides are run on, empty without one.

    Raises:
        UsageError: one side has a data set and the other does not, or one of another length.
    """
    once = {"iter": 1, "warmup_iter": 0, **options}
    specs = [
        plan_of(side, once, elsewhere=True)
        if isinstance(side, ModelRun) and (side.options.get("input") or options.get("input"))
        else None
        for side in sides
    ]
    counts = [len(spec.items) if spec else 0 for spec in specs]
    if not any(counts):
        return ()
    if len(sides) == 2 and len(set(counts)) == 1 and specs[1]:
        return specs[1].item_names
    number, spec = next((place, each) for place, each in enumerate(specs) if each and each.items)
    side = sides[number]
    others = "more than two sides are" if len(sides) > 2 else "the other side is"
    raise UsageError(
        f"--input {';'.join(spec.inputs)} is a data set of {count_of(len(spec.items), 'item')}, "
        f"and {others} not run on as many",
        "give both sides one; or run the data set with --bin-out-dump DIR for each side, and "
        "compare the folders",
        subject=side.text if isinstance(side, ModelRun) else "",
    )


def brings_inputs(side: Side) -> bool:
    """Return whether a side's inputs are settled."""
    return isinstance(side, Dump) or side.has_testcases


def inputs_for(
    number: int,
    sides: Sequence[Side],
    dumps: Mapping[int, Dump],
    options: Mapping[str, Any],
    folder: Path,
) -> list[str]:
    """Return the `--input` items for a model besides its own options, empty if it needs none.

    Where nobody says what to feed, it gets the inputs of a dump on another side, and models whose
    inputs have other names get the same generated data.

    Raises:
        UsageError: the inputs of the models are not alike, or a dump does not hold them.
    """
    models = [side for side in sides if isinstance(side, ModelRun)]
    if "input" in options or any(
        "input" in side.options or (side.has_testcases and side is sides[number]) for side in models
    ):
        return []
    place = folder / f"inputs{number}"
    for other, side in enumerate(sides):
        if brings_inputs(side):
            dump = dumps[other]
            return items_in(inputs_of(dump, sides[number]), place, dump.source)
    if len({side.model for side in models}) > 1:
        return generated_inputs(number, models, options, folder)
    return []


def items_in(fed: Mapping[str, Array], place: Path, source: str) -> list[str]:
    """Write arrays into a new folder; return the `--input` items that name them.

    Raises:
        UsageError: there are none.
    """
    if not fed:
        raise UsageError(
            "the dump does not hold what its run was fed with",
            "give --input, with the same data",
            subject=source,
        )
    from lar.running.array_inputs import items_of

    place.mkdir()
    return items_of(fed, place)


def inputs_of(dump: Dump, side: Side) -> dict[str, Array]:
    """Return what the run was fed with that made a dump, for another side; empty if the dump does
    not hold it all."""
    fed = {} if dump.index.operators else inputs_among_arrays(dump, side)
    if fed:
        return fed
    graph = Graph(dump, operator_kinds_of(dump.index.engine))
    inputs = [node for node in graph.nodes if node.is_input and node.operator]
    fed = {
        node.tensor.name: dump.read(node.tensor.key) for node in inputs if node.tensor is not None
    }
    return fed if len(fed) == len(inputs) else {}


def inputs_among_arrays(dump: Dump, side: Side) -> dict[str, Array]:
    """Return the arrays of a dump without operators that bear the names of a model's inputs,
    empty if an input is not among them."""
    from lar.running.api import read_info

    if dump.excerpts or not isinstance(side, ModelRun) or not os.path.exists(side.model):
        return {}
    folders = side.options.get("allow_external_data")
    wanted = [each.name for each in read_info(side.model, allow_external_data=folders).inputs]
    keys = {tensor.name: tensor.key for tensor in dump}
    found = {name: dump.read(keys[name]) for name in wanted if name in keys}
    return found if len(found) == len(wanted) else {}


def generated_inputs(
    number: int, models: Sequence[ModelRun], options: Mapping[str, Any], folder: Path
) -> list[str]:
    """Return `--input` items for one of the models with the same data for all, by the places of
    the inputs; none where the names are the same, because the data is generated alike then.

    Raises:
        UsageError: the inputs of the models are not alike.
    """
    from lar.inputs.generation import generate_array, shape_to_generate
    from lar.running.api import read_info

    infos = [
        read_info(
            side.model,
            allow_external_data=side.options.get(
                "allow_external_data", options.get("allow_external_data")
            ),
        ).inputs
        for side in models
    ]
    if len({frozenset(each.name for each in info) for info in infos}) == 1:
        return []
    for model, info in zip(models, infos, strict=True):
        if list(map(describe_input, info)) != list(map(describe_input, infos[-1])):
            raise UsageError(
                f"{model.model} and {models[-1].model} take different inputs",
                'say what to feed, in the options of each side: "model.mge --input a:a.npy"',
            )
    import numpy as np

    fill, seed = options.get("fill", "uniform"), int(options.get("seed", 0))
    fed = {
        mine.name: generate_array(
            theirs.name,
            np.dtype(theirs.dtype),
            shape_to_generate(theirs.shape),
            fill=fill,
            seed=seed,
        )
        for mine, theirs in zip(infos[number], infos[-1], strict=True)
    }
    return items_in(fed, folder / f"inputs{number}", models[number].model)


def describe_input(info: TensorInfo) -> tuple[str, tuple[int, ...]]:
    return info.dtype, tuple(1 if size is None else size for size in info.shape)


def describe_fill(options: Mapping[str, Any]) -> str:
    """Return how data is generated with the options of both sides."""
    from lar.inputs.generation import describe_source

    return describe_source(options.get("fill", "uniform"), int(options.get("seed", 0)))


def describe_fed(result: RunResult, generated: str) -> Iterator[str]:
    """Yield what nobody said of the data that a model was fed with: that it was generated, and the
    sizes of axes that may have any. With `generated` all of it was, in that way."""
    infos = {info.name: info for info in result.inputs}
    made: dict[str, list[str]] = {}
    open_axes = []
    for each in result.fed:
        shape = describe_axes(each.shape)
        if generated or each.generated:
            made.setdefault(generated or each.source, []).append(f"{each.name} {shape}")
        info = infos.get(each.name)
        if info and None in info.shape:
            open_axes.append(f"{each.name} {describe_axes(info.shape)} was run as {shape}")
    for source, names in made.items():
        yield f"the data of {join_first(names)} was generated: {source}"
    if open_axes:
        yield f"axes of any size: {join_first(open_axes)}"


def join_first(texts: Sequence[str]) -> str:
    """Return the first texts with commas between, and how many more there are."""
    more = len(texts) - MOST_NAMED
    return ", ".join([*texts[:MOST_NAMED], *([f"{more} more"] if more > 0 else [])])


def describe_axes(shape: Iterable[int | None]) -> str:
    return "{" + ",".join("?" if size is None else str(size) for size in shape) + "}"


def join_notes(fed: Mapping[int, Sequence[str]]) -> Iterator[str]:
    """Yield the notes of the sides that were run, each with its sides where not all have it."""
    for note in dict.fromkeys(note for number in sorted(fed) for note in fed[number]):
        sides = [chr(ord("A") + number) for number in sorted(fed) if note in fed[number]]
        yield note if len(sides) == len(fed) else f"{', '.join(sides)}: {note}"
