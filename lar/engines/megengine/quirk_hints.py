"""What a finished run of MegEngine should know."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lar.engines.megengine.packed_model import is_packed, open_packed
from lar.engines.megengine.quirk_operators import traits_of
from lar.engines.megengine.quirks import Quirk, quirks_here
from lar.options.table import OPERATOR_DUMPS, SEARCHES, one_of
from lar.records.run import RunResult


def hints_for(result: RunResult, environment: Mapping[str, str]) -> str:
    """Return what a finished run should know, on one line: the quirks that it met for certain,
    wrong numbers first, and what it left undone."""
    spec, settings = result.spec, result.spec.settings
    timed = bool(result.samples.end_to_end)
    if not timed and not result.warmup.end_to_end:
        return ""
    hints = [
        f"{quirk.effect}; way round: {quirk.way_round}"
        for quirk in sorted(quirks_met(result, environment), key=lambda each: each.slow)
        if timed or not quirk.slow
    ]
    dumped = one_of(OPERATOR_DUMPS, settings)
    if dumped and timed:
        hints.append(
            f"the times are those of a run with {dumped.flag}: MegEngine dumps in every "
            "iteration; --warmup-iter 0 --iter 1 dumps once"
        )
    search = one_of(SEARCHES, settings)
    if search and not timed:
        hints.append(f"{search.flag}: the warm-up alone was run, which makes the search")
    if "winograd_transform" in settings and not is_searched(settings):
        hints.append(hint_on_winograd(spec.model))
    if "check_var_value" in settings:
        hints.append(
            "--check-var-value I has looked at one variable in I runs, then at the next; a larger "
            "--iter reaches more"
        )
    return "; also: ".join(hints)


def quirks_met(result: RunResult, environment: Mapping[str, str]) -> list[Quirk]:
    """Return the quirks that a run has met for certain."""
    settings = dict(result.spec.settings)
    if "fast_run_algo_policy" in settings and is_cache_missed(result):
        del settings["fast_run_algo_policy"]
    possible = [quirk for quirk in quirks_here(settings, environment) if quirk.trait]
    traits = traits_of(result.spec.model) if possible else frozenset()
    return [quirk for quirk in possible if quirk.trait in traits]


def is_cache_missed(result: RunResult) -> bool:
    """Tell whether operators ran that are not in the cache."""
    from lar.engines.megengine.cache_use import was_missed  # few runs need it

    return was_missed(result.warnings)


def is_searched(settings: Mapping[str, Any]) -> bool:
    """Tell a run that searches, or has the cache of a search."""
    return bool({"fast_run", "full_run", "fast_run_algo_policy"} & settings.keys())


def hint_on_winograd(model: str) -> str:
    """Return why --winograd-transform preferred nothing in a run without a search."""
    if is_packed(model) and open_packed(model).cache is not None:
        return (
            "--winograd-transform prefers no algorithm of a model with a fast-run cache in it; "
            "give the model that was packed, and --fast-run"
        )
    return (
        "without a search or its cache --winograd-transform prefers no algorithm; "
        "add --fast-run, or --fast-run-algo-policy FILE"
    )
