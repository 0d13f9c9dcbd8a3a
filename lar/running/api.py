"""The public functions: a run, a look into a model; each in a worker process."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar.files.work_folders import work_folder
from lar.records.run import ModelInfo, RunContext, RunResult
from lar.running.plan import Plan, as_one_run, parse_values, plan_run, spec_of
from lar.running.run import Run
from lar.running.steps import make_run
from lar.running.tasks import info_of

if TYPE_CHECKING:
    from lar.running.array_inputs import Inputs


def run(model: str | Path, inputs: Inputs | None = None, **options: Any) -> RunResult:
    """Run a model in a worker process and return the result, whatever became of it.

    Args:
        model: a model file, or a file or folder of testcases, all of which are run.
        inputs: what `--input` takes, an array for the only input, or a mapping from input names
            to arrays or files.
        options: the flags of `lar run` by key, as `iter=100`, `warmup_iter=3`, `cuda=0`.

    Returns:
        The result. What the engine did is `result.status`; nothing is raised for it.

    Raises:
        UsageError: the model or an option cannot be used.
        EngineMissing: the engine is not installed.
    """
    from lar.running.array_inputs import GivenInputs  # the command line gives texts alone

    began = time.monotonic()
    with work_folder() as folder:
        values = parse_values(options)
        given = None if inputs is None else GivenInputs(inputs, Path(folder))
        if given is not None:
            values["input"] = given.items + (values.get("input") or [])
        plan = settle_stack(plan_run(str(model), values), began)
        result = make_run(
            Run(
                spec=spec_of(plan),
                context=RunContext(ranges=open_ranges(), names=given.names if given else {}),
                overwrite=bool(plan.values["overwrite"]),
                resume=bool(plan.values["resume"]),
                began=began,
            )
        )
    if given is not None:
        result = replace(result, spec=given.named_in(result.spec))
    if result.status == "interrupted":
        raise KeyboardInterrupt
    return result


def open_ranges() -> tuple[str, ...]:
    """Return the names of the ranges that this process is in; only who names some imports them."""
    ranges = sys.modules.get("lar.profiles.ranges")
    return ranges.open_ranges() if ranges else ()


def settle_stack(plan: Plan, began: float | None = None) -> Plan:
    """Return the plan as it is, or of one run where the model takes a whole `.npz` as it is.

    The time limit counts from `began` on the monotonic clock, or from now.

    Raises:
        UsageError: the model cannot be read, or an option needs a data set.
    """
    if not plan.is_stack:
        return plan
    from lar.datasets.items import is_one_run  # few runs need it

    inputs = info_of(spec_of(plan), began).inputs
    taken = {each.name: each.shape for each in inputs}
    return as_one_run(plan) if is_one_run(plan.values["input"], taken) else plan


def read_info(
    model: str | Path,
    engine: str | None = None,
    *,
    allow_external_data: Sequence[str] | None = None,
) -> ModelInfo:
    """Read what a model file holds, in a worker process, without running it.

    Weights may be in files in the model's own folder, and in those of `allow_external_data`.

    Raises:
        UsageError: the file is not a model, or is damaged.
        EngineMissing: the library that reads its format is not installed.
    """
    values = {"engine": engine, "iter": 0, "allow_external_data": allow_external_data}
    return info_of(spec_of(plan_run(str(model), values)))
