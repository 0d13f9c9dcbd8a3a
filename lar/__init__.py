"""How fast a model runs, whether its numbers are right, which settings make it fastest.

    result = lar.run("model.onnx", inputs={"data": array}, iter=100)
    print(result.status, result.latency.median)

    difference = lar.compare("dump_of_cpu", "dump_of_cuda")
    print(difference.same)

`lar help python` has more of this, `lar help` the commands and the topics of the manual.
"""

from __future__ import annotations

# `typing` is slow to import, and until `lar.__main__` has run Ctrl-C ends in Python's traceback.
TYPE_CHECKING = False
if TYPE_CHECKING:  # `as` says that a name is for others too
    from lar.dumps.binary import load_tensor_binary as load_tensor_binary
    from lar.dumps.index import open_dump as open_dump
    from lar.engines.profile_files import read_profile as read_profile
    from lar.errors import DumpError as DumpError
    from lar.errors import EngineMissing as EngineMissing
    from lar.errors import LarError as LarError
    from lar.errors import UsageError as UsageError
    from lar.profiles.ranges import range as range
    from lar.records.bench import BenchResult as BenchResult
    from lar.records.bench import read_bench as read_bench
    from lar.records.comparison import Comparison as Comparison
    from lar.records.comparison import ComparisonOfSides as ComparisonOfSides
    from lar.records.comparison import read_comparison as read_comparison
    from lar.records.comparison import read_comparison_of_sides as read_comparison_of_sides
    from lar.records.profile import Profile as Profile
    from lar.records.run import RunResult as RunResult
    from lar.records.run import RunSpec as RunSpec
    from lar.records.run import read_result as read_result
    from lar.records.run import schema_of_result as schema_of_result
    from lar.records.tuning import TuneResult as TuneResult
    from lar.records.tuning import read_tune as read_tune
    from lar.results.reading import read_results as read_results
    from lar.results.store import save as save
    from lar.running.api import read_info as read_info
    from lar.running.api import run as run
    from lar.running.bench import bench as bench
    from lar.running.compared_dumps import compare as compare
    from lar.tuning.outcome import Tuning as Tuning
    from lar.tuning.search import tune as tune

__version__ = "0.2.0"

# The public API, by the module that has it; a name is imported when it is first used.
_API = {
    "lar.running.api": "run read_info",
    "lar.running.bench": "bench",
    "lar.running.compared_dumps": "compare",
    "lar.tuning.search": "tune",
    "lar.tuning.outcome": "Tuning",
    "lar.results.store": "save",
    "lar.results.reading": "read_results",
    "lar.profiles.ranges": "range",
    "lar.engines.profile_files": "read_profile",
    "lar.records.run": "RunSpec RunResult read_result schema_of_result",
    "lar.records.bench": "BenchResult read_bench",
    "lar.records.tuning": "TuneResult read_tune",
    "lar.records.comparison": (
        "Comparison read_comparison ComparisonOfSides read_comparison_of_sides"
    ),
    "lar.records.profile": "Profile",
    "lar.dumps.binary": "load_tensor_binary",
    "lar.dumps.index": "open_dump",
    "lar.errors": "LarError UsageError DumpError EngineMissing",
}
_MODULES = {name: module for module, names in _API.items() for name in names.split()}


def __dir__() -> list[str]:
    return [*_MODULES, "__version__"]


def __getattr__(name: str) -> object:
    if name == "__all__":  # `from lar import *` asks; a list would have to repeat each name
        return __dir__()
    if name not in _MODULES:
        raise AttributeError(f"module 'lar' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_MODULES[name]), name)
