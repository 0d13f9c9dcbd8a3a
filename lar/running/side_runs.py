"""The models of a comparison, each run once, on the same inputs: those among its sides, and the one
whose truth judges them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from string import ascii_uppercase as LETTERS
from typing import Any, NamedTuple, TypeAlias

from lar.comparison.compare import Progress, Request
from lar.dumps.binary import TEXT
from lar.dumps.dump import Dump, DumpedTensor
from lar.dumps.index import open_dump
from lar.dumps.names import ELEMENT
from lar.dumps.values import texts_of_bytes
from lar.engines import all_engines, engine_for, operator_kinds_of
from lar.engines.engine import Engine
from lar.engines.formats import format_in, format_named, read_head
from lar.errors import UsageError, count_of
from lar.graphs.graph import Graph
from lar.inputs.loaded import Array
from lar.records.run import RunContext, RunResult, RunSpec, TensorInfo, format_shape
from lar.running.compared_sides import ModelRun, Side, naming_side, plan_of
from lar.testcases.paths import source_of

MakeOn: TypeAlias = Callable[[RunSpec, RunContext, str], RunResult]
"""What makes a run on another machine, one that has a label."""

TRUTH = "--truth"

# A note names so many inputs, and counts the others.
MOST_NAMED = 3


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
            inputs = inputs_for(side, number, sides, dumps, options, folder)
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

    options = {"bin_io_dump": str(folder), **asked.options}
    spec = plan_of(side, options, elsewhere=asked.make_on is not None)
    if side.item is not None:
        spec = replace(spec, items=spec.items[side.item : side.item + 1])
    # What an `--input` expects is not judged: the two sides are compared.
    case = asked.case or 0
    spec = replace(spec, cases=spec.cases[case : case + 1] if side.has_testcases else ())
    values = {**options, **side.options}
    context = RunContext(overwrite=values.get("overwrite", False))
    result = asked.make_on(spec, context, side.label) if asked.make_on else make_run(spec, context)
    # The side's text names the model.
    require_ok(result, within=side.text, names={side.model: ""})
    return open_dump(values["bin_io_dump"]), result


def items_of_sides(sides: Sequence[Side], options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the items of the data set that both sides are run on, empty without one.

    Raises:
        UsageError: one side has a data set and the other does not, or one of another length.
    """
    specs = [
        plan_of(side, options, elsewhere=True)
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
    mine: ModelRun,
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
        "input" in side.options or (side.has_testcases and side is mine) for side in models
    ):
        return []
    for other, side in enumerate(sides):
        if brings_inputs(side):
            fed = inputs_of(dumps[other], mine)
            if not fed and takes_none(infos_of(mine, options)):
                return []
            return items_in(fed, folder / f"inputs{number}", dumps[other].source)
    if len({side.model for side in models}) > 1:
        return generated_inputs(number, models, options, folder)
    return []


def takes_none(infos: Iterable[TensorInfo]) -> bool:
    """Return whether a model needs none of its inputs."""
    return all(info.optional for info in infos)


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
    from lar.running.api import GivenInputs

    place.mkdir()
    return GivenInputs(fed, place).items


def inputs_of(dump: Dump, side: ModelRun) -> dict[str, Array]:
    """Return what the run was fed with that made a dump, for another side; empty if the dump does
    not hold it all."""
    fed = {} if dump.index.operators else inputs_among_arrays(dump, side)
    if fed:
        return fed
    graph = Graph(dump, operator_kinds_of(dump.index.engine))
    inputs = [node for node in graph.nodes if node.is_input and node.operator]
    fed = {it.tensor.name: read_fed(dump, it.tensor) for it in inputs if it.tensor is not None}
    return fed if len(fed) == len(inputs) else {}


def inputs_among_arrays(dump: Dump, side: ModelRun) -> dict[str, Array]:
    """Return the arrays of a dump without operators that bear the names of a model's inputs,
    empty if an input is not among them."""
    if dump.excerpts or not os.path.exists(side.model):
        return {}
    wanted = [each.name for each in infos_of(side, {}) if not each.optional]
    tensors = {tensor.name: tensor for tensor in dump}
    found = {name: read_fed(dump, tensors[name]) for name in wanted if name in tensors}
    return found if len(found) == len(wanted) else {}


def read_fed(dump: Dump, tensor: DumpedTensor) -> Array:
    """Return the array of a dump as `--input` takes it."""
    array = dump.read(tensor.key)
    return texts_of_bytes(array) if tensor.dtype == TEXT.dtype else array


def infos_of(side: ModelRun, options: Mapping[str, Any]) -> tuple[TensorInfo, ...]:
    """Return the inputs that a model takes, those that it must be given first."""
    from lar.running.api import read_info

    key = "allow_external_data"
    folders = side.options.get(key, options.get(key))
    return read_info(side.model, side.options.get("engine"), allow_external_data=folders).inputs


def generated_inputs(
    number: int, models: Sequence[ModelRun], options: Mapping[str, Any], folder: Path
) -> list[str]:
    """Return `--input` items for one of the models with the same data for all, by the places of
    the inputs; none where the names are the same, because the data is generated alike then.

    Raises:
        UsageError: the inputs of the models are not alike.
    """
    from lar.inputs.axes import AxisSizes
    from lar.inputs.dtypes import dtype_of
    from lar.inputs.generation import generate_array

    infos = [[it for it in infos_of(side, options) if not it.optional] for side in models]
    if len({frozenset(each.name for each in info) for info in infos}) == 1:
        return []
    for model, info in zip(models, infos, strict=True):
        if list(map(describe_input, info)) != list(map(describe_input, infos[-1])):
            raise UsageError(
                f"{model.model} and {models[-1].model} take different inputs",
                'say what to feed, in the options of each side: "model.mge --input a:a.npy"',
            )
    sizes = AxisSizes(infos[-1], {})
    fill, seed = options.get("fill", "uniform"), int(options.get("seed", 0))
    fed = {
        mine.name: generate_array(
            theirs.name,
            dtype_of(theirs.dtype),
            sizes.shape_of(theirs),
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
        shape = format_shape(each.shape)
        if generated or each.generated:
            made.setdefault(generated or each.source, []).append(f"{each.name} {shape}")
        info = infos.get(each.name)
        if info and None in info.shape:
            open_axes.append(f"{each.name} {info.shape_text} was run as {shape}")
    for source, names in made.items():
        yield f"the data of {join_first(names)} was generated: {source}"
    if open_axes:
        yield f"axes of any size: {join_first(open_axes)}"


def join_first(texts: Sequence[str]) -> str:
    """Return the first texts with commas between, and how many more there are."""
    more = len(texts) - MOST_NAMED
    return ", ".join([*texts[:MOST_NAMED], *([f"{more} more"] if more > 0 else [])])


def join_notes(fed: Mapping[int, Sequence[str]]) -> Iterator[str]:
    """Yield the notes of the sides that were run, each with its sides where not all have it."""
    for note in dict.fromkeys(note for number in sorted(fed) for note in fed[number]):
        sides = [LETTERS[number] for number in sorted(fed) if note in fed[number]]
        yield note if len(sides) == len(fed) else f"{', '.join(sides)}: {note}"


class TruthModel(NamedTuple):
    """A model, and the engine that computes what it should give."""

    path: str
    engine: Engine


def find_truth_model(asked: str, models: Iterable[str]) -> TruthModel:
    """Return the model that is asked for; without one, the first of the models that an exact engine
    reads, or that has a twin beside it which it reads.

    Raises:
        UsageError: no engine computes the truth of it, or there is no such model.
    """
    engines = [engine for engine in all_engines() if engine.is_exact]
    if asked:
        path = Path(asked)
        readers = (it for it in engines if path.is_file() and is_read_by(it, path))
        engine = next(readers, engines[0])
        return TruthModel(asked, engine_for(Path(asked), engine.name))
    names = []
    for model in models:
        path = Path(source_of(model).model)
        names.append(str(path))
        for engine in engines:
            twins = (path.with_suffix(suffix) for suffix in engine.suffixes)
            if path.is_file() and is_read_by(engine, path):
                return TruthModel(str(path), engine)
            if twin := next((it for it in twins if it != path and it.is_file()), None):
                return TruthModel(str(twin), engine)
    suffixes = " ".join(suffix for engine in engines for suffix in engine.suffixes)
    raise UsageError(
        f"no {suffixes} is among the sides, or stands beside {' or '.join(names) or 'them'}",
        f"name the model that both sides should compute: {TRUTH} MODEL{suffixes.split()[0]}",
        flag=TRUTH,
    )


def is_read_by(engine: Engine, path: Path) -> bool:
    return bool(format_named(path, engine.formats) or format_in(read_head(path), engine.formats))


def rename_inputs(
    fed: Mapping[str, Array], infos: Sequence[TensorInfo], model: str
) -> dict[str, Array]:
    """Return what another model was fed with by the names of a model's inputs: by name, or in their
    order where the names are others.

    Raises:
        UsageError: the model takes other inputs.
    """
    names = [info.name for info in infos if not info.optional]
    own = {name: ELEMENT.sub("", name) if name not in names else name for name in fed}
    if set(names) <= {*own.values()}:
        return {name: fed[name] for name in fed if own[name] in {info.name for info in infos}}
    if len(names) != len(fed):
        raise UsageError(
            f"takes {count_of(len(names), 'input')} ({', '.join(names)}), and the sides {len(fed)} "
            f"({', '.join(fed)})",
            "name a model that takes what they take",
            flag=TRUTH,
            subject=model,
        )
    return dict(zip(names, fed.values(), strict=True))


def truth_model_for(asked: bool | str | os.PathLike[str], sides: Sequence[Side]) -> TruthModel:
    """Return the model whose truth judges two sides: the one that is asked for, else that of the
    first side that has one.

    Raises:
        UsageError: there is none.
    """
    named = "" if isinstance(asked, bool) else os.fspath(asked)
    return find_truth_model(named, filter(None, map(model_of, sides)))


def check_unchanged(model: str, sides: Sequence[Side]) -> None:
    """Refuse the model of a dump that has been written anew since.

    Raises:
        UsageError: naming the dump.
    """
    from lar.measurement.machine import read_model_file  # slow to import

    for side in sides:
        known = isinstance(side, Dump) and side.index.model == model and side.index.model_sha256
        if known and read_model_file(Path(model)).sha256 != known:
            raise UsageError(
                f"its model {model} has changed since",
                f"name the one that it was made with: {TRUTH} MODEL",
                flag=TRUTH,
                subject=side.source if isinstance(side, Dump) else "",
            )


def model_of(side: Side) -> str:
    """Return the path of a side's model, empty if it is not known."""
    return side.index.model if isinstance(side, Dump) else side.model


def run_truth(model: TruthModel, dumps: Sequence[Dump], folder: Path, progress: Progress) -> Dump:
    """Compute what a model should give of what one of the dumps was made of, the first first.

    Raises:
        UsageError: neither dump holds its inputs, or the model takes others.
        LarError: the model cannot be computed.
    """
    side = ModelRun(model.path, model.path, {"engine": model.engine.name})
    fed = next(filter(None, (inputs_of(dump, side) for dump in dumps)), None)
    infos = infos_of(side, {})
    if fed is None and not takes_none(infos):
        raise UsageError(
            "neither side holds what it was fed with",
            "give a model, or a dump with its inputs, as A or B",
            flag=TRUTH,
        )
    progress(f"computing what {model.path} should give")
    renamed = rename_inputs(fed, infos, model.path) if fed else {}
    items = items_in(renamed, folder / "truth_inputs", model.path) if fed else []
    dump, _ = run_side(side, folder / "truth", Asked(options={"input": items}))
    return dump
