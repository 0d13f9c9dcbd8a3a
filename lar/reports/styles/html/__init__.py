"""The style `html`: one page with every view of a profile, which needs nothing else.

Words are written here; `page.js` draws tables and plots from figures in the page, as JSON. With a
baseline there is one view more, which compares the profile with it. What happened in all iterations
is summed up here, so that the page stays small; each iteration is there for its timeline, as
long as there are not too many.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from lar.engines.advice import describe_advice
from lar.errors import UsageError, printable
from lar.profiles.summary import summary_lines
from lar.profiles.times import describe_time
from lar.records.profile import Profile
from lar.reports.pages import Section, format_page, read_resource
from lar.reports.pages.tables import PageTable
from lar.reports.report import Report, paragraphs_of
from lar.reports.styles.html.comparison import comparison_of
from lar.reports.styles.html.facts import (
    format_cards,
    format_overview,
    format_summary,
)
from lar.reports.styles.html.memory import memory_curves, peak_tables
from lar.reports.styles.html.series import breakdowns_of, latency_of, roofline_of
from lar.reports.styles.html.tables import tables_of
from lar.reports.styles.html.timeline import timelines_of

MOST_ROWS = 2000  # of a table, unless --top says another number
# What draws the views, and what they need besides the shell's plots and tables.
SCRIPTS = ("timeline.js", "differences.js", "views.js")

VIEWS = (
    Section("overview", "Overview"),
    Section("comparison", "Comparison", ""),
    Section("latency", "Iterations", "How long each timed iteration took."),
    Section(
        "breakdown",
        "Where the time went",
        "The parts sum to the step exactly: the iteration and, of a data set, its loading.",
    ),
    Section(
        "operators",
        "Operators",
        f"{describe_time('compute')} They stand in the order of median x "
        "calls. Could save: what an iteration would save at the roof of the operator's intensity.",
    ),
    Section("kernels", "Kernels", ""),
    Section("timeline", "Timeline of one iteration", ""),
    Section(
        "roofline",
        "Roofline",
        "How fast each operator computed, over how many operations it makes of each byte.",
    ),
    Section("memory", "Memory", ""),
    Section("ranges", "Ranges", "What the user has named. Their time is from begin to end."),
)

VIEW_NAMES = tuple(view.name for view in VIEWS)


def build(profile: Profile, options: Mapping[str, Any], baseline: Profile | None = None) -> Report:
    """Make the page of a profile, compared with a baseline if one is given; `text` says how large
    the page is and what it holds.

    Raises:
        UsageError: the comparison is asked for without a baseline, a run has nothing to compare, or
            the profile lacks the iteration that is asked for.
    """
    chosen = options.get("view")
    if baseline is None and chosen and "comparison" in chosen:
        raise UsageError("--view comparison: compares two profiles", "give its baseline before it")
    views = [view for view in VIEWS if view.name in (chosen or VIEW_NAMES)]
    top = options.get("top", MOST_ROWS)
    tables = tables_of(profile, top)
    comparison = None
    if baseline is None:
        views = [view for view in views if view.name != "comparison"]
    else:
        comparison = comparison_of(baseline, profile, top)
        tables |= comparison.tables
    figures = {
        **figures_of(profile, tables, top),
        "timeline": timelines_of(profile, options.get("iteration")),
        "comparison": comparison and comparison.figures,
    }
    title = title_of(profile)
    summary = " ".join(summary_lines(profile, describe_advice(profile)))
    words = words_of(profile, summary)
    summaries: tuple[str, ...] = (summary,)
    if baseline is not None:
        before = " ".join(summary_lines(baseline, describe_advice(baseline)))
        words["comparison"] = format_summary(before, "Baseline: ")
        summaries = (before, summary)
    sections = [view._replace(words=words.get(view.name, "")) for view in views]
    scripts = [read_resource(__name__, name) for name in SCRIPTS]
    page = format_page(f"{title}: profile", title, sections, figures, scripts)
    size_kib = len(page.encode()) / 1024
    names = ", ".join(view.name for view in views)
    return Report(
        style="html",
        body=(f"{title}: a page of {size_kib:,.0f} KiB with {names}; --html FILE writes it",),
        tables=tuple(it.table for it in tables.values() if it.table.rows),
        page=page,
        summary=paragraphs_of(summaries),
    )


def title_of(profile: Profile) -> str:
    model = PurePath(profile.facts.model.path).name or "a model"
    return printable(" on ".join(filter(None, (model, profile.facts.engine))))


def figures_of(profile: Profile, tables: Mapping[str, PageTable], top: int) -> dict[str, Any]:
    """Return all that is drawn."""
    peaks = {f"peak of {title}": table for title, table in peak_tables(profile, top).items()}
    return {
        "tables": {name: table.figures() for name, table in {**tables, **peaks}.items()},
        "latency": latency_of(profile),
        "breakdown": breakdowns_of(profile),
        "roofline": roofline_of(profile),
        "memory": memory_curves(profile),
        "kernels_reported": profile.on_device and bool(profile.spans_of("kernel")),
    }


def words_of(profile: Profile, summary: str) -> dict[str, str]:
    """Return what stands in the views as HTML, without a script."""
    overview = (format_summary(summary), format_cards(profile), format_overview(profile))
    return {
        "overview": "".join(overview),
    }
