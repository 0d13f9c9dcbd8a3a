"""A verdict on times in words, and its cells in tables."""

from __future__ import annotations

from lar.records.summary import Difference, Interval

# From here on a change is a factor: 12 times says more than 1100.0%.
LARGEST_SHARE = 2.0


def describe_difference(difference: Difference | None, reason: str = "") -> str:
    """Return a verdict in words; `reason` is why there is no difference."""
    if difference is None or difference.verdict == "not judged":
        why = reason if difference is None else difference.reason
        return f"not judged ({why})" if why else "not judged"
    if difference.smallest_detectable is None or difference.is_shown:
        return difference.verdict
    return f"{difference.verdict} (smallest detectable: {describe_smallest(difference)})"


def describe_smallest(difference: Difference | None) -> str:
    """Return the smallest change that would have been shown, empty if it is not known."""
    smallest = difference.smallest_detectable if difference else None
    if smallest is None:
        return ""
    return f"{smallest:.1%}" if smallest < LARGEST_SHARE else f"{1 + smallest:.0f} times"


def format_interval(interval: Interval | None, scale: float = 1.0) -> str:
    """Return an interval, empty if it has no end."""
    if interval is None:
        return ""
    return f"{scale * interval.low:.3f} to {scale * interval.high:.3f}"


def color_of_verdict(difference: Difference | None) -> str:
    """Return the color of a row with this difference, empty for no color."""
    return {"faster": "green", "slower": "red"}.get(difference.verdict if difference else "", "")
