"""Unpacks and writes MegEngine's files of testcases.

The module `lar.datasets.testcases` describes the format of the files. In the model's graph, each
output is an input of an assertion (operator AssertEqual). Another input of the assertion, with the
name `NAME:expect`, is the expected value. lar itself checks the outputs: before the run, lar
removes the assertions from the model. So the assertions cost no time, and do not change what the
model computes.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lar.datasets.testcases import BROKEN, HEADER, MAGIC, graphs_in
from lar.engines.megengine.driver import explain_megengine
from lar.engines.megengine.graph import Array, GraphDriver, import_megengine
from lar.engines.megengine.graph_operators import open_graph
from lar.engines.megengine.model_dump import metadata_of, write_graph
from lar.engines.megengine.model_file import INPUT, model_outputs, quantised_name, shape_of
from lar.engines.megengine.symbols import load_library
from lar.errors import UsageError, first_line
from lar.options.table import C_OPR_LIB
from lar.records.run import Case, Expected, Packing, RunContext, RunSpec

EXPECT = ":expect"
ASSERTION = "AssertEqual"
ASSERTION_KIND = 56

COMPARED = ("float32", "float16", "int32", "int16", "int8", "uint8")  # by an assertion

Arrays = Mapping[str, Array]


def unpack(spec: RunSpec, context: RunContext) -> tuple[str, tuple[Case, ...]]:
    """Write the model and the testcases of the run's model file into the work folder.

    Returns:
        The path of the model, and the testcases with the paths of their files.

    Raises:
        UsageError: the file is damaged.
        EngineMissing: MegEngine is not installed.
    """
    import_megengine()
    if C_OPR_LIB.is_given(spec.settings):
        load_library(str(spec.settings[C_OPR_LIB.key]))
    data = Path(spec.model).read_bytes()
    first, *others = (data[begin:end] for begin, end in graphs_in(spec.model))
    try:
        return unpack_graphs(Path(context.work_folder), first, others)
    # A damaged file causes an error of the engine, or has names and numbers that make no sense.
    except (RuntimeError, ValueError, LookupError) as error:
        problem = f"its testcases are damaged: {first_line(error)}"
        damage = UsageError(problem, BROKEN, subject=spec.model)
        raise explain_megengine(str(error), spec.model, loading=True) or damage from error


def unpack_graphs(
    folder: Path, first: bytes, others: Sequence[bytes]
) -> tuple[str, tuple[Case, ...]]:
    """Write a model and testcases into a folder.

    The model is in the first graph, and the testcases are in the other graphs.
    """
    from megengine.core.tensor import megbrain_graph
    from megengine.utils import comp_graph_tools

    loaded = megbrain_graph.load_graph(io.BytesIO(first))
    variables = list(loaded.output_vars_list)
    printed = tuple(map(format_variable, variables))
    outputs = model_outputs(variables)
    asserted = {
        name: variable.owner
        for (name, _), variable in zip(outputs, variables, strict=True)
        if variable.owner.type == ASSERTION
    }
    # Operators are numbered in the order of the file.
    in_file = sorted(asserted, key=lambda name: asserted[name].id)
    checks = dict(zip(in_file, checks_in(first), strict=True))
    # The names are read first, as writing the model renames the inputs' operators.
    expected = [
        Expected(file="", output=name, name=owner.name, id=owner.id, limit=limit, shown=shown)
        for name, owner in asserted.items()
        for limit, shown in [checks[name]]
    ]
    names = sorted(variable.name for variable in comp_graph_tools.get_dep_vars(variables, INPUT))
    model = folder / "model.mge"
    if asserted:
        write_graph(model, outputs, metadata_of(loaded, None))
    else:
        model.write_bytes(first)
    cases = []
    for number, content in enumerate(others):
        values = values_in(content)
        if len(values) != len(names):
            raise ValueError(f"number {number} holds {len(values)} tensors for {len(names)} inputs")
        files = {name: str(folder / f"{number}-{at}.npy") for at, name in enumerate(names)}
        for file, value in zip(files.values(), values, strict=True):
            np.save(file, value)
        # An input for an assertion alone holds the expected value.
        wanted = tuple(replace(it, file=files.pop(it.output + EXPECT)) for it in expected)
        fed = tuple(files.items())
        name = f"testcase {number}"
        cases.append(Case(name=name, inputs=fed, expected=wanted, variables=printed))
    return str(model), tuple(cases)


def format_variable(variable: Any) -> str:
    """Return an output as load_and_run prints it; an assertion is printed without a shape."""
    shape = () if variable.owner.type == ASSERTION else shape_of(variable) or ()
    return f"{variable.name}{{{','.join(map(str, shape))}}}"


def values_in(content: bytes) -> list[Array]:
    """Return the values of a graph whose outputs are constants."""
    from megengine.core.tensor import megbrain_graph

    values = []
    for variable in megbrain_graph.load_graph(io.BytesIO(content)).output_vars_list:
        if variable.value is not None:
            values.append(np.asarray(variable.value))
            continue
        # A constant on the device has to be computed before it can be read.
        node = megbrain_graph.OutputNode(variable)
        function = variable.graph.compile([node.outputs[0]])
        function.execute()
        function.wait()
        values.append(node.get_value().numpy())
    return values


def checks_in(graph: bytes) -> Iterator[tuple[float, bool]]:
    """Yield the assertions of a model's graph, in the order of the file.

    An assertion is given as two values: the error that the assertion allows, and whether the
    assertion prints the error in each run. The file leaves out a field that has its default value.
    In MegEngine 1.13, the fields of AssertEqual are defined in dnn/scripts/opr_param_defs.py.
    """
    opened = open_graph(memoryview(graph))
    for operator in opened.operators:
        if opened.kind_of(operator) == ASSERTION_KIND:
            parameters = opened.parameters_of(operator)
            limit = parameters.real(0)
            usual = float(np.float32(1e-4))
            yield usual if limit is None else limit, bool(parameters.integer(1, "<B"))


def write_testcases(driver: GraphDriver, cases: Sequence[tuple[Arrays, Arrays]], path: str) -> None:
    """Write a file with the model of a loaded graph driver and with testcases.

    A testcase is given as its inputs and its outputs.

    Raises:
        UsageError: an output has a type that MegEngine's assertion does not compare.
    """
    from megengine.utils import comp_graph_tools

    packing = driver.context.packing
    assert packing is not None
    outputs = list(zip(driver.output_names, driver.output_vars, strict=True))
    written = [dict(fed) for fed, _ in cases]
    if packing.asserts:
        for (_, gave), values in zip(cases, written, strict=True):
            values.update({name + EXPECT: gave[name] for name, _ in outputs})
        asserted = [add_assertion(*output, cases[0][1], packing) for output in outputs]
        outputs = [(variable.name, variable) for variable in asserted]
    graph = Path(path).with_suffix(".graph")
    write_graph(graph, outputs, metadata_of(driver.loaded, driver.optimize_options))
    inputs = comp_graph_tools.get_dep_vars([variable for _, variable in outputs], INPUT)
    dtypes = {variable.name: variable.dtype for variable in inputs}
    with open(path, "wb") as file:
        file.write(HEADER.pack(MAGIC, len(cases)))
        file.write(graph.read_bytes())
        for values in written:
            file.write(graph_of([(values[name], dtypes[name]) for name in sorted(dtypes)]))


def add_assertion(name: str, variable: Any, values: Arrays, packing: Packing) -> Any:
    """Add an assertion to an output, and return the variable of the assertion.

    Raises:
        UsageError: the output has a type that MegEngine's assertion cannot compare.
    """
    from megengine.core import _imperative_rt
    from megengine.core.ops.builtin import AssertEqual
    from megengine.core.tensor import megbrain_graph

    kind = quantised_name(variable.dtype) or np.dtype(variable.dtype).name
    if kind not in COMPARED:
        problem = f"output {name} is {kind}, which MegEngine's assertion does not compare"
        raise UsageError(problem, "with --no-assert, lar packs only the inputs")
    fed = _imperative_rt.CompNode("xpux"), variable.dtype, values[name].shape
    expected = _imperative_rt.make_h2d(variable.graph, *fed, name + EXPECT)
    operator = AssertEqual(maxerr=packing.max_error, verbose=packing.verbose)
    (assertion,) = megbrain_graph.apply_normal_varnode(operator, expected, variable)
    return assertion


def graph_of(constants: Sequence[tuple[Array, Any]]) -> bytes:
    """Return the bytes of a graph whose outputs are given values, each with a type of MegEngine."""
    from megengine import Tensor
    from megengine.core.tensor import megbrain_graph

    graph = megbrain_graph.Graph()
    tensors = [Tensor(value, dtype=dtype, device="cpux") for value, dtype in constants]
    variables = [graph.make_const(tensor._dev_tensor()) for tensor in tensors]
    content: bytes = megbrain_graph.dump_graph(variables)[0]
    return content
