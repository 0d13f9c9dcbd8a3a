"""MegEngine, through megenginelite or through its own computing graph."""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar.engines.engine import ONE_BLAS_THREAD, CasePacker, DriverEntry, Engine, StagedRun
from lar.engines.formats import MEGENGINE
from lar.engines.megengine.lean_import import LITE_LIBRARY
from lar.errors import LarError
from lar.options import table

if TYPE_CHECKING:
    from lar.engines.engine import Deployment, Isolation
    from lar.records.run import RunContext, RunSpec


def find(target: str) -> Any:
    """Import what is named as `module:name`."""
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


lite_driver = partial(find, "lar.engines.megengine.lite:LiteDriver")
graph_driver = partial(find, "lar.engines.megengine.graph:GraphDriver")


def late(target: str) -> Callable[..., Any]:
    """Return a method that is a function of a module, which is imported when it is called."""

    def call(_: object, *arguments: Any) -> Any:
        return find(target)(*arguments)

    return call


def constant(target: str) -> Callable[..., Any]:
    """Return a method that gives a constant of a module, which is imported when it is called."""
    return lambda _: find(target)


class TestcaseFiles(CasePacker):
    """Writes files with testcases in front of the model, as MegEngine's own tool does."""

    driver = "graph"
    writes = "file"
    write = late("lar.engines.megengine.testcases:write_testcases")


class WinogradRun(StagedRun):
    """A run that prefers winograd algorithms, for which it looks at what the engine has chosen."""

    options = (table.WINOGRAD_TRANSFORM,)
    apart_with = table.SEARCHES
    run = late("lar.engines.megengine.winograd:run_with_winograd")


class MegEngine(Engine):
    """MegEngine 1.13."""

    name = "megengine"
    title = "MegEngine"
    distribution = "megengine"
    formats = (MEGENGINE,)
    environment = ONE_BLAS_THREAD
    variable_prefixes = ("MGB_", "MGE_", "MEGENGINE_", "RUNTIME_OVERRIDE_")
    drivers = (
        DriverEntry("lite", "fast to load, the default", lite_driver, LITE_LIBRARY),
        DriverEntry("graph", "the engine's device time", graph_driver),
    )
    searches = table.SEARCHES
    settles = (table.FAST_RUN_ALGO_POLICY, *table.SEARCHES, table.TENSORRT_CACHE)
    isolating_driver = "graph"
    packing = TestcaseFiles()
    staged = WinogradRun()

    cache = property(constant("lar.engines.megengine.cache_files:CACHES"))
    operator_kinds = property(constant("lar.engines.megengine.operator_kinds:KINDS"))
    option_rows = constant("lar.engines.megengine.options:ROWS")
    option_rules = constant("lar.engines.megengine.options:RULES")
    find_devices = late("lar.engines.megengine.lite:find_devices")
    read_model = late("lar.engines.megengine.model_file:read_model")
    read_operators = late("lar.engines.megengine.graph_operators:read_operators")
    read_quantizations = late("lar.engines.megengine.graph_operators:read_quantizations")
    unpack_testcases = late("lar.engines.megengine.testcases:unpack")
    dimensions = late("lar.engines.megengine.dimensions:dimensions_of")
    signs = late("lar.engines.megengine.dimensions:signs_of")
    defects = late("lar.engines.megengine.defects:defects_here")
    hints_for = late("lar.engines.megengine.defects:hints_for")
    explain_log = late("lar.engines.megengine.messages:explain_log")
    settle = late("lar.engines.megengine.algorithms:keep_search")
    describe_progress = late("lar.engines.megengine.algorithms:describe_search")
    describe_dump = late("lar.engines.megengine.dumps:describe_dump")
    writes_profile = late("lar.profiles.megengine_file:is_raw_profile")
    read_profile = late("lar.engines.megengine.profile:profile_of_raw")
    prints_log = late("lar.engines.megengine.load_and_run_log:is_log")
    read_log = late("lar.engines.megengine.load_and_run_log:read_log")

    @property
    def install_hint(self) -> str:
        import platform  # slow to import

        machine, system = platform.machine(), platform.system()
        if (system, machine) == ("Linux", "x86_64"):
            older = "uv run --python 3.10 lar ..."
            return f"MegEngine has packages for Python 3.10 and older only: {older}"
        return (
            f"MegEngine 1.13 has no package for {system} on {machine}: build it from its source, "
            "or run .mge models on Linux on x86_64"
        )

    def deploy(self, settings: Mapping[str, Any], model: Path, folder: Path) -> Deployment:
        from lar.engines.megengine.packing import deploy

        return deploy(settings, model, folder, self.version)

    def keep_progress(self, spec: RunSpec, context: RunContext) -> None:
        with contextlib.suppress(LarError):  # it is being written; the end of the run says so else
            self.settle(spec, context)

    def open_isolation(self, spec: RunSpec, context: RunContext) -> Isolation:
        from lar.engines.megengine.graph import GraphDriver
        from lar.engines.megengine.isolation import GraphIsolation

        return GraphIsolation(GraphDriver(spec, self.rows, context))


ENGINE = MegEngine()
