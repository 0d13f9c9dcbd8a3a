"""The events that a worker sends to its parent process, which builds the `RunResult`.

An event is one line of JSON, `["Loaded", {...}]`. Samples are not sent as events: they are in
shared memory (`lar.measurement.rows`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

from lar.errors import ENGINE_HINT
from lar.records import run
from lar.records.record import ShortRecord


class Event(ShortRecord):
    """A message that a worker sends about its run."""


class EngineStarted(Event):
    """The engine's library is loaded."""

    engine: run.EngineFacts


class PhaseEntered(Event):
    """The run has entered a phase."""

    phase: run.Phase


class Loaded(Event):
    """The model is loaded, and its inputs are known."""

    load_seconds: float
    inputs: tuple[run.TensorInfo, ...]


class Fed(Event):
    """The worker has read the input data, and the data fits the model."""

    fed: tuple[run.FedInput, ...]
    warnings: tuple[str, ...]


class Prepared(Event):
    """The engine has the inputs, and the first iteration may start."""

    prepare_seconds: float
    sources: run.TimeSources
    noise_sources: run.NoiseSources | None = None


class CasesFound(Event):
    """The model has testcases, which check the outputs in `variables`."""

    variables: tuple[str, ...]


class CaseStarted(Event):
    """The iterations of a testcase begin."""

    number: int


class TurnEnded(Event):
    """The worker has ended a turn: it has written the rows of its iterations, or its answer.

    If the worker has no answer, `problem` says why.
    """

    problem: str = ""


class Judged(Event):
    """An iteration of a testcase is done, its row is complete, and its outputs are compared.

    `verdicts` is empty if the testcase has no expected outputs.
    """

    number: int
    name: str
    verdicts: tuple[run.Verdict, ...]


class Classified(Event):
    """Items of a data set were run, and their first output was read as scores of classes."""

    items: tuple[run.ItemClasses, ...]


class ScenarioEnded(Event):
    """MLPerf's load generator has sent its last query, and its result is known."""

    scenario: run.ScenarioResult


class Finished(Event):
    """All iterations are done."""

    outputs: tuple[run.OutputSummary, ...]
    peak_memory_bytes: int | None
    iterations_seconds: float | None = None
    warnings: tuple[str, ...] = ()
    uncached_operators: int = 0
    stopped: run.Stopped | None = None


class ModelRead(Event):
    """The content of a model file is read."""

    info: run.ModelInfo


class DevicesFound(Event):
    """The devices that an engine can run on are found."""

    devices: tuple[str, ...]


class Unpacked(Event):
    """A file of testcases is unpacked into separate files of the model and of the testcases."""

    model: str
    cases: tuple[run.Case, ...]


class Packed(Event):
    """Testcases are packed.

    `fed` has the inputs of each testcase, and `outputs` has the expected outputs.
    """

    fed: tuple[tuple[run.FedInput, ...], ...]
    outputs: tuple[run.OutputSummary, ...]
    warnings: tuple[str, ...]


class Failed(Event):
    """The worker has failed; the worker sends no event after this event."""

    failure: run.Failure


Emit = Callable[[Event], None]

EVENTS: Mapping[str, type[Event]] = {kind.__name__: kind for kind in Event.__subclasses__()}

# A worker ends after one of these.
LAST_EVENTS = (Finished, ModelRead, DevicesFound, Unpacked, Packed, Failed)


def line_of(event: Event) -> bytes:
    """Encode an event as one line of JSON.

    The standard library encodes the line, since it is imported faster than msgspec.
    """
    return json.dumps((type(event).__name__, event), default=vars).encode() + b"\n"


def event_of(line: bytes) -> Event:
    """Decode a line that `line_of` made.

    A line that is not an event becomes a failure of the engine, since lar itself writes only
    events.
    """
    import msgspec

    try:
        name, body = msgspec.json.decode(line, type=tuple[str, msgspec.Raw])
        return msgspec.json.decode(body, type=EVENTS[name])
    except (msgspec.MsgspecError, KeyError) as error:
        problem = f"the engine wrote into the pipe of lar's events: not an event: {error}"
        return Failed(run.Failure(problem, ENGINE_HINT))


def apply_event(result: run.RunResult, event: Event) -> run.RunResult:
    """Return a result to which the facts of an event are added.

    Usually, a field of the event replaces or extends the result's field of the same name.
    """
    match event:
        case Judged(number, name, verdicts):
            return replace(result, cases=run.add_verdicts(result.cases, number, name, verdicts))
        case ModelRead() | DevicesFound() | Unpacked() | Packed():
            return replace(result, status="ok", phase="done")
        case Failed(failure):
            return replace(result, status="failed", failure=failure)
    given = {name: value for name, value in vars(event).items() if name in vars(result)}
    for name in {"fed", "warnings", "items"} & given.keys():  # fields that several events extend
        given[name] = getattr(result, name) + given[name]
    if isinstance(event, Finished):
        given |= {"status": "ok", "phase": "done"}
    return replace(result, **given)
