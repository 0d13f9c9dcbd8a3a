"""Dumps that a text describes."""

from __future__ import annotations

import re
import zlib
from dataclasses import replace
from typing import Any

import numpy as np

from lar.dumps import Dump
from lar.records.run import Quantization
from tests.comparison.handmade import Step, dump_of
from tests.dumps.blocked_tensors import to_blocked
from tests.known import known

STEP = re.compile(r"(?P<name>\S+) = (?P<type>\w+)(?P<words>.*) : (?P<shape>\S+) (?P<value>\S+)")
VALUE = re.compile(
    r"([\w-]+?)(?:([*~>])([-\d.e]+))?(?:@(\w+)(?:,([\d.e-]+),(-?\d+))?)?(%?)(?:/(\w+))?"
)
STORED = {"Quantized8Asymm": "uint8", "QuantizedS8": "int8", "int4": "int8", "uint4": "uint8"}


def dump_in(text: str) -> Dump:
    """Make a dump of steps such as `y = Elemwise x w mode=ADD : 2x3 a`, with `; ` between them.

    Behind the colon stand a shape and a value. Equal words are equal numbers, `a*2` is twice as
    much, `a~0.1` adds noise, and `a>0` is clipped. `a@int8,0.1,3` is rounded to integers with that
    scale and zero point, and a `%` behind it makes real numbers of them again. `a@int8` has a type
    alone, and `a/nchw8c` has a layout. The dump lacks the tensor of `-`. Parts without a colon are
    facts of the index.
    """
    parts = text.split("; ")
    facts = dict(part.split(" = ") for part in parts if " : " not in part)
    dump = dump_of(*(step_in(part) for part in parts if " : " in part))
    index = replace(
        dump.index,
        outputs=tuple(facts.get("outputs", "").split()),
        model_sha256=facts.get("model", ""),
        operators=() if "without" in facts else dump.index.operators,
    )
    return Dump("drawn", index, lambda tensor: dump.read(tensor.key))


def step_in(text: str) -> Step:
    name, type, words, sizes, value = known(STEP.fullmatch(text)).groups()
    given = [word.partition("=") for word in words.split()]
    inputs = tuple(word for word, sign, _ in given if not sign)
    parameters: dict[str, Any] = {word: told for word, sign, told in given if sign}
    label, change, amount, dtype, scale, zero, real, layout = known(VALUE.fullmatch(value)).groups()
    shape = tuple(map(int, re.findall(r"\d+", sizes)))
    array, noise = (
        np.random.default_rng(zlib.crc32(it.encode())).standard_normal(shape, np.float32)
        for it in (label, value)
    )
    array *= (float(amount) if change == "*" else 1) * (label != "zero")
    array += noise * (float(amount) if change == "~" else 0)
    array = array.clip(float(amount)) if change == ">" else array
    stored, quantization = np.dtype(STORED.get(dtype, dtype)), None
    if scale:
        quantization = Quantization(scale=(float(scale),), zero_point=(int(zero),))
        limits = np.iinfo(stored)
        array = (np.rint(array / float(scale)) + int(zero)).clip(limits.min, limits.max)
    if real:
        array, stored, quantization = (array - int(zero)) * float(scale), np.dtype("f4"), None
    array = array.astype(stored if dtype else "f4")
    array = to_blocked(array, layout) if layout else array
    return Step(
        name,
        type,
        inputs,
        array,
        layout or "",
        parameters,
        dtype if dtype and not real else "",
        quantization,
        hidden=label == "-",
    )
