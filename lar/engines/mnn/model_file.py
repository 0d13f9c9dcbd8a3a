"""Reads the operators and tensors of an `.mnn` file without MNN.

The file is a FlatBuffers table. This module reads the fields of tables by their numbers, which are
in MNN's schema (`schema/default/MNN.fbs` in MNN's sources). This module does not check files as
thoroughly as MNN does when it loads them.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from itertools import chain
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lar.dumps import DumpedOperator
from lar.engines.flatbuffer import Table, open_root
from lar.engines.formats import BROKEN
from lar.engines.operator_facts import facts_beside
from lar.errors import UsageError
from lar.files.input_file import open_input
from lar.graphs import Steps

if TYPE_CHECKING:
    from lar.graphs.origins import ModelOperator

FACTS = facts_beside(__file__)
CONVOLUTIONS = ("Convolution", "ConvolutionDepthwise", "Deconvolution", "DeconvolutionDepthwise")

# The operators whose result depends only on shapes.
OF_SHAPES = ("Shape", "Rank", "Size")
# The number of the parameters of a loop, which has operators of its own.
LOOP = 92
# The operators whose result differs in each run.
UNSTEADY = ("RandomUniform", "RandomNormal")


class NetOperator(NamedTuple):
    """An operator with the names of its tensors.

    `elements` is the number of elements in the operator's weights.
    """

    name: str
    type: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parameters: dict[str, Any]
    elements: int


class Net(NamedTuple):
    """A model: its operators in the order of the file, its outputs, and the shapes of its inputs.

    In a shape, the size of an open axis is -1.
    """

    operators: tuple[NetOperator, ...]
    outputs: tuple[str, ...]
    inputs: dict[str, tuple[int, ...]]

    def computed(self) -> list[NetOperator]:
        """Return the operators whose results depend on the inputs.

        Conversions of a layout, which change no value, are left out. An operator that reads the
        output of a conversion is returned with the conversion's input instead.
        """
        data, found = {*self.inputs}, []
        plain: dict[str, str] = {}
        for each in self.operators:
            taken = tuple(plain.get(name, name) for name in each.inputs)
            if (data.isdisjoint(taken) and each.type not in UNSTEADY) or each.type in OF_SHAPES:
                continue
            data.update(each.outputs)
            if each.type == "ConvertTensor" and each.outputs[0] not in self.outputs:
                plain[each.outputs[0]] = taken[0]
            else:
                found.append(each._replace(inputs=taken))
        return found


def read_net(path: Path) -> Net:
    """Read the operators, inputs and outputs of an `.mnn` file.

    Raises:
        UsageError: the file is damaged, or is not an `.mnn` file.
        OSError: the file cannot be read.
    """
    try:
        root = root_of(path)
        tables, names = [*root.tables(3)], [*root.texts(7)]
        operators = tuple(operator_of(each, names) for each in tables)
        inputs = {
            name: tuple(main.numbers(0, "<i")) if (main := each.table(2)) else ()
            for each, operator in zip(tables, operators, strict=True)
            if operator.type == "Input"
            for name in operator.outputs
        }
        return Net(operators, tuple(root.texts(4)), inputs)
    except (ValueError, LookupError) as error:
        raise damaged(path) from error


def root_of(path: Path) -> Table:
    """Return the table of a file, which is mapped into memory.

    Raises:
        ValueError: the file is empty, or cut short.
        OSError: the file cannot be read.
    """
    with open_input(path) as file:
        return open_root(memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)))


def operators_in(root: Table) -> Iterator[Table]:
    """Yield the operators of a file, with those of subgraphs and loops."""
    for operator in chain(root.tables(3), *(graph.tables(4) for graph in root.tables(10))):
        yield operator
        if operator.integer(1, "<B") == LOOP:
            for place in (6, 7):
                yield from (command.table(0) for command in operator.table(2).tables(place))


def files_beside(path: Path) -> tuple[str, ...]:
    """Return the name of the separate weight file, if the converter has written such a file.

    Raises:
        UsageError: the file is damaged, or an operator names a file, which MNN would read from any
        folder.
    """
    try:
        named = next(filter(None, (each.text(7) for each in operators_in(root_of(path)))), "")
    except ValueError as error:
        raise damaged(path) from error
    if named:
        problem = f"an operator names the file {named!r}, which MNN would read from any folder"
        raise UsageError(problem, "convert the model again", subject=path)
    weights = path.name + ".weight"
    return (weights,) if path.with_name(weights).exists() else ()


def read_operators(path: Path) -> tuple[ModelOperator, ...]:
    """Return the operators of an `.mnn` file with the names of their tensors.

    Raises:
        LarError: the file is damaged.
    """
    from lar.graphs.origins import ModelOperator  # a run without a dump needs no names

    operators = read_net(path).operators
    return tuple(ModelOperator(it.type, it.name, it.inputs, it.outputs) for it in operators)


def damaged(path: str | Path) -> UsageError:
    """Return the error for a file that is not an MNN model, or that is a damaged MNN model."""
    return UsageError("this is not an MNN model, or it is damaged", BROKEN, subject=path)


def operator_of(table: Table, names: list[str]) -> NetOperator:
    """Make an operator from its table in the file, without inputs that are left out (number -1)."""
    number = table.integer(5, "<i")
    kind, main = FACTS.numbers.get(str(number), f"operator {number}"), table.table(2)
    common = main.table(0) if main and kind in CONVOLUTIONS else None
    parameters: dict[str, Any] = {}
    elements = 0
    if main and kind in FACTS.modes:
        parameters = {"mode": dict(enumerate(FACTS.modes[kind])).get(main.integer(0, "<i"), "")}
    elif main and kind == "Pooling" and not main.integer(2, "<B"):
        parameters = {"stride": [main.integer(6), main.integer(5)]}
    elif main and kind == "Const":
        count, is_real = prod(main.numbers(0)), main.integer(2, default=1) == 1
        elements = count if is_real and count > 1 else 0  # a single number is not a weight
    elif main and common:
        parameters, elements = describe_convolution(main, common)
    return NetOperator(
        name=table.text(3),
        type=kind,
        inputs=tuple(names[at] for at in table.numbers(0, "<i") if at >= 0),
        outputs=tuple(names[at] for at in table.numbers(4)),
        parameters=parameters,
        elements=elements,
    )


def describe_convolution(main: Table, common: Table) -> tuple[dict[str, Any], int]:
    """Return the parameters of a convolution, and the number of its weights."""
    width, height, group = (common.integer(at, default=1) for at in (2, 3, 9))
    outputs, inputs = common.integer(10), common.integer(11)
    activations = [name for at, name in ((12, "relu"), (13, "clip")) if common.integer(at, "<B")]
    parameters = {
        "kernel": [height, width],
        "stride": [common.integer(5, default=1), common.integer(4, default=1)],
        "group": group,
        "bias": any(bits % (1 << 31) for bits in main.numbers(2)),  # not 0.0 and not -0.0
        "activation": "".join(activations),
    }
    return parameters, outputs * height * width * max(inputs // group, 1) + outputs


# Facts about MNN's operators: their kinds, in words for all engines, and their FLOPs.
#
# Types for training, for other frameworks and of older versions are left out. If windows of a
# pooling overlap, each element counts only once.


def steps_by_mode(operator: DumpedOperator) -> Steps:
    """Return the steps that an operator's parameters name; empty if they name no steps."""
    known = operator.parameters
    if "activation" in known:
        heavy = "deconv" if operator.type.startswith("Deconv") else "conv"
        return tuple(
            filter(None, (heavy, "bias" if known.get("bias") else "", known["activation"]))
        )
    return (known["mode"],) if known.get("mode") else ()


KINDS = FACTS.operator_kinds(steps_by_mode=steps_by_mode)
