"""MegEngine's checkers: plugins of its computing graph that look at each operator as it runs.

They are C++ objects that Python has no names for. Each is made in memory of its own and hangs
itself into the graph, which calls it from then on; it is never destroyed, as the graph lives
until the process ends. Their sources are src/plugin/impl/{num_range,var_value,cpu_dispatch}_checker
.cpp in MegEngine.
"""

from __future__ import annotations

import ctypes
import os
import re
from ctypes import c_char_p, c_void_p
from typing import Any

from lar.engines.megengine.graph import GraphDriver
from lar.engines.megengine.model_file import CONSTANTS
from lar.engines.megengine.operator_kinds import FACTS
from lar.engines.megengine.symbols import another_build, attach_plugin, graph_class, pointer_at
from lar.errors import CheckFailed

RANGE = "_ZN3mgb15NumRangeCheckerC1EPNS_2cg14ComputingGraphEf"
VALUE = "_ZN3mgb15VarValueCheckerC1EPNS_2cg14ComputingGraphEmm"
DISPATCH = "_ZN3mgb18CPUDispatchCheckerC1EPNS_2cg14ComputingGraphE"

NO_KERNEL = {*CONSTANTS, *FACTS.moves["no kernel"]}
UNDISPATCHED = re.compile(rb"^operator (.*)\{(\w+)\} does not dispatch kernel on ", re.M)


def check_range(driver: GraphDriver, limit: float) -> None:
    """Have each execution fail when the size of a value is not below a limit, or NaN."""
    driver.graph_setup.append(lambda graph: attach("--range", RANGE, graph, ctypes.c_float(limit)))


def check_values(driver: GraphDriver, interval: str) -> None:
    """Have an execution fail when a variable has another value than in the first one.

    `interval` is `I` or `I:J`: from variable number J on, each is looked at for I executions.
    """
    executions, _, first = interval.partition(":")
    numbers = [ctypes.c_size_t(int(text or 0)) for text in (executions, first)]
    driver.graph_setup.append(lambda graph: attach("--check-var-value", VALUE, graph, *numbers))


def check_dispatch(driver: GraphDriver, _: bool) -> None:
    """Begin to look for operators that give their device no kernel to run."""

    driver.graph_setup.append(lambda graph: setattr(driver, "dispatch_check", DispatchCheck(graph)))


def collect_at_each_run(driver: GraphDriver, _: bool) -> None:
    """Have what was found so far collected before each execution, outside the timed region."""
    rearm, collect = driver.rearm, driver.dispatch_check.collect
    assert rearm is not None
    driver.rearm = lambda: (collect(), rearm())


def attach(flag: str, constructor: str, graph: Any, *arguments: Any) -> None:
    """Make a plugin and hang it into a graph.

    Raises:
        UsageError: this build of MegEngine does not have it.
    """
    attach_plugin(flag, constructor, address_of(flag, graph), *arguments)


def address_of(flag: str, graph: Any) -> int:
    """Return where the C++ graph behind a Python one is.

    The pointer to it follows the header of the Python object (pybind11's `instance`). What it
    leads to begins with the address of its class's virtual functions, which distinguishes a graph
    from anything that another build has there.

    Raises:
        UsageError: the driver has no graph.
    """
    address = pointer_at(id(graph) + object.__basicsize__)
    if pointer_at(address) != graph_class(flag):
        raise another_build(flag, "graph where it should be")
    return address


class DispatchCheck:
    """Finds the operators that give their device no kernel to run.

    The checker only prints their names, at each execution, to C's standard error. That leads to
    a file in memory meanwhile, which is read, passed on and emptied before each execution.
    """

    def __init__(self, graph: Any) -> None:
        """Attach the checker.

        Raises:
            UsageError: this build of MegEngine does not have it.
        """
        attach("--check-dispatch", DISPATCH, graph)
        # Its first execution copies values about to compare them, and would hide what it finds.
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
        """Read what was printed, and pass it on."""
        self.c.fflush(None)
        printed = os.pread(self.file, os.fstat(self.file).st_size, 0)
        os.ftruncate(self.file, 0)
        os.write(2, printed)
        for name, kind in UNDISPATCHED.findall(printed):
            if kind.decode() not in NO_KERNEL:
                self.found[f"{name.decode(errors='replace')} ({kind.decode()})"] = None

    def finish(self) -> None:
        """End the check and report what was found.

        Raises:
            CheckFailed: an operator gave its device no kernel.
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
