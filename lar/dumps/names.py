"""The names inside MegEngine's dump files: a variable, the operator that gave it, its inputs.

    var={id:15, layout:{1(16384),16(1024),32(32),32(1) Float32}, Float32,
    owner:conv(data,c0.weight)[14]{ConvolutionForward}, name:c0.Convolution, slot:0,
    CompNode("cpu0:0" from "cpu0:0"), s, 4, 1} owner_opr_inputs=0={id:9, ...} 1={id:11, ...}

in one line, as mgb::cg::dump_var_info writes it. With one input the `0=` is left out, and a
variable without storage has `shape:{2}` in place of the layout. load_and_run's bin-out-dump
writes a space before the inputs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from operator import mul
from typing import NamedTuple

from lar.records.record import Record

# This follows the name of a sequence or a map in the name of one of its elements.
ELEMENT = re.compile(r"\[[^][]*\]$")

HEAD = re.compile(
    r"\{id:(?P<id>\d{1,19}), (?P<kind>layout|shape):\{(?P<axes>[\d(),-]*)"
    r"(?: @ (?P<format>\w+\{[\d,]*\}))?(?: \w+)?\}, (?P<dtype>\w+), owner:"
)
TAIL = re.compile(
    r", slot:(\d{1,9}), (?:CompNode\(\"[^\"]*\"(?: from \"[^\"]*\")?\)|[\w:]*)"
    r", [sd], \d{1,9}, \d{1,9}\}"
)
AXIS = re.compile(r"(\d{1,19})(?:\(-?\d{1,19}\))?(?:,|$)")
OWNER_END = re.compile(r"\{([^{}]*)\}, name:")
INPUTS = re.compile(r" owner_opr_inputs= ?(?=\{id:\d|0=\{id:\d|$)")
NEXT_INPUT = re.compile(r" \d{1,9}=(?=\{id:\d)")
MOST_ATTEMPTS = 100  # to find where a part ends, since names may contain separators


class Variable(Record):
    """A variable of the engine's graph.

    `shape` is that of the array; a variable that is not `stored` has at most a shape. `format` is
    that of a tensor that is not a plain array, as `I2D{2,1}`. `operator` and `operator_type` are
    those of the operator whose output number `slot` it is.
    """

    id: int
    shape: tuple[int, ...] = ()
    stored: bool = True
    format: str = ""
    dtype: str = "Float32"
    operator: str = ""
    operator_type: str = ""
    name: str = ""
    slot: int = 0

    @property
    def operator_id(self) -> int:
        """The number of the operator, after which the engine numbers the outputs in their order."""
        return self.id - 1 - self.slot


class Numbering:
    """The variables of a graph by name, in MegEngine's numbering: an operator, then its outputs."""

    def __init__(self, fed: Iterable[str]) -> None:
        self.variables: dict[str, Variable] = {}
        self._next_id = 0
        self.add_constants(fed, "Input")

    def add_node(self, kind: str, name: str, inputs: Iterable[str], outputs: Sequence[str]) -> None:
        """Number the inputs that have no number yet, then the operator and its outputs.

        Inputs or outputs that are left out have empty names.
        """
        self.add_constants(filter(None, inputs))
        number = self._next_id
        for slot, output in enumerate(outputs):
            if output:
                self.variables[output] = Variable(
                    id=number + 1 + slot,
                    operator=f"{name or kind}[{number}]",
                    operator_type=kind,
                    name=output,
                    slot=slot,
                    stored=False,
                )
        self._next_id += 1 + len(outputs)

    def add_constants(self, names: Iterable[str], kind: str = "Initializer") -> None:
        """Number the tensors that have no number yet."""
        for name in names:
            if name not in self.variables:
                self.add_node(kind, name, (), [name])

    def add_part(self, whole: str, name: str) -> None:
        """Number a part of an operator's output, after all numbers so far."""
        variable = self.variables[whole]
        slot = self._next_id - 1 - variable.operator_id
        self.variables[name] = replace(variable, id=self._next_id, name=name, slot=slot)
        self._next_id += 1


class DumpedName(NamedTuple):
    """The meaning of a dumped tensor's name."""

    variable: Variable
    inputs: tuple[Variable, ...] = ()


def parse_name(text: str) -> DumpedName | None:
    """Parse a name; return None for a name of another kind.

    Names of variables and operators may contain any characters, even separators. If several
    readings are possible, the operator's number decides, as most operators' names end with it.
    """
    if not text.startswith("var="):
        return None
    # From the end: names come before the separator, and before the end of a variable.
    for separator in reversed([*INPUTS.finditer(text)][-MOST_ATTEMPTS:]):
        variable = parse_variable(text[len("var=") : separator.start()])
        inputs = parse_inputs(text[separator.end() :])
        if variable is not None and inputs is not None:
            return DumpedName(variable, inputs)
    return None


def parse_inputs(text: str) -> tuple[Variable, ...] | None:
    """Parse the inputs of an operator, None if the text is something else."""
    if not text:
        return ()
    text = f"0={text}" if text.startswith("{") else text
    variables: list[Variable] = []
    begin, failures = len("0="), 0
    ends = [found.span() for found in NEXT_INPUT.finditer(text)]
    for end, following in (*ends, (len(text), len(text))):
        if variable := parse_variable(text[begin:end]):
            variables.append(variable)
            begin, failures = following, 0
        elif (failures := failures + 1) > MOST_ATTEMPTS:  # no engine wrote this name
            break
    return tuple(variables) if begin == len(text) else None


@lru_cache(maxsize=4096)  # most variables come again as inputs
def parse_variable(text: str) -> Variable | None:
    """Parse a variable, None if the text is something else or several variables."""
    head = HEAD.match(text)
    tail = TAIL.fullmatch(text, max(text.rfind(", slot:"), 0))
    if head is None or tail is None or tail.start() < head.end():
        return None
    number, slot = int(head["id"]), int(tail[1])
    body = text[head.end() : tail.start()]
    owner_ends = [*OWNER_END.finditer(body)]
    certain = (it for it in owner_ends if body[: it.start()].endswith(f"[{number - 1 - slot}]"))
    owner_end = next(certain, owner_ends[0] if owner_ends else None)
    if owner_end is None:
        return None
    return Variable(
        id=number,
        shape=tuple(map(int, AXIS.findall(head["axes"]))),
        stored=head["kind"] == "layout",
        format=head["format"] or "",
        dtype=head["dtype"],
        operator=body[: owner_end.start()],
        operator_type=owner_end[1],
        name=body[owner_end.end() :],
        slot=slot,
    )


def format_name(variable: Variable, inputs: Sequence[Variable] = ()) -> str:
    """Format the name of a dumped tensor as the engine does."""
    taken = [format_variable(each) for each in inputs]
    if len(taken) > 1:
        taken = [f"{index}={text}" for index, text in enumerate(taken)]
    return f"var={format_variable(variable)} owner_opr_inputs={' '.join(taken)}"


def format_variable(variable: Variable) -> str:
    return (
        f"{{id:{variable.id}, {format_layout(variable)}, {variable.dtype}, "
        f"owner:{variable.operator}{{{variable.operator_type}}}, name:{variable.name}, "
        f"slot:{variable.slot}, , s, 4, 1}}"
    )


def format_layout(variable: Variable) -> str:
    """Format a layout with its strides in elements, or a shape for a variable without storage.

    The last axis comes first in memory.
    """
    if not variable.stored:
        return f"shape:{{{','.join(map(str, variable.shape))}}}"
    strides = accumulate((max(size, 1) for size in variable.shape[:0:-1]), mul, initial=1)
    axes = [
        f"{size}({stride})" for size, stride in zip(variable.shape[::-1], strides, strict=False)
    ]
    kind = f" @ {variable.format}" if variable.format else ""
    return f"layout:{{{','.join(axes[::-1])}{kind} {variable.dtype}}}"
