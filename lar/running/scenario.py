"""A run that MLPerf's load generator drives."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lar.errors import UsageError, error_of_write
from lar.files.work_folders import work_folder
from lar.options.values import MOST_ITERATIONS
from lar.records.run import RunContext, RunResult, RunSpec, Scenario
from lar.running.plan import plan_run
from lar.running.steps import make_run

# LoadGen makes its queries beforehand, from the time that the fastest of these takes.
WARMUP_ITERATIONS = 5
LOG_FILES = "mlperf_log_*"


def run_scenario(
    model: str, scenario: Scenario, values: Mapping[str, Any], *, log_folder: str = ""
) -> RunResult:
    """Run a model as MLPerf's load generator asks for it, in a worker process.

    `values` are option values of a run by key; LoadGen's own logs are copied into `log_folder`.

    Raises:
        UsageError: the model, an option or the folder cannot be used.
    """
    began = time.monotonic()
    spec = plan_scenario(model, scenario, values)
    with work_folder() as folder:
        try:
            if log_folder:
                os.makedirs(log_folder, exist_ok=True)
            context = RunContext(began=began, work_folder=folder)
            result = make_run(spec, context)
            for log in Path(folder).glob(LOG_FILES) if log_folder else ():
                shutil.copy(log, log_folder)
        except OSError as error:
            raise error_of_write(error, flag="--loadgen-logs", subject=log_folder) from None
    return result


def plan_scenario(model: str, scenario: Scenario, values: Mapping[str, Any]) -> RunSpec:
    """Return the spec of a scenario; `values` are of options that a bench has.

    Raises:
        UsageError: an option does not go with it, or the scenario lacks a setting.
    """
    if scenario.name == "server" and scenario.target_rate is None:
        problem = "the scenario server needs the rate at which queries arrive"
        hint = "give it, in queries a second: --target-rate 20"
        raise UsageError(problem, hint, flag="--scenario")
    if values.get("warmup_iter") == 0:
        problem = "a scenario needs a warm-up, which shows how many queries there can be"
        raise UsageError(problem, "leave it out, or give 1 or more", flag="--warmup-iter")
    warmup = values.get("warmup_iter") or WARMUP_ITERATIONS
    spec = plan_run(model, {**values, "iter": 0, "warmup_iter": warmup})
    if spec.items or spec.cases:
        what = "a data set" if spec.items else "testcases"
        problem = f"does not go with {what}: each query is fed the same input"
        raise UsageError(problem, "give the input of one iteration", flag="--scenario")
    most = MOST_ITERATIONS // spec.runners
    return replace(spec, scenario=scenario, iterations=most)
