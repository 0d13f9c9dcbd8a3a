"""The model whose truth judges a comparison, and what it is fed with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lar.engines import ENGINES, engine_for
from lar.engines.engine import Engine
from lar.engines.formats import format_in, format_named, read_head
from lar.errors import UsageError, count_of
from lar.testcases.paths import source_of

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

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
    engines = [engine for engine in ENGINES if engine.is_exact]
    if asked:
        engine = engines[0]
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


def rename_inputs(fed: Mapping[str, Array], model: TruthModel) -> dict[str, Array]:
    """Return what another model was fed with by the names of a model's inputs: by name, or in their
    order where the names are others.

    Raises:
        UsageError: the model takes other inputs.
    """
    from lar.running.api import read_info

    names = [info.name for info in read_info(model.path, model.engine.name).inputs]
    if set(names) <= set(fed):
        return {name: fed[name] for name in names}
    if len(names) != len(fed):
        raise UsageError(
            f"takes {count_of(len(names), 'input')} ({', '.join(names)}), and the sides {len(fed)} "
            f"({', '.join(fed)})",
            "name a model that takes what they take",
            flag=FLAG,
            subject=model.path,
        )
    return dict(zip(names, fed.values(), strict=True))
