"""The rules by which tensors are twins, on graphs that are drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from hypothesis import given
from hypothesis import strategies as st

from lar.dumps.dump import Dump
from lar.graphs.signatures import Values
from lar.graphs.twins import match
from tests.comparison.handmade import Step, dump_of
from tests.comparison.known_engines import Graph

Array = npt.NDArray[Any]

FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    "Tanh": np.tanh,
    "Sin": np.sin,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Add": lambda x, y: (x + y) * np.float32(1),
    "Sub": lambda x, y: x - y,
}
JOINING = ("Add", "Sub")
DATA = np.random.default_rng(0).standard_normal((4, 16)).astype(np.float32)


class Made(NamedTuple):
    """An operator of a drawn graph, which takes what some before it give."""

    kind: str
    inputs: tuple[int, ...]


@st.composite
def graphs(draw: st.DrawFn) -> list[Made]:
    """Draw operators, of which no two do the same; 0 is the data, 1 the first one's result."""
    found = [Made("Tanh", (0,))]
    for _ in range(draw(st.integers(1, 9))):
        kind = draw(st.sampled_from([*FUNCTIONS]))
        near = st.integers(max(0, len(found) - 2), len(found))
        count = 2 if kind in JOINING else 1
        inputs = draw(st.lists(near, min_size=count, max_size=count, unique=True))
        made = Made(kind, tuple(sorted(inputs) if kind == "Add" else inputs))
        if made not in found:
            found.append(made)
    return found


def steps_of(made: Sequence[Made], names: Sequence[str]) -> list[Step]:
    """Compute a graph whose tensors have these names, after the data."""
    steps = [Step("data", "Input", (), DATA)]
    for (kind, inputs), name in zip(made, names, strict=True):
        taken = [steps[place] for place in inputs]
        array = FUNCTIONS[kind](*(step.array for step in taken)).astype(np.float32)
        steps.append(Step(name, kind, tuple(step.name for step in taken), array))
    return steps


def pairs_of(actual: Dump, expected: Dump) -> dict[str, str]:
    sides = Graph(actual), Graph(expected)
    found = match(*sides, (Values(actual), Values(expected)))
    return {it.actual.name: it.expected.name for it in found.pairs}


def letters(count: int) -> list[str]:
    return [f"layer.{chr(97 + place)}" for place in range(count)]


@given(graphs(), st.randoms(use_true_random=False), st.integers(1, 3))
def test_one_structure_is_gone_through_in_step_whatever_names_say(
    made: list[Made], random: Any, first: int
) -> None:
    shuffled = letters(len(made))
    random.shuffle(shuffled)
    for names in (
        shuffled,
        [f"t{number + first}" for number in range(len(made))],
        [str(number + first) for number in range(len(made))],
    ):
        ours = [f"t{number}" for number in range(len(made))]
        actual, expected = steps_of(made, names), steps_of(made, ours)
        found = pairs_of(dump_of(*actual), dump_of(*expected))
        assert found == {"data": "data", **dict(zip(names, ours, strict=True))}


@given(graphs(), st.integers(0, 8), st.sampled_from([*FUNCTIONS]))
def test_behind_an_operator_more_numbers_count_on(made: list[Made], place: int, kind: str) -> None:
    """One side computes one tensor more, of which nothing is computed."""
    ours = [f"t{number}" for number in range(len(made))]
    expected = steps_of(made, ours)
    moved = [name if number <= place else f"t{number + 1}" for number, name in enumerate(ours)]
    actual = steps_of(made, moved)
    more = Step(f"t{place + 1}", "Exp", ("data",), np.exp(DATA))
    found = pairs_of(dump_of(*actual, more), dump_of(*expected))
    values = {step.name: step.array for step in (*actual, more)}
    theirs = {step.name: step.array for step in expected}
    assert all(np.array_equal(values[one], theirs[other]) for one, other in found.items()), found
    assert len(found) == len(expected)


@given(graphs(), st.randoms(use_true_random=False))
def test_branches_in_another_order_are_paired_by_their_names(made: list[Made], random: Any) -> None:
    names = letters(len(made))
    expected = steps_of(made, names)
    # What is not computed from one another changes places, and so do summands.
    order = [*range(len(expected))]
    random.shuffle(order)
    turned = [
        replace(step, inputs=step.inputs[::-1]) if step.type == "Add" else step
        for step in (expected[place] for place in order)
    ]
    found = pairs_of(dump_of(*turned), dump_of(*expected))
    assert found == {step.name: step.name for step in expected}


def test_outputs_are_twins_by_their_names_then_by_their_places() -> None:
    """Whatever their shapes are."""

    def net(kinds: Sequence[str], names: Sequence[str]) -> Dump:
        ends = [
            Step(name, kind, ("data",), FUNCTIONS[kind](DATA)[:size])
            for kind, name, size in zip(kinds, names, (2, 3, 4), strict=True)
        ]
        return dump_of(Step("data", "Input", (), DATA), *ends, outputs=(*names,))

    one = net(("Tanh", "Sin", "Sigmoid"), ("boxes", "scores", "out"))
    other = net(("Sin", "Sigmoid", "Tanh"), ("scores", "labels", "kinds"))
    assert pairs_of(one, other) == {
        "data": "data",
        "scores": "scores",
        "boxes": "labels",
        "out": "kinds",
    }


def test_the_one_end_of_a_dump_without_outputs_is_its_output() -> None:
    """Of several ends nothing says which is which."""

    def net(kind: str, size: int, *names: str) -> Dump:
        end = FUNCTIONS[kind](DATA)[:size]
        return dump_of(
            Step("data", "Input", (), DATA), *(Step(name, kind, ("data",), end) for name in names)
        )

    found = pairs_of(net("Tanh", 2, "out"), net("Sin", 3, "result"))
    assert found == {"data": "data", "out": "result"}
    found = pairs_of(net("Tanh", 2, "out", "more"), net("Sin", 3, "result", "others"))
    assert found == {"data": "data"}
