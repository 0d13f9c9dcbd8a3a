"""The race of what a profile speaks for: the run beside itself with each setting, in turns."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from lar.engines.advice import Suggestion, options_of
from lar.files.work_folders import work_folder
from lar.measurement.listener import Listener
from lar.records.bench import BenchResult, VariantResult
from lar.records.profile import TriedSetting
from lar.records.run import Failure, RunContext, RunSpec
from lar.running.bench import Report, run_bench
from lar.running.steps import make_run
from lar.running.variants import Variant, join_options, plan_variant

AS_IT_IS = "as it is"
MOST_TRIED = 3
# How long a setting that searches for algorithms may do so before it is measured.
SEARCH_SECONDS = 30.0

ShowSearch = Callable[[str, float], None]
"""Shows what is searched for, and how many seconds that has taken."""


class Race(NamedTuple):
    """What a race gave: the bench, whose first variant is the run as it is, and what became of each
    setting."""

    bench: BenchResult
    tried: tuple[TriedSetting, ...]


def plan_plain(model: str, options: Mapping[str, Any]) -> Variant:
    """Return the run of a model as it is.

    Raises:
        LarError: it is refused, or is one of a data set.
    """
    plain, error = plan_variant(Variant(AS_IT_IS, model, options))
    if error is not None:
        raise error
    return plain


def race(
    plain: Variant,
    suggestions: Sequence[Suggestion],
    *,
    budget_seconds: float,
    report: Report | None = None,
    show_search: ShowSearch = lambda text, seconds: None,
) -> Race:
    """Measure a run as it is and with each of some settings, in turns, until all differences are
    clear or the budget is spent, and compare their outputs with its own. A setting that fails is a
    row of the result; the time in which an engine searches for algorithms is not of the budget.
    """
    with work_folder() as folder:
        variants = [plain]
        for number, each in enumerate(suggestions):
            cache = os.path.join(folder, str(number))
            variants.append(plan_setting(each, plain, cache, show_search))
        bench = run_bench(variants, budget_seconds=budget_seconds, report=report)
    rows = zip(suggestions, bench.variants[1:], strict=True)
    return Race(bench, tuple(tried_in(row, each) for each, row in rows))


def plan_setting(suggestion: Suggestion, plain: Variant, cache: str, show: ShowSearch) -> Variant:
    """Return the variant of a setting, or why it cannot be measured. One that searches for
    algorithms has done so then, and reads what it found from `cache`."""
    choice, name = suggestion.choice, suggestion.flags
    joined = join_options(plain.options, choice.options)
    if choice.cache:
        searching = join_options(plain.options, options_of(choice, cache))
        planned, _ = plan_variant(Variant(name, plain.model, searching), takes_turns=False)
        failure = planned.failure
        if planned.spec is not None:
            failure = search(planned.spec, name, show)
        if failure is not None:
            return replace(planned, spec=None, failure=failure)
        joined[choice.cache] = cache
    return plan_variant(Variant(name, plain.model, joined))[0]


def search(spec: RunSpec, name: str, show: ShowSearch) -> Failure | None:
    """Have the engine search for algorithms; return why that failed, None if it did not."""
    spec = replace(spec, warmup_iterations=1, iterations=0, timeout_seconds=SEARCH_SECONDS)
    result = make_run(spec, RunContext(began=time.monotonic()), SearchListener(name, show))
    if result.status == "interrupted":
        raise KeyboardInterrupt
    if result.status == "timed_out":
        problem = f"its search takes longer than {SEARCH_SECONDS:g} s, and was not tried"
        return Failure(problem=problem, subject=name)
    return None if result.status == "ok" else result.failure or Failure(problem=result.status)


class SearchListener(Listener):
    """Shows how far the search of an engine is."""

    def __init__(self, name: str, show: ShowSearch) -> None:
        self.name = name
        self._show = show

    def on_progress(self, text: str, elapsed: float) -> None:
        if text:
            self._show(f"{self.name}: {text}", elapsed)


def tried_in(row: VariantResult, suggestion: Suggestion) -> TriedSetting:
    """Return what became of a setting, by its row of the bench."""
    difference, outputs = row.difference, row.output_difference
    interval = difference.interval if difference else None
    return TriedSetting(
        name=suggestion.name,
        flags=suggestion.flags,
        why=suggestion.why,
        median_seconds=row.latency.median if row.latency else None,
        ratio=difference.ratio if difference else None,
        ratio_low=interval.low if interval else None,
        ratio_high=interval.high if interval else None,
        verdict=difference.verdict if difference else "",
        outputs=outputs.agreement if outputs else "",
        output_error=outputs.max_error if outputs else None,
        error=row.failure.message if row.failure else "",
    )
