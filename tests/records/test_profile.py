"""Parts of a profile: what is timed."""

from __future__ import annotations

from lar.records.profile import Allocation, Profile, Step


def test_what_the_warm_up_takes_and_gives_back_is_not_timed() -> None:
    steps = (Step(0, 100, 200, True), Step(1, 200, 300))
    times = {
        99: (64, -64),
        100: (),
        199: (),
        200: (64,),  # given back at the very end of the warm-up, it is part of it
        201: (64, -64),
        300: (64, -64),
    }
    allocations = tuple(Allocation(at, size) for at in times for size in (64, -64))
    profile = Profile(steps=steps, allocations=allocations)
    found = [(each.at_ns, each.size_bytes) for each in profile.timed_allocations()]
    assert found == [(at, size) for at, sizes in times.items() for size in sizes]
