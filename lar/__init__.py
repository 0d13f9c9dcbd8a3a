"""lar: how fast a model runs, whether its numbers are right, which settings make it fastest."""

from __future__ import annotations

from typing import Any

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

__all__ = ["__version__", *_API]


def __getattr__(name: str) -> Any:
    if name not in _API:
        raise AttributeError(f"module 'lar' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_API[name]), name)
