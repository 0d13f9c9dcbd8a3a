"""The gates `--fail-if-slower` and `--fail-if-unjudged`, which decide whether a build may go on.

A side that failed never passes. The last line that lar prints is a sentence with the decision.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, TextIO

from lar.errors import EXIT_CODES, format_message, join_first, one_line
from lar.options.values import read_number, require

if TYPE_CHECKING:
    from lar.records.run import Failure, RunResult
    from lar.records.summary import Difference

FAILED, SLOWER, MISSING, UNJUDGED, PASSED = EXIT_CODES["failed"], 1, 2, 5, 0


class Outcome(NamedTuple):
    """The result of one side against its baseline.

    `failure` says how the side failed; it is empty if the side did not fail. `reason` says why
    `difference` is None.
    """

    name: str
    difference: Difference | None
    failure: str = ""
    reason: str = ""


def parse_percent(text: str) -> float:
    """Parse a percentage: `5` or `5%`."""
    problem = f"{text!r} is no percentage; write --fail-if-slower=0 before a file"
    percent = read_number(text.removesuffix("%"), problem)
    require(0 <= percent < 1e6, problem)
    return percent


def is_asked(arguments: argparse.Namespace) -> bool:
    """Return whether a flag asks for a gate."""
    return arguments.fail_if_slower is not None or arguments.fail_if_unjudged


def stream_beside(form: str) -> TextIO:
    """Return the stream for the line with the decision.

    The stream is standard error if the table has a format for programs, such as CSV, and standard
    output for all other formats.
    """
    return sys.stdout if form in ("text", "markdown") else sys.stderr


def close(
    arguments: argparse.Namespace,
    outcomes: Sequence[Outcome],
    stream: TextIO,
    missing: Sequence[str] = (),
) -> int:
    """Print the decision as the last line, and return the exit code.

    `missing` has a sentence for each comparison that could not be made, with the reason.
    """
    code, sentence = decide(
        outcomes, percent=arguments.fail_if_slower, fail_if_unjudged=arguments.fail_if_unjudged
    )
    if missing and (code == PASSED or not outcomes):
        code, sentence = MISSING, join(missing)
    print(f"result: {sentence}", file=stream, flush=True)
    return code


def decide(
    outcomes: Sequence[Outcome], *, percent: float | None, fail_if_unjudged: bool
) -> tuple[int, str]:
    """Return the exit code and the sentence of the decision.

    `percent` is how much slower a side may be; if it is None, slower sides pass too. If there is no
    outcome, the gate does not pass.
    """
    if not outcomes:
        return UNJUDGED, "nothing judged: there are no two sides to compare"
    if failures := [each.failure for each in outcomes if each.failure]:
        return FAILED, f"failed: {join(failures)}"
    slower = [each for each in outcomes if is_slower(each.difference, percent)]
    if slower:
        return SLOWER, f"slower: {join(map(describe_slower, slower))}"
    unjudged = [each for each in outcomes if not is_judged(each.difference, percent)]
    if unjudged and fail_if_unjudged:
        named = (f"{each.name}: {describe_unjudged(each)}" for each in unjudged)
        return UNJUDGED, f"not judged: {join(named)}"
    if len(unjudged) == len(outcomes):
        reasons = {describe_unjudged(each): None for each in unjudged}
        return PASSED, f"nothing judged: {join(reasons)}"
    return PASSED, f"passed: {count_verdicts(outcomes)}"


def failed(name: str, status: str, failure: Failure | None) -> Outcome:
    """Return the outcome of a failed side; the message does not repeat the side's file name."""
    if failure is None:
        return Outcome(name, None, f"{name}: {status}")
    words = map(os.path.basename, re.split("[ =]", name))
    subject = "" if os.path.basename(failure.subject) in words else failure.subject
    return Outcome(name, None, f"{name}: {format_message(failure.flag, subject, failure.problem)}")


def failed_run(name: str, result: RunResult) -> Outcome:
    """Return the outcome of a side whose run failed, or has no timed iteration."""
    status = "no iteration was timed" if result.status == "ok" else result.status
    return failed(name, status, result.failure)


def is_slower(difference: Difference | None, percent: float | None) -> bool:
    """Return whether a side is shown to be slower by more than a percentage."""
    if percent is None or difference is None or difference.verdict != "slower":
        return False
    return difference.ratio > 1 + percent / 100


def is_judged(difference: Difference | None, percent: float | None) -> bool:
    """Return whether a side is judged.

    A side is judged if its difference is shown, or if a change by `percent` would have been shown.
    """
    if difference is None or difference.verdict == "not judged":
        return False
    smallest = difference.smallest_detectable
    return difference.is_shown or not percent or (smallest or 0.0) <= percent / 100


def describe_slower(outcome: Outcome) -> str:
    difference = outcome.difference
    assert difference
    assert difference.interval
    changes = (difference.ratio, difference.interval.low, difference.interval.high)
    middle, low, high = (f"{100 * (ratio - 1):.1f}" for ratio in changes)
    return f"{outcome.name} by {middle}% ({low} to {high})"


def describe_unjudged(outcome: Outcome) -> str:
    difference = outcome.difference
    if difference is None:
        return outcome.reason
    if difference.smallest_detectable is None:
        return difference.reason
    return f"a change below {difference.smallest_detectable:.1%} cannot be seen"


def count_verdicts(outcomes: Iterable[Outcome]) -> str:
    """Return the number of sides with each verdict, as `1 faster, 2 no difference shown`."""
    verdicts = [each.difference.verdict if each.difference else "not judged" for each in outcomes]
    return ", ".join(f"{verdicts.count(each)} {each}" for each in dict.fromkeys(verdicts))


def join(texts: Iterable[str]) -> str:
    """Return the first texts joined by semicolons, and the number of texts that are left out."""
    return join_first([*map(one_line, texts)], "; ")
