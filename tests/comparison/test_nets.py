"""Small networks, written as text and then changed, and all that a comparison says of the two."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from lar.dumps import DumpedTensor, Stored
from lar.dumps.binary import BY_DTYPE
from lar.dumps.excerpts import excerpts_of
from lar.errors import LarError
from lar.graphs.signatures import dequantized, elements_of, integers_of, whole
from lar.records.comparison import (
    Comparison,
    Element,
    OperatorFacts,
    TensorComparison,
    Tolerance,
)
from lar.records.record import Record
from lar.records.run import GraphTensor, Quantization
from tests.comparison.handmade import Step, dump_of
from tests.comparison.known_engines import compare_dumps
from tests.tables import each_row

Array = npt.NDArray[Any]


def draw(*shape: int, seed: int = 0) -> Array:
    """Draw numbers of which float32 holds the products and the sums without an error."""
    drawn: Array = np.rint(np.random.RandomState(seed).normal(size=shape) * 64) / 64
    return drawn


class Line:
    """A line of a network: a tensor, the type and the inputs of its operator, and its value.

    After `as` comes how the dump stores it: its dtype, scale and zero point, or that it is hidden.
    A tensor that is fused can neither be fed nor computed alone, and one that is gone not computed.
    """

    def __init__(self, text: str) -> None:
        given, _, options = text.partition(" as ")
        head, _, self.expression = given.partition(" = ")
        self.name, self.type, inputs = re.split(r"[ (]", head[:-1], maxsplit=2)
        self.inputs = tuple(inputs.split(", ")) if inputs else ()
        self.options = dict(each.split("=") for each in options.split())
        self.dtype = self.options.get("dtype", "float32")
        numbers = [float(each) for each in self.options.get("scale", "").split(",") if each]
        zero, axis = int(self.options.get("zero", 0)), int(self.options.get("axis", -1))
        known = Quantization(scale=(*numbers,), zero_point=(zero,), axis=None if axis < 0 else axis)
        self.quantization = known if numbers else None

    def stored(self, real: Array) -> Array:
        """Return numbers as the dump stores them."""
        dtype = BY_DTYPE[self.dtype].storage
        if self.quantization is None:
            return real.astype(dtype)
        return integers_of(real, self.quantization, np.dtype(dtype))

    def real(self, stored: Array) -> Array:
        """Return the numbers that stored ones stand for."""
        if self.quantization is None:
            return stored
        return whole(dequantized(elements_of(Stored(stored)), self.quantization))


class Net:
    """A network of such lines: its dump, and its operators, which are run alone."""

    def __init__(self, lines: Iterable[str], outputs: Sequence[str]) -> None:
        self.lines = {line.name: line for line in map(Line, lines)}
        arrays: dict[str, Array] = {}
        reals: dict[str, Array] = {}
        self.constants: dict[str, Array] = {}
        for name, line in self.lines.items():
            arrays[name] = line.stored(self.value_of(name, reals))
            reals[name] = line.real(arrays[name])
            if line.type == "constant":
                self.constants[name] = reals[name]
        steps = [
            Step(
                *(line.name, line.type, line.inputs, arrays[line.name]),
                dtype=line.options.get("type", line.dtype if "uantized" in line.dtype else ""),
                quantization=line.quantization,
                hidden="hidden" in line.options,
            )
            for line in self.lines.values()
        ]
        self.dump = dump_of(*steps, outputs=(*outputs,))

    def value_of(self, name: str, known: Mapping[str, Array]) -> Array:
        """Return a tensor's numbers, if need be computed from the known tensors."""
        if name in known:
            return known[name]
        line = self.lines[name]
        taken = {it: self.value_of(it, known) for it in line.inputs if it in self.lines}
        return np.asarray(eval(line.expression, {**vars(np), "draw": draw}, taken))

    def find_missing(self, tensors: Iterable[DumpedTensor]) -> set[str]:
        return {it.key for it in tensors if "fused" in self.lines[it.name].options}

    def compute(self, output: DumpedTensor, values: Mapping[str, Array]) -> Array:
        line = self.lines[output.name]
        if "gone" in line.options:
            raise LarError("it cannot be cut out")
        fed = {name: self.lines[name].real(array) for name, array in values.items()}
        return line.stored(self.value_of(line.name, {**self.constants, **fed}))


def told(value: object) -> str:
    """Say in short what a value holds: of a record, what is neither usual nor 0."""
    match value:
        case float():
            return f"{value:.3g}"
        case tuple():
            return f"[{', '.join(map(told, value))}]"
        case GraphTensor() | OperatorFacts():
            return value.name
        case TensorComparison():
            return f"{value.actual.name}={value.expected.name}"
        case Element():
            return f"{float(value.actual):.3g}/{float(value.expected):.3g} at {told(value.index)}"
        case Record():
            return f"({words_of(value)})"
    return str(value)


def words_of(record: Record) -> str:
    usual = {name: it.default for name, it in vars(type(record))["__dataclass_fields__"].items()}
    known = {name: it for name, it in vars(record).items() if it not in (usual[name], 0)}
    for name in known.keys() & {"single", "alone"}:
        known[name] = known[name].relative_l2
    return " ".join(f"{name}={told(it)}" for name, it in known.items())


def lines_of(found: Comparison) -> Iterator[str]:
    yield f"{found.finding} {found.precision} {told(found.snr_db)}"
    parts = found.tensors, found.culprits, found.unmatched, found.left_out
    yield from (words_of(each) for part in parts for each in part)
    yield from found.notes


def lines_for(
    net: Sequence[str],
    changes: Mapping[str, str],
    outputs: Sequence[Sequence[str]] = ((), ()),
    tolerance: Mapping[str, float] = MappingProxyType({}),
    excerpts: bool = False,
    arrays: bool = False,
    **wanted: Any,
) -> list[str]:
    """Compare a network as the first side, with changed lines, with the network as it stands."""
    text = "\n".join(net)
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    sides = [*map(Net, ([*filter(None, text.split("\n"))], net), outputs)]
    wanted |= {"tolerance": Tolerance(**tolerance), "operators_of": sides.__getitem__}
    actual, expected = (excerpts_of(it.dump) if excerpts else it.dump for it in sides)
    if arrays:  # without operators
        actual, expected = (
            replace(it, index=replace(it.index, operators=())) for it in (actual, expected)
        )
    return [*lines_of(compare_dumps(actual, expected, **wanted))]


@each_row("comparison/nets/nets")
def test_what_is_said_of_a_pair(
    what: str, net: list[str], changes: dict[str, str], wanted: dict[str, Any], found: list[str]
) -> None:
    assert lines_for(net, changes, **wanted) == found, what
