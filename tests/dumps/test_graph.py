"""The graph of a dump, from names alone: operators, their order, and what is blocked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lar.dumps import DumpedOperator, DumpedTensor, DumpFacts, DumpIndex, Kernel, OperatorFact
from lar.dumps.binary import TensorHeader, Variable, format_name, read_header, write_tensor
from lar.dumps.graph import index_of, with_quantizations
from lar.records.run import Quantization
from tests.tables import each_row


class Folder:
    """A folder of dumped tensors, as MegEngine would write them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.next_id = 0

    def add(
        self,
        kind: str,
        shape: Sequence[int],
        inputs: Sequence[Variable] = (),
        *,
        form: str = "",
        number: int | None = None,
        file: str = "",
    ) -> Variable:
        """Write what an operator gives."""
        number = self.next_id if number is None else number
        self.next_id = max(self.next_id, number + 2)
        variable = Variable(
            id=number + 1,
            shape=tuple(shape),
            format=form,
            operator=f"{kind.lower()}[{number}]",
            operator_type=kind,
            name=f"v{number}",
        )
        path = self.path / (file or f"{variable.id:06x}")
        write_tensor(path, np.zeros(shape, np.float32), format_name(variable, inputs))
        return variable

    def headers(self) -> list[TensorHeader]:
        return [read_header(path) for path in sorted(self.path.iterdir())]

    def layouts(self, facts: DumpFacts | None = None) -> dict[str, str]:
        index = index_of(self.headers(), facts or DumpFacts())
        return {tensor.name: tensor.layout for tensor in index.tensors}


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


# Order and edges


def test_operators_have_their_tensors_and_edges(folder: Folder) -> None:
    data = folder.add("Host2DeviceCopy", (1, 3))
    weight = folder.add("ImmutableTensor", (3, 2))
    product = folder.add("MatrixMul", (1, 2), [data, weight])
    undumped = Variable(id=99, stored=False, operator="shape[98]", operator_type="Concat")
    folder.add("Reshape", (2,), [product, undumped])
    index = index_of(folder.headers())
    assert [tensor.name for tensor in index.tensors] == ["v0", "v2", "v4", "v6"]
    multiply, reshape = index.operators[2:]
    assert (multiply.type, multiply.name) == ("MatrixMul", "matrixmul[4]")
    assert (multiply.inputs, multiply.outputs) == (("000001", "000003"), ("000005",))
    assert reshape.inputs == ("000005", "var99")
    assert [operator.constant for operator in index.operators] == [False, True, False, False]
    assert index.tensors[2].operator == multiply.key


def test_the_order_is_that_of_the_numbers_as_far_as_the_graph_allows(folder: Folder) -> None:
    late = folder.add("Host2DeviceCopy", (1,), number=50)
    folder.add("Elemwise", (1,), [late], number=10)
    folder.add("Elemwise", (1,), [late], number=30)
    folder.add("Host2DeviceCopy", (1,), number=20)
    index = index_of(folder.headers())
    assert [tensor.name for tensor in index.tensors] == ["v50", "v10", "v20", "v30"]


def test_the_engines_order_and_parameters_come_first(folder: Folder) -> None:
    data = folder.add("Host2DeviceCopy", (1,))
    folder.add("Elemwise", (1,), [data])
    folder.add("Elemwise", (1,), [data])
    facts = [OperatorFact(0, {}), OperatorFact(4, {"mode": "RELU"}), OperatorFact(2, {})]
    index = index_of(folder.headers(), DumpFacts(facts))
    assert [tensor.name for tensor in index.tensors] == ["v0", "v4", "v2"]
    assert [operator.parameters for operator in index.operators] == [{}, {"mode": "RELU"}, {}]


def test_an_algorithm_is_that_of_the_type_and_the_shapes(folder: Folder) -> None:
    data = folder.add("Host2DeviceCopy", (1, 3, 8, 8))
    weights = folder.add("ImmutableTensor", (4, 3, 3, 3))
    for kind, shape in (("Conv", (1, 4, 8, 8)), ("Conv", (1, 4, 4, 4)), ("Pool", (1, 4, 8, 8))):
        folder.add(kind, shape, [data, weights])
    kernel = Kernel("Conv", ((1, 3, 8, 8), (4, 3, 3, 3), (1, 4, 8, 8)))
    index = index_of(folder.headers(), DumpFacts(algorithms={kernel: "DIRECT"}))
    assert [operator.algorithm for operator in index.operators[2:]] == ["DIRECT", "", ""]


def test_an_operator_with_several_outputs_is_one(folder: Folder) -> None:
    data = folder.add("Host2DeviceCopy", (4,))
    first = Variable(id=8, shape=(2,), operator="split[7]", operator_type="Split")
    for variable in (first, replace(first, id=9, slot=1)):
        name = format_name(variable, [data])
        write_tensor(folder.path / f"{variable.id:06x}", np.zeros(2, np.float32), name)
    index = index_of(folder.headers())
    assert [operator.outputs for operator in index.operators][1:] == [("000008", "000009")]
    assert [tensor.slot for tensor in index.tensors] == [0, 0, 1]


def test_operators_that_wait_for_each_other_are_there_all_the_same(folder: Folder) -> None:
    one = Variable(id=1, shape=(1,), operator="a[0]", operator_type="Elemwise")
    other = replace(one, id=3, operator="b[2]")
    for variable, taken in ((one, other), (other, one)):
        path = folder.path / f"{variable.id:06x}"
        write_tensor(path, np.zeros(1, np.float32), format_name(variable, [taken]))
    assert len(index_of(folder.headers()).operators) == 2


def test_the_outputs_of_each_run_are_apart(folder: Folder) -> None:
    """load_and_run also writes a space before the number, by version."""
    for run, file in zip((0, 9, 10), ("run0-var 7", "run9-var7", "run10-var7"), strict=True):
        data = Variable(id=1, stored=False, operator="h2d[0]", operator_type="Host2DeviceCopy")
        folder.add("Elemwise", (run + 1,), [data], number=6, file=file)
    index = index_of(folder.headers())
    runs = [(tensor.run, tensor.shape) for tensor in index.tensors]
    assert runs == [(0, (1,)), (9, (10,)), (10, (11,))]
    assert len({operator.key for operator in index.operators}) == 3


def test_names_of_another_kind_are_kept_as_they_are(folder: Folder) -> None:
    write_tensor(folder.path / "a", np.zeros((2, 2), np.float32), "what I saw")
    (tensor,) = index_of(folder.headers()).tensors
    assert (tensor.name, tensor.shape, tensor.operator) == ("what I saw", (2, 2), "")


# Layouts


@each_row("dumps/layouts/convolutions")
def test_a_convolution_that_gives_five_axes_is_blocked(
    folder: Folder, layout: str, weight: list[int], form: str, shape: list[int], sparse: str
) -> None:
    """With filters of all channels, of a plain input, of groups, and of each channel alone."""
    facts = DumpFacts([OperatorFact(number, {"sparse": sparse}) for number in range(0, 10, 2)])
    data = folder.add("Host2DeviceCopy", (1, 1, 8, 8))
    weights = folder.add("ImmutableTensor", weight)
    made = folder.add("ConvBiasForward", shape, [data, weights])
    relu = folder.add("Elemwise", shape, [made])
    folder.add("Dimshuffle", (*shape[:2], shape[-1], *shape[2:4]), [relu])
    assert folder.layouts(facts) == {"v0": "", "v2": form, "v4": layout, "v6": layout, "v8": ""}


def test_what_goes_into_a_blocked_convolution_is_blocked(folder: Folder) -> None:
    plain = folder.add("Host2DeviceCopy", (1, 3, 8, 8))
    padded = folder.add("RelayoutFormat", (1, 1, 8, 8, 4), [plain])
    weights = folder.add("ImmutableTensor", (64, 1, 3, 3, 4))
    bias = folder.add("ImmutableTensor", (1, 2, 1, 1, 32))
    folder.add("ConvBiasForward", (1, 2, 8, 8, 32), [padded, weights, bias])
    found = folder.layouts()
    assert found == {"v0": "", "v2": "nchw4", "v4": "oIhw4i", "v6": "nchw32", "v8": "nchw32"}


def test_a_video_is_not_blocked(folder: Folder) -> None:
    video = folder.add("Host2DeviceCopy", (1, 4, 8, 8, 4))
    weights = folder.add("ImmutableTensor", (4, 4, 3, 3, 3))
    made = folder.add("Convolution3DForward", (1, 4, 8, 8, 4), [video, weights])
    folder.add("Elemwise", (1, 4, 8, 8, 4), [made])
    assert set(folder.layouts().values()) == {""}


def test_what_the_engine_says_of_a_tensor_is_taken(folder: Folder) -> None:
    folder.add("RelayoutFormat", (1, 8, 1, 8, 4), form="I2D{2,1}")
    folder.add("SharedDeviceTensorWithFormat", (4, 3, 3, 4, 4), form="I2D{3,1}")
    folder.add("Conv", (1, 2, 8, 8, 16), form="NCHWC{16}")
    folder.add("Conv", (1, 2, 8, 8, 7), form="NCHWC{16}")
    assert folder.layouts() == {"v0": "nhwcd4", "v2": "", "v4": "nchw16c", "v6": ""}


@each_row("dumps/layouts/formats")
def test_the_format_in_an_operators_parameters_is_taken(
    folder: Folder, text: str, before: str, after: str
) -> None:
    taken = folder.add("RelayoutFormat", (1, 2, 8, 8, 4))
    weights = folder.add("ImmutableTensor", (9, 9, 3, 3, 9))
    folder.add("ConvBiasForward", (1, 4, 8, 8, 4), [taken, weights])
    facts = [OperatorFact(0, {}), OperatorFact(2, {}), OperatorFact(4, {"format": text})]
    layouts = [tensor.layout for tensor in index_of(folder.headers(), DumpFacts(facts)).tensors]
    assert layouts == [before, "", after]


HALF = Quantization(scale=(0.5,))
ROWS = Quantization(scale=(0.5, 1.0), axis=-1)


def tensor(name: str, dtype: str = "int8", shape: tuple[int, ...] = (2, 2)) -> DumpedTensor:
    return DumpedTensor(key=name, name=name, dtype=dtype, shape=shape)


def operator(kind: str, inputs: str, output: str) -> DumpedOperator:
    return DumpedOperator(
        key=output, name=output, type=kind, inputs=tuple(inputs.split()), outputs=(output,)
    )


def followed(
    tensors: list[DumpedTensor], operators: list[DumpedOperator], **known: Quantization
) -> dict[str, Quantization]:
    index = DumpIndex(tensors=tuple(tensors), operators=tuple(operators))
    given = with_quantizations(index, DumpFacts(quantizations=known))
    return {it.key: it.quantization for it in given.tensors if it.quantization}


def test_what_moves_integers_keeps_their_scale_on_and_back() -> None:
    tensors = [tensor(name) for name in "abcd"]
    moves = [operator(*it.split()) for it in ("Reshape a b", "MaxPool b c", "Add c d")]
    assert followed(tensors, moves, b=HALF) == {"a": HALF, "b": HALF, "c": HALF}


def test_what_is_joined_has_a_scale_if_all_have_the_same() -> None:
    tensors = [tensor(name) for name in "abc"]
    join = [operator("Concat", "a b", "c")]
    assert "c" not in followed(tensors, join, a=HALF, b=Quantization(scale=(0.25,)))
    assert followed(tensors, join, a=HALF, b=HALF)["c"] == HALF
    assert followed(tensors, join, a=HALF) == {"a": HALF}


def test_an_axis_is_counted_from_the_first_and_fits_the_shape() -> None:
    for axis, found in ((-3, None), (-2, 0), (-1, 1), (0, 0), (1, 1), (2, None)):
        given = followed([tensor("a")], [], a=replace(ROWS, axis=axis))
        assert [it.axis for it in given.values()] == ([] if found is None else [found])
    assert followed([tensor("a", shape=(2, 3))], [], a=ROWS) == {}
    # Where the rows are after a move is not followed.
    moved = [tensor("a"), tensor("b")]
    assert set(followed(moved, [operator("Transpose", "a", "b")], a=ROWS)) == {"a"}


def test_numbers_have_no_scale() -> None:
    tensors = [tensor("a", "float32"), tensor("b", "int64"), tensor("c"), tensor("d", "bool")]
    moves = [operator("Gather", "c", "b"), operator("Gather", "c", "d")]
    assert followed(tensors, moves, a=HALF, c=HALF) == {"c": HALF}
    # A cast to real numbers is a move, and what it takes is no integer.
    assert followed([tensors[0], tensors[2]], [operator("Cast", "a", "c")], c=HALF) == {"c": HALF}


def test_weights_without_their_names_have_those_of_the_models_operator() -> None:
    tensors = [tensor(name, "QuantizedS8") for name in ("x", "fuse():w", "y")]
    conv = operator("ConvBiasForward", "x fuse():w", "y")
    facts = DumpFacts(quantizations={"w": HALF, "y": HALF}, operands={"y": ("x", "w")})
    index = DumpIndex(tensors=tuple(tensors), operators=(conv,))
    given = {it.name: it.quantization for it in with_quantizations(index, facts).tensors}
    assert given == {"x": None, "fuse():w": HALF, "y": HALF}
