"""The toy engine's driver and how it honours options."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper, version_converter
from onnx.reference import ReferenceEvaluator

from lar.dumps.recording import Layer, dump_layers, number_outputs, write_outputs
from lar.engines.driver import Driver
from lar.engines.option_rows import Drivers, OptionRow
from lar.errors import UsageError
from lar.measurement.machine import installed_version
from lar.options import table
from lar.records.profile import ProfiledOperator
from lar.records.run import EngineFacts, ModelInfo, TensorInfo

from .cache import BEGINNING, read_cache
from .profile import ToyProfiler

Array = np.ndarray[Any, Any]

# The evaluator lacks some operators as they were before.
OPSET = 19


class ReferenceDriver(Driver):
    """A model that onnx's reference evaluator computes, on the calling thread."""

    name = "reference"

    def facts(self) -> EngineFacts:
        return EngineFacts(
            name="toy", version=installed_version("lar_toy"), driver=self.name, device="cpu"
        )

    def load(self) -> None:
        self.fire_hooks("before_load")
        self.model = self.read_cached() or self.convert()
        self.evaluator = ReferenceEvaluator(self.model)
        self.steps = [step_of(node) for node in self.model.graph.node]
        self.seen_ns: dict[str, list[int]] = {}
        self.fire_hooks("after_load")

    def read_cached(self) -> Any:
        """Return the model in the cache that is given, None if it has to be converted."""
        path = table.FAST_RUN_ALGO_POLICY.of(self.spec.settings)
        if path is None or table.FAST_RUN.of(self.spec.settings):
            return None
        return onnx.load_model_from_string(read_cache(path))

    def convert(self) -> Any:
        opset = int(self.properties.get("opset", OPSET))
        model = version_converter.convert_version(load_model(self.spec.model), opset)
        if path := table.FAST_RUN_ALGO_POLICY.of(self.spec.settings):
            Path(path).write_bytes(BEGINNING + model.SerializeToString())
        return model

    def inputs(self) -> tuple[TensorInfo, ...]:
        return tuple(info_of(each) for each in self.model.graph.input)

    def feed(self, arrays: Mapping[str, Array]) -> None:
        self.fed = dict(arrays)
        self.start = self.compute_each if self.profiler else self.compute
        self.wait = bool
        self.fire_hooks("before_run")

    def compute(self) -> None:
        self.results = self.evaluator.run(None, self.fed)

    def compute_each(self) -> dict[str, Array]:
        """Compute the operators one after the other, each with its time; return all tensors."""
        known = {it.name: numpy_helper.to_array(it) for it in self.model.graph.initializer}
        known.update(self.fed)
        opsets = {"": self.evaluator.opsets[""]}
        for name, _, node in self.steps:
            began = time.perf_counter_ns()
            fed = {each: known[each] for each in node.input if each}
            given = ReferenceEvaluator(node, opsets=opsets).run(None, fed)
            known.update(zip(node.output, map(np.asarray, given), strict=True))
            self.seen_ns.setdefault(name, []).append(time.perf_counter_ns() - began)
        self.results = [known[each.name] for each in self.model.graph.output]
        return known

    def read_means(self) -> list[int]:
        """Return the mean time of each operator, in nanoseconds."""
        return [sum(taken) // len(taken) for taken in self.seen_ns.values()]

    def outputs(self) -> Mapping[str, Array]:
        return dict(zip(self.evaluator.output_names, self.results, strict=True))


def load_model(path: str | Path) -> Any:
    """Load a model of either format."""
    content = Path(path).read_bytes()
    try:
        model = onnx.load_model_from_string(content.removeprefix(b"toy model\n"))
        onnx.checker.check_model(model)
    except Exception as error:
        raise UsageError(f"not a model: {str(error).splitlines()[0]}", subject=path) from None
    return model


def step_of(node: Any) -> tuple[str, str, Any]:
    """Return the name of an operator, its type and the operator."""
    return node.name or node.output[0], node.op_type, node


def info_of(value: Any) -> TensorInfo:
    """Describe an input or output; an axis that the model leaves open takes any size."""
    tensor = value.type.tensor_type
    return TensorInfo(
        name=value.name,
        dtype=helper.tensor_dtype_to_np_dtype(tensor.elem_type).name,
        shape=tuple(axis.dim_value or None for axis in tensor.shape.dim),
    )


def read_model(path: Path) -> ModelInfo:
    graph = load_model(path).graph
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


def record_operators(driver: ReferenceDriver, value: object) -> None:
    operators = [ProfiledOperator(id=it, type=kind, name=it) for it, kind, _ in driver.steps]
    driver.profiler = ToyProfiler(operators, driver.read_means, times="mean")
    driver.start = driver.compute_each


def dump_tensors(driver: ReferenceDriver, value: object) -> None:
    """Write what each operator gives."""
    known = driver.compute_each()
    layers = (
        Layer(name, kind, node.input, {each: known[each] for each in node.output})
        for name, kind, node in driver.steps
    )
    dump_layers(driver, driver.fed, layers, driver.evaluator.output_names)


def dump_outputs(driver: ReferenceDriver, value: object) -> None:
    write_outputs(driver, number_outputs(driver.evaluator.output_names))


REFERENCE: Drivers[ReferenceDriver] = Drivers(("reference",))

ROWS: tuple[OptionRow[Any, Any], ...] = (
    OptionRow(table.CPU, REFERENCE, "NumPy"),
    OptionRow(table.THREAD, REFERENCE, "each has an evaluator of its own"),
    OptionRow(table.ENGINE_OPTION, REFERENCE, "opset=N, which the model is converted to"),
    OptionRow(table.FAST_RUN, REFERENCE, "converts the opset"),
    OptionRow(table.FAST_RUN_ALGO_POLICY, REFERENCE, "holds the converted model"),
    OptionRow(table.PROFILE, REFERENCE, "each operator's mean", before_run=record_operators),
    OptionRow(table.PROFILE_RAW, REFERENCE, "JSON of its own", before_run=record_operators),
    OptionRow(table.VERBOSE, REFERENCE, "nothing more", before_load=show_nothing_more),
    *(
        OptionRow(each, REFERENCE, "each operator", before_run=dump_tensors)
        for each in (table.BIN_IO_DUMP, *table.TEXT_DUMPS)
    ),
    OptionRow(table.BIN_OUT_DUMP, REFERENCE, "the outputs", before_run=dump_outputs),
)
