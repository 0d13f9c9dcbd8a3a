"""Runs on other machines, by a Dask scheduler and its workers: a farm.

A job is a run, or a bench. It goes to a device: a Dask worker that was started with the resource
`device`, of which a job takes one, so that no two timed runs meet on it. Files go there once, by
their content; the result comes back, and the files that the run has written.
"""

from lar.farm.runs import run_many

__all__ = ["run_many"]
