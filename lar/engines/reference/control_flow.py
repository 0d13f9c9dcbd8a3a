"""Operators that run graphs within them: If, Loop, Scan."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from lar.engines.onnxruntime.bodies import BODY_INPUT
from lar.engines.onnxruntime.model_fields import Node
from lar.engines.reference.implementations import Call, NoTruth, NoTruthHere, Visit

if TYPE_CHECKING:
    from lar.engines.reference.evaluator import Graph

Values = ChainMap[str, Any]  # of a graph by name, before those of the graphs around it


@dataclass
class Rounds:
    """The iterations of a body: runs it, and shows what its operators gave in all of them.

    `states` are what an iteration hands to the next one, `pieces` what else each gave.
    """

    body: Graph
    states: Sequence[Any]
    around: Values
    visit: Visit | None
    pieces: list[Sequence[Any]] = field(default_factory=list)
    seen: dict[tuple[str, ...], tuple[Node, list[Sequence[Any]]]] = field(default_factory=dict)

    def run(self, taken: Sequence[Any]) -> list[Any]:
        """Compute the outputs of the body in one iteration."""
        fed = dict(zip(self.body.inputs, taken, strict=False))
        if self.visit is None:
            return self.body.run(fed, None, self.around)
        for name, value in fed.items():
            self.keep(Node(name, BODY_INPUT, "", (), (name,)), [value])
        return self.body.run(fed, self.keep, self.around)

    def advance(self, found: Sequence[Any]) -> None:
        """Take what an iteration gave: the states of the next one, then the pieces."""
        count = len(self.states)
        self.states = found[:count]
        self.pieces.append(found[count:])

    def keep(self, node: Node, results: Sequence[Any]) -> None:
        """Keep what an operator gave in an iteration."""
        self.seen.setdefault(node.outputs, (node, []))[1].append(results)

    def show(self) -> None:
        """Show the operators of the body with what they gave in all iterations."""
        for node, found in self.seen.values():
            assert self.visit is not None
            self.visit(node, [of_all_rounds(each) for each in zip(*found, strict=True)])


def of_all_rounds(values: Sequence[Any]) -> Any:
    """Return the values of all iterations on a new first axis; if they do not fit, the last."""
    kinds = {(each.shape, each.dtype) for each in values if isinstance(each, np.ndarray)}
    if len(kinds) == 1 and all(isinstance(each, np.ndarray) for each in values):
        return np.stack(values)
    return next((each for each in values if isinstance(each, NoTruth)), values[-1])


def run_bodies(
    call: Call, bodies: Sequence[Graph], values: Values, visit: Visit | None
) -> Sequence[Any]:
    """Compute an operator whose bodies take tensors from around them out of `values`."""
    if call.type == "If":
        path = "then" if call.inputs[0].item() else "else"
        body = next(each for each in bodies if each.body.path.endswith(f"/{path}/"))
        return body.run({}, visit, values)
    last = len(call.inputs) - call.get("num_scan_inputs", 0)
    run, first = (run_loop, 2) if call.type == "Loop" else (run_scan, 0)
    rounds = Rounds(bodies[0], call.inputs[first:last], values, visit)
    run(call, rounds)
    rounds.show()
    # Without an iteration, nobody knows the shape of what they would give.
    return [*rounds.states, *map(stacked, zip(*rounds.pieces, strict=True))]


def stacked(pieces: Sequence[Any]) -> Any:
    """Return what the iterations gave on a new first axis."""
    lacking = (each for each in pieces if isinstance(each, NoTruth))
    return next(lacking, None) or np.stack(pieces)


def run_loop(call: Call, rounds: Rounds) -> None:
    """Run a body until its condition fails, or for a number of trips."""
    most, goes_on = call.take(2)[:2]
    limit = np.inf if most is None else most.item()
    infos = rounds.body.body.graph.input[:2]
    ranks = [len(each.type.tensor_type.shape.dim) for each in infos]
    while (goes_on is None or goes_on.item()) and len(rounds.pieces) < limit:
        first = (len(rounds.pieces), True)
        leading = [np.full((1,) * rank, each) for rank, each in zip(ranks, first, strict=True)]
        goes_on, *found = rounds.run([*leading, *rounds.states])
        if isinstance(goes_on, NoTruth):
            raise NoTruthHere(goes_on.why(""))
        rounds.advance(found)


def run_scan(call: Call, rounds: Rounds) -> None:
    """Run a body along the first axis of its scanned inputs."""
    for elements in zip(*call.inputs[len(rounds.states) :], strict=True):
        rounds.advance(rounds.run([*rounds.states, *elements]))
