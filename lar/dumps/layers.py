"""The tensors of a graph's operators, written as an engine gives them: as files or as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lar.dumps.binary import TEXT, write_tensor
from lar.dumps.excerpts import format_block, format_values
from lar.dumps.facts import DumpFacts, read_facts
from lar.dumps.names import Variable, format_name
from lar.options.table import TEXT_DUMPS

Array = np.ndarray[Any, Any]


class Dumped(NamedTuple):
    """A tensor of the graph, the variable that it is called, and those that it is computed of."""

    variable: Variable
    inputs: tuple[Variable, ...]
    array: Array


def text_writer(written: Mapping[str, str]) -> Callable[[Dumped], None]:
    """Return what writes tensors as text, one after the other, to the place of that dump."""
    texts: dict[int, str] = {}
    place = Path(next(written[dump.key] for dump in TEXT_DUMPS if dump.key in written))
    place.write_text("")

    def write(dumped: Dumped) -> None:
        variable, inputs, array = dumped
        if variable.dtype == TEXT.name:
            return
        texts[variable.id] = format_values(array)
        values = [(each, texts.get(each.id, "<constant>")) for each in inputs]
        with place.open("a", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in format_block(variable, array, values))

    return write


def write_dumped(folder: Path, dumped: Dumped) -> None:
    """Write a tensor into a folder."""
    variable, inputs, array = dumped
    write_tensor(folder / f"{variable.id:06x}", array, format_name(variable, inputs))


def describe_dump(folder: Path) -> DumpFacts:
    """Return what is known of the operators whose tensors are in a folder."""
    return read_facts(folder)._replace(iteration=0)
