"""Operators that run graphs within them: If, Loop, Scan."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from lar.engines.onnxruntime.bodies import BODY_INPUT, Body
from lar.engines.onnxruntime.model_fields import Node
from lar.engines.reference.implementations import Call, NoTruth, Visit

Values = ChainMap[str, Any]  # of a graph by name, before those of the graphs around it


class Inner(Protocol):
    """A graph inside an operator, ready to be run: `Graph` of `evaluator`."""

    body: Body
    inputs: Sequence[str]

    def run(
        self, fed: Mapping[str, Any], visit: Visit | None, around: Values | None
    ) -> list[Any]: ...


class Rounds:
    """The iterations of a body: runs it, and shows what its operators gave in all of them.

    `states` are what an iteration hands to the next one, `pieces` what else each gave.
    """

    def __init__(
        self, body: Inner, states: Sequence[Any], around: Values, visit: Visit | None
    ) -> None:
        self.body = body
        self.states = states
        self.around = around
        self.visit = visit
        self.pieces: list[Sequence[Any]] = []
        self.seen: dict[tuple[str, ...], tuple[Node, list[Sequence[Any]]]] = {}

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


def stacked(pieces: Sequence[Any], axis: int = 0) -> Any:
    """Return what the iterations gave on a new axis."""
    lacking = (each for each in pieces if isinstance(each, NoTruth))
    return next(lacking, None) or np.stack(pieces, axis)


def run_bodies(
    call: Call, bodies: Sequence[Inner], values: Values, visit: Visit | None
) -> Sequence[Any]:
    """Compute an operator whose bodies take tensors from around them out of `values`."""
    if call.type == "If":
        path = "then" if call.inputs[0].item() else "else"
        body = next(each for each in bodies if each.body.path.endswith(f"/{path}/"))
        return body.run({}, visit, values)
    run, first = (run_loop, 2) if call.type == "Loop" else (run_scan, 0)
    last = len(call.inputs) - call.get("num_scan_inputs", 0)
    rounds = Rounds(bodies[0], call.inputs[first:last], values, visit)
    results = run(call, rounds)
    rounds.show()
    return results


def run_loop(call: Call, rounds: Rounds) -> Sequence[Any]:
    """Run a body until its condition fails, or for a number of trips. Without a trip, nobody knows
    the shape of what they would give."""
    most, goes_on = call.take(2)[:2]
    limit = np.inf if most is None else most.item()
    infos = rounds.body.body.graph.input[:2]
    ranks = [len(each.type.tensor_type.shape.dim) for each in infos]
    while (goes_on is None or goes_on.item()) and len(rounds.pieces) < limit:
        first = (len(rounds.pieces), True)
        leading = [np.full((1,) * rank, each) for rank, each in zip(ranks, first, strict=True)]
        goes_on, *found = rounds.run([*leading, *rounds.states])
        if isinstance(goes_on, NoTruth):
            return [goes_on] * call.outputs
        rounds.advance(found)
    return [*rounds.states, *map(stacked, zip(*rounds.pieces, strict=True))]


def run_scan(call: Call, rounds: Rounds) -> Sequence[Any]:
    """Run a body along an axis of its scanned inputs."""
    inputs = call.inputs[len(rounds.states) :]
    scanned = [
        np.moveaxis(each, axis, 0)[::step]
        for each, (axis, step) in zip(inputs, ways_of(call, "input", len(inputs)), strict=True)
    ]
    for elements in zip(*scanned, strict=True):
        rounds.advance(rounds.run([*rounds.states, *elements]))
    columns = [*zip(*rounds.pieces, strict=True)]
    ways = ways_of(call, "output", len(columns))
    pieces = (stacked(each[::step], axis) for each, (axis, step) in zip(columns, ways, strict=True))
    return [*rounds.states, *pieces]


def ways_of(call: Call, side: str, count: int) -> list[tuple[int, int]]:
    """Return along which axes a Scan goes, and in which steps."""
    axes = call.get(f"scan_{side}_axes") or [0] * count
    turned = call.get(f"scan_{side}_directions") or [0] * count
    return [(axis, -1 if turns else 1) for axis, turns in zip(axes, turned, strict=True)]
