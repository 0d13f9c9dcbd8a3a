"""The advice of a profile, and how it did when it was tried, in words."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from lar.engines.advice import given_in, suggestions_of
from lar.options.command_line import format_flags
from lar.records.profile import Profile, TriedSetting

# A smaller gain is not named as likely.
LEAST_LIKELY = 0.01


def describe_advice(profile: Profile) -> str:
    """Return the advice of a profile and how it did if tried, in a sentence without full stop."""
    facts = profile.facts
    if facts.tried:
        return f"{describe_tried(facts.tried)} (tried)"
    model = shlex.quote(facts.model.path or "MODEL")
    if found := suggestions_of(profile):
        words = " ".join(filter(None, ("lar advise", model, format_flags(given_in(profile)))))
        return f"{found[0].flags}, as {found[0].why} (not tried: {words} does)"
    return f"no setting stands out; lar tune {model} tries all"


def describe_tried(tried: Sequence[TriedSetting]) -> str:
    """Return the fastest setting of a race whose outputs are right, in one sentence."""
    best = best_of(tried)
    if best is None or not (ratio := ratio_of(best)) or best.difference is None:
        names = ", ".join(each.flags for each in tried)
        return f"nothing is shown to be faster, of {names}"
    times, interval = f"{1 / ratio:.2f} times as fast", best.difference.interval
    if not is_proven(best) or interval is None or not 0 < interval.low <= interval.high:
        return f"{best.flags} is likely faster: {times} so far, not proven"
    between = f"{1 / interval.high:.2f} to {1 / interval.low:.2f}"
    return f"{best.flags} is {times} ({between}), outputs {best.outputs}"


def best_of(tried: Sequence[TriedSetting]) -> TriedSetting | None:
    """Return the proven fastest setting, else the likely winner.

    It is None if no setting with right outputs seems faster.
    """
    likely = [each for each in tried if 0 < ratio_of(each) < 1 - LEAST_LIKELY]
    return min([*filter(is_proven, likely)] or likely, key=ratio_of, default=None)


def ratio_of(tried: TriedSetting) -> float:
    """Return its time over that of the run, 0 if it was not measured or its outputs differ from
    those of the run."""
    is_right = not tried.error and tried.outputs not in ("", "different")
    return tried.difference.ratio if tried.difference and is_right else 0.0


def is_proven(tried: TriedSetting) -> bool:
    """Return whether it is shown to be faster."""
    return tried.difference is not None and tried.difference.verdict == "faster"
