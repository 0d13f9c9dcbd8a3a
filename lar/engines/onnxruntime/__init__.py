"""ONNX Runtime, through its Python API."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar.engines.engine import ONE_BLAS_THREAD, CasePacker, Deployment, DriverEntry, WritingRun
from lar.engines.formats import ONNX, ORT
from lar.engines.onnx_file.engine import OnnxFileEngine
from lar.options import table

if TYPE_CHECKING:
    from lar.engines.driver import Driver
    from lar.engines.engine import Arrays, CacheFiles, Isolation, Site
    from lar.engines.option_rows import OptionRow
    from lar.engines.signs import Sign
    from lar.options.rules import Rule
    from lar.records.choices import Dimension
    from lar.records.profile import Profile
    from lar.records.run import RunContext, RunSpec


# What decides how a graph is optimised that --model-dump writes.
IN_GRAPH = (
    *(table.GRAPH_OPTIMIZATION_LEVEL, table.DISABLE_OPTIMIZER, table.ENABLE_NCHW88),
    *(table.PROVIDER, table.CUDA, table.C_OPR_LIB, table.ALLOW_EXTERNAL_DATA, table.ENGINE_OPTION),
)
# What an optimised model does without a flag when it is loaded again.
HELD = (table.CPU, table.ENABLE_NCHW88, table.WEIGHT_PREPROCESS, table.FAST_RUN_ALGO_POLICY)


def session_driver() -> type[Driver]:
    from lar.engines.onnxruntime.session import SessionDriver

    return SessionDriver


class TestcaseFolders(CasePacker):
    """Writes folders with testcases, in the form of ONNX's own test data."""

    driver = "session"
    writes = "folder"

    def write(self, driver: Driver, cases: Sequence[tuple[Arrays, Arrays]], path: str) -> None:
        from lar.engines.onnxruntime.session import SessionDriver
        from lar.engines.onnxruntime.testcases import write_testcases

        assert isinstance(driver, SessionDriver)
        write_testcases(driver, cases, path)


class OnnxRuntime(OnnxFileEngine):
    """ONNX Runtime 1.23."""

    name = "onnxruntime"
    title = "ONNX Runtime"
    distribution = "onnxruntime"
    formats = (ONNX, ORT)
    environment = ONE_BLAS_THREAD
    variable_prefixes = ("ORT_", "ONNXRUNTIME_")
    drivers = (DriverEntry("session", "IOBinding", session_driver),)
    settles = (
        *(table.FAST_RUN_ALGO_POLICY, table.RANGE),
        *(table.BIN_IO_DUMP, table.IO_DUMP, table.IO_DUMP_STDOUT, table.IO_DUMP_STDERR),
    )
    isolating_driver = "session"
    packing = TestcaseFolders()

    @property
    def version(self) -> str:
        # One of several packages, which have the module in common.
        from lar.engines.onnxruntime.providers import PACKAGES, package_folder
        from lar.measurement.machine import installed_version

        beside = [os.path.dirname(package_folder())]
        names = [*dict.fromkeys(PACKAGES.values()), self.distribution]
        return next(filter(None, (installed_version(name, beside) for name in names)), "")

    @property
    def cache(self) -> CacheFiles:
        from lar.engines.onnxruntime.cache import CACHES

        return CACHES

    def signs(self, profile: Profile, site: Site) -> Iterable[Sign]:
        from lar.engines.onnxruntime.dimensions import signs_of

        return signs_of(profile, site)

    def option_rows(self) -> tuple[OptionRow[Any, Any], ...]:
        from lar.engines.onnxruntime.options import ROWS

        return ROWS

    def option_rules(self) -> tuple[Rule, ...]:
        from lar.engines.onnxruntime.options import RULES

        return RULES

    def check_property(self, key: str, value: str) -> None:
        from lar.engines.onnxruntime.config_entries import check_entry

        check_entry(key, value)

    def deploy(self, settings: Mapping[str, Any], model: Path, folder: Path) -> Deployment:
        # Weights are not kept as operators take them, so that it runs on other processors too.
        given = {it.key: settings[it.key] for it in IN_GRAPH if it.is_given(settings)}
        held = [it.key for it in HELD if it.is_given(settings)]
        if table.GRAPH_OPTIMIZATION_LEVEL.of(settings) == "all":
            held.append(table.GRAPH_OPTIMIZATION_LEVEL.key)
        return Deployment(
            runs=(WritingRun(given, table.MODEL_DUMP),),
            held=tuple(held),
            left_out=tuple(key for key in settings if key not in held),
        )

    def find_devices(self) -> tuple[str, ...]:
        from lar.engines.onnxruntime.session import find_devices

        return find_devices()

    def dimensions(self, site: Site, model: Path) -> tuple[Dimension, ...]:
        from lar.engines.onnxruntime.dimensions import dimensions_of

        return dimensions_of(site)

    def writes_profile(self, data: bytes) -> bool:
        return re.search(rb'"cat"\s*:\s*"(Session|Node)"', data) is not None

    def read_profile(self, data: bytes, name: str) -> Profile:
        from lar.engines.onnxruntime.profile import profile_of_raw

        return profile_of_raw(data, name)

    def settle(self, spec: RunSpec, context: RunContext) -> None:
        from lar.engines.onnxruntime.cache import remove_build

        remove_build(spec, context)

    def open_isolation(self, spec: RunSpec, context: RunContext) -> Isolation:
        from lar.engines.onnxruntime.isolation import SessionIsolation
        from lar.engines.onnxruntime.session import SessionDriver

        return SessionIsolation(SessionDriver(spec, self.rows, context))


ENGINE = OnnxRuntime()
