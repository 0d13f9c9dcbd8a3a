"""The names of dumped tensors: what MegEngine writes is taken apart, whatever names it holds."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lar.dumps.names import DumpedName, Variable, format_name, parse_name

# From MegEngine 1.13: a convolution, an operator of one input, one in a blocked layout whose
# operator has a name of its own, a model's input, weights of an image format.
CONVOLUTION = (
    "var={id:13, layout:{1(1024),16(64),8(8),8(1) Float32}, Float32, "
    "owner:conv(data,conv1.weight)[12]{ConvolutionForward}, name:Convolution[0], slot:0, "
    'CompNode("cpu:default" from "cpu:default"), s, 4, 1} '
    "owner_opr_inputs=0={id:9, layout:{1(64),1(64),8(8),8(1) Float32}, Float32, "
    'owner:h2d[8]{Host2DeviceCopy}, name:data, slot:0, CompNode("cpu:default" from '
    '"cpu:default"), s, 4, 4} 1={id:11, layout:{16(9),1(9),3(3),3(1) Float32}, Float32, '
    "owner:const{16,1,3,3}[10]{ImmutableTensor}, name:conv1.weight, slot:0, "
    'CompNode("cpu:default" from "cpu:default"), s, 2, 2}'
)
SPLIT = (
    "var={id:8, layout:{1(2),2(1) Float32}, Float32, owner:split(RELU)[6]{Split}, "
    'name:Split:o1, slot:1, CompNode("cpu0:0" from "xpux:0"), s, 4, 4} '
    "owner_opr_inputs=0={id:3, layout:{1(4),4(1) Float32}, Float32, owner:RELU(data)[2]{Elemwise}, "
    'name:RELU, slot:0, CompNode("cpu0:0" from "xpux:0"), s, 4, 4} '
    "1={id:5, shape:{1}, Int32, owner:const{1}[4]{ImmutableTensor}, name:const<2>[4], slot:0, "
    'CompNode("cpu0:0" from "xpux:0"), s, 2, 2}'
)
FUSED = (
    "var={id:594, layout:{4(36),3(12),3(4),1(4),4(1) QuantizedS8}, QuantizedS8, "
    "owner:fuse():dimshuffle(const{4,4,1,3,3}[122])[124]@125{ImmutableTensor}, "
    "name:fuse():dimshuffle(const{4,4,1,3,3}[122])[124]@125, slot:0, "
    'CompNode("cpu:default" from "cpu:default"), s, 2, 2} owner_opr_inputs='
)
IMAGE = (
    "var={id:160, layout:{1(512),4(128),8(16),4(4),4(1) @ I2D{2,1} QuantizedS8}, QuantizedS8, "
    "owner:pooling(conv2)[159]{PoolingForward}, name:pool2, slot:0, "
    'CompNode("cpu:default" from "cpu:default"), s, 4, 1} owner_opr_inputs={id:157, '
    "layout:{1(2048),8(256),8(32),8(4),4(1) @ I2D{2,1} QuantizedS8}, QuantizedS8, "
    "owner:conv_bias(conv1,fuse[92]@93,fuse[95]@96)[156]{ConvBiasForward}, name:conv2, slot:0, "
    'CompNode("cpu:default" from "cpu:default"), s, 4, 1}'
)
# load_and_run writes a space before the inputs of an output.
CPP_OUTPUT = CONVOLUTION.replace("owner_opr_inputs=", "owner_opr_inputs= ")


def parsed(text: str) -> DumpedName:
    found = parse_name(text)
    assert found is not None
    return found


@pytest.mark.parametrize("text", [CONVOLUTION, SPLIT, FUSED, IMAGE])
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
