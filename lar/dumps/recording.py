"""What a worker writes of a run: the tensors of its layers, as files or as text, and its outputs.

Each output of an iteration has a file: `run0-var5`, including the warm-up's runs.
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
from lar.errors import UsageError, writing
from lar.options.table import BIN_IO_DUMP, BIN_OUT_DUMP, TEXT_DUMPS

if TYPE_CHECKING:
    from lar.records.run import RunContext

NO_VALUES = "the engine keeps no values of it"


class Dumped(NamedTuple):
    """A tensor of the graph: its variable, its array, and its operator's inputs as variables."""

    variable: Variable
    inputs: tuple[Variable, ...]
    array: Array


class Layer(NamedTuple):
    """An operator: its inputs, its outputs with their values, and its parameters.

    Inputs and outputs are by name, in order. A value is None if the engine does not keep it.
    """

    name: str
    type: str
    inputs: Sequence[str]
    outputs: Mapping[str, Array | None]
    parameters: Mapping[str, Any] = MappingProxyType({})


class DumpingDriver(Protocol):
    """The part of a driver that its dumps need (`lar.engines.driver.Driver`)."""

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
    """Write the inputs of a model and the results of each layer, in the order of execution.

    `outputs` are the names of the model's outputs. Only the first copy of a model writes. Files
    also have the `constants`, which are weights, and `facts`: what else the engine knows, and what
    is left out for its own reasons.
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
    """Writes the layers of a run: to the folder of --bin-io-dump, to a text, or to both."""

    def __init__(self, driver: DumpingDriver) -> None:
        places = {key: Path(place) for key, place in driver.context.written.items()}
        self.folder = places.get(BIN_IO_DUMP.key)
        self.text = next((places[it.key] for it in TEXT_DUMPS if it.key in places), None)
        self.values: dict[int, str] = {}  # in the form of the text
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
        """Write a tensor that a text does not have."""
        variable, inputs, array = dumped
        if self.folder:
            write_tensor(self.folder / f"{variable.id:06x}", array, format_name(variable, inputs))

    def write_facts(self, facts: DumpFacts) -> None:
        """Write the facts about the layers beside the folder."""
        if self.folder:
            write_facts(self.folder, facts)


# Outputs


def number_outputs(names: Iterable[str]) -> dict[str, Variable]:
    """Return numbered outputs for an engine whose graph has no numbers."""
    return {name: Variable(id=number, name=name) for number, name in enumerate(names)}


def write_outputs(driver: DumpingDriver, variables: Mapping[str, Variable]) -> None:
    """Have the outputs of the first runner's driver written after each iteration.

    `variables` are the outputs as the engine's graph names them; shapes and dtypes are the arrays'.
    """
    if driver.runner:
        return
    folder, write_others = Path(driver.context.written[BIN_OUT_DUMP.key]), driver.after_iteration
    # Parts of sequences and maps get later numbers.
    numbers = {name: variable.id for name, variable in variables.items()}
    write_facts(folder, DumpFacts(outputs=[*variables]))
    folder.mkdir(exist_ok=True)  # it may have the files of a run that goes on here

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
        UsageError: no file can hold it, or it cannot be written.
    """
    part = Unheld(variable.name, value) if isinstance(value, str) else part_of(variable.name, value)
    if isinstance(part, Unheld):
        problem = f"the output {variable.name} cannot be written: {part.reason}"
        raise UsageError(problem, flag=BIN_OUT_DUMP.flag)
    name = format_name(replace(variable, shape=part.array.shape, dtype=part.dtype))
    with writing(place.name, BIN_OUT_DUMP.flag):
        write_tensor(place, part.array, name)
