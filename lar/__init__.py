"""Measure how fast a model runs, check its outputs, and find its fastest settings.

    result = lar.run("model.onnx", inputs={"data": array}, iter=100)
    print(result.status, result.latency.median)

    difference = lar.compare("dump_of_cpu", "dump_of_cuda")
    print(difference.same)

For these functions, see `lar help python`. `lar help` lists the commands and the topics.
"""

from __future__ import annotations

__version__ = "0.2.0"


def _modules() -> dict[str, str]:
    """Return the names of the public API, each with the module that defines it."""
    with open(f"{__path__[0]}/__init__.pyi", encoding="utf-8") as stub:
        words = [line.split() for line in stub if line.startswith("from")]
    return {name: module for _, module, _, name, *_ in words}


def __dir__() -> list[str]:
    return [*_modules(), "__version__"]


def __getattr__(name: str) -> object:
    if name == "__all__":  # for `from lar import *`, without a second list of names
        return __dir__()
    module = _modules().get(name)
    if module is None:
        raise AttributeError(f"module 'lar' has no attribute {name!r}")
    import importlib

    # A name is imported when it is first used; then it is an ordinary attribute.
    found = globals()[name] = getattr(importlib.import_module(module), name)
    return found
