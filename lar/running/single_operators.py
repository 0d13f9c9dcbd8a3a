"""Runs single operators of a model, in a worker process that may crash or hang."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from lar.dumps import DumpedTensor, DumpIndex
from lar.engines import engine_named
from lar.errors import LarError, UsageError, writing
from lar.files.work_folders import work_folder
from lar.inputs import Array
from lar.measurement.machine import read_model_file
from lar.options.table import BY_KEY, ENGINE_ENV, find_untyped
from lar.records.run import RunContext, RunResult, RunSpec
from lar.running.isolation import TurnWorker, require_ok
from lar.running.steps import unpack_cases

# How long an operator may compute. CPU use shows no hang: MegEngine may wait forever on a busy CPU.
MOST_SECONDS = 60.0
# After this many workers have crashed or hung, no more operators are run.
MOST_WORKERS = 3


class IsolatedOperators:
    """Runs single operators of a model in a worker process, one operator for each request.

    The first request starts the worker. If the worker crashes or hangs, the current operator has
    failed, and another worker runs the next operator. The worker is killed when `stack` is closed.
    `notes` names the options of the run that the worker cannot honour.
    """

    def __init__(self, spec: RunSpec, stack: contextlib.ExitStack) -> None:
        """
        Raises:
            UsageError: the engine cannot run an operator alone. The message does not name the side
                of the comparison, so that the caller must add this name.
        """
        self.spec, self.notes = spec_for_isolation(spec)
        self._worker: TurnWorker | None = None
        self.folder = Path(stack.enter_context(work_folder()))
        self._running = stack.enter_context(contextlib.ExitStack())
        self._lost: list[RunResult] = []

    def begin(self) -> TurnWorker:
        """Start a worker if none is alive; the worker loads the model while the caller goes on."""
        if self._worker is None:
            spec, context = self._running.enter_context(unpack_cases(self.spec, RunContext()))
            spec, context = replace(spec, cases=()), replace(context, work_folder=str(self.folder))
            self._worker = TurnWorker(self._running, spec, context, "isolate")
        return self._worker

    def find_missing(self, tensors: Iterable[DumpedTensor]) -> set[str]:
        tensors = list(tensors)
        names = self.ask("", {tensor.name: None for tensor in tensors}).tolist()
        return {tensor.key for tensor in tensors if tensor.name in names}

    def compute(self, output: DumpedTensor, values: Mapping[str, Array]) -> Array:
        import numpy as np

        array = self.ask(output.name, values)
        if (1, *output.shape[1:]) == array.shape:  # a loop computes this same value in each round
            array = np.repeat(array, output.shape[0], axis=0)
        if array.shape != tuple(output.shape):
            raise LarError(f"alone, the operator returns {array.shape}, not {tuple(output.shape)}")
        return array

    def ask(self, output: str, values: Mapping[str, Array | None]) -> Array:
        """Let the worker compute for one turn, and return its answer.

        Each turn overwrites the files of the turn before. A worker that does not end its turn in
        time is killed.

        Raises:
            LarError: the operator failed, the worker was lost, or the values cannot be written.
        """
        import numpy as np

        with writing("its values"):
            request = json.dumps({"output": output, "values": [*values]})
            (self.folder / "asked.json").write_text(request)
            for place, value in enumerate(values.values()):
                if value is not None:
                    np.save(self.folder / f"{place}.npy", value)
        if len(self._lost) >= MOST_WORKERS:
            require_ok(self._lost[-1])
        worker = self.begin()
        answer = worker.take(1, MOST_SECONDS)
        if answer is None:
            result = worker.finish()
            # A model that does not load will not load the next time either.
            self._lost += [result] * (1 if result.phase == "prepare" else MOST_WORKERS)
            self._running.close()
            self._worker = None
            require_ok(result)
        elif answer.problem:
            raise LarError(answer.problem)
        array: Array = np.load(self.folder / "answer.npy")
        return array


def spec_of_dump(index: DumpIndex) -> RunSpec:
    """Return the spec of the run that made a dump, with all settings that affect its results.

    Raises:
        UsageError: the dump names no model, its model has changed, or it sets an option that only
            the command line may set. The message does not name the dump, so that the caller must
            add this name.
    """
    if not index.model or not index.engine:
        raise UsageError("is a dump that does not name the model and the engine of its run")
    if not Path(index.model).exists():
        raise UsageError(f"is a dump of the model {index.model}, which does not exist")
    if read_model_file(Path(index.model)).sha256 != index.model_sha256:
        raise UsageError(f"is a dump of the model {index.model}, which has changed since the dump")
    # Operators run alone without the variables of the environment.
    if flag := find_untyped(index.settings, {}, (str(index.settings.get(ENGINE_ENV.key)),)):
        raise UsageError(f"is a dump that sets {flag}, which only the command line may set")
    spec = RunSpec(model=index.model, engine=index.engine, driver=index.driver)
    return replace(spec, device=index.device or "cpu", settings=index.settings)


def spec_for_isolation(spec: RunSpec) -> tuple[RunSpec, tuple[str, ...]]:
    """Return a spec for the worker that runs single operators, and notes on options left out.

    Raises:
        UsageError: the engine cannot run an operator alone. The message does not name the side of
            the comparison, so that the caller must add this name.
    """
    engine = engine_named(spec.engine)
    if not engine.isolating_driver:
        raise UsageError(f"runs on {engine.title}, which cannot run an operator alone")
    if not engine.is_installed and not spec.python:
        raise UsageError(f"runs on {engine.title}, which is not installed")
    driver, known = engine.isolating_driver, [BY_KEY[key] for key in spec.settings if key in BY_KEY]
    asked = [option for option in known if option.purpose in ("setting", "cache")]
    able = [option.key for option in asked if driver in engine.rows[option.key].drivers]
    left_out = [option.flag for option in asked if option.key not in able]
    notes = (f"operators are run alone without {' '.join(left_out)}",) if left_out else ()
    settings = {key: spec.settings[key] for key in able}
    return replace(spec, driver=driver, settings=settings, items=(), item_names=()), notes
