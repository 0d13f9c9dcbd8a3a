"""How far a search of fast-run is: the engine writes what it has measured while it goes on."""

from __future__ import annotations

from pathlib import Path

from lar.engines.megengine.algorithms import is_search, work_copy
from lar.engines.megengine.cache import Reader
from lar.records.run import RunContext, RunSpec


def describe_search(spec: RunSpec, context: RunContext) -> str:
    """Return how many operators were measured so far, empty for a run that measures none."""
    if not (context.work_folder and is_search(spec.settings)):
        return ""
    policy = spec.settings.get("fast_run_algo_policy")
    known = count_entries(Path(str(policy))) if policy else 0
    measured = max(0, count_entries(work_copy(context)) - known)
    # With a cache that knows some, perhaps there is nothing left to measure.
    if known and not measured:
        return ""
    return f"searching: {measured} operator{'s' if measured != 1 else ''} measured"


def count_entries(path: Path) -> int:
    """Count a cache's entries without reading them; 0 for one that is just being written."""
    total = 0
    try:
        reader = Reader(path.read_bytes())
        for _ in range(reader.number()):
            reader.blob()
            for _ in range(reader.number()):
                reader.blob(), reader.blob()
                total += 1
    except (OSError, ValueError):
        return 0
    return total
