"""Runs the nodes If, Loop and Scan iteration by iteration, to show the tensors inside them.

A body is the graph inside a node of control flow. For each body, the engine provides a `Runnable`.
An input of a body is shown as the output of an extra operator. A tensor inside a loop has a value
for each iteration. In nested loops, the values of all iterations of all loops are in one list. A
tensor in a branch that was not executed has no value.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from lar.dumps.recording import Part, Unheld, parts_of
from lar.engines.onnx_file.bodies import BODY_INPUT, Body
from lar.engines.onnx_file.fields import Node
from lar.engines.onnx_file.tensors import Array

# The values of a graph by name; the values of the graphs around it come after them.
Values = ChainMap[str, Any]
# Takes a node and its results, in their order.
Visit = Callable[[Node, Sequence[Any]], object]


class Runnable(Protocol):
    """A body (a graph inside a node of control flow) that an engine can run."""

    body: Body
    inputs: Sequence[str]

    def run(self, fed: Mapping[str, Any], visit: Visit | None, around: Values) -> list[Any]:
        """Compute the outputs of the body from its inputs and from the tensors around it.

        `visit` is called with each operator and its results.
        """


class NoTruth(NamedTuple):
    """Replaces a value that cannot be computed, and holds the failing operator and the reason."""

    operator: str
    says: str
    tensor: str = ""  # the output of that operator

    def why(self, name: str) -> str:
        """Return the reason why a tensor has no certain value ("truth")."""
        if name != self.tensor:
            return f"computed from {self.tensor}, which has no truth"
        return f"no truth for {self.operator}" + (f": {self.says}" if self.says else "")


class NoTruthHere(Exception):
    """The exception for an operator without a single right result; the message says why."""


class EachRound(tuple[Any, ...]):
    """The values of a tensor in all iterations of a loop."""


def parts_of_value(name: str, value: Any) -> Iterator[Part | Unheld]:
    """Yield the parts of a value that are dumped.

    The values of all iterations of a loop are stacked along a new first axis. If the values of the
    iterations differ in shape, only the first value is dumped.
    """
    if not isinstance(value, EachRound):
        value = Unheld(name, value.why(name)) if isinstance(value, NoTruth) else value
        yield from parts_of(name, value)
    elif others := [each for each in value if not isinstance(each, np.ndarray)]:
        lacking = next((each for each in others if isinstance(each, (NoTruth, Unheld))), None)
        says = "it is in a loop and is no tensor: no file holds a value for each iteration"
        yield from parts_of_value(name, lacking or Unheld(name, says))
    else:
        is_one_shape = len({each.shape for each in value}) == 1
        yield from parts_of(name, np.stack(value if is_one_shape else value[:1]))
        if not is_one_shape:
            yield Unheld(name, f"all but the first of {len(value)} values, whose shapes differ")


@dataclass
class Rounds:
    """Runs the iterations of a body, and passes the results of all iterations to `visit`.

    `states` are the values that an iteration passes to the next iteration. `pieces` has the values
    that an iteration returns, but does not pass to the next iteration.
    """

    graph: Runnable
    states: Sequence[Any]
    around: Values
    visit: Visit | None
    pieces: list[Sequence[Any]] = field(default_factory=list)
    seen: dict[tuple[str, ...], tuple[Node, list[Sequence[Any]]]] = field(default_factory=dict)

    def run(self, before: Sequence[Any] = (), behind: Iterable[Any] = ()) -> list[Any]:
        """Run one iteration of the body, and return the outputs of the body.

        The inputs of the body are the values `before`, then the states, then the values `behind`.
        The outputs of the body are the states for the next iteration, then the `pieces`. `before`
        is empty, except for a Loop. The first output of a Loop's body says whether to continue, and
        the states come after this output.
        """
        fed = dict(zip(self.graph.inputs, (*before, *self.states, *behind), strict=False))
        for name, value in fed.items() if self.visit else ():
            self(Node(name, BODY_INPUT, "", (), (name,)), [value])
        found = self.graph.run(fed, self if self.visit else None, self.around)
        begin, end = bool(before), bool(before) + len(self.states)
        self.states = found[begin:end]
        self.pieces.append(found[end:])
        return found

    def __call__(self, node: Node, results: Sequence[Any]) -> None:
        """Store the results of an operator in one iteration."""
        self.seen.setdefault(node.outputs, (node, []))[1].append(results)

    def show(self) -> None:
        """Pass the operators of the body, with their results in all iterations, to `visit`.

        If the body is inside an outer loop, the results are added to the results from earlier
        iterations of the outer loop.
        """
        for node, found in self.seen.values():
            assert self.visit is not None
            whole = [[EachRound(each) for each in zip(*found, strict=True)]]
            for results in found if isinstance(self.visit, Rounds) else whole:
                self.visit(node, results)


def branch_taken(inputs: Sequence[Any], bodies: Sequence[Runnable]) -> Runnable:
    """Return the branch that the condition of an If chooses."""
    path = "then" if array_in(inputs[0]).item() else "else"
    return next(each for each in bodies if each.body.path.endswith(f"/{path}/"))


def run_rounds(
    kind: str,
    inputs: Sequence[Any],
    attributes: Mapping[str, Any],
    body: Runnable,
    around: Values,
    visit: Visit | None,
) -> Rounds:
    """Run all iterations of a Loop or a Scan, and return the `Rounds` with their results."""
    last = len(inputs) - attributes.get("num_scan_inputs", 0)
    run, first = (run_loop, 2) if kind == "Loop" else (run_scan, 0)
    rounds = Rounds(body, inputs[first:last], around, visit)
    run(inputs, attributes, rounds)
    rounds.show()
    return rounds


def run_loop(inputs: Sequence[Any], attributes: Mapping[str, Any], rounds: Rounds) -> None:
    """Run the body of a Loop until its condition is false or its maximum trip count is reached."""
    most, goes_on = [*inputs, None, None][:2]
    limit = np.inf if most is None else array_in(most).item()
    ranks = [len(each.type.tensor_type.shape.dim) for each in rounds.graph.body.graph.input[:2]]
    while (goes_on is None or array_in(goes_on).item()) and len(rounds.pieces) < limit:
        first = (len(rounds.pieces), True)
        leading = [np.full((1,) * rank, each) for rank, each in zip(ranks, first, strict=True)]
        goes_on = rounds.run(leading)[0]


def run_scan(inputs: Sequence[Any], attributes: Mapping[str, Any], rounds: Rounds) -> None:
    """Run the body of a Scan once for each element along the scanned axes of its inputs."""
    scanned = [array_in(each) for each in inputs[len(rounds.states) :]]
    ways = zip(scanned, *ways_of(attributes, "input", len(scanned)), strict=True)
    columns = (np.moveaxis(array, axis, 0)[:: -1 if back else 1] for array, axis, back in ways)
    for elements in zip(*columns, strict=True):
        rounds.run(behind=map(np.asarray, elements))


def ways_of(attributes: Mapping[str, Any], side: str, count: int) -> list[Sequence[int]]:
    """Return the axes and the directions of a loop's scanned inputs or outputs.

    `side` is "input" or "output".
    """
    given = (attributes.get(f"scan_{side}_{what}") for what in ("axes", "directions"))
    return [each or [0] * count for each in given]


def array_in(value: Any) -> Array:
    """Return a value, which may be an engine's own object, as an array.

    Raises:
        NoTruthHere: the value cannot be computed.
    """
    if isinstance(value, NoTruth):
        raise NoTruthHere(value.why(""))
    array: Array = value.numpy() if hasattr(value, "numpy") else value
    return array
