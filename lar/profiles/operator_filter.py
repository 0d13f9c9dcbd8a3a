"""Filters of operators: by a regular expression, or those that only move values."""

from __future__ import annotations

import re

from lar.records.profile import Profile

MOVING_TYPES = re.compile(
    r"(Host2DeviceCopy|Copy|RelayoutFormat|Dimshuffle|Reshape|Concat|MemcpyToHost|MemcpyFromHost"
    r"|ReorderInput|ReorderOutput|Transpose)(Forward|V\d+)?"
)

# Those that may give what is there already: a view, a constant, a value that is handed on, what
# other operators compute.
VIEWING_TYPES = re.compile(
    r"AxisAddRemove|Broadcast|Constant|Copy|Dimshuffle|Flatten|Host2DeviceCopy|Identity|If"
    r"|ImmutableTensor|Loop|MultipleDeviceTensor(WithFormat)?Holder|Reshape|Scan"
    r"|(Volatile)?SharedDeviceTensor(WithFormat)?|Split|Squeeze|Subtensor|Unsqueeze"
)


def only_moves(type: str) -> bool:
    """Return whether operators of a type only move values, from one place or layout to another."""
    return MOVING_TYPES.fullmatch(type) is not None


def may_move_nothing(type: str) -> bool:
    """Return whether operators of a type may have no bytes to move."""
    return VIEWING_TYPES.fullmatch(type) is not None


def operators_matching(profile: Profile, pattern: str) -> frozenset[int]:
    """Return the places of the operators whose name or type matches `pattern`."""
    search = re.compile(pattern).search
    return frozenset(
        place
        for place, operator in enumerate(profile.operators)
        if search(operator.name) or search(operator.type)
    )
