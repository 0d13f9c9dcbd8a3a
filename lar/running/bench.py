"""`lar bench`: measures variants in turns, in fresh processes, until the differences are clear.

The race of `lar advise` is a bench of the settings that a profile suggests.
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar import __version__
from lar.errors import LarError
from lar.files.work_folders import work_folder
from lar.measurement.differences import (
    FIRST_LOOK,
    compare_turns,
    is_look,
    join_turns,
    log_ratios_of,
)
from lar.measurement.machine import read_machine, read_model_file
from lar.measurement.summary import summarize
from lar.options.command_line import join_options, parse_value, parse_values
from lar.options.table import KEYWORDS
from lar.records.bench import BenchResult, Stop, VariantResult
from lar.records.run import Failure, RunContext, RunSpec
from lar.records.summary import Difference
from lar.running.api import GivenInputs, Inputs, read_outputs, with_names
from lar.running.rounds import Member, Rounds, compare_members, inputs_as_for, places_in_memory
from lar.running.steps import make_run
from lar.running.variants import (
    Variant,
    axes_of,
    find_baseline,
    known_option,
    list_models,
    make_variants,
    plan_variant,
)

if TYPE_CHECKING:  # slow to import
    from lar.engines.advice import Suggestion
    from lar.records.profile import TriedSetting

# The fields of a variant's result that come from its first process.
OF_PROCESS = (
    *("status", "failure", "engine", "fed", "outputs", "load_seconds", "peak_memory_bytes"),
    "warnings",
)

AS_IT_IS = "as it is"
MOST_TRIED = 3
# How long a setting may search for algorithms before it is measured.
SEARCH_SECONDS = 30.0

Report = Callable[["BenchProgress"], None]
Show = Callable[[str], None]
"""Shows the user what is being done."""


@dataclass(frozen=True)
class BenchProgress:
    """The progress of a bench: rounds, decided comparisons, and the seconds left of the budget."""

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
    budget_seconds: float | str = 120.0,
    margin: float | str = 0.01,
    keep_outputs: bool = False,
    **options: Any,
) -> BenchResult:
    """Compare variants of a run: which is faster, by how much, and how sure this is.

    Args:
        models: a model file, or several. Flags for one model may follow the name of its file, as
            in "m.onnx --multithread 2".
        vary: the options to vary, as a value of `--vary`, or as a mapping from option keys to
            values such as `{"multithread": [1, 2]}`.
        inputs: the inputs of all variants, in a form that `lar.run` accepts.
        baseline: the name of the variant with which all other variants are compared; the default is
            the first variant.
        budget_seconds: how long to measure at most: a number of seconds, "90s" or "2m".
        margin: stop when the measurements are precise enough to show a change of this size, such as
            0.01 or "1%".
        keep_outputs: keep the outputs of each variant in its `arrays`.
        options: the flags of `lar run` by key, for all variants.

    Returns:
        The result. If a variant crashes, no error is raised: the variant's row in the result has
        the failure.

    Raises:
        UsageError: a model, an option or a value cannot be used.
        EngineMissing: no variant has an engine that is installed.
    """
    check_keys(options, bench.__kwdefaults__)
    with work_folder() as folder:
        given = GivenInputs(inputs, Path(folder))
        given.add_to(options)
        variants = make_variants(list_models(models), axes_of(vary), options)
        result = run_bench(
            variants,
            find_baseline(variants, baseline),
            budget_seconds=parse_value(KEYWORDS["budget_seconds"], budget_seconds),
            margin=parse_value(KEYWORDS["margin"], margin),
            names=given.names,
            keep_outputs=keep_outputs,
        )
    if result.stopped == "interrupted":
        raise KeyboardInterrupt
    return result


def check_keys(options: Mapping[str, object], own: Mapping[str, object] | None) -> None:
    """Refuse keywords that are not options of a variant.

    `own` has the keywords of the called function that are not options of a variant.

    Raises:
        UsageError: a keyword is unknown, or its value is wrong.
    """
    parse_values(options, own or ())
    for key in options:
        known_option(key, repr(key))


@dataclass(eq=False, kw_only=True)
class Entry(Member):
    """A variant with its results so far.

    The variant's spec names the folders of the unpacked testcases, and the files with the input
    data. All variants get the input data of the baseline.
    """

    variant: Variant
    failure: Failure | None = None  # why the variant cannot be run
    base: Entry | None = None  # the variant to compare it with
    difference: Difference | None = None
    looked: int = 0  # the number of pairs of processes at the last look
    decided: bool = False  # more rounds would show nothing new


def run_bench(
    variants: Sequence[Variant],
    baseline: int = 0,
    *,
    budget_seconds: float = 120.0,
    margin: float = 0.01,
    names: Mapping[str, str] = {},
    keep_outputs: bool = False,
    report: Report = lambda progress: None,
) -> BenchResult:
    """Measure variants in turns until the budget is spent or all differences are clear.

    `names` maps files of inputs to the names that the user knows. After an interrupt, the results
    so far are returned.

    Raises:
        LarError: the baseline cannot be run.
    """
    base = variants[baseline]
    if base.failure is not None:
        raise base.failure.within(f"the baseline {base.name!r}").to_error()
    began, started = time.monotonic(), datetime.now(timezone.utc).isoformat(timespec="seconds")
    with work_folder() as folder, contextlib.ExitStack() as stack:
        deadline, order = began + budget_seconds, random.Random(0)
        player = Rounds(folder=folder, began=began, deadline=deadline, order=order)
        campaign = Campaign(variants, baseline, player, margin)
        player.show = lambda: report(campaign.progress)
        stopped: Stop = "interrupted"
        with contextlib.suppress(KeyboardInterrupt):
            campaign.prepare(names, stack)
            stopped = campaign.run()
        campaign.compare()  # some turns may have been measured after the last look
        found = [result_of(entry, names, keep_outputs) for entry in campaign.entries]
    return BenchResult(
        variants=tuple(found),
        stopped=stopped,
        lar_version=__version__,
        started_at=started,
        machine=read_machine(),
        baseline=base.name,
        margin=margin,
        budget_seconds=budget_seconds,
        rounds=campaign.rounds,
        wall_seconds=time.monotonic() - began,
        failure=found[baseline].failure,
    )


class Campaign:
    """The rounds of a bench, each with fresh processes."""

    def __init__(
        self, variants: Sequence[Variant], baseline: int, player: Rounds, margin: float = 0.01
    ) -> None:
        self.entries = [
            Entry(number=number, spec=each.spec, failure=each.failure, variant=each)
            for number, each in enumerate(variants)
        ]
        self.baseline = self.entries[baseline]
        self.player, self.margin = player, margin
        self.rounds = self.shapes = 0  # the numbers of rounds, and of different input shapes

    @property
    def able(self) -> list[Entry]:
        """The variants that can be measured."""
        return [entry for entry in self.entries if not entry.failed]

    @property
    def compared(self) -> list[Entry]:
        """The variants that are compared with another variant."""
        return [entry for entry in self.entries if entry.base is not None]

    def prepare(self, names: Mapping[str, str], stack: contextlib.ExitStack) -> None:
        """Read what all rounds need: the models, their testcases, and the input data.

        Unpacked testcases stay on disk until `stack` is closed.
        """
        read = functools.cache(read_model_file)
        for entry in self.entries:
            try:
                entry.prepare(names, read, stack)
            except LarError as error:
                entry.spec, entry.failure = None, Failure.of(error)
            if entry.spec is not None:
                place = Path(self.player.folder, f"inputs-{entry.number}")
                entry.feed(inputs_as_for(self.baseline.variant.spec, entry.spec, place))

    def run(self) -> Stop:
        """Play rounds until no further round is needed, and return why the bench ended."""
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
        """For each variant, find the variant with which it is compared.

        A variant is compared with the baseline if the inputs of both have equal shapes. Otherwise,
        the variant is compared with the first variant whose inputs have the same shapes.
        """
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
        """Yield groups of undecided variants; the variants of a group are measured together."""
        waiting = [entry for entry in self.entries if not entry.decided]
        for base in dict.fromkeys(entry.base for entry in waiting):
            yield from self.chunks_of(base, [entry for entry in waiting if entry.base is base])

    def reason(self) -> Stop:
        """Return why the bench stops measuring."""
        compared = [entry for entry in self.compared if not entry.failed]
        if not compared:
            return "single" if self.shapes > 1 else "failed"
        shown = all(it.difference and it.difference.is_shown for it in compared)
        return "clear" if shown else "precise"

    def look(self) -> None:
        """Compare the undecided variants, and decide which of them need no further rounds."""
        self.compare()
        # If all other variants have failed, nothing can be compared: one round is enough.
        enough = 1 if len(self.able) == 1 < len(self.entries) else FIRST_LOOK
        for entry in self.entries:
            if entry.base is not None:
                entry.decided = entry.decided or self.is_decided(entry, entry.base)
            elif entry.failed or len({turn.round for turn in entry.turns}) >= enough:
                entry.decided = True
        self.player.show()

    def is_decided(self, entry: Entry, base: Entry) -> bool:
        """Return whether more rounds would show nothing new about a variant and its baseline."""
        found = entry.difference
        if entry.failed or base.failed:
            return True
        if found is None or found.processes < FIRST_LOOK:
            return False
        # The number of compared processes may shrink, since rounds may become invalid later.
        if found.processes > entry.looked and is_look(found.processes):
            entry.looked = found.processes
            if found.is_shown:
                return True
        smallest = found.smallest_detectable
        return smallest is not None and smallest < self.margin

    def compare(self) -> None:
        """Compare each undecided variant with its baseline, using the measured turns of both."""
        for entry in self.compared:
            if entry.base is not None and not entry.decided:
                ratios = log_ratios_of(entry.base.turns, entry.turns)
                found = compare_turns(ratios, comparisons=len(self.compared))
                entry.difference = found or entry.difference

    @property
    def progress(self) -> BenchProgress:
        """How far the bench is."""
        undecided = [entry for entry in self.compared if not entry.decided]
        smallest = [it.difference.smallest_detectable for it in undecided if it.difference]
        known = [each for each in smallest if each is not None]
        return BenchProgress(
            rounds=self.rounds,
            decided=len(self.compared) - len(undecided),
            comparisons=len(self.compared),
            left_seconds=max(0.0, self.player.deadline - time.monotonic()),
            detectable=max(known) if known and len(known) == len(smallest) else None,
        )

    def play_round(self, chunk: Sequence[Entry]) -> None:
        """Measure the variants of `chunk` in fresh processes."""
        self.rounds += 1
        self.player.play(self.rounds - 1, chunk)

    def chunks_of(self, base: Entry | None, entries: Sequence[Entry]) -> Iterator[list[Entry]]:
        """Yield groups of variants whose processes fit into memory together.

        Each group contains `base`, the variant with which the others are compared.
        """
        others = [entry for entry in entries if entry is not base]
        head = [base] if base is not None else []
        size = max(1, places_in_memory([*head, *others]) - len(head))
        for first in range(0, max(1, len(others)), size):
            yield [*head, *others[first : first + size]]


def result_of(entry: Entry, names: Mapping[str, str], keep_outputs: bool) -> VariantResult:
    """Return the result of a variant."""
    variant, base, result = entry.variant, entry.base, entry.result
    known = VariantResult(
        name=variant.name,
        values=dict(variant.values),
        spec=with_names(variant.spec, names) if variant.spec and entry.spec else None,
        status="refused" if entry.failure else "interrupted",
        failure=entry.failure,
        model=entry.context.model,
        turns=tuple(entry.turns),
        baseline=base.variant.name if base else "",
        difference=entry.difference,
        output_difference=compare_members(entry, base) if base else None,
    )
    if result is None:
        return known
    latency = summarize(replace(result, samples=join_turns(entry.turns)))
    of_process = {name: getattr(result, name) for name in OF_PROCESS}
    arrays = read_outputs(entry.outputs, result.outputs) if keep_outputs else {}
    return replace(known, latency=latency, **of_process).with_arrays(arrays)


def plan_plain(model: str, options: Mapping[str, Any]) -> Variant:
    """Return the variant that runs a model with its settings unchanged.

    Raises:
        LarError: the run cannot be made, or its input is a data set.
    """
    return plan_variant(Variant(AS_IT_IS, model, options, {"setting": AS_IT_IS})).require()


def race(
    plain: Variant,
    suggestions: Sequence[Suggestion],
    *,
    budget_seconds: float,
    report: Report = lambda progress: None,
    show: Show = lambda text: None,
) -> BenchResult:
    """Measure a plain run and the same run with each suggested setting, in turns.

    The race ends when all differences are clear or the budget is spent. The outputs with each
    setting are compared with the outputs of the plain run. The first row of the result is the plain
    run. After the first row, each setting has a row, even a setting that fails. The budget does not
    include the time in which an engine searches for algorithms.
    """
    with work_folder() as folder:
        planned = [
            plan_setting(each, plain, os.path.join(folder, str(number)), show)
            for number, each in enumerate(suggestions)
        ]
        return run_bench([plain, *planned], budget_seconds=budget_seconds, report=report)


def plan_setting(suggestion: Suggestion, plain: Variant, cache: str, show: Show) -> Variant:
    """Return the variant for a suggested setting.

    If the setting cannot be measured, the variant's failure says why.

    If the setting needs a search for algorithms, this function makes the search. The search fills
    the file `cache`, which the variant reads.
    """
    choice, name = suggestion.choice, suggestion.flags
    variant = replace(plain, name=name, values={"setting": name}, spec=None)
    own: dict[str, Any] = dict(choice.options)
    if choice.cache:
        own[choice.cache] = cache
        searching = join_options(plain.options, {**own, **choice.search})
        planned = plan_variant(replace(variant, options=searching), takes_turns=False)
        if planned.spec is None:
            return planned
        failure = search(planned.spec, name, show)
        if not os.path.exists(cache):
            return replace(variant, failure=failure)
    return plan_variant(replace(variant, options=join_options(plain.options, own)))


def search(spec: RunSpec, name: str, show: Show) -> Failure:
    """Let the engine search for algorithms; return a failure if the engine finds nothing."""
    spec = replace(spec, warmup_iterations=1, iterations=0, timeout_seconds=SEARCH_SECONDS)
    show(f"{name}: the engine searches")
    result = make_run(spec, RunContext(began=time.monotonic()))
    if result.status == "interrupted":
        raise KeyboardInterrupt
    return result.failure or Failure(problem="its search found nothing to keep")


def tried_in(bench: BenchResult, suggestions: Sequence[Suggestion]) -> tuple[TriedSetting, ...]:
    """Return the result of each suggested setting in a race."""
    from lar.records.profile import TriedSetting

    return tuple(
        TriedSetting(
            each.flags,
            each.why,
            row.difference,
            row.output_difference.agreement if row.output_difference else "",
            row.failure.message if row.failure else "",
        )
        for each, row in zip(suggestions, bench.variants[1:], strict=True)
    )
