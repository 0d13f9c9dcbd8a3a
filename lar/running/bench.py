"""`lar bench`: variants measured in turns, in fresh processes, until the differences are clear."""

from __future__ import annotations

import contextlib
import math
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar import __version__
from lar.comparison.outputs import compare_outputs, read_outputs
from lar.errors import LarError, UsageError, nearest
from lar.files.work_folders import work_folder
from lar.measurement.differences import alpha_of_look, compare_pairs
from lar.measurement.machine import read_machine, read_model_file
from lar.measurement.statistics import percentile_of
from lar.measurement.summary import summarize
from lar.measurement.turns import centre_of_turn, join_turns, kept_of, log_ratios_of, signs_agree
from lar.options.table import BY_KEY
from lar.options.variants import BENCH_KEYS
from lar.records.bench import BenchResult, OutputDifference, Stop, Turn, VariantResult
from lar.records.run import (
    Failure,
    FedInput,
    ModelFile,
    RunContext,
    RunResult,
    RunSpec,
    Samples,
)
from lar.records.summary import Difference
from lar.running.compared_dumps import ModelRun, generated_inputs
from lar.running.steps import unpack_cases
from lar.running.turns import TurnTaker, await_all
from lar.running.variants import (
    Axis,
    Variant,
    axis_of,
    find_baseline,
    make_variants,
    parse_vary,
)

if TYPE_CHECKING:
    from lar.running.array_inputs import Inputs

# A turn takes about so long: disturbances are often longer, and meet neighbouring turns alike.
TURN_SECONDS = 0.01
MOST_PER_TURN = 64
# Before the timed iterations of a turn, as the caches hold what others left there.
UNTIMED_SECONDS = 5e-4
MOST_UNTIMED = 8
SHORTEST_SECONDS = 1e-7

# A round measures about as long as its processes took to start, within these bounds.
LEAST_ROUND_SECONDS = 1.0
MOST_ROUND_SECONDS = 5.0
LEAST_CYCLES = 3
MOST_CYCLES = 100
WANTED_CALM = 8
FEWEST_ROUNDS = 3  # that an interval is made of
FIRST_ROUNDS = 5  # before the first look; for variants that there is nothing to compare with, all

# Workers that are alive at once, where memory allows it.
MOST_ALIVE = 8
MEMORY_SHARE = 0.7
# The source of data that another model's inputs have in common with the baseline's.
AS_BASELINE = "generated as for the baseline"
WORKER_BYTES = 200 << 20  # and three times the model file, as long as nothing better is known

Report = Callable[["BenchProgress"], None]


@dataclass(frozen=True)
class BenchProgress:
    """How far a bench has come: the comparisons that are decided, of how many, and the seconds
    that the budget leaves."""

    rounds: int
    decided: int
    comparisons: int
    left_seconds: float
    detectable: float | None


def bench(
    models: str | Path | Sequence[str | Path],
    *,
    vary: Mapping[str, object] | Sequence[str] | str = (),
    inputs: Inputs | None = None,
    baseline: str | None = None,
    budget_seconds: float = 120.0,
    margin: float = 0.01,
    keep_outputs: bool = False,
    **options: Any,
) -> BenchResult:
    """Compare variants of a run: which is faster, by how much, and how sure that is.

    Args:
        models: a model file, or several; each may have flags of its own: "m.onnx --multithread 2".
        vary: the options to vary, by key with their values: `{"multithread": [1, 2]}`; or what
            `--vary` takes.
        inputs: what all are fed with, as `lar.run` takes it.
        baseline: the name of the variant that the others are compared with; the first if None.
        budget_seconds: measure for at most so long.
        margin: stop where a change as large as this one, 0.01 for 1 %, would have been shown.
        keep_outputs: each variant's `arrays` has its outputs.
        options: the flags of `lar run` by key, for all variants.

    Returns:
        The result. A variant that crashes is one of its rows; nothing is raised for it.

    Raises:
        UsageError: a model, an option or a value cannot be used.
        EngineMissing: the engines of all variants are not installed.
    """
    from lar.running.array_inputs import GivenInputs

    specs = [models] if isinstance(models, (str, os.PathLike)) else [*models]
    check_keys(options)
    with work_folder() as folder:
        place = os.path.join(folder, "inputs")
        os.mkdir(place)
        given = None if inputs is None else GivenInputs(inputs, Path(place))
        if given is not None:
            options["input"] = [*given.items, *(options.get("input") or [])]
        variants = make_variants([os.fspath(each) for each in specs], axes_of(vary), options)
        result = run_bench(
            variants,
            find_baseline(variants, baseline),
            budget_seconds=budget_seconds,
            margin=margin,
            names=given.names if given else {},
            name_spec=given.named_in if given else None,
            keep_outputs=keep_outputs,
        )
    if result.stopped == "interrupted":
        raise KeyboardInterrupt
    return result


def axes_of(vary: Mapping[str, object] | Sequence[str] | str) -> list[Axis]:
    """Return the axes that Python code gives.

    Raises:
        UsageError: an option is unknown, cannot vary or has no values.
    """
    if isinstance(vary, Mapping):
        return [axis_of(key, values) for key, values in vary.items()]
    return [parse_vary(each) for each in ([vary] if isinstance(vary, str) else vary)]


def check_keys(options: Mapping[str, object]) -> None:
    """Refuse a keyword that is no option of a variant.

    Raises:
        UsageError: naming the nearest.
    """
    own = ("models", "vary", "inputs", "baseline", "budget_seconds", "margin", "keep_outputs")
    for key in options:
        if key in BENCH_KEYS:
            continue
        if key in BY_KEY:
            raise UsageError(
                f"{key!r} does not say how a model is run", "the bench itself chooses how often"
            )
        near = nearest(key, [*BENCH_KEYS, *own])
        raise UsageError(
            f"unknown option {key!r}" + (f"; did you mean {near!r}?" if near else ""),
            "options are the flags of `lar run --help all`: --warmup-iter N is warmup_iter=N",
        )


@dataclass
class Entry:
    """A variant, and what is known of it so far."""

    number: int
    variant: Variant
    model: ModelFile | None = None
    result: RunResult | None = None  # of its first process, or of the one that failed
    seconds: float = 0.0  # of an iteration that nothing disturbs
    turns: list[Turn] = field(default_factory=list)
    difference: Difference | None = None
    looked: int = 0  # at so many pairs of processes
    decided: bool = False  # nothing more is to be found out
    outputs: str = ""  # the folder of its outputs
    spec: RunSpec | None = None  # with unpacked testcases, and data as the baseline's
    context: RunContext = field(default_factory=RunContext)

    def learn(self, samples: Samples) -> None:
        """Learn how long an iteration takes when nothing disturbs it, for the length of turns."""
        if samples.end_to_end:
            found = max(percentile_of(sorted(samples.end_to_end), 25), SHORTEST_SECONDS)
            self.seconds = min(self.seconds or found, found)

    @property
    def failed(self) -> bool:
        """Whether it cannot be measured any more."""
        if self.variant.spec is None:
            return True
        return self.result is not None and self.result.status != "ok"

    @property
    def shape(self) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """What it is fed with: those of another shape are not compared."""
        return tuple((each.dtype, each.shape) for each in self.result.fed) if self.result else ()

    @property
    def rounds(self) -> int:
        """The number of processes that have made turns."""
        return len({turn.round for turn in self.turns})


def run_bench(
    variants: Sequence[Variant],
    baseline: int = 0,
    *,
    budget_seconds: float = 120.0,
    margin: float = 0.01,
    seed: int = 0,
    names: Mapping[str, str] | None = None,
    name_spec: Callable[[RunSpec], RunSpec] | None = None,
    keep_outputs: bool = False,
    report: Report | None = None,
) -> BenchResult:
    """Measure variants in turns until the budget is spent or all differences are clear.

    `names` and `name_spec` are for inputs that the user knows by other names than their files'.
    An interrupt ends it with what is known until then.

    Raises:
        LarError: the baseline is refused.
    """
    refusal = variants[baseline].failure
    if refusal is not None:
        raise refusal.within(f"the baseline {variants[baseline].name!r}").to_error()
    with work_folder() as folder:
        campaign = Campaign(
            variants,
            baseline,
            folder=folder,
            deadline=time.monotonic() + budget_seconds,
            margin=margin,
            seed=seed,
            names=names or {},
            report=report or (lambda progress: None),
        )
        started = datetime.now(timezone.utc).isoformat(timespec="seconds")
        stopped: Stop
        with contextlib.ExitStack() as stack:
            try:
                stopped = campaign.run(stack)
            except KeyboardInterrupt:
                stopped = "interrupted"
        found = campaign.results(name_spec or (lambda spec: spec), keep_outputs=keep_outputs)
    return BenchResult(
        variants=found,
        stopped=stopped,
        lar_version=__version__,
        started_at=started,
        machine=read_machine(),
        baseline=variants[baseline].name,
        margin=margin,
        budget_seconds=budget_seconds,
        rounds=campaign.rounds,
        seed=seed,
        wall_seconds=time.monotonic() - campaign.began,
        failure=campaign.failure,
    )


class Campaign:
    """The rounds of a bench, each with fresh processes."""

    def __init__(
        self,
        variants: Sequence[Variant],
        baseline: int,
        *,
        folder: str,
        deadline: float,
        margin: float,
        seed: int,
        names: Mapping[str, str],
        report: Report,
    ) -> None:
        self.entries = [Entry(number, variant) for number, variant in enumerate(variants)]
        self.baseline = self.entries[baseline]
        self.folder = folder
        self.began = time.monotonic()
        self.deadline = deadline
        self.margin = margin
        self.order = random.Random(seed)
        self.names = names
        self.report = report
        self.rounds = 0
        self.groups: list[tuple[Entry, list[Entry]]] = []

    @property
    def failure(self) -> Failure | None:
        """Why nothing could be compared: the baseline's failure."""
        result = self.baseline.result
        if result is not None and result.status != "ok":
            return result.failure
        return self.baseline.variant.failure

    def run(self, stack: contextlib.ExitStack) -> Stop:
        """Make rounds until it is clear that no more are needed; return why it ended.

        What is unpacked for them stays until the stack is closed.
        """
        self.prepare(stack)
        able = [entry for entry in self.entries if not entry.failed]
        for chunk in self.chunks_of(self.baseline, able):
            self.play_round(chunk)
        if self.baseline.failed:
            return "failed"
        self.groups = self.group(able)
        while True:
            self.look()
            if self.baseline.failed:
                return "failed"
            pending = [entry for _, others in self.groups for entry in others if not entry.decided]
            alone = [base for base, others in self.groups if not others and not base.decided]
            if not pending and not alone:
                return self.reason()
            for base, others in self.groups:
                left = [entry for entry in others if not entry.decided]
                for chunk in self.chunks_of(base, [base, *left]) if left else []:
                    if self.is_late():
                        return "budget"
                    self.play_round(chunk)
            for chunk in self.chunks_of(None, alone) if alone else []:
                if self.is_late():
                    return "budget"
                self.play_round(chunk)

    def prepare(self, stack: contextlib.ExitStack) -> None:
        """Read what the rounds have in common: models, testcases in them, data for all."""
        models: dict[str, ModelFile] = {}
        for entry in self.entries:
            spec = entry.variant.spec
            if spec is None:
                continue
            try:
                if spec.model not in models:
                    models[spec.model] = read_model_file(Path(spec.model))
                context = RunContext(model=models[spec.model], names=dict(self.names))
                unpacked = stack.enter_context(unpack_cases(spec, context))
            except LarError as error:
                entry.variant = replace(entry.variant, spec=None, failure=Failure.of(error))
                continue
            entry.spec, entry.context = unpacked
            entry.model = models[spec.model]
            if inputs := self.inputs_like_baseline(entry):
                entry.spec = replace(entry.spec, inputs=inputs)
                names = {**entry.context.names, **dict.fromkeys(files_in(inputs), AS_BASELINE)}
                entry.context = replace(entry.context, names=names)

    def inputs_like_baseline(self, entry: Entry) -> tuple[str, ...]:
        """Return files with the data that is generated for the baseline, where the inputs of
        another model have other names, so that other data would be generated for it."""
        ours, theirs = entry.variant, self.baseline.variant
        if ours.spec is None or theirs.spec is None or ours.spec.model == theirs.spec.model:
            return ()
        if any(spec.inputs or spec.cases for spec in (ours.spec, theirs.spec)):
            return ()
        sides = [ModelRun(it.model, it.model, dict(it.options)) for it in (theirs, ours)]
        place = Path(self.folder, f"inputs-{entry.number}")
        place.mkdir()
        settings = {"fill": ours.spec.fill, "seed": ours.spec.seed}
        with contextlib.suppress(LarError):  # it takes other inputs, or cannot be read
            return tuple(generated_inputs(1, sides, settings, place))
        return ()

    def group(self, entries: Iterable[Entry]) -> list[tuple[Entry, list[Entry]]]:
        """Return the variants of each shape: the baseline, and those compared with it."""
        shapes: dict[Any, list[Entry]] = {}
        for entry in entries:
            if not entry.failed:
                shapes.setdefault(entry.shape, []).append(entry)
        groups = []
        for members in shapes.values():
            base = self.baseline if self.baseline in members else members[0]
            groups.append((base, [entry for entry in members if entry is not base]))
        return groups

    @property
    def comparisons(self) -> int:
        """The comparisons that are made together."""
        return sum(len(others) for _, others in self.groups)

    def reason(self) -> Stop:
        """Return why nothing more is measured."""
        compared = [entry for _, others in self.groups for entry in others if not entry.failed]
        if not compared:
            measured = [base for base, _ in self.groups]
            return "single" if len(measured) > 1 else "failed"
        shown = (
            it.difference and it.difference.verdict != "no difference shown" for it in compared
        )
        return "clear" if all(shown) else "precise"

    def look(self) -> None:
        """Judge the variants that are not decided yet."""
        for base, others in self.groups:
            for entry in others:
                if not entry.decided:
                    self.judge(base, entry)
            if not others and (base.rounds >= FIRST_ROUNDS or base.failed):
                base.decided = True
        self.show()

    def judge(self, base: Entry, entry: Entry) -> None:
        """Compare a variant with its baseline, as far as it is measured."""
        entry.difference = self.compare(base, entry) or entry.difference
        if entry.failed or base.failed:
            entry.decided = True
            return
        found = entry.difference
        if found is None or found.processes < FIRST_ROUNDS:
            return
        # Rounds that have no say any more may make the number of processes smaller again.
        if found.processes > entry.looked and alpha_of_look(found.processes) is not None:
            entry.looked = found.processes
            entry.decided = found.verdict != "no difference shown"
        smallest = found.smallest_detectable
        entry.decided = entry.decided or (smallest is not None and smallest < self.margin)

    def compare(self, base: Entry, entry: Entry) -> Difference | None:
        """Return how a variant differs from its baseline; None if too few rounds say it."""
        ratios = log_ratios_of(base.turns, entry.turns)
        if len(ratios.rounds) < FEWEST_ROUNDS:
            return None
        found = compare_pairs(ratios.rounds, comparisons=max(1, self.comparisons))
        if found is None or found.interval is None:
            return found
        if signs_agree(ratios, 1 - found.interval.confidence):
            return found
        return replace(found, verdict="no difference shown")

    def show(self) -> None:
        """Report how far it has come."""
        undecided = [it for _, others in self.groups for it in others if not it.decided]
        smallest = [it.difference.smallest_detectable for it in undecided if it.difference]
        known = [each for each in smallest if each is not None]
        self.report(
            BenchProgress(
                rounds=self.rounds,
                decided=self.comparisons - len(undecided),
                comparisons=self.comparisons,
                left_seconds=max(0.0, self.deadline - time.monotonic()),
                detectable=max(known) if known and len(known) == len(smallest) else None,
            )
        )

    def is_late(self) -> bool:
        """Return whether the budget is spent."""
        return time.monotonic() >= self.deadline

    def chunks_of(self, base: Entry | None, entries: Sequence[Entry]) -> Iterator[list[Entry]]:
        """Yield the variants that are alive at once; the baseline is in each lot."""
        others = [entry for entry in entries if entry is not base]
        head = [base] if base is not None else []
        size = max(1, places_in_memory(entries) - len(head))
        if not others:
            yield head
        for first in range(0, len(others), size):
            yield [*head, *others[first : first + size]]

    def play_round(self, chunk: Sequence[Entry]) -> None:
        """Start a process for each variant, have them compute in turns, and end them."""
        number, self.rounds = self.rounds, self.rounds + 1
        with contextlib.ExitStack() as stack:
            takers: dict[int, TurnTaker] = {}
            for entry in self.order.sample(chunk, len(chunk)):
                if entry.spec is None or entry.failed:
                    continue
                place = os.path.join(self.folder, f"{entry.number}-{number}")
                os.mkdir(place)
                context = replace(
                    entry.context,
                    began=time.monotonic(),
                    work_folder=place,
                    outputs_folder="" if entry.result else os.path.join(place, "outputs"),
                )
                takers[entry.number] = TurnTaker(stack, entry.spec, context)
            began = time.monotonic()
            try:
                await_all(takers.values())
                self.play_turns(number, takers, time.monotonic() - began)
            except KeyboardInterrupt:
                for index, taker in takers.items():
                    entry = self.entries[index]
                    entry.result = entry.result or replace(taker.watch.result, status="interrupted")
                raise
            for index, taker in takers.items():
                entry = self.entries[index]
                if entry.result is None or taker.ended:
                    ended = taker.finish()
                    if entry.result is None or ended.status != "ok":
                        entry.outputs = os.path.join(self.folder, f"{index}-{number}", "outputs")
                        entry.result = merge_results(entry.result, ended)
                else:
                    taker.end()

    def play_turns(
        self, number: int, takers: Mapping[int, TurnTaker], start_seconds: float
    ) -> None:
        """Have workers compute one after the other, in an order that is drawn anew each time."""
        for index, taker in takers.items():
            if not taker.ended and not self.entries[index].seconds:
                samples = taker.take_turn(1, 2)
                if samples is not None:
                    self.entries[index].learn(samples)
        seconds = min(max(start_seconds, LEAST_ROUND_SECONDS), MOST_ROUND_SECONDS)
        began, computed = time.monotonic(), 0.0
        for cycle in range(MOST_CYCLES):
            self.show()
            able = [index for index, taker in takers.items() if taker.is_able]
            if len(able) < len(takers) and len(able) < 2:
                return
            if cycle and self.is_late():
                return
            # By the clock of the engine too: a script's goes faster than that of the wall.
            spent = max(time.monotonic() - began, computed)
            if cycle >= LEAST_CYCLES and spent >= seconds:
                # Where others compute, undisturbed turns are rare; new processes take longer.
                is_long = spent >= MOST_ROUND_SECONDS
                if is_long or self.has_calm_turns(number, takers):
                    return
            # As many of each: the first iterations after a break are not like those after them.
            counts = iterations_in_turn(max(self.entries[index].seconds for index in able))
            for index in self.order.sample(able, len(able)):
                turn = (number, cycle, *counts)
                computed += self.play_turn(self.entries[index], takers[index], *turn)

    def has_calm_turns(self, number: int, numbers: Iterable[int]) -> bool:
        """Return whether enough turns of a round had iterations that nothing disturbed."""
        for index in numbers:
            turns = [turn for turn in self.entries[index].turns if turn.round == number]
            calm = sum(centre_of_turn(turn, is_calm=True) is not None for turn in turns)
            if calm < min(WANTED_CALM, len(turns)):
                return False
        return True

    def play_turn(
        self, entry: Entry, taker: TurnTaker, number: int, cycle: int, untimed: int, timed: int
    ) -> float:
        """Have a worker make a turn; return the seconds that it computed."""
        began = time.monotonic() - self.began
        samples = taker.take_turn(untimed, timed)
        if samples is None:
            return 0.0
        entry.turns.append(Turn(round=number, cycle=cycle, began=began, samples=kept_of(samples)))
        entry.learn(samples)
        return sum(samples.end_to_end) * (1 + untimed / timed)

    def results(
        self, name_spec: Callable[[RunSpec], RunSpec], *, keep_outputs: bool
    ) -> tuple[VariantResult, ...]:
        """Return what was found of each variant."""
        bases = {entry.number: base for base, others in self.groups for entry in others}
        for number, base in bases.items():
            entry = self.entries[number]
            if not entry.decided:
                entry.difference = self.compare(base, entry) or entry.difference
        found = []
        for entry in self.entries:
            result = result_of(entry, bases.get(entry.number))
            if result.spec is not None:
                result = replace(result, spec=name_spec(result.spec))
            if keep_outputs:
                result = result.with_arrays(read_outputs(entry.outputs, result.outputs))
            found.append(result)
        return tuple(found)


def result_of(entry: Entry, base: Entry | None) -> VariantResult:
    """Return what was found of a variant; `base` is what it is compared with."""
    variant = entry.variant
    known = VariantResult(
        name=variant.name,
        values=dict(variant.values),
        spec=variant.spec,
        status="refused",
        failure=variant.failure,
        model=entry.model,
        turns=tuple(entry.turns),
        baseline=base.variant.name if base else "",
        difference=entry.difference,
        output_difference=compare_entries(entry, base) if base else None,
    )
    result = entry.result
    if result is None:
        return known if variant.failure else replace(known, status="interrupted")
    return replace(
        known,
        status=result.status,
        failure=result.failure,
        engine=result.engine,
        fed=result.fed,
        latency=summarize(replace(result, samples=join_turns(entry.turns))),
        outputs=result.outputs,
        load_seconds=result.load_seconds,
        peak_memory_bytes=result.peak_memory_bytes,
        warnings=result.warnings,
    )


def compare_entries(entry: Entry, base: Entry) -> OutputDifference | None:
    """Compare the outputs of a variant with those of its baseline, if both had the same data."""
    ours, theirs = entry.result, base.result
    if ours is None or theirs is None or not had_same_data(ours, theirs):
        return None
    return compare_outputs(ours.outputs, entry.outputs, theirs.outputs, base.outputs)


def files_in(inputs: Iterable[str]) -> list[str]:
    """Return the files of `--input` items: `data:/tmp/0.npy`."""
    return [text.partition(":")[2] for text in inputs]


def had_same_data(ours: RunResult, theirs: RunResult) -> bool:
    """Return whether a variant was fed with what its baseline was fed with."""
    return len(ours.fed) == len(theirs.fed) and all(
        mine.shape == its.shape and mine.dtype == its.dtype and is_same_source(mine, its)
        for mine, its in zip(ours.fed, theirs.fed, strict=True)
    )


def is_same_source(mine: FedInput, its: FedInput) -> bool:
    if mine.source == AS_BASELINE:
        return its.generated
    # What is generated depends on the input's name.
    return mine.source == its.source and (mine.name == its.name or not mine.generated)


def merge_results(first: RunResult | None, last: RunResult) -> RunResult:
    """Return the result of a variant whose first process ended well and a later one did not."""
    if first is None:
        return last
    return replace(first, status=last.status, phase=last.phase, failure=last.failure)


def iterations_in_turn(seconds: float) -> tuple[int, int]:
    """Return how many iterations of that length a turn has: untimed and timed ones."""
    seconds = max(seconds, SHORTEST_SECONDS)
    least = 2 if seconds < 10 * TURN_SECONDS else 1
    timed = min(max(round(TURN_SECONDS / seconds), least), MOST_PER_TURN)
    return min(max(math.ceil(UNTIMED_SECONDS / seconds), 1), MOST_UNTIMED), timed


def places_in_memory(entries: Sequence[Entry]) -> int:
    """Return how many workers of these variants may be alive at once, two at least."""
    needs = [bytes_of(entry) for entry in entries] or [WORKER_BYTES]
    available = available_bytes()
    if available is None:
        return MOST_ALIVE
    return max(2, min(MOST_ALIVE, int(MEMORY_SHARE * available / max(needs))))


def bytes_of(entry: Entry) -> int:
    """Return what a worker of a variant needs: what one has held, else a guess."""
    if entry.result is not None and entry.result.peak_memory_bytes:
        return entry.result.peak_memory_bytes
    return WORKER_BYTES + 3 * (entry.model.size_bytes if entry.model else 0)


def available_bytes() -> int | None:
    """Return the memory that new processes can have; None where the system does not say."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        pass
    return None
