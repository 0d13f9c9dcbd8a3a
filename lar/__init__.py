"""lar: how fast a model runs, whether its numbers are right, which settings make it fastest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lar.api import read_info, run
    from lar.comparison.record import Comparison, read_comparison
    from lar.dumps.binary import load_tensor_binary
    from lar.dumps.index import open_dump
    from lar.errors import DumpError, EngineMissing, LarError, UsageError
    from lar.profiling.profile import Profile
    from lar.profiling.ranges import range
    from lar.profiling.trace_file import read_profile
    from lar.records import RunResult, RunSpec, read_result, schema_of_result
    from lar.sides import compare

__version__ = "0.1.0"

# The public API and where it lives; a name is imported when it is first used.
_API = {
    "run": "lar.api",
    "compare": "lar.sides",
    "range": "lar.profiling.ranges",
    "read_profile": "lar.profiling.trace_file",
    "Profile": "lar.profiling.profile",
    "RunSpec": "lar.records",
    "RunResult": "lar.records",
    "read_info": "lar.api",
    "read_result": "lar.records",
    "Comparison": "lar.comparison.record",
    "read_comparison": "lar.comparison.record",
    "schema_of_result": "lar.records",
    "load_tensor_binary": "lar.dumps.binary",
    "open_dump": "lar.dumps.index",
    "LarError": "lar.errors",
    "UsageError": "lar.errors",
    "DumpError": "lar.errors",
    "EngineMissing": "lar.errors",
}

__all__ = [
    "Comparison",
    "DumpError",
    "EngineMissing",
    "LarError",
    "Profile",
    "RunResult",
    "RunSpec",
    "UsageError",
    "__version__",
    "compare",
    "load_tensor_binary",
    "open_dump",
    "range",
    "read_comparison",
    "read_info",
    "read_profile",
    "read_result",
    "run",
    "schema_of_result",
]


def __getattr__(name: str) -> Any:
    if name not in _API:
        raise AttributeError(f"module 'lar' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_API[name]), name)
