"""The race of the settings that a profile speaks for, beside the run without them, in turns."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lar.engines.advice import Suggestion, options_of
from lar.files.work_folders import work_folder
from lar.options.given import join_options
from lar.records.bench import BenchResult
from lar.records.profile import TriedSetting
from lar.records.run import Failure, RunContext, RunSpec
from lar.running.bench import Report, run_bench
from lar.running.steps import make_run
from lar.running.variants import Variant, plan_variant

AS_IT_IS = "as it is"
MOST_TRIED = 3
# How long a setting that searches for algorithms may do so before it is measured.
SEARCH_SECONDS = 30.0

Show = Callable[[str], None]
"""Shows what is being done."""


def plan_plain(model: str, options: Mapping[str, Any]) -> Variant:
    """Return the run of a model as it is.

    Raises:
        LarError: it is refused, or is one of a data set.
    """
    return plan_variant(named(AS_IT_IS, model, options)).require()


def race(
    plain: Variant,
    suggestions: Sequence[Suggestion],
    *,
    budget_seconds: float,
    report: Report = lambda progress: None,
    show: Show = lambda text: None,
) -> BenchResult:
    """Measure a run as it is and with each of some settings, in turns, until all differences are
    clear or the budget is spent, and compare their outputs with its own. A setting that fails is a
    row of the result, behind that of the run; the time in which an engine searches for algorithms
    does not count.
    """
    with work_folder() as folder:
        caches = [os.path.join(folder, str(number)) for number in range(len(suggestions))]
        planned = [
            plan_setting(each, plain, cache, show)
            for each, cache in zip(suggestions, caches, strict=True)
        ]
        return run_bench([plain, *planned], budget_seconds=budget_seconds, report=report)


def plan_setting(suggestion: Suggestion, plain: Variant, cache: str, show: Show) -> Variant:
    """Return the variant of a setting, or why it cannot be measured. A setting that searches for
    algorithms does so here; its variant reads from `cache` what the search found."""
    choice, name = suggestion.choice, suggestion.flags
    joined = join_options(plain.options, choice.options)
    if choice.cache:
        searching = join_options(plain.options, options_of(choice, cache))
        planned = plan_variant(named(name, plain.model, searching), takes_turns=False)
        if planned.spec is None:
            return planned
        failure = search(planned.spec, name, show)
        if not os.path.exists(cache):
            return replace(planned, spec=None, failure=failure)
        joined[choice.cache] = cache
    return plan_variant(named(name, plain.model, joined))


def named(name: str, model: str, options: Mapping[str, Any]) -> Variant:
    return Variant(name, model, options, {"setting": name})


def search(spec: RunSpec, name: str, show: Show) -> Failure:
    """Have the engine search for algorithms; return why it found none, if it did not."""
    spec = replace(spec, warmup_iterations=1, iterations=0, timeout_seconds=SEARCH_SECONDS)
    show(f"{name}: the engine searches")
    result = make_run(spec, RunContext(began=time.monotonic()))
    if result.status == "interrupted":
        raise KeyboardInterrupt
    return result.failure or Failure(problem="its search found nothing to keep")


def tried_in(bench: BenchResult, suggestions: Sequence[Suggestion]) -> tuple[TriedSetting, ...]:
    """Return what became of each setting in a race."""
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
