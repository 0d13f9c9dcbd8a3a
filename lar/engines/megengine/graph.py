"""The graph driver, which runs MegEngine's computing graph and reports the device's own time.

The driver uses functions of `megengine.core.tensor.megbrain_graph` and of
`megengine.utils.comp_graph_tools` in MegEngine 1.13.

MegEngine's checkers are plugins of the graph that inspect each operator during its execution. The
checkers are C++ objects without a Python interface. For each checker, lar allocates memory and
calls the C++ constructor, which attaches the checker to the graph. A checker is never destroyed,
since the graph lives until the process ends. The source files of the checkers are
src/plugin/impl/{num_range,var_value,cpu_dispatch}_checker.cpp in MegEngine.
"""

from __future__ import annotations

import ctypes
import io
import logging
import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from ctypes import c_char_p, c_void_p
from typing import Any, Literal

import numpy as np

from lar.engines.engine import Isolation
from lar.engines.megengine.driver import MegEngineDriver, import_package, info_of
from lar.engines.megengine.model_file import CONSTANTS, INPUT
from lar.engines.megengine.operator_kinds import FACTS
from lar.engines.megengine.packed_model import graph_in
from lar.engines.megengine.symbols import (
    another_build,
    attach_plugin,
    find_function,
    graph_class,
    pointer_at,
)
from lar.errors import CheckFailed, LarError
from lar.records.run import TensorInfo

Array = np.ndarray[Any, Any]

# The number of an operator in a name that MegEngine made up; lite numbers operators differently.
NUMBER = re.compile(r"\[\d+\]")

# CompNode::DeviceType::CPU
CPU = 2
SET_DEFAULT_DEVICE_TYPE = "_ZN3mgb8CompNode7Locator22set_unspec_device_typeENS0_10DeviceTypeE"


def import_megengine() -> Any:
    """Import megengine, with the CPU as default device even if the machine has a GPU.

    Raises:
        EngineMissing: megengine is not installed, or does not load on this machine.
    """
    megengine = import_package("megengine")
    find_function("--driver graph", SET_DEFAULT_DEVICE_TYPE, [ctypes.c_int])(CPU)
    return megengine


class GraphDriver(MegEngineDriver):
    """A driver with a loaded computing graph, which is compiled for the shapes of the inputs."""

    name: Literal["graph"] = "graph"
    calls = {
        "forward": "AsyncExecutable.execute",
        "wait": "AsyncExecutable.wait",
        "outputs": "OutputNode.get_value",
    }

    def set_up(self) -> None:
        self.megengine = self.package = import_megengine()
        from megengine.core.tensor import megbrain_graph
        from megengine.utils import comp_graph_tools

        self.graph_api: Any = megbrain_graph
        self.tools: Any = comp_graph_tools
        self.input_vars: dict[str, Any] = {}
        self.output_vars: list[Any] = []
        self.output_nodes: dict[str, Any] = {}
        self._values: dict[str, Any] = {}
        self._tensors: dict[str, Any] = {}
        self._nodes: dict[str, Any] = {}
        self._started = self.is_verbose = False
        # The hooks of the options set these attributes.
        self.inference_options: dict[str, bool] | None = None
        self.graph_setup: list[Callable[[Any], None]] = []
        self.optimize_options: int | None = None  # a code of the optimisations made
        self.dispatch_check: Any = None

    def set_log_level_verbose(self) -> None:
        self.megengine.logger.set_mgb_log_level(logging.DEBUG)
        self.is_verbose = True

    def close(self) -> None:
        if self.is_verbose:
            # A thread of MegEngine writes its log; without this call the last lines would be lost.
            self.megengine.core._imperative_rt.core2.sync()

    def load(self) -> None:
        self.fire_hooks("before_load")
        with self.recorder.call("load_graph"):
            self.loaded = self.graph_api.load_graph(io.BytesIO(graph_in(self.model_file)))
        self.graph = self.loaded.graph
        for set_up in self.graph_setup:
            set_up(self.graph)
        self.output_vars = list(self.loaded.output_vars_list)
        self.output_names = [var.name for var in self.output_vars]
        # Operators are numbered in the order of the file, until the graph is optimised.
        order = [var.name for var in sorted(self.find_inputs(), key=lambda var: var.owner.id)]
        if self.inference_options is not None:
            optimized, self.optimize_options = self.graph_api.optimize_for_inference(
                self.output_vars, **self.inference_options
            )
            self.output_vars = list(optimized)
        found = {var.name: var for var in self.find_inputs()}
        self.input_vars = {name: found[name] for name in order if name in found}
        self.fire_hooks("after_load")

    def find_inputs(self) -> list[Any]:
        """Return the variables that are inputs, in the order of a walk back from the outputs."""
        return list(self.tools.get_dep_vars(self.output_vars, INPUT))

    def inputs(self) -> tuple[TensorInfo, ...]:
        return tuple(
            info_of(name, var.dtype, map(int, var.shape)) for name, var in self.input_vars.items()
        )

    def feed(self, arrays: Mapping[str, Array]) -> None:
        for name, array in arrays.items():
            with self.recorder.copy("Tensor", array.nbytes, name):
                tensor = self.megengine.Tensor(array, dtype=array.dtype, device="xpux")
                self._tensors[name] = tensor._dev_tensor()
        if self.note_shapes(arrays) or not self.output_nodes:
            self._compile(arrays)
        self.rearm = self.rearm or self._arm
        self.start, self.wait = self.function.execute, self.function.wait
        self.device_seconds = self.function.get_prev_exec_time
        self.fire_hooks("before_run")

    def _compile(self, arrays: Mapping[str, Array]) -> None:
        """Compile the function that computes outputs from inputs with the shapes of `arrays`."""
        fed = {}
        for name, array in arrays.items():
            node = self._nodes[name] = self.input_node("xpux", array.dtype, array.shape)
            fed[self.input_vars[name]] = node.outputs[0]
            node.outputs[0].name = name  # for reports; MegEngine's own name is made up
        replaced = self.tools.replace_vars(self.output_vars, fed)
        output_nodes = [self.graph_api.OutputNode(var) for var in replaced]
        self.output_nodes = dict(zip(self.output_names, output_nodes, strict=True))
        with self.recorder.call("Graph.compile"):
            self.function = self.graph.compile([node.outputs[0] for node in output_nodes])
        self._started = False

    def input_node(self, device: Any, dtype: Any, shape: tuple[int, ...]) -> Any:
        """Return a new input node of the graph, which can be fed with values."""
        return self.graph_api.InputNode(
            device=device, dtype=dtype, shape=shape, graph=self.graph, use_static_shape=True
        )

    def _arm(self) -> None:
        # An execution consumes the inputs, and each output must be taken before the next execution;
        # otherwise the engine waits forever.
        if self._started:
            self._take_outputs()
        self._started, self._values = True, {}
        for name, node in self._nodes.items():
            node.set_value(self._tensors[name])

    def _take_outputs(self) -> dict[str, Any]:
        if not self._values:
            self._values = {name: node.get_value() for name, node in self.output_nodes.items()}
        return self._values

    def outputs(self) -> Mapping[str, Array]:
        return {name: value.numpy() for name, value in self._take_outputs().items()}


# Computes single tensors from given values of earlier tensors.
#
# The graph is the loaded graph after the optimisation that the options ask for. MegEngine fuses
# more operators when it compiles a graph, and it does so for each part of the graph too.


class GraphIsolation(Isolation):
    """Computes single tensors of a driver's graph from given values of other tensors."""

    def __init__(self, driver: GraphDriver) -> None:
        driver.load()
        # Each part of the graph is executed once, and this check would double the time of that.
        driver.graph.options.var_sanity_check_first_run = False
        self.driver = driver
        self.variables: dict[str, Any] = {}
        self.alike: defaultdict[str, list[Any]] = defaultdict(list)
        self.places: dict[Any, int] = {}  # in the order of execution
        for operator in driver.tools.get_oprs_seq(driver.output_vars, False, False):
            for variable in operator.outputs:
                self.variables.setdefault(variable.name, variable)
                self.alike[NUMBER.sub("", variable.name)].append(variable)
                self.places[variable] = len(self.places)

    def candidates(self, name: str) -> Sequence[Any]:
        """Return the variables that a name may mean.

        A name may mean several variables if their names differ only in numbers that MegEngine has
        added.
        """
        own = [self.variables[name]] if name in self.variables else []
        found = self.alike.get(NUMBER.sub("", name), [])
        return own if own and (len(found) != 1 or not NUMBER.search(name)) else found

    def variable(self, name: str) -> Any:
        """Return the variable that a name means.

        Raises:
            LarError: no variable has this name, or several variables may be meant.
        """
        found = self.candidates(name)
        if len(found) == 1:
            return found[0]
        several = "several variables of the graph may be this tensor"
        raise LarError(several if found else "the graph has no such tensor", subject=name)

    def find_missing(self, names: Collection[str]) -> set[str]:
        return {name for name in names if len(self.candidates(name)) != 1}

    def compute(self, output: str, values: Mapping[str, Array]) -> Array:
        api, tools, graph = self.driver.graph_api, self.driver.tools, self.driver.graph
        replaced = self.variable(output)
        taken = {self.variable(name): array for name, array in values.items()}
        nodes = {
            variable: self.driver.input_node(variable.comp_node, variable.dtype, array.shape)
            for variable, array in taken.items()
        }
        # Replace one at a time, the last first, as one variable may be computed from another.
        for variable in sorted(nodes, key=self.places.__getitem__, reverse=True):
            (replaced,) = tools.replace_vars([replaced], {variable: nodes[variable].outputs[0]})
        # The engine would wait for these inputs for ever.
        for missing in tools.get_dep_vars([replaced], "Host2DeviceCopy"):
            raise LarError(f"the tensor depends on {missing.name}, whose value is unknown")
        sink = api.OutputNode(replaced)
        function = graph.compile([sink.outputs[0]])
        for variable, array in taken.items():
            # A quantised type is an integer type with a scale.
            typed = np.asarray(array, order="C").view(variable.dtype)
            tensor = self.driver.megengine.Tensor(typed, dtype=variable.dtype, device="xpux")
            nodes[variable].set_value(tensor._dev_tensor())
        function.execute()
        function.wait()
        found: Array = sink.get_value().numpy()
        return found


# The checkers


RANGE = "_ZN3mgb15NumRangeCheckerC1EPNS_2cg14ComputingGraphEf"
VALUE = "_ZN3mgb15VarValueCheckerC1EPNS_2cg14ComputingGraphEmm"
DISPATCH = "_ZN3mgb18CPUDispatchCheckerC1EPNS_2cg14ComputingGraphE"

NO_KERNEL = {*CONSTANTS, *FACTS.moves["no kernel"]}
UNDISPATCHED = re.compile(rb"^operator (.*)\{(\w+)\} does not dispatch kernel on ", re.M)


def check_range(driver: GraphDriver, limit: float) -> None:
    """Have an execution fail if a value is NaN, or if its absolute value is not below a limit."""
    driver.graph_setup.append(lambda graph: attach("--range", RANGE, graph, ctypes.c_float(limit)))


def check_values(driver: GraphDriver, interval: str) -> None:
    """Have an execution fail if a variable has another value than in the first execution.

    `interval` is a text of the form `I` or `I:J`. With `I:J`, the check begins with variable number
    J. With `I` alone, the check begins with the first variable. Each variable is checked in I
    executions before the next variable is checked.
    """
    executions, _, first = interval.partition(":")
    numbers = [ctypes.c_size_t(int(text or 0)) for text in (executions, first)]
    driver.graph_setup.append(lambda graph: attach("--check-var-value", VALUE, graph, *numbers))


def check_dispatch(driver: GraphDriver, _: bool) -> None:
    """Begin to look for operators that start no kernel on their device."""

    driver.graph_setup.append(lambda graph: setattr(driver, "dispatch_check", DispatchCheck(graph)))


def collect_at_each_run(driver: GraphDriver, _: bool) -> None:
    """Collect the checker's messages before each execution, outside the timed region."""
    rearm, collect = driver.rearm, driver.dispatch_check.collect
    assert rearm is not None
    driver.rearm = lambda: (collect(), rearm())


def attach(flag: str, constructor: str, graph: Any, *arguments: Any) -> None:
    """Make a plugin and attach it to a graph.

    Raises:
        UsageError: this build of MegEngine does not have the plugin.
    """
    attach_plugin(flag, constructor, address_of(flag, graph), *arguments)


def address_of(flag: str, graph: Any) -> int:
    """Return the address of the C++ graph that a Python graph contains.

    The pointer to the C++ graph follows the header of the Python object (pybind11's `instance`). A
    C++ graph is recognised by its first field, the address of the virtual functions of its class.

    Raises:
        UsageError: this build of MegEngine does not have a graph at that address.
    """
    address = pointer_at(id(graph) + object.__basicsize__)
    if pointer_at(address) != graph_class(flag):
        raise another_build(flag, "graph where it should be")
    return address


class DispatchCheck:
    """Finds the operators that start no kernel on their device.

    If an operator starts no kernel, the checker prints the operator's name to C's standard error.
    C's standard error is redirected to a file in memory. Before each execution, lar reads the file
    in memory, passes its content on to standard error, and empties the file.
    """

    def __init__(self, graph: Any) -> None:
        """Attach the checker to a graph.

        Raises:
            UsageError: this build of MegEngine does not have the checker.
        """
        attach("--check-dispatch", DISPATCH, graph)
        # The engine's sanity check of the first execution copies values, which would hide operators
        # without a kernel.
        graph.options.var_sanity_check_first_run = False
        self.found: dict[str, None] = {}  # in the order found
        self.file = os.memfd_create("what the engine prints")
        self.c = ctypes.CDLL(None)
        self.c.fdopen.argtypes, self.c.fdopen.restype = [ctypes.c_int, c_char_p], c_void_p
        self.c.fclose.argtypes = [c_void_p]
        self.stream = c_void_p.in_dll(self.c, "stderr")
        self.standard_error = self.stream.value
        self.stream.value = self.c.fdopen(self.file, b"a")

    def collect(self) -> None:
        """Read the checker's messages, and pass them on to standard error."""
        self.c.fflush(None)
        printed = os.pread(self.file, os.fstat(self.file).st_size, 0)
        os.ftruncate(self.file, 0)
        os.write(2, printed)
        for name, kind in UNDISPATCHED.findall(printed):
            if kind.decode() not in NO_KERNEL:
                self.found[f"{name.decode(errors='replace')} ({kind.decode()})"] = None

    def finish(self) -> None:
        """End the check, and report the operators that start no kernel.

        Raises:
            CheckFailed: an operator started no kernel on its device.
        """
        self.collect()
        printing, self.stream.value = self.stream.value, self.standard_error
        self.c.fclose(printing)
        if self.found:
            first, *others = self.found
            more = f", nor do {len(others)} more" if others else ""
            problem = f"operator {first} gives the CPU no kernel to run{more}"
            hint = "it computes while it is dispatched, or has nothing to compute"
            raise CheckFailed(problem, hint, flag="--check-dispatch")
