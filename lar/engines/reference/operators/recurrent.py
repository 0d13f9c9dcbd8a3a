"""Recurrent networks: RNN, GRU and LSTM."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from lar.engines.reference.implementations import Array, Call, implements

State = Sequence[Array]
Activation = Callable[..., Any]

# Activations of x and, if they take them, of alpha and beta; with the defaults of these.
ACTIVATIONS: Mapping[str, tuple[Activation, tuple[float, ...]]] = {
    "Affine": (lambda x, a, b: a * x + b, (1.0, 0.0)),
    "Elu": (lambda x, a: np.where(x < 0, a * np.expm1(x), x), (1.0,)),
    "HardSigmoid": (lambda x, a, b: np.clip(a * x + b, 0, 1), (0.2, 0.5)),
    "LeakyRelu": (lambda x, a: np.where(x < 0, a * x, x), (0.01,)),
    "Relu": (lambda x: np.maximum(x, 0), ()),
    "ScaledTanh": (lambda x, a, b: a * np.tanh(b * x), (1.0, 1.0)),
    "Sigmoid": (lambda x: 1 / (1 + np.exp(-x)), ()),
    "Softplus": (lambda x: np.logaddexp(x, 0), ()),
    "Softsign": (lambda x: x / (1 + np.abs(x)), ()),
    "Tanh": (np.tanh, ()),
    "ThresholdedRelu": (lambda x, a: np.where(x > a, x, 0), (1.0,)),
}


class Cell(NamedTuple):
    """What a step takes besides the data: weights of the state, their bias, activations, the
    operator with its switches, and weights of an LSTM's memory, which its gates look at."""

    weights: Array
    bias: Array
    functions: Sequence[Activation]
    call: Call
    peepholes: Array


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
    before = f(into + cell.peepholes[0] * memory)
    kept = 1 - before if cell.call.get("input_forget") else f(forget + cell.peepholes[2] * memory)
    memory = kept * memory + before * g(new)
    return f(out + cell.peepholes[1] * memory) * h(memory), memory


STEPS: Mapping[str, tuple[Callable[[Array, State, Cell], State], tuple[str, ...]]] = {
    "RNN": (step_rnn, ("Tanh",)),
    "GRU": (step_gru, ("Sigmoid", "Tanh")),
    "LSTM": (step_lstm, ("Sigmoid", "Tanh", "Tanh")),
}


def activations_of(call: Call, usual: Sequence[str]) -> Iterator[Activation]:
    """Yield the activations of an operator, or the usual ones, each with its parameters; their
    input is clipped if that is asked for, except for an LSTM's memory."""
    given = [iter(call.get(f"activation_{name}", ())) for name in ("alpha", "beta")]
    for at, name in enumerate(call.get("activations") or usual):
        function, defaults = ACTIVATIONS[name]
        known = [next(it, default) for it, default in zip(given, defaults, strict=False)]
        most = np.inf if call.type == "LSTM" and at % 3 == 2 else call.get("clip", np.inf)
        yield partial(activate, function, known, most)


def activate(function: Activation, known: Sequence[float], most: float, x: Array) -> Any:
    return function(np.clip(x, -most, most), *known)


@implements(*STEPS)
def recur(call: Call) -> tuple[Array, ...]:
    """Return all states of a recurrent network, the last one, and of an LSTM its memory."""
    x, w, r, bias, lengths, *given, peepholes = call.take(8)
    (steps, batch), count, size = x.shape[:2], len(w), r.shape[-1]
    step, usual = STEPS[call.type]
    functions = [*activations_of(call, usual * count)]
    looks = np.zeros((count, 3 * size)) if peepholes is None else peepholes
    ends, times = np.full(batch, steps) if lengths is None else lengths, np.arange(steps)[:, None]
    states = [np.zeros((count, batch, size)) if each is None else each for each in given]
    every, last, items = np.zeros((steps, count, batch, size)), [], np.arange(batch)
    for at in range(count):
        backwards = call.get("direction") == "reverse" or at == 1
        order = np.where(times < ends, ends - 1 - times, times) if backwards else times
        both = np.zeros((2, r.shape[1])) if bias is None else bias[at].reshape(2, -1)
        ours = functions[at * len(usual) : (at + 1) * len(usual)]
        cell = Cell(r[at], both[1], ours, call, looks[at].reshape(3, size))
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
