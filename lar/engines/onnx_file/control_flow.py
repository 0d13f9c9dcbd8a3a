"""If, Loop and Scan computed by hand, one iteration after the other, to see what is inside them.

An engine has a `Runnable` for each body. What a body is fed with is shown as if an operator of its
own gave it. A tensor inside a loop has a value for each time that it was computed, in loops within
each other all in a row; one in a branch that was not taken has none.
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

Values = ChainMap[str, Any]  # of a graph by name, before those of the graphs around it
# Takes a node and what it gave: its results, in their order.
Visit = Callable[[Node, Sequence[Any]], object]


class Runnable(Protocol):
    """A body that can be run."""

    body: Body
    inputs: Sequence[str]

    def run(self, fed: Mapping[str, Any], visit: Visit | None, around: Values) -> list[Any]:
        """Compute the outputs from inputs and from tensors around the body; `visit` is shown each
        operator."""


class NoTruth(NamedTuple):
    """A value that cannot be computed: the operator that fails, and why."""

    operator: str
    says: str
    tensor: str = ""  # what it would give

    def why(self, name: str) -> str:
        """Return why a tensor has no truth."""
        if name != self.tensor:
            return f"computed from {self.tensor}, which has no truth"
        return f"no truth for {self.operator}" + (f": {self.says}" if self.says else "")


class NoTruthHere(Exception):
    """An operator that has no one right result; the message says why."""


class EachRound(tuple[Any, ...]):
    """The values of a tensor in all iterations."""


def parts_of_value(name: str, value: Any) -> Iterator[Part | Unheld]:
    """Yield what a dump has of a value: the values of all iterations stand on a new first axis; if
    their shapes differ, only the first one does."""
    if not isinstance(value, EachRound):
        value = Unheld(name, value.why(name)) if isinstance(value, NoTruth) else value
        yield from parts_of(name, value)
    elif others := [each for each in value if not isinstance(each, np.ndarray)]:
        lacking = next((each for each in others if isinstance(each, (NoTruth, Unheld))), None)
        says = "inside a loop, and no tensor: no file holds one for each iteration"
        yield from parts_of_value(name, lacking or Unheld(name, says))
    else:
        is_one_shape = len({each.shape for each in value}) == 1
        yield from parts_of(name, np.stack(value if is_one_shape else value[:1]))
        if not is_one_shape:
            yield Unheld(name, f"all but the first of {len(value)} values, whose shapes differ")


@dataclass
class Rounds:
    """The iterations of a body: runs it, and shows what its operators gave in all of them.

    `states` are what an iteration hands to the next one, `pieces` the other results of each.
    """

    graph: Runnable
    states: Sequence[Any]
    around: Values
    visit: Visit | None
    pieces: list[Sequence[Any]] = field(default_factory=list)
    seen: dict[tuple[str, ...], tuple[Node, list[Sequence[Any]]]] = field(default_factory=dict)

    def run(self, before: Sequence[Any] = (), behind: Iterable[Any] = ()) -> list[Any]:
        """Compute the outputs of the body in one iteration: the next states, then the pieces.

        It is fed with the states and with the values before and behind them. A body with values
        before them first gives whether it goes on."""
        fed = dict(zip(self.graph.inputs, (*before, *self.states, *behind), strict=False))
        for name, value in fed.items() if self.visit else ():
            self(Node(name, BODY_INPUT, "", (), (name,)), [value])
        found = self.graph.run(fed, self if self.visit else None, self.around)
        begin, end = bool(before), bool(before) + len(self.states)
        self.states = found[begin:end]
        self.pieces.append(found[end:])
        return found

    def __call__(self, node: Node, results: Sequence[Any]) -> None:
        """Keep what an operator gave in an iteration."""
        self.seen.setdefault(node.outputs, (node, []))[1].append(results)

    def show(self) -> None:
        """Show the operators of the body with what they gave in all iterations, those of a loop
        around this one too."""
        for node, found in self.seen.values():
            assert self.visit is not None
            whole = [[EachRound(each) for each in zip(*found, strict=True)]]
            for results in found if isinstance(self.visit, Rounds) else whole:
                self.visit(node, results)


def branch_taken(inputs: Sequence[Any], bodies: Sequence[Runnable]) -> Runnable:
    """Return the branch of an If that its condition chooses."""
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
    """Run the body of a Loop or a Scan as often as it asks for."""
    last = len(inputs) - attributes.get("num_scan_inputs", 0)
    run, first = (run_loop, 2) if kind == "Loop" else (run_scan, 0)
    rounds = Rounds(body, inputs[first:last], around, visit)
    run(inputs, attributes, rounds)
    rounds.show()
    return rounds


def run_loop(inputs: Sequence[Any], attributes: Mapping[str, Any], rounds: Rounds) -> None:
    """Run a body until its condition fails, or for a number of trips."""
    most, goes_on = [*inputs, None, None][:2]
    limit = np.inf if most is None else array_in(most).item()
    infos = rounds.graph.body.graph.input[:2]
    ranks = [len(each.type.tensor_type.shape.dim) for each in infos]
    while (goes_on is None or array_in(goes_on).item()) and len(rounds.pieces) < limit:
        first = (len(rounds.pieces), True)
        leading = [np.full((1,) * rank, each) for rank, each in zip(ranks, first, strict=True)]
        goes_on = rounds.run(leading)[0]


def run_scan(inputs: Sequence[Any], attributes: Mapping[str, Any], rounds: Rounds) -> None:
    """Run a body along an axis of each of its scanned inputs."""
    scanned = [array_in(each) for each in inputs[len(rounds.states) :]]
    ways = zip(scanned, *ways_of(attributes, "input", len(scanned)), strict=True)
    columns = (np.moveaxis(array, axis, 0)[:: -1 if back else 1] for array, axis, back in ways)
    for elements in zip(*columns, strict=True):
        rounds.run(behind=map(np.asarray, elements))


def ways_of(attributes: Mapping[str, Any], side: str, count: int) -> list[Sequence[int]]:
    """Return the axes and the directions of the tensors that a loop takes or gives in pieces."""
    given = (attributes.get(f"scan_{side}_{what}") for what in ("axes", "directions"))
    return [each or [0] * count for each in given]


def array_in(value: Any) -> Array:
    """Return a tensor as an array; an engine may have it as a value of its own type.

    Raises:
        NoTruthHere: nothing gives it.
    """
    if isinstance(value, NoTruth):
        raise NoTruthHere(value.why(""))
    array: Array = value.numpy() if hasattr(value, "numpy") else value
    return array
