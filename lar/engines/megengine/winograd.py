"""`--winograd-transform`: winograd algorithms wherever the cache has one, and what they give.

The engine keeps a choice of algorithm for as long as its process lives, so such a run is made in
steps, each in a process of its own:

1. With --fast-run or --full-run, the search.
2. An iteration with winograd algorithms first; the engine's log shows which it really took. Where
   it shows that the cache was searched without weights transformed ahead, which favours other
   algorithms, the convolutions are searched again.
3. An iteration without winograd algorithms, to compare the numbers.
4. The run that was asked for, with winograd algorithms first.

The user's cache file has what the search found, in the search's order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lar.engines.megengine.algorithms import (
    LoggedChoice,
    check_cache,
    choices_in,
    found_by,
    is_of,
    is_search,
    keep_search,
)
from lar.engines.megengine.cache import (
    Algorithm,
    AlgorithmCache,
    bytes_of,
    read_cache,
    winograd_of,
)
from lar.engines.megengine.cache_choices import (
    Operator,
    best_of,
    is_direct,
    operators_of,
    prefer_winograd,
    without_winograd,
)
from lar.errors import EXIT_CODES
from lar.measurement.listener import Listener
from lar.options.table import BY_KEY, FAST_RUN_ALGO_POLICY, MULTI_THREAD_CORE_IDS
from lar.records.run import (
    AlgorithmChoice,
    NumericError,
    OutputSummary,
    RunContext,
    RunResult,
    RunSpec,
    Samples,
)
from lar.records.stopping import Pacing, Stopping

SAME_MIB = 0.01  # the log gives a workspace with two decimals


def without_operators(cache: AlgorithmCache, ran: Sequence[LoggedChoice]) -> AlgorithmCache:
    """Return the cache without the convolutions that ran."""
    keys = {
        (operator.category, operator.entry.key)
        for operator in operators_of(cache)
        if any(is_convolution(choice) and is_of(choice, operator) for choice in ran)
    }
    return AlgorithmCache(
        tuple(
            replace(
                category,
                entries=tuple(
                    each for each in category.entries if (category.name, each.key) not in keys
                ),
            )
            for category in cache.categories
        )
    )


def is_convolution(choice: LoggedChoice) -> bool:
    return "Conv" in choice.operator


def pair_choices(
    ran: Sequence[LoggedChoice], cache: AlgorithmCache
) -> list[tuple[LoggedChoice, Operator | None, Algorithm | None]]:
    """Return the convolutions that ran with what the cache knows of each, each entry once."""
    left = operators_of(cache)
    pairs: list[tuple[LoggedChoice, Operator | None, Algorithm | None]] = []
    for choice in filter(is_convolution, ran):
        operator = next((each for each in left if is_known(choice, each)), None)
        if operator is None:
            pairs.append((choice, None, None))
            continue
        left.remove(operator)
        algorithms = operator.entry.algorithms
        algorithm = next(each for each in algorithms if each.name == choice.algorithm)
        pairs.append((choice, operator, algorithm))
    return pairs


def is_known(choice: LoggedChoice, operator: Operator) -> bool:
    """Return whether a choice may be this operator's and is among its algorithms."""
    names = {each.name for each in operator.entry.algorithms}
    return choice.algorithm in names and is_of(choice, operator)


def was_searched_otherwise(ran: Sequence[LoggedChoice], cache: AlgorithmCache) -> bool:
    """Return whether a convolution needs less workspace than the search noted: its weights were not
    transformed ahead then, which the cache's keys do not show."""
    return any(
        algorithm.workspace_bytes / 2**20 > choice.workspace_mib + SAME_MIB
        for choice, _, algorithm in pair_choices(ran, cache)
        if algorithm
    )


def choices_of(ran: Sequence[LoggedChoice], cache: AlgorithmCache) -> tuple[AlgorithmChoice, ...]:
    """Return the record of each convolution that ran, with what the search measured."""
    records = []
    for choice, operator, algorithm in pair_choices(ran, cache):
        winograd = winograd_of(choice.algorithm)
        other = best_of(operator.entry, is_direct) if winograd and operator else None
        records.append(
            AlgorithmChoice(
                operator=choice.operator,
                shapes=operator.shapes if operator else choice.text,
                algorithm=choice.algorithm,
                winograd=winograd,
                seconds=algorithm.seconds if algorithm else None,
                other_algorithm=other.name if other else "",
                other_seconds=other.seconds if other else None,
            )
        )
    return tuple(records)


Run = Callable[[RunSpec, RunContext], RunResult]
Step = Callable[[RunSpec, RunContext, Listener], RunResult]

SEARCHED_OTHERWISE = (
    "--winograd-transform: the cache was searched without --weight-preprocess, or on more "
    "threads, so its times are of little use; add --fast-run to search again"
)
# Winograd in float32 is off by a thousandth of that at most.
LARGE_ERROR = 0.01
WRONG = (
    "--winograd-transform: the numbers of winograd algorithms are far from the others'; "
    "leave it out, or pick other algorithms with `lar cache pick`"
)


class StepFailed(Exception):
    """A step did not end well: so ends the run."""

    def __init__(self, result: RunResult) -> None:
        super().__init__()
        self.result = result


class Relay(Listener):
    """Passes on what is shown of a search; its events would be taken for those of the run."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener

    def on_log(self, text: bytes) -> None:
        self.listener.on_log(text)

    def on_progress(self, text: str, elapsed: float) -> None:
        self.listener.on_progress(text, elapsed)


class LogKeeper(Listener):
    """Keeps what the engine prints."""

    def __init__(self) -> None:
        self.log = b""

    def on_log(self, text: bytes) -> None:
        self.log += text


@dataclass(frozen=True)
class Tried:
    """The result of one iteration with a cache."""

    choices: list[LoggedChoice]
    outputs: tuple[OutputSummary, ...]
    folder: Path


def run_with_winograd(
    spec: RunSpec, context: RunContext, listener: Listener, step: Step, run: Run
) -> RunResult:
    """Make a run that prefers winograd algorithms, and report what they gain.

    `step` executes a spec in a worker of its own; `run` is the run that was asked for.

    Raises:
        UsageError: the cache file cannot be used.
    """
    policy = FAST_RUN_ALGO_POLICY.of(spec.settings)
    searching = is_search(spec.settings)
    nothing_runs = spec.warmup_iterations + spec.iterations == 0
    if nothing_runs or not (policy or searching):
        return run(spec, context)
    known = policy and check_cache(Path(str(policy)), searching=searching)
    cache = read_cache(str(policy)) if known else AlgorithmCache()
    steps = Steps(spec, context, listener, step)
    warnings: tuple[str, ...] = ()
    try:
        if searching:
            cache = steps.search(cache)
        preferred = steps.try_cache("winograd", prefer_winograd(cache))
        if was_searched_otherwise(preferred.choices, cache):
            if searching:
                cache = steps.search(without_operators(cache, preferred.choices))
                preferred = steps.try_cache("winograd", prefer_winograd(cache))
            else:
                warnings = (SEARCHED_OTHERWISE,)
        algorithms = choices_of(preferred.choices, cache)
        errors: tuple[NumericError, ...] = ()
        if any(choice.winograd for choice in algorithms):
            direct = steps.try_cache("direct", without_winograd(cache))
            errors = compare_outputs(preferred, direct)
            if any(each.relative is None or each.relative > LARGE_ERROR for each in errors):
                warnings = (*warnings, WRONG)
    except StepFailed as stopped:
        return stopped.result
    result = run(*steps.with_cache(prefer_winograd(cache), "run"))
    return replace(
        result, algorithms=algorithms, numeric_errors=errors, warnings=(*result.warnings, *warnings)
    )


class Steps:
    """The steps before the run: each has a folder of its own in the run's work folder."""

    def __init__(self, spec: RunSpec, context: RunContext, listener: Listener, step: Step) -> None:
        self.spec, self.context, self.listener, self.step = spec, context, listener, step

    def search(self, known: AlgorithmCache) -> AlgorithmCache:
        """Search what is not known, keep it in the user's file, and return all."""
        spec, _ = self.with_cache(known, "search")
        spec = replace(alone(spec), warmup_iterations=1, iterations=0)
        # What is there in the end is kept, however the search ends.
        self.execute("the search", spec, self.context, Relay(self.listener))
        keep_search(self.spec, self.context)
        return found_by(self.context) or known

    def try_cache(self, name: str, cache: AlgorithmCache) -> Tried:
        """Run an iteration with a cache, and another after it for options that leave out one."""
        spec, context = self.with_cache(cache, name)
        spec = alone(spec)
        spec = replace(
            spec, settings={**spec.settings, "verbose": True}, warmup_iterations=1, iterations=1
        )
        keeper = LogKeeper()
        folder = Path(context.work_folder) / "outputs"
        context = replace(context, outputs_folder=str(folder))
        result = self.execute(f"the trial of {name} algorithms", spec, context, keeper)
        log = keeper.log.decode(errors="replace")
        return Tried(choices_in(log), result.outputs, folder)

    def with_cache(self, cache: AlgorithmCache, name: str) -> tuple[RunSpec, RunContext]:
        """Return the run with another cache file and another work folder."""
        folder = Path(self.context.work_folder) / name
        folder.mkdir(exist_ok=True)
        path = folder / "given.cache"
        path.write_bytes(bytes_of(cache))
        settings = {**self.spec.settings, "fast_run_algo_policy": str(path)}
        context = replace(self.context, work_folder=str(folder))
        return replace(self.spec, settings=settings), context

    def execute(
        self, name: str, spec: RunSpec, context: RunContext, listener: Listener
    ) -> RunResult:
        """Execute a step; the files that the run writes go to its own folder, and away with it.

        Raises:
            StepFailed: it did not end well.
        """
        written = {
            key: str(Path(context.work_folder) / key) + Path(path).suffix
            for key, path in context.written.items()
            if key in spec.settings
        }
        result = self.step(spec, replace(context, written=written), listener)
        if result.status == "ok":
            return result
        failure = result.failure
        # What the user gave wrongly is wrong for the run itself, too.
        if failure and failure.exit_code not in (2, EXIT_CODES["interrupted"]):
            failure = failure.within(name)
        raise StepFailed(replace(result, failure=failure, warmup=Samples(), samples=Samples()))


def alone(spec: RunSpec) -> RunSpec:
    """Return the spec of a step: one runner and one case, as others would disturb what is
    measured, no dumps, and no other end than the number of iterations."""
    settings = {
        key: value
        for key, value in spec.settings.items()
        if key != "thread" and BY_KEY[key].purpose != "dump"
    }
    if spec.runners > 1 and MULTI_THREAD_CORE_IDS.is_given(settings):
        cores = str(settings[MULTI_THREAD_CORE_IDS.key]).split(",")
        settings[MULTI_THREAD_CORE_IDS.key] = ",".join(cores[: len(cores) // spec.runners])
    return replace(
        spec, settings=settings, cases=spec.cases[:1], stopping=Stopping(), pacing=Pacing()
    )


def compare_outputs(actual: Tried, expected: Tried) -> tuple[NumericError, ...]:
    """Return by how much the outputs of two steps differ."""
    import numpy as np

    errors = []
    for index, output in enumerate(actual.outputs):
        files = [tried.folder / f"{index:03}.npy" for tried in (actual, expected)]
        if all(file.exists() for file in files):
            first, second = (np.load(file).astype(np.float64) for file in files)
            errors.append(error_of(output.name, first, second))
    return tuple(errors)


def error_of(name: str, actual: Any, expected: Any) -> NumericError:
    """Return the largest differences of two float64 arrays of one shape."""
    import numpy as np

    apart = (actual != expected) & ~(np.isnan(actual) & np.isnan(expected))
    a, b = actual[apart], expected[apart]
    if not (np.isfinite(a).all() and np.isfinite(b).all()):
        return NumericError(output=name, absolute=None, relative=None)
    difference = np.abs(a - b)
    scale = np.maximum(np.maximum(np.abs(a), np.abs(b)), 1)
    return NumericError(
        output=name,
        absolute=float(difference.max(initial=0)),
        relative=float((difference / scale).max(initial=0)),
    )
