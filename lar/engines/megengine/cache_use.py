"""Whether a run takes the choices of a cache that is only read.

The engine falls back on its heuristics, without a word, for an operator that the cache lacks. What
it takes it tells in its log, which is listened to before anything is timed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lar.engines.megengine.algorithm_log import LoggedChoice, choices_in
from lar.engines.megengine.algorithms import work_copy
from lar.engines.megengine.cache import Algorithm, AlgorithmCache, Entry, read_cache
from lar.engines.megengine.cache_choices import operators_of
from lar.engines.megengine.choice_log import ChoiceListener
from lar.engines.megengine.winograd import is_of

FLAG = "--fast-run-algo-policy"
MISSED = f"{FLAG}: the cache has "

# Bits of an algorithm's attribute (cache_key.ATTRIBUTES).
REPRODUCIBLE, DEPENDS_ON_SHAPE, DEPENDS_ON_BATCH = 1, 4, 8


def listen_to_choices(driver: Any) -> None:
    """Keep what the engine tells of its choices in the warm-up; without one it would be timed."""
    if driver.spec.warmup_iterations:
        ChoiceListener(driver.choices.append).begin(FLAG)


def tell_missed(driver: Any, _: str) -> None:
    """Warn of operators that ran and are not in the cache."""
    if not driver.choices:
        return
    ran = choices_in(b"\n".join(driver.choices).decode(errors="replace"))
    settings = driver.spec.settings
    taken = count_taken(ran, read_cache(work_copy(driver.context)), settings)
    if taken < len(ran):
        driver.notes.append(
            f"{MISSED}{taken or 'none'} of the {len(ran)} operators that ran: it is of another "
            "model, or of a search with other options; add --fast-run to search with these"
        )


def was_missed(warnings: Iterable[str]) -> bool:
    """Tell by its warnings whether a run did not take all from its cache."""
    return any(text.startswith(MISSED) for text in warnings)


def count_taken(
    ran: Sequence[LoggedChoice], cache: AlgorithmCache, settings: Mapping[str, Any]
) -> int:
    """Count the operators that ran what the cache chooses for them."""
    operators = operators_of(cache)
    return sum(
        any(
            is_of(choice, operator) and choice.algorithm == name_of_choice(operator.entry, settings)
            for operator in operators
        )
        for choice in ran
    )


def name_of_choice(entry: Entry, settings: Mapping[str, Any]) -> str:
    """Return the algorithm that the engine takes from an entry, empty where it takes none."""
    return next((each.name for each in entry.algorithms if is_allowed(each, settings)), "")


def is_allowed(algorithm: Algorithm, settings: Mapping[str, Any]) -> bool:
    """Tell whether the options allow an algorithm."""
    equal = settings.get("binary_equal_between_batch")
    needed = REPRODUCIBLE if equal or settings.get("reproducible") else 0
    unfit = DEPENDS_ON_BATCH if equal else 0
    if settings.get("fast_run_shared_batch_size"):
        unfit |= DEPENDS_ON_SHAPE
    limit = settings.get("workspace_limit", algorithm.workspace_bytes)
    return (
        algorithm.attribute & needed == needed
        and not algorithm.attribute & unfit
        and algorithm.workspace_bytes <= limit
    )
