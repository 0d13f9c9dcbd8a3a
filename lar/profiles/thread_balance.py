"""The balance of an engine's threads, where the engine reports how operators used them."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

from lar.records.profile import Profile, ProfiledOperator, ThreadUse

# What is worth saying, as a part of the operators' time.
LEAST_SHARE = 0.10


def use_of(operators: Iterable[ProfiledOperator]) -> ThreadUse | None:
    """Return how operators used the engine's threads together, None where it does not report it."""
    uses = [each.threads for each in operators if each.threads is not None]
    return reduce(ThreadUse.with_that_of, uses) if uses else None


def describe_balance(profile: Profile) -> str:
    """Return how long operators waited for threads in one sentence, empty if it is little or not
    reported."""
    use = use_of(profile.operators)
    share = use.waiting_share if use is not None else None
    if share is None or share < LEAST_SHARE:
        return ""
    return f"the calling thread waits {share:.0%} of the time for other threads"
