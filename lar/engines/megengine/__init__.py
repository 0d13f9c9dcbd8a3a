"""MegEngine, through megenginelite or through its own computing graph."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar.engines.engine import ONE_BLAS_THREAD, CasePacker, DriverEntry, Engine, StagedRun
from lar.engines.formats import MEGENGINE
from lar.engines.megengine.lean_import import LITE_LIBRARY
from lar.errors import LarError
from lar.options import table

if TYPE_CHECKING:
    from lar.dumps.facts import DumpFacts
    from lar.engines.driver import Driver
    from lar.engines.engine import Arrays, CacheFiles, Defect, Deployment, Isolation, Site
    from lar.engines.option_rows import OptionRow
    from lar.engines.signs import Sign
    from lar.graphs.operator_kinds import OperatorKinds
    from lar.graphs.origins import ModelOperator
    from lar.measurement.listener import Listener
    from lar.options.rules import Rule
    from lar.records.choices import Dimension
    from lar.records.profile import Profile
    from lar.records.run import ModelInfo, RunContext, RunResult, RunSpec
    from lar.records.testcase import Case


def lite_driver() -> type[Driver]:
    from lar.engines.megengine.lite import LiteDriver

    return LiteDriver


def graph_driver() -> type[Driver]:
    from lar.engines.megengine.graph import GraphDriver

    return GraphDriver


class TestcaseFiles(CasePacker):
    """Writes files with testcases in front of the model, as MegEngine's own tool does."""

    driver = "graph"
    writes = "file"

    def write(self, driver: Driver, cases: Sequence[tuple[Arrays, Arrays]], path: str) -> None:
        from lar.engines.megengine.graph import GraphDriver
        from lar.engines.megengine.testcases import write_testcases

        assert isinstance(driver, GraphDriver)
        write_testcases(driver, cases, path)


class WinogradRun(StagedRun):
    """A run that prefers winograd algorithms, for which it looks at what the engine has chosen."""

    options = (table.WINOGRAD_TRANSFORM,)
    apart_with = table.SEARCHES

    def run(
        self,
        spec: RunSpec,
        context: RunContext,
        listener: Listener,
        step: Callable[[RunSpec, RunContext, Listener], RunResult],
        run: Callable[[RunSpec, RunContext], RunResult],
    ) -> RunResult:
        from lar.engines.megengine.winograd import run_with_winograd

        return run_with_winograd(spec, context, listener, step, run)


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

    own_variables = ("MKL_DEBUG_CPU_TYPE=5",)

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

    @property
    def cache(self) -> CacheFiles:
        from lar.engines.megengine.cache_files import CACHES

        return CACHES

    def signs(self, profile: Profile, site: Site) -> Iterable[Sign]:
        from lar.engines.megengine.dimensions import signs_of

        return signs_of(profile, site)

    @property
    def operator_kinds(self) -> OperatorKinds:
        from lar.engines.megengine.operator_kinds import KINDS

        return KINDS

    def option_rows(self) -> tuple[OptionRow[Any, Any], ...]:
        from lar.engines.megengine.options import ROWS

        return ROWS

    def option_rules(self) -> tuple[Rule, ...]:
        from lar.engines.megengine.options import RULES

        return RULES

    def read_model(self, path: Path) -> ModelInfo:
        from lar.engines.megengine.model_file import read_model

        return read_model(path)

    def find_devices(self) -> tuple[str, ...]:
        from lar.engines.megengine.lite import find_devices

        return find_devices()

    def deploy(self, settings: Mapping[str, Any], model: Path, folder: Path) -> Deployment:
        from lar.engines.megengine.packing import deploy

        return deploy(settings, model, folder, self.version)

    def hints_for(self, result: RunResult, environment: Mapping[str, str]) -> str:
        from lar.engines.megengine.defects import hints_for

        return hints_for(result, environment)

    def defects(self, environment: Mapping[str, str]) -> tuple[Defect, ...]:
        from lar.engines.megengine.defects import defects_here

        return defects_here(environment)

    def dimensions(self, site: Site, model: Path) -> tuple[Dimension, ...]:
        from lar.engines.megengine.dimensions import dimensions_of

        return dimensions_of(site, model)

    def writes_profile(self, data: bytes) -> bool:
        from lar.profiles.megengine_file import is_raw_profile

        return is_raw_profile(data)

    def read_profile(self, data: bytes, name: str) -> Profile:
        from lar.engines.megengine.profile import profile_of_raw

        return profile_of_raw(data)

    def prints_log(self, data: bytes) -> bool:
        from lar.engines.megengine.load_and_run_log import is_log

        return is_log(data)

    def read_log(self, data: bytes, name: str) -> tuple[RunResult, ...]:
        from lar.engines.megengine.load_and_run_log import read_log

        return read_log(data, name)

    def settle(self, spec: RunSpec, context: RunContext) -> None:
        from lar.engines.megengine.algorithms import keep_search

        keep_search(spec, context)

    def keep_progress(self, spec: RunSpec, context: RunContext) -> None:
        with contextlib.suppress(LarError):  # it is being written; the end of the run says so else
            self.settle(spec, context)

    def describe_progress(self, spec: RunSpec, context: RunContext) -> str:
        from lar.engines.megengine.algorithms import describe_search

        return describe_search(spec, context)

    def explain_log(self, log: bytes) -> LarError | None:
        from lar.engines.megengine.messages import explain_log

        return explain_log(log)

    def unpack_testcases(self, spec: RunSpec, context: RunContext) -> tuple[str, tuple[Case, ...]]:
        from lar.engines.megengine.testcases import unpack

        return unpack(spec, context)

    def open_isolation(self, spec: RunSpec, context: RunContext) -> Isolation:
        from lar.engines.megengine.graph import GraphDriver
        from lar.engines.megengine.isolation import GraphIsolation

        return GraphIsolation(GraphDriver(spec, self.rows, context))

    def read_operators(self, path: Path) -> tuple[ModelOperator, ...]:
        from lar.engines.megengine.graph_operators import read_operators

        return read_operators(path)

    def read_quantizations(self, path: Path) -> DumpFacts:
        from lar.engines.megengine.graph_operators import read_quantizations

        return read_quantizations(path)

    def describe_dump(self, folder: Path) -> DumpFacts:
        from lar.engines.megengine.dumps import describe_dump

        return describe_dump(folder)


ENGINE = MegEngine()
