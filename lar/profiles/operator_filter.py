"""Filters of operators: by a regular expression, or operators that only move values."""

from __future__ import annotations

import re

from lar.records.profile import Profile

MOVING_TYPES = re.compile(
    r"(Host2DeviceCopy|Copy|RelayoutFormat|Dimshuffle|Reshape|Concat|MemcpyToHost|MemcpyFromHost"
    r"|ReorderInput|ReorderOutput|Transpose)(Forward|V\d+)?"
)


def only_moves(type: str) -> bool:
    """Return whether operators of a type only move values, from one place or layout to another."""
    return MOVING_TYPES.fullmatch(type) is not None


def operators_matching(profile: Profile, pattern: str) -> frozenset[int]:
    """Return the places of the operators whose name or type matches `pattern`."""
    search = re.compile(pattern).search
    return frozenset(
        place
        for place, operator in enumerate(profile.operators)
        if search(operator.name) or search(operator.type)
    )
