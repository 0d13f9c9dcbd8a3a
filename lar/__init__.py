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
if TYPE_CHECKING:
    from lar.dumps.binary import load_tensor_binary
    from lar.dumps.index import open_dump
    from lar.engines.profile_files import read_profile
    from lar.errors import DumpError, EngineMissing, LarError, UsageError
    from lar.profiles.ranges import range
    from lar.records.bench import BenchResult, read_bench
    from lar.records.comparison import (
        Comparison,
        ComparisonOfSides,
        read_comparison,
        read_comparison_of_sides,
    )
    from lar.records.profile import Profile
    from lar.records.run import RunResult, RunSpec, read_result, schema_of_result
    from lar.records.tuning import TuneResult, read_tune
    from lar.results.reading import read_results
    from lar.results.store import save
    from lar.running.api import read_info, run
    from lar.running.bench import bench
    from lar.running.compared_dumps import compare
    from lar.tuning.outcome import Tuning
    from lar.tuning.search import tune

__version__ = "0.2.0"

# The public API and where it lives; a name is imported when it is first used.
_API = {
    "run": "lar.running.api",
    "bench": "lar.running.bench",
    "tune": "lar.tuning.search",
    "save": "lar.results.store",
    "read_results": "lar.results.reading",
    "compare": "lar.running.compared_dumps",
    "range": "lar.profiles.ranges",
    "read_profile": "lar.engines.profile_files",
    "Profile": "lar.records.profile",
    "RunSpec": "lar.records.run",
    "RunResult": "lar.records.run",
    "read_info": "lar.running.api",
    "read_result": "lar.records.run",
    "BenchResult": "lar.records.bench",
    "read_bench": "lar.records.bench",
    "TuneResult": "lar.records.tuning",
    "Tuning": "lar.tuning.outcome",
    "read_tune": "lar.records.tuning",
    "Comparison": "lar.records.comparison",
    "read_comparison": "lar.records.comparison",
    "ComparisonOfSides": "lar.records.comparison",
    "read_comparison_of_sides": "lar.records.comparison",
    "schema_of_result": "lar.records.run",
    "load_tensor_binary": "lar.dumps.binary",
    "open_dump": "lar.dumps.index",
    "LarError": "lar.errors",
    "UsageError": "lar.errors",
    "DumpError": "lar.errors",
    "EngineMissing": "lar.errors",
}

__all__ = [
    "BenchResult",
    "Comparison",
    "ComparisonOfSides",
    "DumpError",
    "EngineMissing",
    "LarError",
    "Profile",
    "RunResult",
    "RunSpec",
    "TuneResult",
    "Tuning",
    "UsageError",
    "__version__",
    "bench",
    "compare",
    "load_tensor_binary",
    "open_dump",
    "range",
    "read_bench",
    "read_comparison",
    "read_comparison_of_sides",
    "read_info",
    "read_profile",
    "read_result",
    "read_results",
    "read_tune",
    "run",
    "save",
    "schema_of_result",
    "tune",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> object:
    if name not in _API:
        raise AttributeError(f"module 'lar' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_API[name]), name)
