"""The report of settings that were tried beside a run, with the command of the fastest.

The advice of a profile, and how it did when it was tried, in words.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lar.engines.advice import Suggestion, given_in, options_of, suggestions_of
from lar.options.command_line import format_command, format_flags
from lar.records.bench import BenchResult, VariantResult
from lar.records.profile import Profile, TriedSetting
from lar.reports.bench_report import color_of, columns_of, head_of
from lar.reports.model import Column, Table
from lar.reports.report import Report

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


def build_report(
    bench: BenchResult,
    tried: Sequence[TriedSetting],
    suggestions: Sequence[Suggestion],
    options: Mapping[str, Any],
) -> Report:
    """Return the report of a race.

    `options` are those of the plain run, `suggestions` are what was tried.
    """
    whys = {each.flags: each.why for each in suggestions}
    # It is the first to go on a narrow screen.
    why = Column[VariantResult]("why", lambda it: whys.get(it.name), rank=9)
    table = Table(
        name="tried",
        title="Tried",
        columns=(*columns_of(bench), why),
        rows=bench.variants,
        color=color_of,
    )
    best, said = best_of(tried), describe_tried(tried)
    if best is not None and not is_proven(best) and bench.stopped == "budget":
        said = f"{said}; --budget {3 * bench.budget_seconds:g} may prove it"
    chosen = next((it.choice for it in suggestions if best and it.flags == best.flags), None)
    plain = bench.variants[0]
    model = plain.spec.model if plain.spec else ""
    added = options_of(chosen, f"{Path(model).stem}.cache") if chosen else {}
    command = f"command: {format_command(model, {**options, **added})}"
    return Report(
        style="advise",
        title="lar advise",
        body=(*head_of(bench), "", table, "", f"best: {said}", command),
        tables=(table,),
    )
