"""What the operators of an optimised graph give, those of its bodies too, as parts of a dump."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import dropwhile
from typing import TYPE_CHECKING, Any

import numpy as np

from lar.dumps.values import Part, Unheld, parts_of
from lar.engines.onnx_file.bodies import LOOPS, Operator, takes_sequences
from lar.engines.onnx_file.fields import (
    GRAPH_OUTPUT,
    MODEL_GRAPH,
    VALUE_NAME,
    SavedModel,
    bytes_field,
)
from lar.engines.onnxruntime.saving import open_saved
from lar.engines.onnxruntime.values import read_value
from lar.errors import first_line

if TYPE_CHECKING:
    from lar.engines.onnxruntime.session import SessionDriver

Array = np.ndarray[Any, Any]

Read = Callable[[], object]

# A session gives a part of the tensors, so that no more than that part is in memory at once.
PARTS = 4
LEAST_TENSORS = 8

IN_STACKED_BRANCH = "inside a branch within a loop whose results ONNX Runtime can only stack"


class GraphValues:
    """The values of a fed driver's graph, by name in the graph's order, with what a dump has of
    each: nothing of what the engine did not compute, in a branch that was not taken.

    `makers` has the operators by what they give; `fixed` are outputs of the model that none gives.
    """

    def __init__(
        self,
        driver: SessionDriver,
        saved: SavedModel,
        model: Any,
        makers: Mapping[str, Operator],
        fixed: Sequence[str],
    ) -> None:
        self.driver, self.saved, self.model = driver, saved, model
        self.makers = makers
        self.names = [*fixed, *makers]
        self.types: dict[str, int] = {}  # of the elements of tensors in bodies
        self.stacks, self.branched = Counter[str](), set[str]()  # of those in bodies
        self.reasons: dict[str, str] = {}  # why there are none of others
        if inside := [name for name in makers if self.around(name)]:
            self.find_types(inside)

    def around(self, name: str) -> tuple[str, ...]:
        """Return the types of the nodes that a tensor is inside of."""
        return self.makers[name].body.around if name in self.makers else ()

    def stacked(self, name: str) -> list[str]:
        """Return the types of the nodes that a tensor is inside of, from a loop on that stacks what
        its iterations give."""
        loops = {"Scan"} if takes_sequences(self.model) else LOOPS
        return [*dropwhile(lambda each: each not in loops, self.around(name))]

    def find_types(self, names: Sequence[str]) -> None:
        from lar.engines.onnxruntime.body_outputs import types_in_bodies

        reason = "inside a body, and of a type that no file holds"
        try:
            self.types = types_in_bodies(self.model, self.open)
        except Exception as error:  # whatever the engine finds wrong
            reason = f"inside a body, and of unknown type: {first_line(error)}"
        self.reasons = {name: reason for name in names if name not in self.types}

    def __iter__(self) -> Iterator[tuple[str, list[Part | Unheld]]]:
        count = max(-(-len(self.names) // PARTS), LEAST_TENSORS)
        for begin in range(0, len(self.names), count):
            yield from self.compute(self.names[begin : begin + count])

    def compute(self, names: Sequence[str]) -> Iterator[tuple[str, list[Part | Unheld]]]:
        """Yield what a dump has of tensors."""
        inside = {name: self.types[name] for name in names if name in self.types}
        outer = [name for name in names if not self.around(name)]
        reasons = dict(self.reasons)
        # A loop stacks what has one shape in all iterations; what a branch gives has none where it
        # is not taken.
        easy = {name: kind for name, kind in inside.items() if "If" not in self.stacked(name)}
        easier = {name: kind for name, kind in easy.items() if not self.stacked(name)}
        for wanted in (inside, easy, easier, {}):
            try:
                values = self.run(outer, wanted)
                break
            except Exception as error:
                if not wanted:
                    raise
                says = first_line(error).rpartition("Message: ")[2]
                reason = f"inside a body, which cannot give it: {says}"
        reasons |= {name: reason for name in inside if name not in wanted}
        reasons |= {name: IN_STACKED_BRANCH for name in inside if name not in easy | wanted}
        for name in names:
            if name in reasons:
                yield name, [Unheld(name, reasons[name])]
            else:
                value = values.pop(name)()
                inner = self.around(name)
                yield name, [*(self.parts_inside if inner else parts_of)(name, value)]

    def run(
        self, outer: Sequence[str], inside: Mapping[str, int]
    ) -> dict[str, Callable[[], object]]:
        """Return functions that read values of the graph, and of its bodies as `BodyOutputs` has
        them; the values are the engine's, as it makes no copies of them."""
        content, outputs = self.saved.content, dict(zip(outer, outer, strict=True))
        if inside:
            from lar.engines.onnxruntime.body_outputs import BodyOutputs

            changed = BodyOutputs(self.model, inside)
            content = changed.model.SerializeToString()
            outputs |= changed.outputs
            self.stacks, self.branched = changed.stacks, changed.branched
        known = {each.name for each in self.model.graph.output}
        session = self.open(add_outputs(content, [name for name in outer if name not in known]))
        found = session.run_with_ort_values([*outputs], self.driver.fed) if outputs else ()
        return {
            outputs[output]: partial(read_value, session, output, value)
            for output, value in zip(outputs, found, strict=True)
        }

    def open(self, content: bytes) -> Any:
        return open_saved(self.driver, SavedModel(content, self.saved.folder))

    def parts_inside(self, name: str, value: Any) -> Iterator[Part | Unheld]:
        """Yield what a dump has of a tensor in a body: in a loop, what it was each time that it was
        computed, on a new first axis, or only the first time where the shapes differ."""
        values, depth = value if isinstance(value, list) else [value], self.stacks[name]
        arrays = [it for each in values for it in unstack(each, depth)]
        if name in self.branched:
            arrays = [each for each in arrays if each.shape != (0,)]
        shapes = {each.shape for each in arrays}
        if arrays and not LOOPS.isdisjoint(self.around(name)):
            yield from parts_of(name, np.stack(arrays if len(shapes) == 1 else arrays[:1]))
        elif arrays:
            yield from parts_of(name, arrays[0])
        if len(shapes) > 1:
            yield Unheld(name, f"all but the first of {len(arrays)} values, whose shapes differ")


def unstack(array: Array, depth: int) -> list[Array]:
    """Return what an array holds on its leading axes."""
    if not depth:
        return [array]
    return [*array.reshape(math.prod(array.shape[:depth]), *array.shape[depth:])]


def add_outputs(model: bytes, names: Iterable[str]) -> bytes:
    """Return a model with outputs added; the engine infers their types."""
    outputs = (bytes_field(GRAPH_OUTPUT, bytes_field(VALUE_NAME, name.encode())) for name in names)
    # A second graph is merged into the first.
    return model + bytes_field(MODEL_GRAPH, b"".join(outputs))
