"""The tensors of a graph's operators, written as an engine gives them: as files or as text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from lar.dumps.binary import TEXT, write_tensor
from lar.dumps.excerpts import format_block, format_values
from lar.dumps.facts import NO_FACTS, DumpFacts, OperatorFact, read_facts, write_facts
from lar.dumps.names import Numbering, Variable, format_name
from lar.dumps.values import Unheld, part_of
from lar.options.table import BIN_IO_DUMP, TEXT_DUMPS

if TYPE_CHECKING:
    from lar.records.run import RunContext

Array = np.ndarray[Any, Any]

NO_VALUES = "the engine keeps no values of it"


class Dumped(NamedTuple):
    """A tensor of the graph, the variable that it is called, and those that it is computed of."""

    variable: Variable
    inputs: tuple[Variable, ...]
    array: Array


class Layer(NamedTuple):
    """An operator: the names of the tensors that it takes and gives, in order, with the values of
    those that it gives, None where the engine keeps none; and its parameters."""

    name: str
    type: str
    inputs: Sequence[str]
    outputs: Mapping[str, Array | None]
    parameters: Mapping[str, Any] = MappingProxyType({})


class LayerDriver(Protocol):
    """A driver as far as a dump of its layers needs it (`lar.engines.driver.Driver`)."""

    runner: int
    context: RunContext


def dump_layers(
    driver: LayerDriver,
    fed: Mapping[str, Array],
    layers: Iterable[Layer],
    outputs: Sequence[str],
    *,
    constants: Mapping[str, Array | None] = MappingProxyType({}),
    facts: DumpFacts = NO_FACTS,
) -> None:
    """Write what a model is fed with and what each layer gives, in the order of execution: into the
    folder of --bin-io-dump, or as text. `outputs` are the names of the model's. Copies of a model
    but the first write nothing.

    Files have the `constants` too, weights that layers take, and `facts`: what else the engine
    knows, and what is left out for reasons of its own.
    """
    if driver.runner:
        return
    written = driver.context.written
    write = text_writer(written) if BIN_IO_DUMP.key not in written else None
    shown = {} if write else constants
    if write is None:
        folder = Path(written[BIN_IO_DUMP.key])
        folder.mkdir()
        write = partial(write_dumped, folder)
    numbering = Numbering(fed)
    numbering.add_constants(constants)
    variables, left_out = numbering.variables, {**facts.left_out}
    operators = [*facts.operators]
    for layer in (Layer("", "", (), shown), Layer("", "", (), fed), *layers):
        if layer.type:
            numbering.add_node(layer.type, layer.name, layer.inputs, [*layer.outputs])
        if layer.parameters:
            number = variables[next(iter(layer.outputs))].operator_id
            operators.append(OperatorFact(number, dict(layer.parameters)))
        taken = tuple(variables[each] for each in layer.inputs if each)
        for name, array in layer.outputs.items():
            part = Unheld(name, NO_VALUES) if array is None else part_of(name, array)
            if isinstance(part, Unheld):
                left_out.setdefault(name, part.reason)
                continue
            variables[name] = replace(
                variables[name], shape=part.array.shape, dtype=part.dtype, stored=True
            )
            write(Dumped(variables[name], taken, part.array))
    if BIN_IO_DUMP.key in written:
        known = facts._replace(operators=operators, iteration=0, outputs=outputs, left_out=left_out)
        write_facts(Path(written[BIN_IO_DUMP.key]), known)


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
