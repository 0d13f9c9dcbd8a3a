"""Variants of operators for `sweep_operators.py`: attributes, ranks, opsets, optional inputs.

Each line of `operator_variants.txt` describes variants; the comment in this file explains its
lines.
"""

from __future__ import annotations

import ast
import itertools
import re
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from network import Array
from onnx import helper
from tables import read_sections


class Case(NamedTuple):
    """A model of one operator, and its inputs by name."""

    name: str
    model: Any
    inputs: dict[str, Any]


SECTIONS = read_sections(__file__)
FIELDS = dict(line.split(" ", 1) for line in SECTIONS["fields"])


def lines() -> Iterator[str]:
    """Yield the lines of all tables, with the fields in braces filled in."""
    for section in ("plain", "images", "resizes", "recurrent"):
        for given in SECTIONS.get(f"fields of {section}", [""]):
            own = dict(re.findall(r"(\w+)=(.*?)(?: \| |$)", given))
            yield from (line.format(**{**FIELDS, **own}) for line in SECTIONS[section])


def variants() -> Iterator[Case]:
    """Yield all variants; each call yields the same variants."""
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
    """Return the value of a text: a number, a list, or the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text.strip("[]'").split("','") if text.startswith("[") else text


def make_case(
    name: str, kind: str, opset: int, words: Sequence[str], attributes: Any, outputs: int
) -> Case:
    """Return a model of one node, with random inputs that depend only on `name`."""
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
    """Return the input that a word describes: random numbers of a shape, or given values."""
    if word == "-":
        return None
    if word[0].isdigit() or word == "s":
        shape = () if word == "s" else tuple(map(int, word.split("x")))
        return np.asarray(random.standard_normal(shape), np.float32)
    return np.asarray(ast.literal_eval(word[2:]), word[:2])
