"""Operators of a model that are run alone, in a worker that may crash or hang."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar.dumps.dump import DumpedTensor, DumpIndex
from lar.engines import engine_named
from lar.errors import LarError, OutOfTime, UsageError
from lar.measurement.listener import Listener
from lar.measurement.machine import read_model_file
from lar.options.option import flag_of
from lar.options.table import BY_KEY
from lar.records.events import ComputedAlone, Event
from lar.records.run import Failure, RunContext, RunResult, RunSpec
from lar.running.isolation import Watch
from lar.running.steps import unpack_cases
from lar.running.worker_process import start_worker

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[Any]]

# So long an operator may compute; MegEngine keeps a CPU busy where it waits for ever.
MOST_SECONDS = 60.0
# After so many workers that crashed or hung, the other operators are left alone.
MOST_WORKERS = 3
# Between two looks at a worker that has nothing to say.
LOOK_SECONDS = 0.1


class IsolatedOperators(Listener):
    """The operators of a spec's model, run alone when they are asked for.

    The worker is started by the first. Where it crashes or hangs, that is the problem of the
    operator at hand, and another worker does the next one.
    """

    def __init__(self, spec: RunSpec, folder: Path) -> None:
        self.spec = spec
        self.folder = folder
        self._number = 0
        self._idle_since = 0.0
        self._answer: ComputedAlone | None = None
        self._watch: Watch | None = None
        self._worker = contextlib.ExitStack()
        self._lost: list[Failure] = []

    def __enter__(self) -> IsolatedOperators:
        return self

    def __exit__(self, *_: object) -> None:
        self._worker.close()

    def on_event(self, event: Event, result: RunResult) -> None:
        if isinstance(event, ComputedAlone):
            self._answer = event

    def begin(self) -> None:
        """Start the worker, which loads the model while the caller goes on."""
        if self._watch is None:
            self.start()

    def find_missing(self, tensors: Iterable[DumpedTensor]) -> set[str]:
        tensors = list(tensors)
        with self.turn("", [tensor.name for tensor in tensors]) as number:
            self.ask(number)
            names = json.loads((self.folder / f"{number}.missing").read_bytes())
        return {tensor.key for tensor in tensors if tensor.name in names}

    def compute(self, output: DumpedTensor, values: Mapping[str, Array]) -> Array:
        import numpy as np

        with self.turn(output.name, [*values]) as number:
            for place, value in enumerate(values.values()):
                np.save(self.folder / f"{number}.{place}.npy", value)
            self.ask(number)
            array: Array = np.load(self.folder / f"{number}.npy")
        if (1, *output.shape[1:]) == array.shape:  # of a loop that computes the same in each round
            array = np.repeat(array, output.shape[0], axis=0)
        if array.shape != tuple(output.shape):
            raise LarError(f"alone it gives {array.shape}, not {tuple(output.shape)}")
        return array

    @contextlib.contextmanager
    def turn(self, output: str, values: Sequence[str]) -> Iterator[int]:
        """Write what a turn asks for, and remove all files of it in the end.

        Raises:
            LarError: its files cannot be written or read.
        """
        number, self._number = self._number, self._number + 1
        request = {"output": output, "values": values}
        try:
            (self.folder / f"{number}.json").write_text(json.dumps(request))
            yield number
        except OSError as error:
            # NumPy's own errors, of what was written in part, have no reason.
            reason = (error.strerror or "not all was written").lower()
            raise LarError(f"its values cannot be kept in a file: {reason}") from None
        finally:
            for file in self.folder.glob(f"{number}.*"):
                file.unlink()

    def ask(self, number: int) -> None:
        """Have the worker do what stands in the files of a number.

        Raises:
            LarError: it could not, or was lost.
        """
        if len(self._lost) >= MOST_WORKERS:
            raise self._lost[-1].to_error()
        watch = self._watch or self.start()
        watch.begin_turn(time.monotonic() - self._idle_since)
        self._answer = None
        watch.worker.send(b"%d" % number, more=True)
        deadline = time.monotonic() + MOST_SECONDS
        while self._answer is None and not watch.ended:
            attend(watch, deadline)
        self._idle_since = time.monotonic()
        answer: ComputedAlone | None = self._answer
        if answer is None:
            raise self.lose(watch).to_error()
        if answer.problem:
            raise LarError(answer.problem)

    def start(self) -> Watch:
        """Start a worker that loads the model."""
        spec = self.spec
        worker = self._worker.enter_context(
            start_worker("isolate", spec.engine, spec.driver, spec.environment, spec.python)
        )
        context = RunContext(work_folder=str(self.folder), turns=True)
        spec, context = self._worker.enter_context(unpack_cases(spec, context))
        spec = replace(spec, cases=())
        watch = Watch(worker, spec, replace(context, work_folder=str(self.folder)), self)
        watch.send("isolate")
        self._idle_since = time.monotonic()
        self._watch = watch
        return watch

    def lose(self, watch: Watch) -> Failure:
        """Give up a worker that has ended; return why."""
        watch.take_rest()
        failure = watch.finish().failure or Failure("the worker gave no result")
        # A model that does not load will not load again.
        again = watch.result.phase == "prepare"
        self._lost += [failure] if again else [failure] * MOST_WORKERS
        self._worker.close()
        self._watch = None
        return failure


def attend(watch: Watch, deadline: float) -> None:
    """Wait a little for something to come of a worker; give it up where it takes too long."""
    try:
        watch.attend(LOOK_SECONDS)
        if time.monotonic() > deadline:
            raise OutOfTime(f"the engine has not computed it in {MOST_SECONDS:g} s")
    except OutOfTime as error:
        watch.give_up("timed_out", Failure.of(error))


def spec_of_dump(index: DumpIndex) -> RunSpec:
    """Return the spec of the run that made a dump, as far as its model computes by it.

    Raises:
        UsageError: a predicate of the dump, which names no model that is still there.
    """
    if not index.model or not index.engine:
        raise UsageError("is a dump that names no model to run operators of")
    model = Path(index.model)
    if not model.exists():
        raise UsageError(f"is a dump whose model {index.model} is not there")
    if read_model_file(model).sha256 != index.model_sha256:
        raise UsageError(f"is a dump whose model {index.model} has changed since")
    return RunSpec(
        model=index.model,
        engine=index.engine,
        driver=index.driver,
        device=index.device or "cpu",
        settings=index.settings,
    )


def spec_for_isolation(spec: RunSpec) -> tuple[RunSpec, tuple[str, ...]]:
    """Return a spec for the worker that runs operators alone, and notes about the options that it
    cannot honour.

    Raises:
        UsageError: a predicate of the side, whose engine has no such worker.
    """
    engine = engine_named(spec.engine)
    if not engine.isolating_driver:
        raise UsageError(f"runs on {engine.title}, which cannot run an operator alone")
    if not engine.is_installed and not spec.python:
        raise UsageError(f"runs on {engine.title}, which is not installed")
    settings = {
        key: value
        for key, value in spec.settings.items()
        if key in BY_KEY and BY_KEY[key].purpose in ("setting", "cache")
    }
    able = {
        key: value
        for key, value in settings.items()
        if engine.isolating_driver in engine.rows[key].drivers
    }
    left_out = [flag_of(key) for key in settings if key not in able]
    notes = [f"operators are run alone without {' '.join(left_out)}"] if left_out else []
    return (
        replace(
            spec,
            driver=engine.isolating_driver,
            settings=able,
            inputs=(),
            items=(),
            item_names=(),
            warmup_iterations=0,
            iterations=0,
        ),
        tuple(notes),
    )
