"""Models that tests make with MegEngine, in a process of their own (`elsewhere`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def dump_traced(
    path: Path, function: Callable[..., Any], inputs: Mapping[str, Any], **how: Any
) -> None:
    """Trace a function of tensors on these arrays and dump it."""
    from megengine import jit, tensor

    traced = jit.trace(function, symbolic=True, capture_as_const=True)
    traced(*map(tensor, inputs.values()))
    traced.dump(str(path), arg_names=[*inputs], **how)
