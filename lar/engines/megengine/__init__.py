"""The engine MegEngine, which lar calls through megenginelite or through the computing graph."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING

from lar.engines import engine
from lar.engines.engine import DriverEntry, Engine, imported, late, late_function, late_value
from lar.engines.formats import MEGENGINE
from lar.errors import LarError
from lar.options import table

if TYPE_CHECKING:
    from lar.records.run import RunContext, RunSpec

# The path of megenginelite's own library, below the folder of the packages.
LITE_LIBRARY = "megenginelite/libs/liblite*"
LITE = partial(imported, ".lite.LiteDriver", __name__)
GRAPH = partial(imported, ".graph.GraphDriver", __name__)


WRITE_TESTCASES = late_function(__name__, ".testcases.write_testcases")
RUN_WITH_WINOGRAD = late_function(__name__, ".algorithms.run_with_winograd")


class MegEngine(Engine):
    """MegEngine 1.13."""

    name = "megengine"
    title = "MegEngine"
    distribution = "megengine"
    formats = (MEGENGINE,)
    environment = engine.ONE_BLAS_THREAD
    variable_prefixes = ("MGB_", "MGE_", "MEGENGINE_", "RUNTIME_OVERRIDE_")
    drivers = (
        DriverEntry("lite", "fast to load, the default", LITE, LITE_LIBRARY),
        DriverEntry("graph", "the engine's device time", GRAPH),
    )
    searches = table.SEARCHES
    settles = (table.FAST_RUN_ALGO_POLICY, *table.SEARCHES, table.TENSORRT_CACHE)
    isolating_driver = "graph"
    packing = engine.CasePacker("graph", "file", WRITE_TESTCASES)
    staged = engine.StagedRun((table.WINOGRAD_TRANSFORM,), table.SEARCHES, RUN_WITH_WINOGRAD)

    own_variables = ("MKL_DEBUG_CPU_TYPE=5",)

    option_rows = late(Engine.option_rows, ".options.ROWS")
    option_rules = late(Engine.option_rules, ".rules.RULES")
    find_devices = late(Engine.find_devices, ".lite.find_devices")
    cache = late_value(".cache.CACHES")
    operator_kinds = late_value(".operator_kinds.KINDS")
    dimensions = late(Engine.dimensions, ".dimensions.dimensions_of")
    signs = late(Engine.signs, ".dimensions.signs_of")
    deploy = late(Engine.deploy, ".packing.deploy")
    defects = late(Engine.defects, ".defects.defects_here")
    hints_for = late(Engine.hints_for, ".defects.hints_for")
    settle = late(Engine.settle, ".algorithms.keep_search")
    describe_progress = late(Engine.describe_progress, ".algorithms.describe_search")
    explain_log = late(Engine.explain_log, ".driver.explain_log")
    isolation = late(Engine.isolation, ".graph.GraphIsolation")

    read_model = late(Engine.read_model, ".model_file.read_model")
    read_operators = late(Engine.read_operators, ".graph_operators.read_operators")
    read_quantizations = late(Engine.read_quantizations, ".graph_operators.read_quantizations")
    unpack_testcases = late(Engine.unpack_testcases, ".testcases.unpack")
    describe_dump = late(Engine.describe_dump, ".dumps.describe_dump")
    writes_profile = late(Engine.writes_profile, "lar.profiles.megengine_file.is_raw_profile")
    read_profile = late(Engine.read_profile, ".profile.profile_of_raw")
    prints_log = late(Engine.prints_log, ".load_and_run_log.is_log")
    read_log = late(Engine.read_log, ".load_and_run_log.read_log")

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

    def keep_progress(self, spec: RunSpec, context: RunContext) -> None:
        with contextlib.suppress(LarError):  # the file may be in use; the run's end tries again
            self.settle(spec, context)


ENGINE = MegEngine()
