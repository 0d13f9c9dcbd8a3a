"""What a worker writes of a run: the tensors of its layers, as files or as text, and its outputs.

The outputs have a file an iteration and tensor: `run0-var5`, the warm-up's runs included.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from lar.dumps.binary import TEXT, write_tensor
from lar.dumps.dump import Array
from lar.dumps.excerpts import format_block, format_values
from lar.dumps.facts import NO_FACTS, DumpFacts, OperatorFact, write_facts
from lar.dumps.names import ELEMENT, Numbering, Variable, format_name
from lar.dumps.values import Unheld, part_of
from lar.errors import UsageError, error_of_write
from lar.options.table import BIN_IO_DUMP, BIN_OUT_DUMP, TEXT_DUMPS

if TYPE_CHECKING:
    from lar.records.run import RunContext

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


class DumpingDriver(Protocol):
    """A driver as far as its dumps need it (`lar.engines.driver.Driver`)."""

    runner: int
    run_number: int | None
    after_iteration: Callable[[], object] | None
    context: RunContext

    def outputs(self) -> Mapping[str, np.ndarray[Any, Any] | str]: ...


# Layers


def dump_layers(
    driver: DumpingDriver,
    fed: Mapping[str, Array],
    layers: Iterable[Layer],
    outputs: Sequence[str],
    *,
    constants: Mapping[str, Array | None] = MappingProxyType({}),
    facts: DumpFacts = NO_FACTS,
) -> None:
    """Write what a model is fed with and what each layer gives, in the order of execution.
    `outputs` are the names of the model's. Copies of a model but the first write nothing.

    Files have the `constants` too, weights that layers take, and `facts`: what else the engine
    knows, and what is left out for reasons of its own.
    """
    if driver.runner:
        return
    places, numbering = LayerPlaces(driver), Numbering(fed)
    numbering.add_constants(constants)
    variables, left_out = numbering.variables, {**facts.left_out}
    operators = [*facts.operators]
    weights = Layer("", "", (), constants)
    for layer in (weights, Layer("", "", (), fed), *layers):
        write = places.write_constant if layer is weights else places.write
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
    known = facts._replace(operators=operators, iteration=0, outputs=outputs, left_out=left_out)
    places.write_facts(known)


class LayerPlaces:
    """The places that the layers of a run are written to, one tensor after the other: the folder of
    --bin-io-dump, a text, or both."""

    def __init__(self, driver: DumpingDriver) -> None:
        places = {key: Path(place) for key, place in driver.context.written.items()}
        self.folder = places.get(BIN_IO_DUMP.key)
        self.text = next((places[it.key] for it in TEXT_DUMPS if it.key in places), None)
        self.values: dict[int, str] = {}  # as the text has them
        if self.folder:
            self.folder.mkdir()
        if self.text:
            self.text.write_text("")

    def write(self, dumped: Dumped) -> None:
        """Write a tensor."""
        variable, inputs, array = dumped
        self.write_constant(dumped)
        if self.text and variable.dtype != TEXT.name:
            self.values[variable.id] = format_values(array)
            values = [(each, self.values.get(each.id, "<constant>")) for each in inputs]
            with self.text.open("a", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in format_block(variable, array, values))

    def write_constant(self, dumped: Dumped) -> None:
        """Write a tensor that a text leaves out."""
        variable, inputs, array = dumped
        if self.folder:
            write_tensor(self.folder / f"{variable.id:06x}", array, format_name(variable, inputs))

    def write_facts(self, facts: DumpFacts) -> None:
        """Write what is known of the layers, beside the folder."""
        if self.folder:
            write_facts(self.folder, facts)


# Outputs


def number_outputs(names: Iterable[str]) -> dict[str, Variable]:
    """Return the outputs of an engine whose graph has no numbers for them."""
    return {name: Variable(id=number, name=name) for number, name in enumerate(names)}


def write_outputs(driver: DumpingDriver, variables: Mapping[str, Variable]) -> None:
    """Have a driver's outputs written after each iteration, those of the first runner.

    `variables` are what the engine's graph calls the outputs; their shapes and dtypes come from the
    arrays.
    """
    if driver.runner:
        return
    folder, write_others = Path(driver.context.written[BIN_OUT_DUMP.key]), driver.after_iteration
    # Those of the parts of sequences and maps come after them.
    numbers = {name: variable.id for name, variable in variables.items()}
    write_facts(folder, DumpFacts(outputs=[*variables]))
    folder.mkdir(exist_ok=True)  # with the files of a run that this one goes on with

    def write() -> None:
        if write_others is not None:
            write_others()
        if driver.run_number is not None:
            outputs = driver.outputs()
            for name in outputs:
                whole = name if name in variables else ELEMENT.sub("", name)
                if whole in variables:
                    number = numbers.setdefault(name, 1 + max(numbers.values()))
                    variable = replace(variables[whole], name=name, id=number)
                    place = folder / f"run{driver.run_number}-var{number}"
                    write_output(place, outputs[name], variable)
            driver.run_number += 1

    driver.after_iteration = write


def write_output(place: Path, value: np.ndarray[Any, Any] | str, variable: Variable) -> None:
    """Write an output of an iteration.

    Raises:
        UsageError: no file holds it, or it cannot be written.
    """
    part = Unheld(variable.name, value) if isinstance(value, str) else part_of(variable.name, value)
    if isinstance(part, Unheld):
        problem = f"the output {variable.name} cannot be written: {part.reason}"
        raise UsageError(problem, flag=BIN_OUT_DUMP.flag)
    name = format_name(replace(variable, shape=part.array.shape, dtype=part.dtype))
    try:
        write_tensor(place, part.array, name)
    except OSError as error:
        raise error_of_write(error, flag=BIN_OUT_DUMP.flag, subject=place.name) from None
