"""What suggestions for a profile gave when they were tried, as text."""

from __future__ import annotations

from collections.abc import Sequence

from lar.errors import printable
from lar.profiles.recommendations import Recommendation
from lar.profiles.summary import summary_lines
from lar.records.bench import BenchResult, VariantResult
from lar.records.profile import Profile
from lar.reports.bench_text import describe_outputs, format_bench
from lar.reports.text import PAPER, Screen


def format_nothing_tried(
    profile: Profile, found: Sequence[Recommendation], screen: Screen = PAPER
) -> list[str]:
    """Return the lines for a profile that no setting is suggested for: that, and the notes."""
    texts = ["No setting stands out.", *(each.text for each in found)]
    return [line for text in texts for line in screen.wrap(printable(text), "  ")]


def format_advice(
    profile: Profile, found: Sequence[Recommendation], screen: Screen = PAPER
) -> list[str]:
    """Return the lines of what a profile says and suggests."""
    return [line for text in summary_lines(profile) for line in screen.wrap(text, " " * 9)]


def format_tried(
    tried: Sequence[Recommendation], bench: BenchResult, screen: Screen = PAPER, note: str = ""
) -> list[str]:
    """Return the lines of suggestions that were tried: why, a note, what they give, which is the
    best."""
    texts = [f"{number}. {each.text}" for number, each in enumerate(tried, 1)]
    lines = [line for text in texts for line in screen.wrap(printable(text), "   ")]
    return [
        *lines,
        *screen.wrap(printable(note), "  ") * bool(note),
        "",
        *format_bench(bench, screen),
        *screen.wrap(printable(describe_best(bench)), "  "),
    ]


def describe_best(bench: BenchResult) -> str:
    """Return which setting is the fastest whose outputs are right, and the command that has it."""
    right = [(it.difference, it) for it in bench.variants if it.difference and is_right(it)]
    faster = [each for each in right if each[0].verdict == "faster"]
    if faster:
        difference, best = min(faster, key=lambda each: each[0].ratio)
        outputs = best.output_difference
        checked = f", outputs {describe_outputs(outputs)}" if outputs else ""
        return f"best: {best.name}, {1 / difference.ratio:.2f} times as fast{checked}"
    more = f"--budget {3 * bench.budget_seconds:g}"
    unjudged = [it for it in bench.variants if it.baseline and is_right(it) and not it.difference]
    if bench.stopped == "budget" and unjudged and not right:
        return f"best: not known, since none was measured often enough; {more} may show it"
    text = "best: none of them is shown to be faster than the run as it was profiled"
    open_ones = [each for each in right if each[0].verdict == "no difference shown"]
    seen = min(open_ones, key=lambda each: each[0].ratio, default=None)
    if bench.stopped != "budget" or seen is None or seen[0].ratio >= 1:
        return text
    seems = f"{seen[1].name} seems {1 / seen[0].ratio:.2f} times as fast"
    return f"{text}; {seems}, and {more} may show it"


def is_right(variant: VariantResult) -> bool:
    """Return whether the outputs of a variant were compared and do not differ."""
    outputs = variant.output_difference
    return variant.status == "ok" and outputs is not None and outputs.agreement != "different"
