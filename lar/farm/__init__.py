"""Runs on other machines, by a Dask scheduler and its workers: a farm.

A job is a run, a bench, or a round of a search. It goes to a device: a Dask worker that was started
with the resource `device`. A job takes the whole resource, so that no two timed runs share a
device. The worker asks for the files that it lacks. The result comes back, with the files that the
run has written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lar.farm.runs import run_many

__all__ = ["run_many"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'lar.farm' has no attribute {name!r}")
    # The process of a task is started often, and does not need this module.
    from lar.farm.runs import run_many

    return run_many
