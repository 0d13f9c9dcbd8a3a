"""Makes runs on other machines: a Dask scheduler assigns each run to a worker.

A job is a run, a bench, or a round of a search. Each job is sent to a device, which is a Dask
worker that was started with the resource `device`. A job occupies the whole device, so that no two
timed runs share a device. The worker asks for the files that it lacks. After the job, the worker
sends back the result, with the files that the run has written. The scheduler and its workers are
called a farm.
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
