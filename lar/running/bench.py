"""`lar bench`: variants measured in turns, in fresh processes, until the differences are clear."""

from __future__ import annotations

import contextlib
import functools
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from lar import __version__
from lar.errors import LarError, UsageError
from lar.files.work_folders import work_folder
from lar.measurement.differences import FIRST_LOOK, compare_turns, is_look
from lar.measurement.machine import read_machine, read_model_file
from lar.measurement.summary import summarize
from lar.measurement.turns import join_turns, log_ratios_of
from lar.options.table import option_of
from lar.options.variants import BENCH_OPTIONS
from lar.records.bench import BenchResult, Stop, VariantResult
from lar.records.run import Failure
from lar.records.summary import Difference
from lar.running.api import read_outputs
from lar.running.given_inputs import GivenInputs, Inputs, with_names
from lar.running.plan import parse_values
from lar.running.rounds import Member, Rounds, compare_members, inputs_as_for, places_in_memory
from lar.running.variants import (
    Axis,
    Variant,
    axis_of,
    find_baseline,
    list_models,
    make_variants,
    parse_vary,
)

# Rounds before the first look; variants with nothing to compare them with have no others.
FIRST_ROUNDS = FIRST_LOOK

# The fields of a variant's result that come from its first process.
OF_PROCESS = (
    *("status", "failure", "engine", "fed", "outputs", "load_seconds", "peak_memory_bytes"),
    "warnings",
)

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
    specs = list_models(models)
    check_keys(options, bench.__kwdefaults__)
    with work_folder() as folder:
        given = GivenInputs(inputs, Path(folder))
        given.add_to(options)
        variants = make_variants(specs, axes_of(vary), options)
        result = run_bench(
            variants,
            find_baseline(variants, baseline),
            budget_seconds=budget_seconds,
            margin=margin,
            names=given.names,
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


def check_keys(options: Mapping[str, object], own: Mapping[str, object] | None) -> None:
    """Refuse a keyword that is no option of a variant; `own` are those of the function.

    Raises:
        UsageError: naming the nearest, or the value that is wrong.
    """
    parse_values(options, own or ())
    for key in options:
        if option_of(key) not in BENCH_OPTIONS:
            problem = f"{key!r} does not say how a model is run"
            raise UsageError(problem, "the bench itself chooses how often")


@dataclass(eq=False, kw_only=True)
class Entry(Member):
    """A variant, and what is known of it so far: its spec has unpacked testcases, and data as the
    baseline's."""

    variant: Variant
    failure: Failure | None = None  # why it cannot be run
    base: Entry | None = None  # what it is compared with
    difference: Difference | None = None
    looked: int = 0  # at so many pairs of processes
    decided: bool = False  # nothing more is to be found out


def run_bench(
    variants: Sequence[Variant],
    baseline: int = 0,
    *,
    budget_seconds: float = 120.0,
    margin: float = 0.01,
    seed: int = 0,
    names: Mapping[str, str] = {},
    keep_outputs: bool = False,
    report: Report = lambda progress: None,
) -> BenchResult:
    """Measure variants in turns until the budget is spent or all differences are clear.

    `names` are for inputs that the user knows by other names than their files'.
    An interrupt ends it with what is known until then.

    Raises:
        LarError: the baseline is refused.
    """
    refusal = variants[baseline].failure
    if refusal is not None:
        raise refusal.within(f"the baseline {variants[baseline].name!r}").to_error()
    began, started = time.monotonic(), datetime.now(timezone.utc).isoformat(timespec="seconds")
    with work_folder() as folder, contextlib.ExitStack() as stack:
        deadline, order = began + budget_seconds, random.Random(seed)
        player = Rounds(folder=folder, began=began, deadline=deadline, order=order)
        campaign = Campaign(variants, baseline, player, margin, report)
        stopped: Stop
        try:
            campaign.prepare(names, stack)
            stopped = campaign.run()
        except KeyboardInterrupt:
            stopped = "interrupted"
        base = campaign.baseline
        campaign.compare()  # with what was measured after the last look too
        found = [result_of(entry, names) for entry in campaign.entries]
        if keep_outputs:
            found = [
                result.with_arrays(read_outputs(entry.outputs, result.outputs))
                for entry, result in zip(campaign.entries, found, strict=True)
            ]
    return BenchResult(
        variants=tuple(found),
        stopped=stopped,
        lar_version=__version__,
        started_at=started,
        machine=read_machine(),
        baseline=variants[baseline].name,
        margin=margin,
        budget_seconds=budget_seconds,
        rounds=campaign.rounds,
        seed=seed,
        wall_seconds=time.monotonic() - began,
        failure=base.failure or (base.result.failure if base.result else None),
    )


class Campaign:
    """The rounds of a bench, each with fresh processes."""

    def __init__(
        self,
        variants: Sequence[Variant],
        baseline: int,
        player: Rounds,
        margin: float = 0.01,
        report: Report = lambda progress: None,
    ) -> None:
        self.entries = [
            Entry(number=number, spec=each.spec, failure=each.failure, variant=each)
            for number, each in enumerate(variants)
        ]
        self.baseline = self.entries[baseline]
        self.player, self.margin, self.report = player, margin, report
        player.show = self.show
        self.rounds = 0
        self.shapes = 0  # of what the variants are fed with

    @property
    def able(self) -> list[Entry]:
        """The variants that can be measured."""
        return [entry for entry in self.entries if not entry.failed]

    @property
    def compared(self) -> list[Entry]:
        """The variants that are compared with another."""
        return [entry for entry in self.entries if entry.base is not None]

    def prepare(self, names: Mapping[str, str], stack: contextlib.ExitStack) -> None:
        """Read what the rounds have in common: models, testcases in them, which stay unpacked until
        the stack is closed, data for all."""
        read = functools.cache(read_model_file)
        base = self.baseline.variant.spec
        for entry in self.entries:
            try:
                entry.prepare(names, read, stack)
            except LarError as error:
                entry.spec, entry.failure = None, Failure.of(error)
            if entry.spec is not None:
                place = Path(self.player.folder, f"inputs-{entry.number}")
                entry.feed(inputs_as_for(base, entry.spec, place))

    def run(self) -> Stop:
        """Make rounds until it is clear that no more are needed; return why it ended."""
        for chunk in self.chunks_of(self.baseline, self.able):
            self.play_round(chunk)
        if not self.baseline.failed:
            self.group()
        while True:
            self.look()
            if self.baseline.failed:
                return "failed"
            lots = [*self.lots()]
            if not lots:
                return self.reason()
            for chunk in lots:
                if self.player.is_late():
                    return "budget"
                self.play_round(chunk)

    def group(self) -> None:
        """Find what each variant is compared with: the baseline, or the first of the same shape."""
        shapes: dict[Any, list[Entry]] = {}
        for entry in self.able:
            shapes.setdefault(entry.shape, []).append(entry)
        for members in shapes.values():
            base = self.baseline if self.baseline in members else members[0]
            for entry in members:
                entry.base = None if entry is base else base
            base.decided = len(members) > 1
        self.shapes = len(shapes)

    def lots(self) -> Iterator[list[Entry]]:
        """Yield the variants that are not decided yet, in groups that are measured together."""
        waiting: dict[Entry | None, list[Entry]] = {}
        for entry in self.entries:
            if not entry.decided:
                waiting.setdefault(entry.base, []).append(entry)
        for base, others in waiting.items():
            yield from self.chunks_of(base, others)

    def reason(self) -> Stop:
        """Return why nothing more is measured."""
        compared = [entry for entry in self.compared if not entry.failed]
        if not compared:
            return "single" if self.shapes > 1 else "failed"
        shown = all(it.difference and it.difference.is_shown for it in compared)
        return "clear" if shown else "precise"

    def look(self) -> None:
        """Judge the variants that are not decided yet."""
        self.compare()
        # All others may have failed.
        enough = 1 if len(self.able) == 1 < len(self.entries) else FIRST_ROUNDS
        for entry in self.entries:
            if entry.base is None:
                entry.decided = entry.decided or entry.failed or entry.rounds >= enough
            elif not entry.decided:
                entry.decided = self.is_decided(entry, entry.base)
        self.show()

    def is_decided(self, entry: Entry, base: Entry) -> bool:
        """Return whether more rounds would show nothing new about a variant and its baseline."""
        found = entry.difference
        if entry.failed or base.failed:
            return True
        if found is None or found.processes < FIRST_ROUNDS:
            return False
        # The number of processes may shrink again, when rounds do not count any more.
        if found.processes > entry.looked and is_look(found.processes):
            entry.looked = found.processes
            if found.is_shown:
                return True
        smallest = found.smallest_detectable
        return smallest is not None and smallest < self.margin

    def compare(self) -> None:
        """Find how the variants that are not decided yet differ from their baselines, as far as
        both made turns."""
        comparisons = max(1, len(self.compared))
        for entry in self.entries:
            if entry.base is not None and not entry.decided:
                ratios = log_ratios_of(entry.base.turns, entry.turns)
                found = compare_turns(ratios, comparisons=comparisons)
                entry.difference = found or entry.difference

    def show(self) -> None:
        """Report how far it has come."""
        undecided = [entry for entry in self.compared if not entry.decided]
        smallest = [it.difference.smallest_detectable for it in undecided if it.difference]
        known = [each for each in smallest if each is not None]
        self.report(
            BenchProgress(
                rounds=self.rounds,
                decided=len(self.compared) - len(undecided),
                comparisons=len(self.compared),
                left_seconds=max(0.0, self.player.deadline - time.monotonic()),
                detectable=max(known) if known and len(known) == len(smallest) else None,
            )
        )

    def play_round(self, chunk: Sequence[Entry]) -> None:
        """Measure these variants in fresh processes."""
        number, self.rounds = self.rounds, self.rounds + 1
        self.player.play(number, chunk)

    def chunks_of(self, base: Entry | None, entries: Sequence[Entry]) -> Iterator[list[Entry]]:
        """Yield the variants that are alive at once; what they are compared with is in each lot."""
        others = [entry for entry in entries if entry is not base]
        head = [base] if base is not None else []
        size = max(1, places_in_memory([*head, *others]) - len(head))
        if not others:
            yield head
        for first in range(0, len(others), size):
            yield [*head, *others[first : first + size]]


def result_of(entry: Entry, names: Mapping[str, str]) -> VariantResult:
    """Return what was found of a variant."""
    variant, base = entry.variant, entry.base
    known = VariantResult(
        name=variant.name,
        values=dict(variant.values),
        spec=with_names(variant.spec, names) if variant.spec and entry.spec else None,
        status="refused",
        failure=entry.failure,
        model=entry.context.model,
        turns=tuple(entry.turns),
        baseline=base.variant.name if base else "",
        difference=entry.difference,
        output_difference=compare_members(entry, base) if base else None,
    )
    result = entry.result
    if result is None:
        return known if entry.failure else replace(known, status="interrupted")
    latency = summarize(replace(result, samples=join_turns(entry.turns)))
    return replace(known, latency=latency, **{name: getattr(result, name) for name in OF_PROCESS})
