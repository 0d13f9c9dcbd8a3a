"""The public functions that run a model or read it, each in a worker process.

`run_scenario` makes a run that MLPerf's load generator drives. If inputs are arrays, from Python
code or from lar itself, lar writes the arrays to files for the worker.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from lar.errors import UsageError, one_line, writing
from lar.files.work_folders import work_folder
from lar.inputs import Array
from lar.options.command_line import parse_values
from lar.options.values import MOST_ITERATIONS
from lar.records.run import (
    ModelInfo,
    OutputSummary,
    RunContext,
    RunResult,
    RunSpec,
    Scenario,
    TensorInfo,
)
from lar.running.isolation import info_of
from lar.running.plan import plan_run
from lar.running.steps import make_run

Source: TypeAlias = "str | Path | Array"
Inputs: TypeAlias = "Mapping[str, Source] | Source"


class GivenInputs:
    """Turns inputs from Python code into `--input` items, and says how messages name the inputs.

    The caller knows neither the files that are made for arrays nor the flag `--input`. Therefore
    `names` maps the flag, and each file that is made for an array, to a name that the caller knows.
    Messages use the names that the caller knows.
    """

    def __init__(self, inputs: Inputs | None, folder: Path) -> None:
        """Write arrays into the folder, which is made if it is missing.

        The folder must exist as long as a worker may read the arrays.

        Raises:
            UsageError: a value cannot be an input.
        """
        self.names = {} if inputs is None else {"--input": "inputs"}
        self.items: tuple[str, ...] = ()
        sources = inputs if isinstance(inputs, Mapping) else {"": inputs}
        for name, source in sources.items() if inputs is not None else ():
            prefix = f"{name}:" if name else ""
            if isinstance(source, (str, Path)):
                place = str(source)
            else:
                folder.mkdir(exist_ok=True)
                place = str(folder / f"{len(self.items)}.npy")
                save_array(source, name, place)
                call = f"the array given for {name!r}" if name else "the array given"
                self.names |= {place: call, prefix + place: prefix + call}
            self.items += (prefix + place,)

    def add_to(self, options: dict[str, Any]) -> None:
        """Add the items to a run's options, before items that the option `input` already has."""
        if self.items:
            options["input"] = [*self.items, *(options.get("input") or [])]


def save_array(source: object, name: str, place: str) -> None:
    """Write a value from Python code to a .npy file; `name` is empty if no input is named.

    Raises:
        UsageError: the value is not an array of numbers or texts.
    """
    import numpy as np

    with contextlib.suppress(TypeError, ValueError):
        if (array := np.asarray(source)).dtype != object:
            return np.save(place, array)
    problem = f"{one_line(repr(source))[:80]} is neither an array of numbers or texts nor a file"
    raise UsageError(problem, "give an array, such as numpy.ones(3)", flag="inputs", subject=name)


def with_names(spec: RunSpec, names: Mapping[str, str]) -> RunSpec:
    """Return a spec in which the files of inputs have the names that the caller knows."""
    return replace(spec, inputs=tuple(names.get(text, text) for text in spec.inputs))


def inputs_like(other: RunSpec, mine: RunSpec, folder: Path) -> tuple[str, ...]:
    """Write the data generated for the model `other` to files; return `--input` items for `mine`.

    Generated data depends on the names of inputs, so that models whose inputs have different names
    would get different data. If the inputs of both models have equal names, no files are written
    and no items are returned.

    Raises:
        UsageError: the models take different inputs.
        LarError: a model cannot be read.
    """
    # Imported here, since few runs need these modules.
    from lar.inputs.dtypes import dtype_of, generate_array
    from lar.inputs.model_inputs import AxisSizes

    infos, theirs = (
        [info for info in info_of(spec).inputs if not info.optional] for spec in (mine, other)
    )
    if {each.name for each in infos} == {each.name for each in theirs}:
        return ()
    if [*map(describe_input, infos)] != [*map(describe_input, theirs)]:
        hint = 'say what to feed, in the options of each side: "model.mge --input a:a.npy"'
        raise UsageError(f"{mine.model} and {other.model} take different inputs", hint)
    sizes = AxisSizes(theirs, {})
    fed = {
        each.name: generate_array(
            its.name, dtype_of(its.dtype), sizes.shape_of(its), fill=other.fill, seed=other.seed
        )
        for each, its in zip(infos, theirs, strict=True)
    }
    return GivenInputs(fed, folder).items


def describe_input(info: TensorInfo) -> tuple[str, tuple[int, ...]]:
    return info.dtype, tuple(1 if size is None else size for size in info.shape)


# The public functions


# LoadGen makes its queries beforehand, for the time of the fastest of these iterations.
WARMUP_ITERATIONS = 5
LOG_FILES = "mlperf_log_*"


def run(
    model: str | Path, inputs: Inputs | None = None, *, keep_outputs: bool = False, **options: Any
) -> RunResult:
    """Run a model in a worker process and return the result, even if the engine failed.

    Args:
        model: a model file, or a file or folder of testcases, all of which are run.
        inputs: a value of `--input`, an array for the only input, or a mapping from input names
            to arrays or files.
        keep_outputs: keep the outputs of the last iteration in `result.arrays`.
        options: the flags of `lar run` by key, such as `iter=100`, `warmup_iter=3`, `cuda=0`.

    Returns:
        The result. `result.status` says how the run ended. No error is raised if the engine fails.

    Raises:
        UsageError: the model or an option cannot be used.
        EngineMissing: the engine is not installed.
    """
    began, ranges = time.monotonic(), sys.modules.get("lar.profiles.ranges")
    with work_folder() as folder:
        values = parse_values(options, ("inputs", "keep_outputs"))
        given = GivenInputs(inputs, Path(folder))
        given.add_to(values)
        context = RunContext(
            began=began,
            overwrite=values.get("overwrite", False),
            resume=values.get("resume", False),
            ranges=ranges.open_ranges() if ranges else (),  # without the module, none is open
            outputs_folder=os.path.join(folder, "outputs") if keep_outputs else "",
            names=given.names,
        )
        result = make_run(plan_run(str(model), values, began=began), context)
        result = replace(result, spec=with_names(result.spec, given.names))
        if keep_outputs:
            result = result.with_arrays(read_outputs(context.outputs_folder, result.outputs))
    if result.status == "interrupted":
        raise KeyboardInterrupt
    return result


def read_info(
    model: str | Path,
    engine: str | None = None,
    *,
    allow_external_data: Sequence[str] | None = None,
) -> ModelInfo:
    """Read a model file in a worker process, without running the model.

    Weights may be in separate files, in the model's own folder or in a folder of
    `allow_external_data`.

    Raises:
        UsageError: the file is not a model, or is damaged.
        EngineMissing: the library that reads the model's format is not installed.
    """
    values = {"engine": engine, "iter": 0, "allow_external_data": allow_external_data}
    return info_of(plan_run(str(model), values))


def read_outputs(folder: str, outputs: Sequence[OutputSummary]) -> dict[str, Array]:
    """Return the outputs that a worker has written; outputs that are not arrays are left out."""
    import numpy as np

    from lar.inputs.dtypes import NARROW, dtype_of

    files = {each: file_of(folder, place) for place, each in enumerate(outputs)}
    arrays = {each: np.load(file) for each, file in files.items() if file.is_file()}
    return {
        each.name: array.astype(dtype_of(each.dtype)) if each.dtype in NARROW else array
        for each, array in arrays.items()
    }


def file_of(folder: str, place: int) -> Path:
    """Return the path of the file that holds an output; `place` is the index of the output."""
    return Path(os.path.join(folder, f"{place:03}.npy"))


def run_scenario(
    model: str, scenario: Scenario, values: Mapping[str, Any], *, log_folder: str = ""
) -> RunResult:
    """Run a model with the queries of MLPerf's load generator, in a worker process.

    `values` maps option keys to values. LoadGen's own logs are copied into `log_folder`.

    Raises:
        UsageError: the model, an option or the folder cannot be used.
    """
    began = time.monotonic()
    spec = plan_scenario(model, scenario, values)
    with work_folder() as folder, writing(log_folder, "--loadgen-logs"):
        if log_folder:
            os.makedirs(log_folder, exist_ok=True)
        result = make_run(spec, RunContext(began=began, work_folder=folder))
        for log in Path(folder).glob(LOG_FILES) if log_folder else ():
            shutil.copy(log, log_folder)
    return result


def plan_scenario(model: str, scenario: Scenario, values: Mapping[str, Any]) -> RunSpec:
    """Return the spec of a run with a scenario.

    `values` maps option keys to values.

    Raises:
        UsageError: an option cannot be combined with the scenario, or the scenario lacks a setting.
    """
    if scenario.name == "server" and scenario.target_rate is None:
        problem = "the scenario server needs the rate at which queries arrive"
        hint = "give the rate in queries per second: --target-rate 20"
        raise UsageError(problem, hint, flag="--scenario")
    if values.get("warmup_iter") == 0:
        problem = "a scenario needs a warm-up, which shows how many queries there can be"
        raise UsageError(problem, "leave the flag out, or give 1 or more", flag="--warmup-iter")
    warmup = values.get("warmup_iter") or WARMUP_ITERATIONS
    spec = plan_run(model, {**values, "iter": 0, "warmup_iter": warmup})
    if spec.items or spec.cases:
        what = "a data set" if spec.items else "testcases"
        problem = f"does not go with {what}: each query is fed the same input"
        raise UsageError(problem, "give data for one iteration only", flag="--scenario")
    return replace(spec, scenario=scenario, iterations=MOST_ITERATIONS // spec.runners)
