"""The option table of OpenVINO: a row for each supported option, and a check of properties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lar.engines.engine import unknown_property
from lar.engines.option_rows import Drivers, OptionRow, add_lazy_modules, dump_rows
from lar.options import table

if TYPE_CHECKING:
    from lar.engines.openvino import cache, dumps, profile
    from lar.engines.openvino.driver import CompiledDriver
else:
    add_lazy_modules(globals())

COMPILED: Drivers[CompiledDriver] = Drivers(("compiled",), __file__)

ROWS: tuple[OptionRow[Any, Any], ...] = (
    *COMPILED.rows(
        *(table.CPU, table.PROVIDER, table.CPU_DEFAULT, table.MULTITHREAD),
        *(table.MULTITHREAD_DEFAULT, table.THREAD, table.HINT, table.STREAMS),
        *(table.PRECISION, table.CONST_SHAPE, table.FAST_RUN, table.ENGINE_OPTION),
        *(table.VERBOSE, table.DISABLE_ASSERT_THROW, table.ALLOW_EXTERNAL_DATA),
        *(table.PROFILE_SYSCALLS, table.RANGE_BY),
    ),
    COMPILED.row(table.FAST_RUN_ALGO_POLICY, before_load=cache.use_cache),
    COMPILED.row(table.PROFILE, before_run=profile.start_profiling),
    *dump_rows(COMPILED, dumps.dump_graph, dumps.dump_outputs),
)

# How the names of properties of devices other than the CPU begin. The CPU's properties are in
# properties.txt.
OF_DEVICES = ("GPU_", "NPU_", "NPUW_", "MULTI_", "AUTO_", "DEVICE_")


def check_property(key: str, _: str) -> None:
    """Refuse a property that OpenVINO does not have.

    Raises:
        UsageError: the property is unknown to OpenVINO; the hint names the most similar property.
    """
    from pathlib import Path  # slow to import, and the help reads this table

    known = Path(__file__).with_name("properties.txt").read_text().split()
    if key not in known and not key.startswith(OF_DEVICES):
        raise unknown_property("OpenVINO", key, known, "names are as ENABLE_CPU_PINNING")
