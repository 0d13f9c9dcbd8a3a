"""`lar bench`: variants measured in turns, in fresh processes, until the differences are clear."""

from __future__ import annotations

import contextlib
import os
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar import __version__
from lar.errors import LarError, UsageError, nearest
from lar.files.work_folders import work_folder
from lar.measurement.differences import FIRST_LOOK, compare_turns, is_look
from lar.measurement.machine import read_machine
from lar.measurement.summary import summarize
from lar.measurement.turns import join_turns, log_ratios_of
from lar.options.table import BY_KEY
from lar.options.variants import BENCH_KEYS
from lar.records.bench import BenchResult, Stop, VariantResult
from lar.records.facts import ModelFile
from lar.records.run import Failure, RunSpec
from lar.records.summary import Difference
from lar.running.outputs import read_outputs
from lar.running.rounds import (
    Member,
    Rounds,
    compare_members,
    inputs_like,
    places_in_memory,
)
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

# Before the first look; of variants that there is nothing to compare with, all.
FIRST_ROUNDS = FIRST_LOOK

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
    check_keys(options, bench.__kwdefaults__)
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


def check_keys(options: Mapping[str, object], own: Mapping[str, object] | None) -> None:
    """Refuse a keyword that is no option of a variant; `own` are those of the function.

    Raises:
        UsageError: naming the nearest.
    """
    for key in options:
        if key in BENCH_KEYS:
            continue
        if key in BY_KEY:
            raise UsageError(
                f"{key!r} does not say how a model is run", "the bench itself chooses how often"
            )
        near = nearest(key, [*BENCH_KEYS, *(own or ())])
        raise UsageError(
            f"unknown option {key!r}" + (f"; did you mean {near!r}?" if near else ""),
            "options are the flags of `lar run --help all`: --warmup-iter N is warmup_iter=N",
        )


@dataclass(eq=False, kw_only=True)
class Entry(Member):
    """A variant, and what is known of it so far: its spec has unpacked testcases, and data as the
    baseline's."""

    variant: Variant
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
        wall_seconds=time.monotonic() - campaign.player.began,
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
        self.entries = [
            Entry(number=number, variant=variant) for number, variant in enumerate(variants)
        ]
        self.baseline = self.entries[baseline]
        self.folder = folder
        self.deadline = deadline
        self.margin = margin
        self.player = Rounds(
            folder,
            began=time.monotonic(),
            deadline=deadline,
            order=random.Random(seed),
            show=self.show,
        )
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
                    if self.player.is_late():
                        return "budget"
                    self.play_round(chunk)
            for chunk in self.chunks_of(None, alone) if alone else []:
                if self.player.is_late():
                    return "budget"
                self.play_round(chunk)

    def prepare(self, stack: contextlib.ExitStack) -> None:
        """Read what the rounds have in common: models, testcases in them, data for all."""
        models: dict[str, ModelFile] = {}
        base = self.baseline.variant
        for entry in self.entries:
            variant = entry.variant
            if variant.spec is None:
                continue
            try:
                entry.prepare(variant.spec, self.names, models, stack)
            except LarError as error:
                entry.variant = replace(variant, spec=None, failure=Failure.of(error))
                continue
            entry.feed(inputs_like(base, variant, Path(self.folder, f"inputs-{entry.number}")))

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
        shown = all(it.difference and it.difference.is_shown for it in compared)
        return "clear" if shown else "precise"

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
        if found.processes > entry.looked and is_look(found.processes):
            entry.looked = found.processes
            entry.decided = found.is_shown
        smallest = found.smallest_detectable
        entry.decided = entry.decided or (smallest is not None and smallest < self.margin)

    def compare(self, base: Entry, entry: Entry) -> Difference | None:
        """Return how a variant differs from its baseline; None if one of them made no turns."""
        ratios = log_ratios_of(base.turns, entry.turns)
        return compare_turns(ratios, comparisons=max(1, self.comparisons))

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

    def play_round(self, chunk: Sequence[Entry]) -> None:
        """Measure these variants in fresh processes."""
        number, self.rounds = self.rounds, self.rounds + 1
        self.player.play(number, chunk)

    def chunks_of(self, base: Entry | None, entries: Sequence[Entry]) -> Iterator[list[Entry]]:
        """Yield the variants that are alive at once; the baseline is in each lot."""
        others = [entry for entry in entries if entry is not base]
        head = [base] if base is not None else []
        size = max(1, places_in_memory(entries) - len(head))
        if not others:
            yield head
        for first in range(0, len(others), size):
            yield [*head, *others[first : first + size]]

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
        output_difference=compare_members(entry, base) if base else None,
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
