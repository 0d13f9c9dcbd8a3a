"""The engine ONNX Runtime, which lar calls through the Python API."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from lar.engines import engine
from lar.engines.engine import Deployment, Engine, WritingRun, late, late_value
from lar.engines.formats import ONNX, ORT
from lar.engines.onnx_file import OnnxFileEngine
from lar.options import table

if TYPE_CHECKING:
    from pathlib import Path

# The options that change the graph that --model-dump writes.
IN_GRAPH = (
    *(table.GRAPH_OPTIMIZATION_LEVEL, table.DISABLE_OPTIMIZER, table.ENABLE_NCHW88),
    *(table.PROVIDER, table.CUDA, table.C_OPR_LIB, table.ALLOW_EXTERNAL_DATA, table.ENGINE_OPTION),
)
# The options whose effect is kept in an optimised model, so that it needs no flag for them.
HELD = (table.CPU, table.ENABLE_NCHW88, table.WEIGHT_PREPROCESS, table.FAST_RUN_ALGO_POLICY)


SESSION = partial(engine.imported, ".session.SessionDriver", __name__)


LIBRARY = "onnxruntime/capi/onnxruntime_pybind11_state*.so"
WRITE_TESTCASES = engine.late_function(__name__, ".saving.write_testcases")


class OnnxRuntime(OnnxFileEngine):
    """ONNX Runtime 1.23."""

    name = "onnxruntime"
    title = "ONNX Runtime"
    distribution = "onnxruntime"
    formats = (ONNX, ORT)
    environment = engine.ONE_BLAS_THREAD
    variable_prefixes = ("ORT_", "ONNXRUNTIME_")
    drivers = (engine.DriverEntry("session", "IOBinding", SESSION, shared_library=LIBRARY),)
    settles = (
        *(table.FAST_RUN_ALGO_POLICY, table.RANGE),
        *(table.BIN_IO_DUMP, table.IO_DUMP, table.IO_DUMP_STDOUT, table.IO_DUMP_STDERR),
    )
    isolating_driver = "session"
    packing = engine.CasePacker("session", "folder", WRITE_TESTCASES)

    option_rows = late(Engine.option_rows, ".options.ROWS")
    option_rules = late(Engine.option_rules, ".rules.RULES")
    check_property = late(Engine.check_property, ".rules.check_entry")
    find_devices = late(Engine.find_devices, ".session.find_devices")
    cache = late_value(".cache.CACHES")
    dimensions = late(Engine.dimensions, ".dimensions.dimensions_of")
    signs = late(Engine.signs, ".dimensions.signs_of")
    read_profile = late(Engine.read_profile, ".profile.profile_of_raw")
    settle = late(Engine.settle, ".cache.remove_build")
    isolation = late(Engine.isolation, ".dumps.SessionIsolation")

    @property
    def version(self) -> str:
        # Several packages install the module `onnxruntime`; one of them is installed.
        from lar.engines.onnxruntime.providers import PACKAGES, package_folder
        from lar.measurement.machine import installed_version

        beside = [os.path.dirname(package_folder())]
        names = [*dict.fromkeys(PACKAGES.values()), self.distribution]
        return next(filter(None, (installed_version(name, beside) for name in names)), "")

    def deploy(self, settings: Mapping[str, Any], model: Path, folder: Path) -> Deployment:
        # Weights are not kept in rearranged form, so that the model runs on other processors too.
        given = {it.key: settings[it.key] for it in IN_GRAPH if it.is_given(settings)}
        held = [it.key for it in HELD if it.is_given(settings)]
        if table.GRAPH_OPTIMIZATION_LEVEL.of(settings) == "all":
            held.append(table.GRAPH_OPTIMIZATION_LEVEL.key)
        return Deployment(
            runs=(WritingRun(given, table.MODEL_DUMP),),
            held=tuple(held),
            left_out=tuple(key for key in settings if key not in held),
        )

    def writes_profile(self, data: bytes) -> bool:
        return re.search(rb'"cat"\s*:\s*"(Session|Node)"', data) is not None


ENGINE = OnnxRuntime()
