"""The choice of algorithms: fast-run, its cache file, and what an algorithm must promise.

The engine's strategies and their numbers (LiteAlgoSelectStrategy): 1 HEURISTIC, 2 PROFILE,
4 REPRODUCIBLE, 8 OPTIMIZED. It takes 1, 2, 3, 5, 6, 7 and 10; PROFILE | HEURISTIC reads the cache
and measures nothing.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lar.engines.megengine.cache import AlgorithmCache, read_cache, write_cache_merged
from lar.errors import UsageError
from lar.records.run import RunContext, RunSpec

HEURISTIC, PROFILE, REPRODUCIBLE, OPTIMIZED = 1, 2, 4, 8


def is_search(settings: Mapping[str, Any]) -> bool:
    """Tell whether a run measures algorithms."""
    return bool(settings.get("fast_run") or settings.get("full_run"))


def strategy_of(settings: Mapping[str, Any]) -> int:
    """Return the engine's strategy for the options set."""
    reproducible = REPRODUCIBLE if settings.get("reproducible") else 0
    if is_search(settings):
        return PROFILE | (reproducible or (OPTIMIZED if settings.get("fast_run") else 0))
    cached = PROFILE if settings.get("fast_run_algo_policy") else 0
    return HEURISTIC | cached | reproducible


def choose_algorithms(driver: Any, _: object) -> None:
    """Set the strategy and the cache file; for several options at once it acts once."""
    if driver.algorithms_chosen:
        return
    driver.algorithms_chosen = True
    settings = driver.spec.settings
    strategy = strategy_of(settings)
    batch = int(settings.get("fast_run_shared_batch_size") or 0)
    equal = bool(settings.get("binary_equal_between_batch"))
    searching = is_search(settings)
    driver.begins_alone = searching
    driver.network_setup.append(
        lambda network: network.set_network_algo_policy(strategy, batch, equal)
    )
    if settings.get("fast_run_algo_policy"):
        use_cache(driver, Path(str(settings["fast_run_algo_policy"])), searching=searching)
    elif searching and driver.context.work_folder:
        use_cache(driver, None, searching=True)  # what is found is thrown away, its progress told


def use_cache(driver: Any, path: Path | None, *, searching: bool) -> None:
    """Have the engine read a cache file; a search adds to a copy in the work folder.

    The user's file is never the engine's: `keep_search` merges the copy into it, whole, when the
    worker has ended, also one that was interrupted.

    Raises:
        UsageError: the file is missing though nothing is searched, damaged, or not writable.
    """
    known = path is not None and check_cache(path, searching=searching)
    if driver.runner:  # the cache is one for the whole process
        return
    copy = work_copy(driver.context)
    copy.write_bytes(path.read_bytes() if path and known else bytes(4))  # no categories
    driver.lite.LiteGlobal.set_persistent_cache(str(copy), searching)
    if not searching:
        from lar.engines.megengine.cache_use import listen_to_choices  # few runs need it

        listen_to_choices(driver)


def check_cache(path: Path, *, searching: bool) -> bool:
    """Refuse a cache file that cannot be used; tell whether it is there.

    Raises:
        UsageError: the file is missing though nothing is searched, damaged, or not writable.
    """
    known = path.exists()
    if not known and not searching:
        raise UsageError(
            f"--fast-run-algo-policy: {path}: no such file",
            "make it with --fast-run, then run without",
        )
    if known:
        read_cache(path)  # refuses a damaged or foreign file before the engine sees it
    if searching and not os.access(path if known else path.absolute().parent, os.W_OK):
        raise UsageError(
            f"--fast-run-algo-policy: {path}: cannot be written", "choose another file"
        )
    return known


def work_copy(context: RunContext) -> Path:
    """Return where the engine's own copy of the cache stands."""
    return Path(context.work_folder) / "engine.cache"


def keep_search(spec: RunSpec, context: RunContext) -> None:
    """Merge what the engine has measured into the user's file.

    Raises:
        UsageError: the file cannot be written.
    """
    policy, found = spec.settings.get("fast_run_algo_policy"), found_by(context)
    if policy and found and is_search(spec.settings):
        write_cache_merged(Path(str(policy)), found)


def found_by(context: RunContext) -> AlgorithmCache | None:
    """Return what the engine's own copy of the cache holds, None where it measured nothing."""
    copy = work_copy(context)
    return read_cache(copy) if copy.exists() and copy.stat().st_size else None
