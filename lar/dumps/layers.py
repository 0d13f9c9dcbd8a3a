"""The tensors of a graph's operators, written as an engine gives them: as files or as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from lar.dumps.binary import BY_DTYPE, TEXT, write_tensor
from lar.dumps.excerpts import format_block, format_values
from lar.dumps.facts import DumpFacts, read_facts, write_facts
from lar.dumps.names import Numbering, Variable, format_name
from lar.options.table import BIN_IO_DUMP, TEXT_DUMPS

if TYPE_CHECKING:
    from lar.records.run import RunContext

Array = np.ndarray[Any, Any]


class Dumped(NamedTuple):
    """A tensor of the graph, the variable that it is called, and those that it is computed of."""

    variable: Variable
    inputs: tuple[Variable, ...]
    array: Array


class Layer(NamedTuple):
    """An operator: the names of the tensors that it takes and gives, in order, with the values of
    those that it gives, None where the engine keeps none."""

    name: str
    type: str
    inputs: Sequence[str]
    outputs: Mapping[str, Array | None]


class LayerDriver(Protocol):
    """A driver as far as a dump of its layers needs it (`lar.engines.driver.Driver`)."""

    runner: int
    context: RunContext


def dump_layers(
    driver: LayerDriver,
    fed: Mapping[str, Array],
    layers: Iterable[Layer],
    outputs: Sequence[str],
) -> None:
    """Write what a model is fed with and what each layer gives, in the order of execution: into the
    folder of --bin-io-dump, or as text. `outputs` are the names of the model's. Copies of a model
    but the first write nothing."""
    if driver.runner:
        return
    written = driver.context.written
    write = text_writer(written) if BIN_IO_DUMP.key not in written else None
    if write is None:
        folder = Path(written[BIN_IO_DUMP.key])
        folder.mkdir()
        write = partial(write_dumped, folder)
    numbering = Numbering(fed)
    variables, left_out = numbering.variables, dict[str, str]()
    for layer in (Layer("", "", (), fed), *layers):
        if layer.name:
            numbering.add_node(layer.type, layer.name, layer.inputs, [*layer.outputs])
        taken = tuple(variables[each] for each in layer.inputs if each)
        for name, array in layer.outputs.items():
            element = None if array is None else BY_DTYPE.get(array.dtype.name)
            if array is None or element is None:
                left_out[name] = "the engine keeps no values of it that a file can hold"
                continue
            variables[name] = replace(
                variables[name], shape=array.shape, dtype=element.name, stored=True
            )
            write(Dumped(variables[name], taken, array))
    if BIN_IO_DUMP.key in written:
        facts = DumpFacts(iteration=0, outputs=outputs, left_out=left_out)
        write_facts(Path(written[BIN_IO_DUMP.key]), facts)


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
