"""Calls that lar refuses, each in one line that says what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from lar.errors import UsageError


def refused(
    problem: str,
    function: Callable[..., object],
    *arguments: Any,
    kind: type[UsageError] = UsageError,
    **keywords: Any,
) -> UsageError:
    """Call a function that must refuse it for a problem, a pattern, and return the error."""
    with pytest.raises(kind, match=problem or None) as caught:
        function(*arguments, **keywords)
    assert "\n" not in caught.value.message
    return caught.value
