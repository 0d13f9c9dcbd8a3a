"""Recurrent networks: RNN, GRU and LSTM."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lar.engines.reference.implementations import Array, Call, NoTruthHere, implements

State = Sequence[Array]

ACTIVATIONS: Mapping[str, Callable[[Array], Any]] = {
    "Relu": lambda x: np.maximum(x, 0),
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Tanh": np.tanh,
}


class Cell(NamedTuple):
    """What a step takes besides the data: weights of the state, their bias, activations."""

    weights: Array
    bias: Array
    functions: Sequence[Callable[[Array], Any]]
    resets_late: bool


def step_rnn(data: Array, state: State, cell: Cell) -> State:
    return cell.functions[0](data + state[0] @ cell.weights.T + cell.bias), state[1]


def step_gru(data: Array, state: State, cell: Cell) -> State:
    hidden, (f, g) = state[0], cell.functions
    ours = np.split(hidden @ cell.weights.T + cell.bias, 3, axis=-1)
    update, reset, new = np.split(data, 3, axis=-1)
    z, r = f(update + ours[0]), f(reset + ours[1])
    if cell.resets_late:
        mixed = r * ours[2]
    else:
        mixed = (r * hidden) @ np.split(cell.weights, 3)[2].T + np.split(cell.bias, 3)[2]
    return (1 - z) * g(new + mixed) + z * hidden, state[1]


def step_lstm(data: Array, state: State, cell: Cell) -> State:
    (hidden, memory), (f, g, h) = state, cell.functions
    gates = data + hidden @ cell.weights.T + cell.bias
    into, out, forget, new = np.split(gates, 4, axis=-1)
    memory = f(forget) * memory + f(into) * g(new)
    return f(out) * h(memory), memory


STEPS: Mapping[str, tuple[Callable[[Array, State, Cell], State], tuple[str, ...]]] = {
    "RNN": (step_rnn, ("Tanh",)),
    "GRU": (step_gru, ("Sigmoid", "Tanh")),
    "LSTM": (step_lstm, ("Sigmoid", "Tanh", "Tanh")),
}


@implements(*STEPS)
def recur(call: Call) -> tuple[Array, ...]:
    """Return all states of a recurrent network, the last one, and of an LSTM its memory.

    Raises:
        NoTruthHere: it has activations that are not known here.
    """
    x, w, r, bias, lengths, *given = call.take(7)
    (steps, batch), count, size = x.shape[:2], len(w), r.shape[-1]
    step, usual = STEPS[call.type]
    names = call.get("activations") or usual * count
    if not ACTIVATIONS.keys() >= {*names}:
        raise NoTruthHere(f"lar knows the activations {', '.join(ACTIVATIONS)} alone")
    ends, times = np.full(batch, steps) if lengths is None else lengths, np.arange(steps)[:, None]
    states = [np.zeros((count, batch, size)) if each is None else each for each in given]
    every, last, items = np.zeros((steps, count, batch, size)), [], np.arange(batch)
    for at in range(count):
        backwards = call.get("direction") == "reverse" or at == 1
        order = np.where(times < ends, ends - 1 - times, times) if backwards else times
        both = np.zeros((2, r.shape[1])) if bias is None else bias[at].reshape(2, -1)
        ours = [ACTIVATIONS[name] for name in names[at * len(usual) : (at + 1) * len(usual)]]
        cell = Cell(r[at], both[1], ours, bool(call.get("linear_before_reset")))
        data = x[order, items] @ w[at].T + both[0]
        state = [each[at] for each in states]
        for time in range(steps):
            alive = (time < ends)[:, None]
            found = zip(step(data[time], state, cell), state, strict=True)
            state = [np.where(alive, new, old) for new, old in found]
            every[order[time], at, items] = np.where(alive, state[0], 0)
        last.append(state)
    ended = [np.stack(each) for each in zip(*last, strict=True)]
    return (every, *(ended if call.type == "LSTM" else ended[:1]))
