"""The balance of an engine's threads."""

from __future__ import annotations

from lar.profiles.thread_balance import describe_balance, use_of
from lar.records.profile import Profile, ThreadUse
from tests.profiles.synthetic import operator_of


def profile_with(*uses: ThreadUse | None) -> Profile:
    return Profile(
        operators=tuple(
            operator_of(f"conv{number}", "Conv", threads=use) for number, use in enumerate(uses)
        )
    )


def test_waiting_for_threads_is_that_of_all_operators_together() -> None:
    profile = profile_with(ThreadUse(1, 60, 0, 20, (1,)), None, ThreadUse(2, 100, 20, 0, (3, 4)))
    assert use_of(profile.operators) == ThreadUse(3, 160, 20, 20, (4, 4))
    assert describe_balance(profile) == "the calling thread waits 10% of the time for other threads"


def test_balanced_threads_and_those_not_reported_need_no_sentence() -> None:
    assert describe_balance(profile_with(ThreadUse(1, 91, 0, 9, (1,)))) == ""
    assert describe_balance(profile_with(ThreadUse(1, 0, 0, 0, (0,)))) == ""
    assert describe_balance(profile_with(None)) == ""
    assert use_of(profile_with(None).operators) is None
