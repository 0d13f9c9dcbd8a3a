"""The model's own names in the index of a dump."""

from __future__ import annotations

from pathlib import Path

from lar.dumps.dump import DumpIndex
from lar.dumps.origins import name_origins
from lar.engines import operator_kinds_of, read_operators
from lar.errors import LarError


def name_by_model(index: DumpIndex, *, model: Path, engine: str) -> DumpIndex:
    """Return the index of what an engine dumped of a model with the model's names; without them
    where the file does not say them."""
    try:
        operators = read_operators(model)
    except (OSError, ValueError, LarError):
        return index
    kinds = operator_kinds_of(engine).kinds
    return name_origins(index, operators, {name for name, kind in kinds.items() if kind in MOVES})


# The kinds of operators that hold the data of their input, in other axes or of another type.
MOVES = ("move", "cast")
