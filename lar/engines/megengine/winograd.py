"""`--winograd-transform`: winograd algorithms wherever the cache has one, and what they give.

The engine keeps a choice of algorithm for as long as its process lives, so such a run is made in
steps, each in a process of its own:

1. With --fast-run or --full-run, the search.
2. An iteration with winograd algorithms first; the engine's log shows which it really took.
3. An iteration without winograd algorithms, to compare the numbers.
4. The run that was asked for, with winograd algorithms first.

The user's cache file has what the search found, in the search's order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from lar.engines.listener import Listener, SideListener
from lar.engines.megengine import algorithms
from lar.engines.megengine import cache_operators as operators
from lar.engines.megengine.algorithms import LoggedChoice
from lar.engines.megengine.cache import AlgorithmCache, bytes_of, winograd_of
from lar.errors import EXIT_CODES
from lar.options import table
from lar.records import run as records
from lar.records.comparison import Tolerance
from lar.records.run import Pacing, RunContext, RunResult, RunSpec, Stopping

Step = Callable[[RunSpec, RunContext, Listener], RunResult]

# Winograd in float32 is off by a thousandth of that at most.
LARGE_ERROR = 0.01
WRONG = (
    "--winograd-transform: the numbers of winograd algorithms are far from the others'; "
    "leave it out, or pick other algorithms with `lar cache pick`"
)


def choices_of(
    ran: Sequence[LoggedChoice], cache: AlgorithmCache
) -> tuple[records.AlgorithmChoice, ...]:
    """Return the record of each convolution that ran, with the measurements of the search; each
    entry of the cache is one of them."""
    choices = []
    left = operators.operators_of(cache)
    for each in (choice for choice in ran if "Conv" in choice.operator):
        name, winograd = each.algorithm, winograd_of(each.algorithm)
        choice = records.AlgorithmChoice(
            operator=each.operator, shapes=each.text, algorithm=name, winograd=winograd
        )
        operator, timed = algorithms.find_known(each, left)
        if operator and timed:
            left.remove(operator)
            choice = replace(choice, shapes=operator.shapes, seconds=timed.seconds)
            other = operators.best_of(operator.algorithms, operators.is_direct)
            if timed.winograd and other:
                choice = replace(choice, other_algorithm=other.name, other_seconds=other.seconds)
        choices.append(choice)
    return tuple(choices)


@dataclass(eq=False)
class StepFailed(Exception):
    """A step failed, and the run fails with it."""

    result: RunResult


class StepListener(SideListener):
    """Keeps what the engine prints, and passes on what is shown of a search."""

    log = b""

    def on_log(self, text: bytes) -> None:
        self.log += text
        super().on_log(text)


class Tried(NamedTuple):
    """The result of one iteration with a cache."""

    choices: list[LoggedChoice]
    outputs: tuple[records.OutputSummary, ...]
    folder: Path


def run_with_winograd(
    step: Step, run: Step, spec: RunSpec, context: RunContext, listener: Listener
) -> RunResult:
    """Make a run that prefers winograd algorithms, and report what they gain.

    `step` executes a spec in a worker of its own; `run` is the run that was asked for.

    Raises:
        UsageError: the cache file cannot be used.
    """
    policy = table.FAST_RUN_ALGO_POLICY.of(spec.settings)
    searching = algorithms.is_search(spec.settings)
    nothing_runs = spec.warmup_iterations + spec.iterations == 0
    if nothing_runs or not (policy or searching):
        return run(spec, context, listener)
    cache = algorithms.known_cache(Path(str(policy)), searching=searching) if policy else {}
    steps = Steps(spec, context, listener, step)
    errors: tuple[records.NumericError, ...] = ()
    try:
        if searching:
            cache = steps.search(cache)
        preferred = steps.try_cache("winograd", operators.prefer_winograd(cache))
        chosen = choices_of(preferred.choices, cache)
        if any(choice.winograd for choice in chosen):
            direct = steps.try_cache("direct", operators.without_winograd(cache))
            errors = tuple(compare_outputs(preferred, direct))
    except StepFailed as stopped:
        return stopped.result
    result = run(*steps.with_cache(operators.prefer_winograd(cache), "run"), listener)
    if any(each.relative is None or each.relative > LARGE_ERROR for each in errors):
        result = replace(result, warnings=(*result.warnings, WRONG))
    return replace(result, algorithms=chosen, numeric_errors=errors)


@dataclass(frozen=True)
class Steps:
    """The steps before the run: each has a folder of its own in the run's work folder."""

    spec: RunSpec
    context: RunContext
    listener: Listener
    step: Step

    def search(self, known: AlgorithmCache) -> AlgorithmCache:
        """Search what is not known, keep it in the user's file, and return all."""
        spec = replace(alone(self.with_cache(known, "search")[0]), iterations=0)
        # What was found is kept, however the search ends.
        self.execute("the search", spec, self.context, StepListener(self.listener))
        algorithms.keep_search(self.spec, self.context)
        return algorithms.found_by(self.context) or known

    def try_cache(self, name: str, cache: AlgorithmCache) -> Tried:
        """Run an iteration with a cache, and another after it for options that leave out one."""
        asked, context = self.with_cache(cache, name)
        spec = alone(asked)
        spec = replace(spec, settings={**spec.settings, table.VERBOSE.key: True})
        listener, folder = StepListener(Listener()), Path(context.work_folder) / "outputs"
        context = replace(context, outputs_folder=str(folder))
        result = self.execute(f"the trial of {name} algorithms", spec, context, listener)
        log = listener.log.decode(errors="replace")
        return Tried(algorithms.choices_in(log), result.outputs, folder)

    def with_cache(self, cache: AlgorithmCache, name: str) -> tuple[RunSpec, RunContext]:
        """Return the run with another cache file and another work folder."""
        folder = Path(self.context.work_folder) / name
        folder.mkdir(exist_ok=True)
        path = folder / "given.cache"
        path.write_bytes(bytes_of(cache))
        settings = {**self.spec.settings, table.FAST_RUN_ALGO_POLICY.key: str(path)}
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
        none = records.Samples()
        raise StepFailed(replace(result, failure=failure, warmup=none, samples=none))


def alone(spec: RunSpec) -> RunSpec:
    """Return the spec of a step: one iteration after one of warm-up, no other end, no dumps. It has
    one runner and one case: more would disturb what is measured."""
    settings = {
        key: value
        for key, value in spec.settings.items()
        if key != table.THREAD.key and table.BY_KEY[key].purpose != "dump"
    }
    if spec.runners > 1 and table.MULTI_THREAD_CORE_IDS.is_given(settings):
        cores = str(settings[table.MULTI_THREAD_CORE_IDS.key]).split(",")
        settings[table.MULTI_THREAD_CORE_IDS.key] = ",".join(cores[: len(cores) // spec.runners])
    once = replace(spec, settings=settings, cases=spec.cases[:1], warmup_iterations=1, iterations=1)
    return replace(once, stopping=Stopping(), pacing=Pacing())


def compare_outputs(actual: Tried, expected: Tried) -> Iterator[records.NumericError]:
    """Yield by how much the outputs of two steps differ."""
    import numpy as np

    from lar.comparison.metrics import bounds_of, measure

    for index, output in enumerate(actual.outputs):
        files = [tried.folder / f"{index:03}.npy" for tried in (actual, expected)]
        if all(file.exists() for file in files):
            first, second = map(np.load, files)
            found = measure(first, second, bounds_of(Tolerance(), output.dtype))
            is_finite = not found.nonfinite_mismatches
            yield records.NumericError(
                output=output.name,
                absolute=found.max_absolute or 0.0 if is_finite else None,
                relative=found.max_error or 0.0 if is_finite else None,
            )
