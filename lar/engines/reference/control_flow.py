"""Operators that run graphs within them: If, Loop, Scan, SequenceMap."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, Protocol

import numpy as np

from lar.engines.onnxruntime.bodies import BODY_INPUT, Body
from lar.engines.onnxruntime.model_fields import Node
from lar.engines.reference.implementations import NoTruth, NoTruthHere, Visit, value_of


class Inner(Protocol):
    """A graph inside an operator, ready to be run: `Graph` of `evaluator`."""

    body: Body
    inputs: Sequence[str]
    outputs: Sequence[str]
    captured: Sequence[str]

    def run(self, fed: Mapping[str, Any], visit: Visit | None = None) -> list[Any]: ...


class Rounds:
    """The iterations of a body: runs it, and shows what its operators gave in all of them."""

    def __init__(self, body: Inner, values: Mapping[str, Any], visit: Visit | None) -> None:
        self.body = body
        self.around = {name: values[name] for name in body.captured if name in values}
        self.visit = visit
        self.seen: dict[tuple[str, ...], tuple[Node, list[Sequence[Any]]]] = {}

    def run(self, taken: Sequence[Any] = ()) -> list[Any]:
        """Compute the outputs of the body in one iteration."""
        fed = dict(zip(self.body.inputs, taken, strict=False))
        if self.visit is None:
            return self.body.run({**self.around, **fed})
        for name, value in fed.items():
            self.keep(Node(name, BODY_INPUT, "", (), (name,)), [value])
        return self.body.run({**self.around, **fed}, self.keep)

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
    if lacking := [each for each in values if isinstance(each, NoTruth)]:
        return lacking[0]
    kinds = {(np.shape(each), getattr(each, "dtype", None)) for each in values}
    are_arrays = all(isinstance(each, np.ndarray) for each in values)
    return np.stack(values) if are_arrays and len(kinds) == 1 else values[-1]


def run_bodies(
    node: Any,
    bodies: Sequence[Inner],
    taken: list[Any],
    values: Mapping[str, Any],
    visit: Visit | None,
) -> Sequence[Any]:
    """Compute an operator from its inputs, and what its bodies capture from `values`."""
    kind = node.op_type
    if kind == "If":
        path = "then" if np.asarray(taken[0]).item() else "else"
        body = next(each for each in bodies if each.body.path.endswith(f"/{path}/"))
        around = {name: values[name] for name in body.captured if name in values}
        return body.run(around, visit)
    runs: Mapping[str, Callable[..., Sequence[Any]]] = {
        "Loop": run_loop,
        "Scan": run_scan,
        "SequenceMap": run_sequence_map,
    }
    attributes = {each.name: value_of(each) for each in node.attribute if not each.g.node}
    rounds = Rounds(bodies[0], values, visit)
    results = runs[kind](rounds, taken, len(node.output), **attributes)
    rounds.show()
    return results


def run_loop(rounds: Rounds, taken: list[Any], outputs: int) -> Sequence[Any]:
    """Run a body until its condition fails, or for a number of trips."""
    most, goes_on, *states = [*taken, None, None][: max(2, len(taken))]
    first, second = (rank_of(each) for each in rounds.body.body.graph.input[:2])
    going = True if goes_on is None else bool(np.asarray(goes_on).item())
    limit = np.inf if most is None else np.asarray(most).item()
    pieces: list[list[Any]] = [[] for _ in rounds.body.outputs[1 + len(states) :]]

    def run(count: int) -> list[Any]:
        number, flag = np.full((1,) * first, count), np.full((1,) * second, True)
        return rounds.run([number, flag, *states])

    count = 0
    while going and count < limit:
        condition, *found = run(count)
        if isinstance(condition, NoTruth):
            return [condition] * outputs
        going, states = bool(condition.item()), found[: len(states)]
        for kept, each in zip(pieces, found[len(states) :], strict=True):
            kept.append(each)
        count += 1
    if count or not pieces:
        return [*states, *(joined(kept) for kept in pieces)]
    rounds.visit = None
    return [*states, *map(none_of, run(0)[1 + len(states) :])]


def run_scan(
    rounds: Rounds,
    taken: list[Any],
    outputs: int,
    num_scan_inputs: int,
    scan_input_axes: Sequence[int] = (),
    scan_input_directions: Sequence[int] = (),
    scan_output_axes: Sequence[int] = (),
    scan_output_directions: Sequence[int] = (),
    **rest: Any,
) -> Sequence[Any]:
    """Run a body along an axis of its scanned inputs.

    Raises:
        NoTruthHere: it is the Scan of opset 8, over a batch of sequences.
    """
    if len(taken) != len(rounds.body.inputs):
        raise NoTruthHere("")
    split = len(taken) - num_scan_inputs
    states = taken[:split]
    scanned = [
        np.flip(np.moveaxis(each, axis, 0), axis=0) if reverse else np.moveaxis(each, axis, 0)
        for each, axis, reverse in zip(
            taken[split:], padded(scan_input_axes), padded(scan_input_directions), strict=False
        )
    ]
    count = len(scanned[0])
    pieces: list[list[Any]] = [[] for _ in rounds.body.outputs[split:]]
    for at in range(count):
        found = rounds.run([*states, *(each[at] for each in scanned)])
        states = found[:split]
        for kept, each in zip(pieces, found[split:], strict=True):
            kept.append(each)
    if not count and pieces:
        rounds.visit = None
        empty = [np.zeros(each.shape[1:], each.dtype) for each in scanned]
        return [*states, *map(none_of, rounds.run([*states, *empty])[split:])]
    wanted = zip(pieces, padded(scan_output_axes), padded(scan_output_directions), strict=False)
    return [
        *states,
        *(joined(kept[::-1] if reverse else kept, axis) for kept, axis, reverse in wanted),
    ]


def run_sequence_map(rounds: Rounds, taken: list[Any], outputs: int) -> Sequence[Any]:
    """Run a body for each element of a sequence, and of others beside it."""
    rounds.visit = None
    found = [
        rounds.run([each[at] if isinstance(each, list) else each for each in taken])
        for at in range(len(taken[0]))
    ]
    columns: list[list[Any]] = [[] for _ in range(outputs)]
    if found:
        columns = [list(each) for each in zip(*found, strict=True)]
    return [next((it for it in each if isinstance(it, NoTruth)), each) for each in columns]


def rank_of(value: Any) -> int:
    """Return how many axes a body says that an input has."""
    return len(value.type.tensor_type.shape.dim)


def padded(values: Sequence[int]) -> Iterator[int]:
    """Yield values, and 0 for those that are not given."""
    return chain(values, repeat(0))


def joined(pieces: Sequence[Any], axis: int = 0) -> Any:
    """Return what the iterations gave on a new axis."""
    lacking = [each for each in pieces if isinstance(each, NoTruth)]
    return lacking[0] if lacking else np.stack(pieces, axis)


def none_of(value: Any) -> Any:
    """Return what no iteration gives, where each would give such a value."""
    return value if isinstance(value, NoTruth) else np.zeros((0, *value.shape), value.dtype)
