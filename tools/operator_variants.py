"""Variants of operators for `sweep_operators.py`: attributes, ranks, opsets, optional inputs.

They are the lines of `operator_variants.txt`, which says what these mean.
"""

from __future__ import annotations

import ast
import itertools
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper

Array = np.ndarray[Any, np.dtype[Any]]


class Case(NamedTuple):
    """A model of one operator, and its inputs by name."""

    name: str
    model: Any
    inputs: dict[str, Any]


def read_sections() -> dict[str, list[str]]:
    """Return the lines of each section of the table."""
    sections: dict[str, list[str]] = {}
    for line in Path(__file__).with_suffix(".txt").read_text().splitlines():
        if found := re.fullmatch(r"\[(\w+)\]", line):
            lines = sections.setdefault(found[1], [])
        elif line and not line.startswith("#"):
            lines.append(line)
    return sections


SECTIONS = read_sections()
FIELDS = dict(line.split(" ", 1) for line in SECTIONS["fields"])


def fill(section: str, fields: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of a section, filled in."""
    return (line.format(**{**FIELDS, **fields}) for line in SECTIONS[section])


# All ways to resize.
WAYS = (
    *("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"),
    *("tf_half_pixel_for_nn", "half_pixel_symmetric"),
)
MODES = (
    "mode=linear",
    "mode=cubic cubic_coeff_a=-0.75/-0.5 exclude_outside=0/1",
    "mode=nearest nearest_mode=round_prefer_floor/round_prefer_ceil/floor/ceil",
)

# The number of gates, activations of its own with their parameters, and its switch.
KINDS = {
    "RNN": (1, ["Affine"], [0.5], [0.1], "clip=0.2"),
    "GRU": (3, ["HardSigmoid", "ScaledTanh"], [0.3, 1.1], [0.4, 0.7], "linear_before_reset=1"),
    "LSTM": (4, ["HardSigmoid", "LeakyRelu", "Elu"], [0.3, 0.2, 0.5], [0.4], "input_forget=1"),
}


def lines() -> Iterator[str]:
    """Yield the lines of all tables, filled in."""
    yield from fill("plain", {})
    for sizes, kernel in (([9], [3]), ([7, 8], [3, 2]), ([5, 6, 5], [2, 3, 2])):
        n = len(sizes)
        odd, pads = str([1, 0, 1, 1, 0, 0][: 2 * n]), str([1] * 2 * n)
        shapes = {"x": [1, 2, *sizes], "w": [4, 2, *kernel], "half": [2, 1, *kernel]}
        lists = {"one": [1] * n, "two": [2] * n, "three": [3] * n, "k": kernel}
        fields = {name: str(each) for name, each in lists.items()}
        fields |= {name: "x".join(map(str, each)) for name, each in shapes.items()}
        fields |= {"t": "x".join(map(str, [2, 3, *kernel])), "odd": odd, "pads": pads}
        fields |= {
            "some": f"pads={[0] * 2 * n}/{odd}/{pads}",
            "double": str([2 * s for s in sizes]),
        }
        yield from fill("images", {name: it.replace(" ", "") for name, it in fields.items()})
    for way, mode in itertools.product(WAYS, MODES):
        yield from fill("resizes", {"way": f"coordinate_transformation_mode={way} {mode}"})
    for kind, direction in itertools.product(KINDS, ("forward", "reverse", "bidirectional")):
        gates, names, alphas, betas, switch = KINDS[kind]
        n = 2 if direction == "bidirectional" else 1
        own = f"activations={names * n} activation_alpha={alphas * n} activation_beta={betas * n}"
        is_lstm = kind == "LSTM"
        fields = {
            "kind": kind,
            "w": f"{n}x{2 * gates}x4",
            "r": f"{n}x{2 * gates}x2",
            "b": f"{n}x{4 * gates}",
            "h": f"{n}x3x2",
            "state": f"-/{n}x3x2 -/{n}x6" if is_lstm else "",
            "batch": f"3x{n}x2 3x{n}x2" if is_lstm else f"3x{n}x2",
            "outputs": ">3" if is_lstm else ">2",
            "own": own.replace(", ", ","),
            "switch": switch,
            "direction": f"direction={direction}",
        }
        yield from fill("recurrent", fields)


def variants() -> Iterator[Case]:
    """Yield all variants, the same ones each time."""
    for line in lines():
        first, versions, *words = line.split()
        outputs = next((int(word[1:]) for word in words if word[0] == ">"), 1)
        inputs = [word.split("/") for word in words if "=" not in word and word[0] != ">"]
        given = [word.partition("=") for word in words if "=" in word]
        choices = [first.split("/"), versions[1:].split("/"), *inputs]
        choices += [value.split("/") for _, _, value in given]
        for kind, version, *rest in itertools.product(*choices):
            names = [name for name, _, _ in given]
            attributes = dict(zip(names, map(read_value, rest[len(inputs) :]), strict=True))
            name = " ".join([f"{kind}@{version}", *rest[: len(inputs)]])
            name += "".join(f" {key}={value}" for key, value in attributes.items())
            yield make_case(name, kind, int(version), rest[: len(inputs)], attributes, outputs)


def read_value(text: str) -> Any:
    """Return a number, a list, or the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        names = text.strip("[]'").split("','")
        return names if text.startswith("[") else text


def make_case(
    name: str, kind: str, opset: int, words: Sequence[str], attributes: Any, outputs: int
) -> Case:
    """Return a model of one node, and random numbers that hang on its name alone."""
    random = np.random.RandomState(zlib.crc32(name.encode()) % (1 << 31))
    arrays = [read_input(word, random) for word in words]
    while arrays and arrays[-1] is None:
        arrays.pop()
    fed = {f"i{at}": each for at, each in enumerate(arrays) if each is not None}
    names = ["" if each is None else f"i{at}" for at, each in enumerate(arrays)]
    given = [f"o{at}" for at in range(outputs)]
    infos = [
        helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(it.dtype), it.shape)
        for key, it in fed.items()
    ]
    domain, _, operator = kind.rpartition(":")
    domain = "ai.onnx.ml" if domain else ""
    attributes = {key: value for key, value in attributes.items() if value != []}
    node = helper.make_node(operator, names, given, domain=domain, **attributes)
    results = [onnx.ValueInfoProto(name=each) for each in given]
    graph = helper.make_graph([node], kind, infos, results)
    opsets = [helper.make_opsetid("", 17 if domain else opset)]
    opsets += [helper.make_opsetid(domain, opset)] if domain else []
    return Case(name, helper.make_model(graph, ir_version=8, opset_imports=opsets), fed)


def read_input(word: str, random: np.random.RandomState) -> Array | None:
    """Return an input: random numbers of a shape, or values with their type."""
    if word == "-":
        return None
    if word[0].isdigit() or word == "s":
        shape = () if word == "s" else tuple(map(int, word.split("x")))
        return np.asarray(random.standard_normal(shape), np.float32)
    return np.asarray(ast.literal_eval(word[2:]), word[:2])
