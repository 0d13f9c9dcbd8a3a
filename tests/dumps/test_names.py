"""The names of dumped tensors: what MegEngine writes is taken apart, whatever names it holds."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lar.dumps.names import DumpedName, Variable, format_name, parse_name

# From MegEngine 1.13: a convolution, an operator of one input, one in a blocked layout whose
# operator has a name of its own, a model's input, weights of an image format.
BY_MEGENGINE = (Path(__file__).parents[1] / "data" / "megengine_names.txt").read_text().splitlines()
CONVOLUTION = BY_MEGENGINE[0]
# load_and_run writes a space before the inputs of an output.
CPP_OUTPUT = CONVOLUTION.replace("owner_opr_inputs=", "owner_opr_inputs= ")


def parsed(text: str) -> DumpedName:
    found = parse_name(text)
    assert found is not None
    return found


@pytest.mark.parametrize("text", BY_MEGENGINE)
def test_what_megengine_writes_is_understood_to_the_last_letter(text: str) -> None:
    found = parsed(text)
    # lar neither needs nor keeps the device, and how the shape and the value are known.
    places = re.compile(r'(?<=, slot:\d, )CompNode\("[\w:]+" from "[\w:]+"\), s, \d, \d')
    assert format_name(found.variable, found.inputs) == places.sub(", s, 4, 1", text)


def test_the_parts_of_a_convolutions_name() -> None:
    for text in (CONVOLUTION, CPP_OUTPUT):
        variable, (data, weight) = parsed(text).variable, parsed(text).inputs
        assert (variable.id, variable.slot, variable.operator_id) == (13, 0, 12)
        assert variable.shape == (1, 16, 8, 8)
        assert (variable.dtype, variable.name) == ("Float32", "Convolution[0]")
        assert variable.operator == "conv(data,conv1.weight)[12]"
        assert variable.operator_type == "ConvolutionForward"
        assert (data.id, data.name, data.operator_type) == (9, "data", "Host2DeviceCopy")
        assert (weight.name, weight.operator) == ("conv1.weight", "const{16,1,3,3}[10]")


# Names made of what separates the parts, and of anything.
PIECES = ["{", "}", "[", "]", "(", ")", ",", ":", "=", " ", "name", "owner", "slot:0", "var={id:1"]
PIECES += [" owner_opr_inputs=", " 1={id:7, ", "s, 4, 1}", "卷积", "{Elemwise}", '"', "\n"]
names = st.one_of(st.lists(st.sampled_from(PIECES), max_size=8).map("".join), st.text(max_size=12))
types = st.from_regex(r"[A-Z][A-Za-z0-9:]{0,20}", fullmatch=True)


@st.composite
def variables(draw: st.DrawFn) -> Variable:
    slot = draw(st.integers(0, 3))
    number = draw(st.integers(slot + 1, 10**9))
    shape = tuple(draw(st.lists(st.integers(0, 300), max_size=7)))
    stored = draw(st.booleans())
    return Variable(
        id=number,
        shape=shape,
        stored=stored,
        format=draw(st.sampled_from(["", "I2D{2,64}", "LOWBITS{4,8}"])) if stored else "",
        dtype=draw(st.sampled_from(["Float32", "QuantizedS8", "Int64"])),
        # Its end is what tells where the name begins, if the name looks like another operator.
        operator=f"{draw(names)}[{number - 1 - slot}]",
        operator_type=draw(types),
        name=draw(names),
        slot=slot,
    )


@given(variables(), st.lists(variables(), max_size=3))
def test_any_names_survive(variable: Variable, inputs: list[Variable]) -> None:
    assert parse_name(format_name(variable, inputs)) == DumpedName(variable, tuple(inputs))


@given(st.text())
def test_what_is_no_name_is_none(text: str) -> None:
    assert parse_name(text) is None
    parse_name("var=" + text)


def test_a_hostile_name_takes_no_time() -> None:
    began = time.process_time()
    for unit in (" 1={id:1", " owner_opr_inputs={id:1, ", ", slot:0", "{A}, name:"):
        start = "var={id:1, shape:{}, Float32, owner:"
        parse_name((start + unit * (1 << 17))[: 1 << 20])
        inputs = CONVOLUTION.partition(" owner_opr")[0] + " owner_opr_inputs=0={id:1"
        parse_name((inputs + unit * (1 << 17))[: 1 << 20])
    assert time.process_time() - began < 3
