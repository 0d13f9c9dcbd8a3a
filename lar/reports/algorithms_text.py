"""The lines about winograd algorithms: which convolutions run one, what it gives, what it costs."""

from __future__ import annotations

import math

from lar.records.run import AlgorithmChoice, NumericError, RunResult
from lar.reports.run_text import format_ms


def format_algorithms(result: RunResult) -> list[str]:
    """Return the lines, none for a run that preferred no algorithm."""
    if not result.algorithms:
        return []
    chosen = [choice for choice in result.algorithms if choice.winograd]
    # The engine reports each kind once, however many operators of the model are of it.
    counts = f"winograd: {len(chosen)} of {len(result.algorithms)} kinds of convolution"
    return [
        counts + format_gain(chosen),
        *map(format_error, result.numeric_errors),
        *map(format_choice, chosen),
    ]


def format_gain(chosen: list[AlgorithmChoice]) -> str:
    """Return what the search measured of these, with and without winograd."""
    pairs = [
        (choice.seconds, choice.other_seconds)
        for choice in chosen
        if choice.seconds is not None and choice.other_seconds is not None
    ]
    if not pairs:
        return ""
    ours, others = (math.fsum(seconds) for seconds in zip(*pairs, strict=True))
    return (
        f"; measured by the search: {format_ms(ours)}ms, without winograd {format_ms(others)}ms"
        f"{format_ratio(ours, others)}"
    )


def format_ratio(ours: float, other: float) -> str:
    """Return how much faster or slower a time is, empty where they are too short to compare."""
    if not (ours > 0 and other > 0):
        return ""
    return f", {other / ours:.2f}x as fast" if ours <= other else f", {ours / other:.2f}x as slow"


def format_error(error: NumericError) -> str:
    """Return by how much an output differs."""
    if error.absolute is None or error.relative is None:
        return f"error of winograd in {error.output}: NaN or infinite values in one run alone"
    return (
        f"error of winograd in {error.output}: at most {error.absolute:.3g}, "
        f"relative {error.relative:.3g}"
    )


def format_choice(choice: AlgorithmChoice) -> str:
    """Return the line of a convolution: times as the search measured them."""
    text = f"  {choice.winograd} {format_time(choice.seconds)}"
    if choice.other_algorithm:
        text += f", {choice.other_algorithm} {format_time(choice.other_seconds)}"
        text += format_ratio(choice.seconds or 0, choice.other_seconds or 0)
    return f"{text}: {choice.operator} {choice.shapes}"


def format_time(seconds: float | None) -> str:
    """Return a time of a search with its unit; N/A where none was made."""
    return "N/A" if seconds is None else f"{format_ms(seconds)}ms"
