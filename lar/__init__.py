"""lar: how fast a model runs, whether its numbers are right, which settings make it fastest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lar.api import read_info, run
    from lar.errors import EngineMissing, LarError, UsageError
    from lar.records import RunResult, RunSpec, read_result, schema_of_result

__version__ = "0.1.0"

# The public API and where it lives; a name is imported when it is first used.
_API = {
    "run": "lar.api",
    "RunSpec": "lar.records",
    "RunResult": "lar.records",
    "read_info": "lar.api",
    "read_result": "lar.records",
    "schema_of_result": "lar.records",
    "LarError": "lar.errors",
    "UsageError": "lar.errors",
    "EngineMissing": "lar.errors",
}

__all__ = [
    "EngineMissing",
    "LarError",
    "RunResult",
    "RunSpec",
    "UsageError",
    "__version__",
    "read_info",
    "read_result",
    "run",
    "schema_of_result",
]


def __getattr__(name: str) -> Any:
    if name not in _API:
        raise AttributeError(f"module 'lar' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_API[name]), name)
