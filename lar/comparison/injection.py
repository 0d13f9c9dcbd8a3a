"""What the single error of an operator does to the outputs, measured: it is taken out of the run.

The run is that of the actual side. In the place of a tensor it gets the tensor without its single
error, and what then comes out is compared with what came out. So directions count, branches that
cancel each other out, and what an activation swallows: the sizes of errors say nothing of these.

It is the actual side's run, with its own values, because

- its model is loaded anyway to run operators alone, and the expected side may have no model;
- the loss to be explained is that of this run, with all that its types do to an error on the way;
- expected values would first be stored in its types, which rounds them as the actual ones are: just
  what the rounding of the output adds to a single error would be lost.

A tensor of integers is replaced where they have become numbers, if nothing else takes them. Where a
type is too coarse for a number, one of its two neighbours is drawn, so that the mean is right: the
nearest one would mostly be the number that had the error.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from lar.comparison.divergence import Judge, after
from lar.comparison.graph import Node, results_of, sources_of
from lar.comparison.isolation import Operators, real_array, tensor_of
from lar.comparison.matching import Pair
from lar.comparison.metrics import bounds_of, measure
from lar.comparison.quantities import is_dequantizing, is_quantized, is_quantizing
from lar.comparison.rounding import FINE
from lar.comparison.signatures import Values, is_blocked
from lar.dumps.binary import BY_DTYPE
from lar.dumps.dump import DumpedTensor
from lar.dumps.layouts import to_blocked
from lar.errors import LarError
from lar.records.comparison import AtOutput, TensorComparison, Tolerance
from lar.records.quantization import Quantization

Array = np.ndarray[Any, np.dtype[Any]]


class Injection:
    """The run of the actual side, in which single errors are taken out of tensors.

    `present` are the nodes of the actual side whose values the dump holds.
    """

    def __init__(
        self,
        judge: Judge,
        values: tuple[Values, Values],
        operators: Operators,
        present: Iterable[Node],
    ) -> None:
        self.values = values
        self.operators = operators
        self.present = tuple(present)
        self.ends = ends_of(judge)
        self.lengths = {end.actual: length_of(judge.compared[end.actual]) for end in self.ends}
        self._is_repeated: dict[Node, bool] = {}

    @cached_property
    def known(self) -> set[Node]:
        """The nodes that can be given to the engine.

        Raises:
            LarError: the engine failed.
        """
        missing = self.operators.find_missing(tensor_of(node) for node in self.present)
        return {node for node in self.present if node.key not in missing}

    def follow(self, pair: Pair, alone: Array, found: TensorComparison) -> tuple[AtOutput, ...]:
        """Measure what the single error of an operator does to each output.

        `alone` is what the operator gave alone, `found` its comparison with the expected tensor. An
        error that is no more than the rounding of float32 is not worth a run: empty.

        Raises:
            LarError: it cannot be taken out of the run, or the engine failed.
            DumpError: a tensor is missing or damaged.
        """
        figures = found.figures
        if figures is None or figures.nonfinite_mismatches or figures.relative_l2 is None:
            return ()
        if figures.identical:
            return tuple(self.at_output(end, 0.0) for end in self.ends)
        if figures.relative_l2 <= FINE:
            return ()
        if pair.apart_by_bias or found.reordered:
            raise LarError("its twin is another form of it")
        if self.is_compared_by_integers(pair):
            raise LarError("its integers are compared, not the numbers that they stand for")
        error = self.real(tensor_of(pair.actual), alone) - self.expected(pair)
        return tuple(self.at_output(end, self.change_of(end, pair, error)) for end in self.ends)

    def is_compared_by_integers(self, pair: Pair) -> bool:
        """Return whether a side is quantised and its numbers are not known or not wanted."""
        tensors = tensor_of(pair.actual), tensor_of(pair.expected)
        scaled = [
            tensor.key in side.quantizations
            for side, tensor in zip(self.values, tensors, strict=True)
        ]
        unscaled = tensors[0].quantization is not None and not scaled[0]
        return unscaled or (tensors[0].dtype == tensors[1].dtype and scaled[0] != scaled[1])

    def at_output(self, end: Pair, change: float) -> AtOutput:
        return AtOutput(output=end.actual.key, change=change, length=self.lengths[end.actual])

    def change_of(self, end: Pair, pair: Pair, error: Array) -> float:
        """Return by how much an output changes without the error of a tensor, as a length."""
        forms = self.forms_of(end.actual)
        if pair.actual in forms:
            return float(np.linalg.norm(error))
        replaced = self.places_of(pair.actual)
        behind = {node for each in replaced for node in after(each)}
        point = forms[-1]
        if point not in behind:
            return 0.0
        stops = (self.known - behind) | {*replaced}
        sources = sources_of(point, stops)
        own = {tensor_of(node).name: self.read(node) for node in sources}
        base = self.read(point)
        if not self.is_repeated(point, own, base):
            raise LarError("the engine does not compute the outputs from within as in the run")
        without = self.real(tensor_of(pair.actual), self.read(pair.actual)) - error
        for node in replaced:
            tensor = tensor_of(node)
            own[tensor.name] = stored_at_random(
                without, tensor, self.values[0].quantizations.get(tensor.key)
            )
        tensor = tensor_of(point)
        found = self.operators.compute_rest(tensor, own)
        change = float(np.linalg.norm(self.real(tensor, found) - self.real(tensor, base)))
        if not np.isfinite(change):
            raise LarError("the outputs are not finite without it")
        return change

    def is_repeated(self, point: Node, own: Mapping[str, Array], base: Array) -> bool:
        """Return whether the engine computes what it did in the run, from values of the run; it is
        asked once for each output."""
        if point not in self._is_repeated:
            tensor = tensor_of(point)
            again = self.operators.compute_rest(tensor, own)
            bounds = bounds_of(Tolerance(), tensor.dtype)
            self._is_repeated[point] = not measure(again, base, bounds).mismatches
        return self._is_repeated[point]

    def places_of(self, node: Node) -> Sequence[Node]:
        """Return the nodes to be replaced for one: itself, or those with its real numbers."""
        taking = node.children
        as_numbers = is_quantized(node) and all(map(is_dequantizing, taking))
        return taking if taking and as_numbers and self.known.issuperset(taking) else [node]

    def forms_of(self, end: Node) -> Sequence[Node]:
        """Return an output and what is quantised and dequantised for it, the last one first.

        The first of them is where an output is looked at: before it is rounded to integers, since
        their steps would hide small changes and enlarge others.
        """
        nodes = [end]
        while is_quantizing(nodes[-1]) or is_dequantizing(nodes[-1]):
            nodes += nodes[-1].parents
        return nodes if self.known.issuperset(nodes) else [end]

    def read(self, node: Node) -> Array:
        return self.values[0].dump.read(node.key)

    def real(self, tensor: DumpedTensor, array: Array) -> Array:
        """Return the real numbers of an actual tensor as it is stored.

        Raises:
            LarError: they are not known.
        """
        quantization = self.values[0].quantizations.get(tensor.key)
        if quantization is None and "uantized" not in tensor.dtype and array.dtype.kind in "fiu":
            return array.astype(np.float64)
        if quantization is None or quantization.axis is not None:
            raise LarError(f"numbers cannot be taken from {tensor.dtype}", subject=tensor.name)
        return real_array(array, quantization).astype(np.float64)

    def expected(self, pair: Pair) -> Array:
        """Return the real numbers of an expected tensor in the shape and the layout of the actual
        one."""
        actual, expected = tensor_of(pair.actual), tensor_of(pair.expected)
        shape = self.values[0].shape_of(actual)
        stored = self.values[1].read_without_padding(expected, [shape])
        array = stored.decode(stored.raw)
        if quantization := self.values[1].quantizations.get(expected.key):
            array = real_array(array, quantization)
        array = array.reshape(shape).astype(np.float64)
        return to_blocked(array, actual.layout, actual.shape) if is_blocked(actual) else array


def ends_of(judge: Judge) -> list[Pair]:
    """Return the pairs of outputs that no other pair is computed from, or the last pair."""
    pairs = [pair for pair in judge.pairs() if judge.compared[pair.actual].figures]
    outputs = [pair for pair in pairs if judge.compared[pair.actual].is_output]
    ends = [pair for pair in outputs if not results_of(pair.actual, judge.by_node)]
    return ends or outputs[-1:] or pairs[-1:]


def length_of(found: TensorComparison) -> float:
    """Return the length of the expected tensor."""
    figures = found.figures
    return figures.scale * figures.elements**0.5 if figures and figures.scale else 0.0


def stored_at_random(real: Array, tensor: DumpedTensor, quantization: Quantization | None) -> Array:
    """Return real numbers in the type of a tensor, each as one of its two neighbours there, drawn
    so that it is the number on average.

    Raises:
        LarError: the type cannot be fed.
    """
    element = BY_DTYPE.get(tensor.dtype)
    if element is None or element.bits or element.name == "BFloat16":
        raise LarError(f"numbers cannot be fed as {tensor.dtype}", subject=tensor.name)
    wanted = np.dtype(element.storage)
    drawn = np.random.default_rng(0).random(real.shape)
    if wanted.kind in "iu":
        if quantization is not None:
            real = real / quantization.scale[0] + quantization.zero_point[0]
        limits = np.iinfo(wanted)
        integers: Array = np.clip(np.floor(real + drawn), limits.min, limits.max).astype(wanted)
        return integers
    if wanted.kind != "f":
        raise LarError(f"numbers cannot be fed as {tensor.dtype}", subject=tensor.name)
    with np.errstate(over="ignore", invalid="ignore"):
        near = real.astype(wanted)
        left = real - near
        other = np.nextafter(near, np.where(left > 0, np.inf, -np.inf).astype(wanted))
        step = np.abs(other.astype(np.float64) - near)
        stored: Array = np.where(np.abs(left) > drawn * step, other, near)
    return stored
