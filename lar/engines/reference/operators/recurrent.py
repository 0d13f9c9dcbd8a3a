"""Recurrent networks: RNN, GRU and LSTM."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from lar.engines.reference.implementations import Array, Call, implements

Activation = Callable[[Array], Any]
State = tuple[Array, Array]

# Activations by their names in lower case: the function, and the defaults of alpha and beta.
ACTIVATIONS: Mapping[str, tuple[Callable[..., Any], tuple[float, ...]]] = {
    "relu": (lambda x: np.maximum(x, 0), ()),
    "tanh": (np.tanh, ()),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), ()),
    "softsign": (lambda x: x / (1 + np.abs(x)), ()),
    "softplus": (lambda x: np.logaddexp(x, 0), ()),
    "affine": (lambda x, alpha, beta: alpha * x + beta, (1, 0)),
    "leakyrelu": (lambda x, alpha: np.where(x < 0, alpha * x, x), (0.01,)),
    "thresholdedrelu": (lambda x, alpha: np.where(x > alpha, x, 0), (1,)),
    "scaledtanh": (lambda x, alpha, beta: alpha * np.tanh(beta * x), (1, 1)),
    "hardsigmoid": (lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1), (0.2, 0.5)),
    "elu": (lambda x, alpha: np.where(x < 0, alpha * np.expm1(x), x), (1,)),
}


class Cell(NamedTuple):
    """What a step takes besides the data: weights of the state, their bias, activations."""

    weights: Array
    bias: Array
    functions: Sequence[Activation]
    peepholes: Sequence[Array]
    call: Call


def step_rnn(data: Array, state: State, cell: Cell) -> State:
    return cell.functions[0](data + state[0] @ cell.weights.T + cell.bias), state[1]


def step_gru(data: Array, state: State, cell: Cell) -> State:
    hidden, (f, g) = state[0], cell.functions
    ours = np.split(hidden @ cell.weights.T + cell.bias, 3, axis=-1)
    update, reset, new = np.split(data, 3, axis=-1)
    z, r = f(update + ours[0]), f(reset + ours[1])
    if cell.call.get("linear_before_reset"):
        mixed = r * ours[2]
    else:
        mixed = (r * hidden) @ np.split(cell.weights, 3)[2].T + np.split(cell.bias, 3)[2]
    return (1 - z) * g(new + mixed) + z * hidden, state[1]


def step_lstm(data: Array, state: State, cell: Cell) -> State:
    (hidden, memory), (f, g, h) = state, cell.functions
    gates = data + hidden @ cell.weights.T + cell.bias
    into, out, forget, new = np.split(gates, 4, axis=-1)
    i = f(into + cell.peepholes[0] * memory)
    forgets = cell.call.get("input_forget")
    kept = 1 - i if forgets else f(forget + cell.peepholes[2] * memory)
    memory = kept * memory + i * g(new)
    return f(out + cell.peepholes[1] * memory) * h(memory), memory


STEPS: Mapping[str, tuple[Callable[[Array, State, Cell], State], tuple[str, ...]]] = {
    "RNN": (step_rnn, ("Tanh",)),
    "GRU": (step_gru, ("Sigmoid", "Tanh")),
    "LSTM": (step_lstm, ("Sigmoid", "Tanh", "Tanh")),
}


def activations_of(call: Call, names: Sequence[str]) -> list[Activation]:
    """Return activations: each takes its parameters from the front of what is left of them.

    The memory of an LSTM, which the third of each direction takes, is not clipped by any engine.
    """
    left = [[*call.get("activation_alpha", ())], [*call.get("activation_beta", ())]]
    found: list[Activation] = []
    for place, name in enumerate(names):
        function, defaults = ACTIVATIONS[name.lower()]
        pairs = zip(left, defaults, strict=False)
        known = [given.pop(0) if given else default for given, default in pairs]
        is_last = call.type == "LSTM" and place % 3 == 2
        most = np.inf if is_last else call.get("clip", np.inf)

        def activate(
            x: Array, function: Any = function, known: Any = known, most: float = most
        ) -> Any:
            return function(np.clip(x, -most, most), *known)

        found.append(activate)
    return found


@implements(*STEPS)
def recur(call: Call) -> tuple[Array, ...]:
    """Return all states of a recurrent network, the last one, and of an LSTM its memory."""
    x, w, r, bias, lengths, hidden, memory, peepholes = call.take(8)
    layout, size, count = call.get("layout", 0), r.shape[-1], len(w)
    x = x.swapaxes(0, 1) if layout else x
    steps, batch = x.shape[:2]
    step, usual = STEPS[call.type]
    functions = activations_of(call, call.get("activations") or usual * count)
    ends, times = np.full(batch, steps) if lengths is None else lengths, np.arange(steps)[:, None]
    zeros = np.zeros((count, batch, size))
    states = [
        zeros if each is None else each.swapaxes(0, 1) if layout else each
        for each in (hidden, memory)
    ]
    every, last = np.zeros((steps, count, batch, size)), []
    for at in range(count):
        backwards = call.get("direction") == "reverse" or at == 1
        order = np.where(times < ends, ends - 1 - times, times) if backwards else times
        both = np.zeros((2, r.shape[1])) if bias is None else bias[at].reshape(2, -1)
        holes = np.zeros(3 * size) if peepholes is None else peepholes[at]
        ours = functions[at * len(usual) : (at + 1) * len(usual)]
        cell = Cell(r[at], both[1], ours, np.split(holes, 3), call)
        data = x[order, np.arange(batch)] @ w[at].T + both[0]
        state = (states[0][at], states[1][at])
        given = np.zeros((steps, batch, size))
        for time in range(steps):
            alive = (time < ends)[:, None]
            found = zip(step(data[time], state, cell), state, strict=True)
            state_now = [np.where(alive, new, old) for new, old in found]
            state = (state_now[0], state_now[1])
            given[time] = np.where(alive, state[0], 0)
        every[order, at, np.arange(batch)] = given
        last.append(state)
    ended = [np.stack(each, axis=1 if layout else 0) for each in zip(*last, strict=True)]
    every = every.transpose(2, 0, 1, 3) if layout else every
    return (every, *(ended if call.type == "LSTM" else ended[:1]))
