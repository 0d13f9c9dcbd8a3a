"""The model whose truth judges a comparison, and what it is fed with."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from lar.comparison.compare import Progress
from lar.dumps.dump import Dump
from lar.dumps.values import ELEMENT
from lar.engines import all_engines, engine_for
from lar.engines.engine import Engine
from lar.engines.formats import format_in, format_named, read_head
from lar.errors import UsageError, count_of
from lar.running.compared_sides import ModelRun, Side
from lar.running.shared_inputs import infos_of, inputs_of, items_in
from lar.running.side_runs import Asked, run_side
from lar.testcases.paths import source_of

if TYPE_CHECKING:
    from lar.inputs.loaded import Array

FLAG = "--truth"


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
        f"name the model that both sides should compute: {FLAG} MODEL{suffixes.split()[0]}",
        flag=FLAG,
    )


def is_read_by(engine: Engine, path: Path) -> bool:
    return bool(format_named(path, engine.formats) or format_in(read_head(path), engine.formats))


def rename_inputs(fed: Mapping[str, Array], model: ModelRun) -> dict[str, Array]:
    """Return what another model was fed with by the names of a model's inputs: by name, or in their
    order where the names are others.

    Raises:
        UsageError: the model takes other inputs.
    """
    infos = infos_of(model, {})
    names = [info.name for info in infos if not info.optional]
    own = {name: ELEMENT.sub("", name) if name not in names else name for name in fed}
    if set(names) <= {*own.values()}:
        return {name: fed[name] for name in fed if own[name] in {info.name for info in infos}}
    if len(names) != len(fed):
        raise UsageError(
            f"takes {count_of(len(names), 'input')} ({', '.join(names)}), and the sides {len(fed)} "
            f"({', '.join(fed)})",
            "name a model that takes what they take",
            flag=FLAG,
            subject=model.model,
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
                f"name the one that it was made with: {FLAG} MODEL",
                flag=FLAG,
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
    if fed is None and not all(info.optional for info in infos_of(side, {})):
        raise UsageError(
            "neither side holds what it was fed with",
            "give a model, or a dump with its inputs, as A or B",
            flag=FLAG,
        )
    progress(f"computing what {model.path} should give")
    renamed = rename_inputs(fed, side) if fed else {}
    items = items_in(renamed, folder / "truth_inputs", model.path) if fed else []
    dump, _ = run_side(side, folder / "truth", Asked(options={"input": items}))
    return dump
