"""Writes the dump of a run, in the worker: outputs, and the tensors of layers as files or text.

Each output of each iteration has a file, such as `run0-var5`. Warm-up iterations have files too.

The value of an output may be a sequence, a map or strings, and may have several tensors or no
tensor. The tensors of a sequence `s` are named `s[0]`, `s[1]`, ...; the tensors of a map `p` have
its keys in their names, such as `p[cat]`. A sequence of maps with equal keys has one tensor for
each key, with the items on its first axis. Strings are kept as UTF-8 bytes on an additional last
axis, padded with zeros.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from lar.dumps import NO_FACTS, Array, DumpFacts, OperatorFact, binary, write_facts
from lar.dumps.binary import ELEMENT, Numbering, Variable, format_name, write_tensor
from lar.dumps.excerpts import format_block, format_values
from lar.errors import UsageError, writing
from lar.options.table import BIN_IO_DUMP, BIN_OUT_DUMP, TEXT_DUMPS

if TYPE_CHECKING:
    from lar.records.run import RunContext


class Part(NamedTuple):
    """A tensor of a value: its name, its array as a file holds it, and MegEngine's dtype name.

    The dtype of strings is `String`.
    """

    name: str
    array: Array
    dtype: str


class Unheld(NamedTuple):
    """A value that no file can hold: its name, and the reason."""

    name: str
    reason: str


def parts_of(name: str, value: object) -> Iterator[Part | Unheld]:
    """Yield each tensor of a value as a `Part`, or as an `Unheld` if no file can hold it."""
    for each, leaf in leaves_of(name, value):
        yield leaf if isinstance(leaf, Unheld) else part_of(each, leaf)


def leaves_of(name: str, value: object) -> Iterator[tuple[str, object]]:
    """Yield the parts of a value with their names: arrays, numbers and strings.

    Sequences and maps are divided into their items. An absent optional value and an empty sequence
    become `Unheld`.
    """
    if value is None:
        yield name, Unheld(name, "an optional value that is absent")
    elif isinstance(value, list) and not value:
        yield name, Unheld(name, "a sequence without items")
    elif isinstance(value, (Mapping, list)):
        for key, each in items_of(value).items():
            yield from leaves_of(f"{name}[{key}]", each)
    else:
        yield name, value


def items_of(value: Mapping[Any, object] | list[object]) -> Mapping[Any, object]:
    """Return the items of a map by key, or the items of a sequence by number.

    A sequence of maps with equal keys becomes a map of arrays.
    """
    if isinstance(value, Mapping):
        return value
    maps = [each for each in value if isinstance(each, Mapping)]
    if len(maps) < len(value) or any(each.keys() != maps[0].keys() for each in maps):
        return dict(enumerate(value))
    return {key: np.asarray([each[key] for each in maps]) for key in maps[0]}


def part_of(name: str, value: object) -> Part | Unheld:
    """Return the part for an array, or for a value that NumPy can convert to an array."""
    array = np.asarray(value)
    is_text = array.dtype.kind in "OSU"
    array = bytes_of_texts(array) if is_text else array
    if array.dtype.name.startswith("float8"):  # float32 holds all float8 values
        array = array.astype(np.float32)
    element = binary.BY_DTYPE.get(array.dtype.name)
    if element is None:
        return Unheld(name, f"no file holds the dtype {array.dtype.name}")
    if array.ndim > binary.AXES:
        return Unheld(name, f"no file holds {array.ndim} axes")
    return Part(name, array, binary.TEXT.name if is_text else element.name)


def texts_of_bytes(coded: Array) -> Array:
    """Decode strings whose bytes are on the last axis."""
    rows = coded.reshape(-1, coded.shape[-1])
    texts = [row.tobytes().rstrip(b"\0").decode("utf-8", "replace") for row in rows]
    return np.array(texts, str).reshape(coded.shape[:-1])


def bytes_of_texts(texts: Array) -> Array:
    """Encode strings (object, str or bytes) as uint8, on a new axis for the bytes of a string."""
    coded = [
        each if isinstance(each, bytes) else str(each).encode("utf-8", "surrogateescape")
        for each in texts.reshape(-1)
    ]
    width = max(map(len, coded), default=0)
    padded = b"".join(each.ljust(width, b"\0") for each in coded)
    return np.frombuffer(padded, np.uint8).reshape(*texts.shape, width)


NO_VALUES = "the engine does not keep its values"


class Dumped(NamedTuple):
    """A tensor of the graph: its variable, its array, and the inputs from which it is computed."""

    variable: Variable
    inputs: tuple[Variable, ...]
    array: Array


class Layer(NamedTuple):
    """An operator: its inputs, its outputs with their values, and its parameters.

    `inputs` and `outputs` have names of tensors, in order. The value of an output is None if the
    engine does not store this output.
    """

    name: str
    type: str
    inputs: Sequence[str]
    outputs: Mapping[str, Array | None]
    parameters: Mapping[str, Any] = MappingProxyType({})


class DumpingDriver(Protocol):
    """The part of a driver (`lar.engines.driver.Driver`) that is needed to write dumps."""

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

    `outputs` are the names of the model's outputs. If copies of a model run at once, only the first
    copy writes a dump. The `constants`, which are weights, are written only to the folder. `facts`
    are further facts of the engine. `facts.left_out` names the tensors that the engine itself
    leaves out.
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
    """Writes the layers of a run: to the folder of --bin-io-dump, to a text file, or to both."""

    def __init__(self, driver: DumpingDriver) -> None:
        places = {key: Path(place) for key, place in driver.context.written.items()}
        self.folder = places.get(BIN_IO_DUMP.key)
        self.text = next((places[it.key] for it in TEXT_DUMPS if it.key in places), None)
        self.values: dict[int, str] = {}  # by number of a variable, as the text file shows them
        if self.folder:
            self.folder.mkdir()
        if self.text:
            self.text.write_text("")

    def write(self, dumped: Dumped) -> None:
        """Write a tensor."""
        variable, inputs, array = dumped
        self.write_constant(dumped)
        if self.text and variable.dtype != binary.TEXT.name:
            self.values[variable.id] = format_values(array)
            values = [(each, self.values.get(each.id, "<constant>")) for each in inputs]
            with self.text.open("a", encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in format_block(variable, array, values))

    def write_constant(self, dumped: Dumped) -> None:
        """Write a tensor to the folder only: a text file has no constants."""
        variable, inputs, array = dumped
        if self.folder:
            write_tensor(self.folder / f"{variable.id:06x}", array, format_name(variable, inputs))

    def write_facts(self, facts: DumpFacts) -> None:
        """Write the facts about the layers beside the folder."""
        if self.folder:
            write_facts(self.folder, facts)


# Outputs


def number_outputs(names: Iterable[str]) -> dict[str, Variable]:
    """Number the outputs of a model, for an engine whose graph has no numbers."""
    return {name: Variable(id=number, name=name) for number, name in enumerate(names)}


def write_outputs(driver: DumpingDriver, variables: Mapping[str, Variable]) -> None:
    """Make the driver of the first runner write the model's outputs after each iteration.

    `variables` are the outputs as variables of the engine's graph. Shapes and dtypes are taken from
    the arrays.
    """
    if driver.runner:
        return
    folder, write_others = Path(driver.context.written[BIN_OUT_DUMP.key]), driver.after_iteration
    # Parts of sequences and maps get numbers after those of all outputs.
    numbers = {name: variable.id for name, variable in variables.items()}
    write_facts(folder, DumpFacts(outputs=[*variables]))
    folder.mkdir(exist_ok=True)  # with --resume, it has the files of an earlier run

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
        UsageError: no file can hold the output, or the file cannot be written.
    """
    part = Unheld(variable.name, value) if isinstance(value, str) else part_of(variable.name, value)
    if isinstance(part, Unheld):
        problem = f"the output {variable.name} cannot be written: {part.reason}"
        raise UsageError(problem, flag=BIN_OUT_DUMP.flag)
    name = format_name(replace(variable, shape=part.array.shape, dtype=part.dtype))
    with writing(place.name, BIN_OUT_DUMP.flag):
        write_tensor(place, part.array, name)
