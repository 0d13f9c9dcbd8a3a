"""A bench as an HTML page: the table, ratios, distributions, and a time line of all samples."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

from lar.measurement.statistics import disturbed_of
from lar.measurement.turns import join_turns
from lar.records.bench import BenchResult, VariantResult
from lar.reports.bench_text import columns_of, head_of, notes_of
from lar.reports.pages import Section, format_list, format_page, read_resource
from lar.reports.pages.tables import page_table

BINS = 60
# A page shows so many samples of a variant in its time line, evenly chosen; all count for the bins.
MOST_POINTS = 3000

# A distribution is drawn up to here: what lies beyond is counted at its end.
SHOWN_SHARE = 0.98


def format_html(bench: BenchResult) -> str:
    """Return the page of a bench."""
    measured = [each for each in bench.variants if each.latency]
    sections = [Section("result", "Result", words=format_words(bench))]
    figures: dict[str, Any] = {
        "table": page_table(
            "variants", tuple(columns_of(bench)), bench.variants, order="place"
        ).figures()
    }
    if ratios := [*ratios_of(bench)]:
        sections.append(
            Section(
                "ratios",
                "Ratios",
                "Time over the baseline's, with its interval. An interval that does not reach 1 "
                "is a verdict.",
            )
        )
        figures["ratios"] = ratios
    if measured:
        sections += plots_of_times("Every shaded stripe is a round of fresh processes.")
        figures["distributions"] = distributions_of(measured)
        figures["timeline"] = timeline_of(measured)
    script = read_resource("lar.reports.pages", "bench.js")
    return format_page("lar bench", "Variants", sections, figures, [script])


def plots_of_times(more: str = "") -> list[Section]:
    """Return the sections of the plots of iterations; `more` is said of the time line."""
    disturbed = "Crosses: disturbed, a thread stood ready without a CPU."
    return [
        Section(
            "distributions",
            "Distributions",
            "All timed iterations; dark: the undisturbed ones. The line is the median.",
        ),
        Section(
            "timeline", "Time line", f"Each iteration when it was made. {disturbed} {more}".strip()
        ),
    ]


def format_words(bench: BenchResult) -> str:
    """Return what was measured and what else to know, as HTML."""
    head = "".join(f"<p>{escape(text)}</p>" for text in head_of(bench))
    return head + format_list(notes_of(bench))


def ratios_of(bench: BenchResult) -> Iterator[dict[str, Any]]:
    """Yield the name, the ratio and the interval of each variant that was compared."""
    for variant in bench.variants:
        difference = variant.difference
        if difference and difference.interval:
            yield {
                "name": variant.name,
                "ratio": difference.ratio,
                "low": difference.interval.low,
                "high": difference.interval.high,
                "verdict": difference.verdict,
            }


def distributions_of(variants: Sequence[VariantResult]) -> dict[str, Any]:
    """Return how many iterations of each variant fall into each of some bins of time, in ms."""
    times = [join_turns(variant.turns).end_to_end for variant in variants]
    least = min(map(min, times))
    most = max(quantile_of(each, SHOWN_SHARE) for each in times)
    is_log = most > 4 * least > 0
    low, high = (math.log(least), math.log(most)) if is_log else (least, most)
    step = (high - low) / BINS or abs(low) * 0.01 or 1e-9

    def place(seconds: float) -> int:
        value = math.log(seconds) if is_log else seconds
        return min(BINS, max(0, int((value - low) / step)))

    lanes = []
    for variant in variants:
        samples = join_turns(variant.turns)
        disturbed = set(disturbed_of(samples.end_to_end, samples.queue_delay))
        calm, rest = [0] * (BINS + 1), [0] * (BINS + 1)
        for index, seconds in enumerate(samples.end_to_end):
            (rest if index in disturbed else calm)[place(seconds)] += 1
        assert variant.latency
        lanes.append(
            {
                "name": variant.name,
                "calm": calm,
                "disturbed": rest,
                "median": 1e3 * variant.latency.median,
            }
        )
    edges = [low + step * index for index in range(BINS + 1)]
    return {
        "edges": [1e3 * (math.exp(edge) if is_log else edge) for edge in edges],
        "log": is_log,
        "lanes": lanes,
    }


def quantile_of(values: Sequence[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


def timeline_of(variants: Sequence[VariantResult]) -> dict[str, Any]:
    """Return `[seconds, ms, disturbed]` of the samples of each variant, and when rounds began."""
    lanes = []
    rounds: dict[int, list[float]] = {}
    for variant in variants:
        points = [*points_of(variant)]
        for turn in variant.turns:
            rounds.setdefault(turn.round, []).append(turn.began)
        every = math.ceil(len(points) / MOST_POINTS) or 1
        lanes.append({"name": variant.name, "points": points[::every], "total": len(points)})
    return {
        "rounds": [[min(began), max(began)] for _, began in sorted(rounds.items())],
        "lanes": lanes,
    }


def points_of(variant: VariantResult) -> Iterator[list[float]]:
    for turn in variant.turns:
        times = turn.samples.end_to_end
        disturbed = set(disturbed_of(times, turn.samples.queue_delay))
        at = turn.began
        for index, seconds in enumerate(times):
            yield [round(at, 4), float(f"{1e3 * seconds:.5g}"), int(index in disturbed)]
            at += seconds
