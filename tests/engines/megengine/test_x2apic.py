"""What the fix for MKL-DNN writes into the facts of its cores."""

from __future__ import annotations

import ctypes
import os

import pytest

from lar.engines.megengine import x2apic
from lar.engines.megengine.x2apic import CoreFacts, apply_fix
from lar.errors import UsageError


@pytest.fixture
def cores(monkeypatch: pytest.MonkeyPatch) -> ctypes.Array[CoreFacts]:
    """Facts at the places where the known build has them."""
    facts = (CoreFacts * 2)()
    monkeypatch.setattr(x2apic, "find_known_build", lambda: ctypes.addressof(facts))
    monkeypatch.setattr(x2apic, "FLAG_ADDRESSES", (0, ctypes.sizeof(CoreFacts)))
    return facts


def facts_of(each: CoreFacts) -> tuple[int, int, int]:
    return each.supported, each.threads_per_core, each.threads


def test_cores_that_were_not_read_are_set_and_others_left(cores: ctypes.Array[CoreFacts]) -> None:
    cores[1] = CoreFacts(1, 2, 6)
    apply_fix()
    assert facts_of(cores[0]) == (1, 1, os.cpu_count())
    assert facts_of(cores[1]) == (1, 2, 6)


@pytest.mark.parametrize("found", [(0, 1, 0), (1, 0, 0), (1, 4, 2), (2, 1, 1)])
def test_memory_that_holds_anything_else_is_another_build(
    cores: ctypes.Array[CoreFacts], found: tuple[int, int, int]
) -> None:
    cores[1] = CoreFacts(*found)
    with pytest.raises(UsageError, match="another build of MegEngine"):
        apply_fix()
    assert facts_of(cores[0]) == (0, 0, 0)
