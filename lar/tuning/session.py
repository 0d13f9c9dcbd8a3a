"""The session of a search: a store of results like that of `lar history`, with cache files.

The tag of a result names its round and its candidate, as in `round 3: nchw44 + 2 threads`. Results
of another model, machine, engine or command are not used.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lar.engines import engine_named
from lar.files.database import refuse_no_database
from lar.files.locks import locked
from lar.measurement.machine import read_machine, read_model_file
from lar.options.table import BY_KEY, PYTHON
from lar.records.run import MachineFacts, ModelFile, RunResult, RunSpec
from lar.records.tuning import Candidate, ModelSpace, TuneRequest
from lar.results.store import Store, open_store
from lar.running.settings_file import read_weights
from lar.tuning.evidence import RoundKind, Trial

FLAG = "--session"
PLAIN = "plain"
IN_USE = "wait until its search has ended; `lar results` may look at it"
TAG = re.compile(r"(round|proof|search) (\d{1,9}): (.+)")

SpecOf = Callable[[Candidate, RoundKind], RunSpec | None]
"""Returns the run of a candidate in a round or a search, or None if the run is refused."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """The facts in which a valid result agrees with the search: machine, models and engines.

    The version of an engine is empty if it is unknown.
    """

    machine: MachineFacts
    models: tuple[ModelFile, ...]
    versions: tuple[str, ...]

    def fit(self, result: RunResult, model: int) -> bool:
        """Return whether a result is of this machine, model and engine version.

        A failed result may lack facts; missing facts count as equal.
        """
        engine, version = result.engine, self.versions[model]
        return (
            (engine is None or not version or engine.version == version)
            and identity_of(result.machine or self.machine) == identity_of(self.machine)
            and contents_of(result.model or self.models[model]) == contents_of(self.models[model])
        )


def identity_of(machine: MachineFacts) -> tuple[object, ...]:
    """Return the facts that decide which settings are fastest on a machine."""
    return machine.system, machine.processor, machine.usable_cores, machine.cpu_limit


def contents_of(model: ModelFile) -> tuple[object, ...]:
    """Return the checksums that distinguish a model from other models with the same name."""
    return model.sha256, sorted(model.weights.values())


def read_facts(
    request: TuneRequest,
    machine: MachineFacts | None = None,
    versions: Mapping[str, str] | None = None,
) -> Facts:
    """Return the facts of this machine, or of `machine`.

    `versions` are the versions of the engines on `machine`.

    Raises:
        UsageError: a model is missing or cannot be read.
    """

    def version_of(space: ModelSpace) -> str:
        if versions is not None:
            return versions.get(space.engine, "")
        # With `--python`, another Python has the engine, and its version is unknown.
        own = not space.options.get(PYTHON.key)
        return engine_named(space.engine).version if own else ""

    return Facts(
        machine=machine or read_machine(),
        models=tuple(
            replace(
                read_model_file(Path(each.model)),
                weights=read_weights(each.model, engine_named(each.engine)),
            )
            for each in request.spaces
        ),
        versions=tuple(map(version_of, request.spaces)),
    )


class Session:
    """All results of a search, which may have been continued several times.

    Attributes:
        trials: the trials that are valid for this machine, its models and engines.
        unused: how many results in the store are not valid here.
        next_number: the number of the next round.
    """

    def __init__(self, store: Store, spaces: Sequence[ModelSpace], facts: Facts) -> None:
        self.store = store
        self.spaces = spaces
        self.facts = facts
        self.trials: list[Trial] = []
        self.unused = 0
        self.next_number = 0

    def load(self, spec_of: SpecOf) -> None:
        """Load the stored results of runs that `spec_of` would plan in the same way."""
        for entry in self.store.entries():
            found = TAG.fullmatch(entry.tag)
            if found is None:
                continue
            kind: RoundKind = found[1]  # type: ignore[assignment]
            number = int(found[2])
            self.next_number = max(self.next_number, number + 1)
            result = self.store.result(entry.id)
            candidate = self.candidate_of(found[3], result)
            spec = candidate and spec_of(candidate, kind)
            if candidate and spec and plain_spec(spec) == plain_spec(result.spec):
                self.trials.append(Trial(kind, number, candidate, result))
            else:
                self.unused += 1

    def candidate_of(self, choices: str, result: RunResult) -> Candidate | None:
        """Return the candidate of a result, or None if the result is not valid for the search."""
        for number, space in enumerate(self.spaces):
            same = (space.engine, space.model) == (result.spec.engine, result.spec.model)
            if same and self.facts.fit(result, number):
                names = () if choices == PLAIN else tuple(choices.split(" + "))
                known = {it.name for dimension in space.dimensions for it in dimension.choices}
                return Candidate(model=number, choices=names) if known.issuperset(names) else None
        return None

    def add(self, trial: Trial) -> None:
        """Store the result of a process; afterwards, the result is on the disk.

        Raises:
            LarError: the disk is full.
        """
        names = " + ".join(trial.candidate.choices) or PLAIN
        model = self.facts.models[trial.candidate.model]
        trial = trial._replace(result=replace(trial.result, model=model))
        self.store.add([trial.result], f"{trial.kind} {trial.number}: {names}")
        self.trials.append(trial)
        self.next_number = max(self.next_number, trial.number + 1)

    @property
    def warnings(self) -> list[str]:
        """Lines that warn of stored results that are not used."""
        if not self.unused:
            return []
        count = f"{self.unused} result{'s are' if self.unused > 1 else ' is'}"
        return [f"{count} of another model, machine, engine or command, and not used"]

    @property
    def spent_seconds(self) -> float:
        """How many seconds all rounds and searches took, without those whose end is unknown."""
        rounds: dict[int, float] = {}
        for trial in self.trials:
            seconds = trial.result.wall_seconds
            rounds[trial.number] = max(rounds.get(trial.number, 0.0), seconds)
        return sum(rounds.values())

    def cache_place(self, name: str) -> str:
        """Return the path of the cache with this name, in a folder beside the session."""
        folder = f"{self.store.path}.caches"
        os.makedirs(folder, exist_ok=True)
        return os.path.join(folder, name)


@contextlib.contextmanager
def open_session(place: str, request: TuneRequest, facts: Facts) -> Iterator[Session]:
    """Open a session for a search, or begin a new session.

    Raises:
        UsageError: the file is not a session, or another process uses the session.
        LarError: the disk is full.
    """
    refuse_no_database(place, FLAG)
    with open_store(place, create=True) as store, locked(place, FLAG, seconds=0, hint=IN_USE):
        yield Session(store, request.spaces, facts)


def plain_spec(spec: RunSpec) -> RunSpec:
    """Return a spec without time limits and cache names, to compare it with another spec."""
    settings = {
        key: "" if key in BY_KEY and BY_KEY[key].purpose == "cache" else value
        for key, value in spec.settings.items()
    }
    return replace(spec, settings=settings, timeout_seconds=None, stall_seconds=None)
