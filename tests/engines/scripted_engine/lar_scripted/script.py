"""The scripted engine: it plays the times, values, crashes and hangs in a JSON file.

It is for the tests, and for trying what lar says about a run that goes wrong. A script:

    {"inputs": [{"name": "data", "dtype": "float32", "shape": [1, 4]}],
     "outputs": {"prob": [0.25, 0.75]},
     "load_seconds": 0.198, "prepare_seconds": 0.005,
     "times": [[0.581, 0.010, 0.580], [0.245, 0.010, 0.242]],
     "queue_delays": [0.0, 0.1], "cpu": [0.58, 0.24], "steal": [0.0, 0.0],
     "throttled": [0.0, 0.0], "frequency": [2e9, 2e9], "busiest_thread": [0.55, 0.24],
     "probe": [2e-6, 3e-6], "threads": 1,
     "operators": [{"name": "conv", "type": "Convolution", "part": 0.75}],
     "faults": [{"at": "start", "index": 1, "do": "abort"}]}

`times` are end to end, host and device of one iteration after another, warm-up first, and begin
again at their end; the noise (seconds, and Hz) has an entry for each, but ends. The script has a
clock of its own, so that the times are exact; with `"real_time": true` it sleeps them, and where it
has no queue delays those are the machine's. `progress` is what it reports while it prepares.
`operators` are those of a profile, each with its part of an iteration's time after the dispatch. A
fault happens `at` load, feed, start or outputs (the `index`-th iteration), or at the `index`-th
tensor that is computed alone, and does one of `FAULTS`.

Options that change nothing but what `effects` say are honoured too, for the tests of searches:

     "effects": [{"when": {"enable_nchw44": true, "multithread": 2}, "factor": 0.5},
                 {"when": {"enable_ioc16": true}, "error": 0.1, "memory_bytes": 50000000},
                 {"when": {"enable_nchw88": true}, "fault": {"at": "start", "do": "hang"}},
                 {"when": {"const_shape": true, "record_comp_seq": true}, "refused": "both record"},
                 {"when": {"engine_env": "TURBO=1"}, "factor": 0.8},
                 {"when": {"fast_run_algo_policy": true}, "factor": 0.4}],
     "search_seconds": 20, "search_depends": ["enable_nchw44"],
     "dimensions": [{"name": "layout",
                     "choices": [{"name": "nchw44", "options": {"enable_nchw44": true}}]}]

An effect is there when all the options of `when` have these values; true stands for any value.
The factors of all effects are multiplied with the times, the errors are added to the outputs. With
`--fast-run` or `--full-run` the first iteration takes `search_seconds` more and then writes the
file of `--fast-run-algo-policy`, with the values of the options in `search_depends`. That option
has no effect where the file is missing or was written with other values. A fault may happen `at`
search.
`dimensions` are what a search for the fastest settings tries (`lar.records.tuning`). A profile
suggests those choices that `"gains": {"nchw44": 0.4}` names, with the part of an iteration that
they are expected to save.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lar.engines.driver import Driver, EngineTrace
from lar.engines.engine import Isolation
from lar.engines.option_rows import Drivers, OptionRow
from lar.errors import UsageError
from lar.measurement.noise import Meter, Reading
from lar.options import table
from lar.options.option import flag_of
from lar.records.record import record_from_json
from lar.records.run import EngineFacts, ModelInfo, NoiseSources, RunContext, RunSpec, TensorInfo
from lar.records.tuning import Dimension, OptionValue

if TYPE_CHECKING:
    import numpy as np

    from lar.engines.choices import Site
    from lar.engines.signs import Sign
    from lar.records.profile import Execution, Profile, Step


def hang() -> None:
    while True:
        time.sleep(3600)


def spin() -> None:
    while True:
        pass


def flood() -> None:
    for _ in range(4_000):
        os.write(1, (b"engine noise " * 5 + b"\n") * 100)


def fail() -> None:
    raise RuntimeError("scripted failure")


def exhaust_memory() -> None:
    raise MemoryError


FAULTS: Mapping[str, Callable[[], None]] = {
    "raise": fail,
    "exit": lambda: os._exit(7),
    "abort": os.abort,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segfault": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "hang": hang,
    "spin": spin,
    "flood": flood,
    "memory": exhaust_memory,
}


def pass_by(driver: FakeDriver, value: object) -> None:
    """Honour an option by playing the script all the same."""


def play_operators(driver: FakeDriver, value: object) -> None:
    """Have the profile record the operators of the script."""
    driver.profiler = ScriptedProfiler(driver.script)


SCRIPT: Drivers[FakeDriver] = Drivers(("script",))

PLAYED = (
    "cpu_default multithread multithread_default engine_fix enable_nchw44 enable_nchw88 "
    "enable_nchw32 enable_ioc16 weight_preprocess const_shape record_comp_seq "
    "graph_optimization_level fast_run full_run fast_run_algo_policy"
)
ROWS: tuple[OptionRow[Any, Any], ...] = (
    OptionRow(table.CPU, SCRIPT, "the script is played"),
    OptionRow(table.THREAD, SCRIPT, "each plays the script", before_load=pass_by),
    OptionRow(table.PROFILE, SCRIPT, "the script's operators", before_load=play_operators),
    OptionRow(table.PROFILE_SYSCALLS, SCRIPT, "strace of the process that plays the script"),
    OptionRow(table.RANGE_BY, SCRIPT, "by the names of the script's operators"),
    OptionRow(table.VERBOSE, SCRIPT, "the script prints its name", before_load=pass_by),
    *(
        OptionRow(option, SCRIPT, "the script's effects", before_load=pass_by)
        for option in map(table.BY_KEY.__getitem__, PLAYED.split())
    ),
)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Something that goes wrong at one point of the run."""

    at: Literal["load", "feed", "search", "start", "outputs", "alone"]
    do: str
    index: int = 0


@dataclass(frozen=True, kw_only=True)
class Effect:
    """What some options do together; `refused` is why they cannot be given together at all."""

    when: dict[str, OptionValue]
    factor: float = 1.0
    error: float = 0.0
    memory_bytes: int = 0
    fault: Fault | None = None
    refused: str = ""

    def is_there(self, settings: Mapping[str, Any], environment: Mapping[str, str]) -> bool:
        """Return whether all the options are set so."""
        variables = [f"{name}={value}" for name, value in environment.items()]
        return all(
            value in variables
            if key == table.ENGINE_ENV.key
            else key in settings and (value is True or settings[key] == value)
            for key, value in self.when.items()
        )


@dataclass(frozen=True, kw_only=True)
class ScriptedOperator:
    """An operator of a profile, and its part of the time after the dispatch."""

    name: str
    type: str
    part: float


@dataclass(frozen=True, kw_only=True)
class Script:
    """The script that the engine plays."""

    inputs: tuple[TensorInfo, ...] = ()
    outputs: dict[str, list[float]] = field(default_factory=dict)
    load_seconds: float = 0.0
    prepare_seconds: float = 0.0
    times: tuple[tuple[float, float, float | None], ...] = ((0.001, 0.0005, None),)
    queue_delays: tuple[float, ...] = ()
    cpu: tuple[float, ...] = ()
    steal: tuple[float, ...] = ()
    throttled: tuple[float, ...] = ()
    busiest_thread: tuple[float, ...] = ()
    frequency: tuple[float, ...] = ()
    probe: tuple[float, ...] = ()
    unseen: tuple[str, ...] = ()
    threads: int | None = None
    faults: tuple[Fault, ...] = ()
    real_time: bool = False
    prints: str = ""
    progress: str = ""
    operators: tuple[ScriptedOperator, ...] = ()
    effects: tuple[Effect, ...] = ()
    search_seconds: float = 0.0
    search_keeps_part: bool = False
    search_depends: tuple[str, ...] = ()
    dimensions: tuple[Dimension, ...] = ()
    gains: dict[str, float] = field(default_factory=dict)


class ScriptedProfiler:
    """Records the operators of a script, one after the other."""

    def __init__(self, script: Script) -> None:
        self.operators = script.operators
        self.executions: list[Execution] = []

    def take(self, step: Step, forward_ns: int, dispatched_ns: int, waited_ns: int) -> None:
        from lar.records.profile import Execution

        at = dispatched_ns
        for index, operator in enumerate(self.operators):
            until = at + round(operator.part * (step.end_ns - dispatched_ns))
            self.executions.append(Execution(index, step.number, 1, at, until, warmup=step.warmup))
            at = until

    def finish(self) -> EngineTrace:
        from lar.records.profile import ProfiledOperator

        operators = (
            ProfiledOperator(id=each.name, type=each.type, name=each.name)
            for each in self.operators
        )
        return EngineTrace(
            operators=tuple(operators), executions=tuple(self.executions), thread_count=1
        )


def read_script(path: Path) -> Script:
    """Read a script.

    Raises:
        UsageError: the file is not JSON, or not a script.
    """
    try:
        content = path.read_bytes()
        script = record_from_json(content, Script)
    except (OSError, ValueError) as error:
        raise UsageError(f"not a script of the fake engine: {error}", subject=path) from None
    known = [each.name for each in fields(Script)]
    for name in json.loads(content):
        # A fault that is misspelt would not happen, and whatever counts on it would go well.
        if name not in known:
            raise UsageError(
                f"a script has no {name!r}", f"it has {', '.join(known)}", subject=path
            )
    return script


def read_model(path: Path) -> ModelInfo:
    """Describe a script as if it were a model."""
    script = read_script(path)
    outputs = tuple(
        TensorInfo(name=name, dtype="float32", shape=(len(values),))
        for name, values in script.outputs.items()
    )
    return ModelInfo(
        engine="fake",
        inputs=script.inputs,
        outputs=outputs,
        operators={},
        parameter_count=0,
        weight_bytes=0,
        flops=0,
    )


DEVICES = ("cpu",)


def dimensions_of(site: Site, model: Path) -> tuple[Dimension, ...]:
    """Return what a script says that a search tries."""
    return read_script(model).dimensions


def signs_of(profile: Profile, site: Site) -> Iterator[Sign]:
    """Yield what a script says that its profile speaks for."""
    from lar.engines.signs import Sign

    for name, gain in read_script(Path(profile.facts.model.path)).gains.items():
        yield Sign(name, "kernels", gain, f"the script takes {gain:.0%} of the time")


def describe_progress(spec: RunSpec, context: RunContext) -> str:
    """Return what the script says of its preparation."""
    try:
        return read_script(Path(spec.model)).progress
    except UsageError:  # the file went away meanwhile
        return ""


def refuse_together(path: Path, settings: Mapping[str, Any]) -> None:
    """Refuse options that cannot be given together by the script.

    Raises:
        UsageError: naming them.
    """
    for effect in read_script(path).effects:
        if effect.refused and effect.is_there(settings, {}):
            first, *others = map(flag_of, effect.when)
            named = f"{first} and {others[0]} exclude each other: " if others else f"{first}: "
            raise UsageError(named + effect.refused, "leave one of them out")


class ScriptedMeter:
    """Gives the script's noise: each iteration's at the first reading after it."""

    def __init__(self, driver: FakeDriver) -> None:
        self._driver = driver
        self._read_step = driver.step
        kinds = [each.name for each in fields(NoiseSources)]
        seen = {kind: "script" for kind in kinds if kind not in driver.script.unseen}
        self.sources = NoiseSources(**seen)

    def read(self, *, ends: bool = False) -> Reading:
        script, first, step = self._driver.script, self._read_step, self._driver.step
        self._read_step = step
        delays = script.queue_delays[first:step][-1:]
        cpu, busiest, steal, throttled = (
            sum(values[first:step]) if values else math.nan
            for values in (script.cpu, script.busiest_thread, script.steal, script.throttled)
        )
        frequency, probe = (
            (values[first:step] or (math.nan,))[-1] for values in (script.frequency, script.probe)
        )
        return Reading(
            sum(delays),
            busiest,
            cpu=cpu,
            steal=steal,
            throttled=throttled,
            frequency=frequency,
            probe=probe,
        )


class SleepingMeter:
    """Gives the machine's queue delays: a script that sleeps is disturbed when it wakes up late."""

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.sources = NoiseSources(queue_delay=meter.sources.queue_delay)

    def read(self, *, ends: bool = False) -> Reading:
        return Reading(self._meter.read(ends=ends).queue_delay, math.nan)


class FakeDriver(Driver):
    """Plays a script instead of running a model."""

    name = "script"

    def set_up(self) -> None:
        self.script = read_script(Path(self.spec.model))
        self._now = 0.0
        self.step = 0
        self.effects: list[Effect] = []
        self._factor = 1.0
        self._taken = b""
        if not self.script.real_time:
            self.clock = lambda: self._now
            self.sleep = self.spin = self._spend
        if any(device is not None for _, _, device in self.script.times):
            self.device_seconds = self._read_device

    def _read_device(self) -> float:
        device = self._played()[2]
        return math.nan if device is None else device

    def _spend(self, seconds: float) -> None:
        if self.script.real_time:
            time.sleep(seconds)
        else:
            self._now += seconds

    def _find_effects(self) -> None:
        settings = dict(self.spec.settings)
        if not self._is_searched():
            settings.pop(table.FAST_RUN_ALGO_POLICY.key, None)
        present = self.script.effects
        self.effects = [each for each in present if each.is_there(settings, self.spec.environment)]
        self._factor = math.prod(effect.factor for effect in self.effects)

    def _search_key(self) -> dict[str, Any]:
        """Return what the file of a search holds: the options that it depends on."""
        settings = self.spec.settings
        return {key: settings[key] for key in self.script.search_depends if key in settings}

    def _is_searched(self) -> bool:
        path = table.FAST_RUN_ALGO_POLICY.of(self.spec.settings)
        if path is None or not os.path.isfile(path):
            return False
        return bool(json.loads(Path(path).read_bytes()) == self._search_key())

    def _search(self) -> None:
        self._play_faults("search")
        if self.script.search_keeps_part:
            self._write_searched()
        self._spend(self.script.search_seconds)
        self._write_searched()

    def _write_searched(self) -> None:
        path = table.FAST_RUN_ALGO_POLICY.of(self.spec.settings)
        if path is not None:
            Path(path).write_text(json.dumps(self._search_key()))
            self._find_effects()

    def _play_faults(self, at: str, index: int = 0) -> None:
        of_effects = (effect.fault for effect in self.effects if effect.fault)
        for fault in (*self.script.faults, *of_effects):
            if fault.at == at and fault.index == index:
                FAULTS[fault.do]()

    def _played(self) -> tuple[float, float, float | None]:
        end_to_end, host, device = self.script.times[(self.step - 1) % len(self.script.times)]
        if self._factor == 1.0:
            return end_to_end, host, device
        factor = self._factor
        return end_to_end * factor, host * factor, None if device is None else device * factor

    def facts(self) -> EngineFacts:
        threads = self.script.threads
        return EngineFacts(name="fake", version="1", driver="script", device="cpu", threads=threads)

    def load(self) -> None:
        self.fire_hooks("before_load")
        self._find_effects()
        self._taken = b"m" * sum(effect.memory_bytes for effect in self.effects)
        if self.script.prints:
            print(self.script.prints, flush=True)
            print(self.script.prints, file=sys.stderr, flush=True)
        self._play_faults("load")
        self._spend(self.script.load_seconds)

    def inputs(self) -> tuple[TensorInfo, ...]:
        return self.script.inputs

    def feed(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> None:
        self._play_faults("feed")
        self._spend(self.script.prepare_seconds)
        self.start, self.wait = self._dispatch, self._finish

    def _dispatch(self) -> None:
        if self.step == 0 and table.one_of(table.SEARCHES, self.spec.settings):
            self._search()
        self._play_faults("start", self.step)
        self.step += 1
        self._spend(self._played()[1])

    def _finish(self) -> None:
        end_to_end, host, _ = self._played()
        self._spend(end_to_end - host)

    def outputs(self) -> Mapping[str, np.ndarray[Any, Any]]:
        import numpy as np

        self._play_faults("outputs")
        error = np.float32(sum(effect.error for effect in self.effects))
        return {
            name: np.asarray(values, np.float32) + error
            for name, values in self.script.outputs.items()
        }

    def meter(self) -> Meter | None:
        if self.script.real_time and not self.script.queue_delays:
            meter = super().meter()
            return meter and SleepingMeter(meter)
        return ScriptedMeter(self)


class FakeIsolation(Isolation):
    """Gives the outputs of a script, whatever they are computed from."""

    def __init__(self, driver: FakeDriver) -> None:
        driver.load()
        self._driver = driver
        self._count = 0

    def find_missing(self, names: Collection[str]) -> set[str]:
        return {*names} - {*self._driver.outputs(), *(each.name for each in self._driver.inputs())}

    def compute(
        self, output: str, values: Mapping[str, np.ndarray[Any, Any]]
    ) -> np.ndarray[Any, Any]:
        index, self._count = self._count, self._count + 1
        self._driver._play_faults("alone", index)
        return self._driver.outputs()[output]
