"""The toy engine's driver and how it honours options."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, version_converter
from onnx.reference import ReferenceEvaluator

from lar.dumps.binary import BY_DTYPE, write_tensor
from lar.dumps.names import Variable, format_name
from lar.engines.driver import Driver
from lar.engines.option_rows import Drivers, OptionRow
from lar.options.table import BIN_IO_DUMP, BIN_OUT_DUMP, CPU, VERBOSE
from lar.records.facts import EngineFacts
from lar.records.run import ModelInfo, TensorInfo

Array = np.ndarray[Any, Any]

# The evaluator lacks some operators as they were before.
OPSET = 19


class ReferenceDriver(Driver):
    """A model that onnx's reference evaluator computes, on the calling thread."""

    name = "reference"

    def facts(self) -> EngineFacts:
        return EngineFacts(name="toy", version=onnx.__version__, driver=self.name, device="cpu")

    def load(self) -> None:
        self.fire_hooks("before_load")
        model = onnx.load(self.spec.model)
        self.model = version_converter.convert_version(model, OPSET)
        self.evaluator = ReferenceEvaluator(self.model)
        self.fire_hooks("after_load")

    def inputs(self) -> tuple[TensorInfo, ...]:
        return tuple(info_of(each) for each in self.model.graph.input)

    def feed(self, arrays: Mapping[str, Array]) -> None:
        self.fed = dict(arrays)
        self.start, self.wait = self.compute, bool
        self.fire_hooks("before_run")

    def compute(self) -> None:
        self.results = self.evaluator.run(None, self.fed)

    def outputs(self) -> Mapping[str, Array]:
        return dict(zip(self.evaluator.output_names, self.results, strict=True))


def info_of(value: Any) -> TensorInfo:
    """Describe an input or output; an axis that the model leaves open takes any size."""
    tensor = value.type.tensor_type
    return TensorInfo(
        name=value.name,
        dtype=helper.tensor_dtype_to_np_dtype(tensor.elem_type).name,
        shape=tuple(axis.dim_value or None for axis in tensor.shape.dim),
    )


def read_model(path: Path) -> ModelInfo:
    graph = onnx.load(path).graph
    sizes = [int(np.prod(each.dims)) for each in graph.initializer]
    return ModelInfo(
        engine="toy",
        inputs=tuple(map(info_of, graph.input)),
        outputs=tuple(map(info_of, graph.output)),
        operators=dict(Counter(node.op_type for node in graph.node)),
        parameter_count=sum(sizes),
        weight_bytes=4 * sum(sizes),
        flops=None,
    )


def show_nothing_more(driver: ReferenceDriver, value: object) -> None:
    """The evaluator prints nothing that --verbose could show."""


def dump_tensors(driver: ReferenceDriver, value: object) -> None:
    """Write what each operator gives, with the names that lar's dumps have."""
    folder = Path(driver.context.written["bin_io_dump"])
    folder.mkdir()
    model = onnx.ModelProto()
    model.CopyFrom(driver.model)
    del model.graph.output[:]
    names = [name for node in model.graph.node for name in node.output]
    model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names)
    arrays = dict(zip(names, ReferenceEvaluator(model).run(None, driver.fed), strict=True))
    variables: dict[str, Variable] = {}

    def write(name: str, operator: str, taken: list[str], array: Array | None) -> None:
        number = 2 * len(variables)
        variable = Variable(
            id=number + 1,
            operator=f"{name}[{number}]",
            operator_type=operator,
            name=name,
            stored=array is not None,
        )
        if array is not None:
            variable = replace(
                variable,
                shape=array.shape,
                dtype=BY_DTYPE[array.dtype.name].name,
            )
            inputs = [variables[each] for each in taken if each]
            write_tensor(folder / f"{variable.id:06x}", array, format_name(variable, inputs))
        variables[name] = variable

    for name, array in driver.fed.items():
        write(name, "Input", [], array)
    for each in model.graph.initializer:
        write(each.name, "Initializer", [], None)
    for node in model.graph.node:
        for name in node.output:
            write(name, node.op_type, list(node.input), np.asarray(arrays[name]))


def dump_outputs(driver: ReferenceDriver, value: object) -> None:
    from lar.dumps.outputs import write_outputs

    names = driver.evaluator.output_names
    write_outputs(driver, {name: Variable(id=at, name=name) for at, name in enumerate(names)})


REFERENCE: Drivers[ReferenceDriver] = Drivers(("reference",))

ROWS: tuple[OptionRow[Any, Any], ...] = (
    OptionRow(CPU, REFERENCE, "NumPy"),
    OptionRow(VERBOSE, REFERENCE, "nothing more", before_load=show_nothing_more),
    OptionRow(BIN_IO_DUMP, REFERENCE, "each operator", before_run=dump_tensors),
    OptionRow(BIN_OUT_DUMP, REFERENCE, "the outputs", before_run=dump_outputs),
)
