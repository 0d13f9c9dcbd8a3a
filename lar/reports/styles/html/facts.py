"""The words of the page: the origin of the profile, its cost, and what to try."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from html import escape

from lar.errors import printable
from lar.measurement.statistics import statistics_of
from lar.profiles.costs import describe_cost
from lar.profiles.roofline import describe_measurement
from lar.profiles.times import is_loaded_in_steps, iteration_times_of, iterations_per_second
from lar.records.profile import Profile, ProfileFacts
from lar.reports.pages import format_facts, format_list
from lar.reports.text import printable_text


def facts_of(profile: Profile) -> list[tuple[str, str]]:
    """Return the facts of a profile as names and texts, without the unknown ones."""
    facts = profile.facts
    model = " ".join(
        filter(
            None, (facts.model.path, facts.model.sha256 and f"(SHA-256 {facts.model.sha256[:12]})")
        )
    )
    engine = " ".join(
        filter(None, (facts.engine, facts.engine_version, facts.driver and f"({facts.driver})"))
    )
    named = (
        ("model", model),
        ("engine", engine),
        ("device", facts.device),
        ("machine", describe_machine(facts)),
        ("threads", text_of(facts.threads)),
        ("batch", text_of(facts.batch)),
        ("iterations", describe_iterations(profile)),
        ("options", ", ".join(f"{key}={value}" for key, value in facts.options.items())),
        ("command", " ".join(facts.arguments)),
        ("cost of profiling", describe_cost(profile)),
        ("clocks", describe_clocks(facts)),
        ("CPU", describe_cpu(facts)),
        ("peak memory", describe_memory(profile)),
        ("measured peak", describe_peak(facts)),
        ("lar", facts.lar_version),
    )
    return [(name, text) for name, text in named if text]


def text_of(value: object) -> str:
    if isinstance(value, Mapping):
        return " ".join(f"{name}={text}" for name, text in value.items())
    if isinstance(value, (list, tuple)):
        return " ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:.4g}"
    return "" if value is None else str(value)


def describe_machine(facts: ProfileFacts) -> str:
    parts = []
    for key, value in facts.machine.items():
        if key == "instruction_sets":  # too many to be read
            continue
        name = key.removesuffix("_bytes").replace("_", " ")
        if name != key.replace("_", " ") and isinstance(value, int):
            parts.append(f"{name} {value / 2**30:.1f} GiB")
        elif text := text_of(value):
            parts.append(f"{name} {text}")
    return ", ".join(parts)


def describe_iterations(profile: Profile) -> str:
    timed = len(profile.timed_steps())
    return f"{timed} timed, after {len(profile.steps) - timed} of warm-up"


def describe_clocks(facts: ProfileFacts) -> str:
    """Return how well the clocks were aligned."""
    return ", ".join(
        f"{each.domain} aligned "
        + (
            "with an error not known"
            if each.error_ns is None
            else f"within {each.error_ns / 1e3:.1f} µs"
        )
        for each in facts.clock.align
    )


def describe_cpu(facts: ProfileFacts) -> str:
    parts = (
        ("the process used {:.0f}% of one core", facts.cpu.process_percent),
        ("all cores were {:.0f}% busy", facts.cpu.system_percent),
    )
    return ", ".join(text.format(value) for text, value in parts if value is not None)


def describe_memory(profile: Profile) -> str:
    parts = (
        ("process {:.1f} MiB", profile.facts.peak_memory_bytes),
        ("static plan {:.1f} MiB", profile.memory_plan.static_bytes),
    )
    return ", ".join(text.format(value / 2**20) for text, value in parts if value is not None)


def describe_peak(facts: ProfileFacts) -> str:
    if facts.peak is None:
        return ""
    measured = ", ".join(filter(None, (facts.peak.source, describe_measurement(facts.peak))))
    return (
        f"{facts.peak.flops_per_second / 1e9:.1f} GFLOP/s and "
        f"{facts.peak.bytes_per_second / 1e9:.1f} GB/s of the CPU, threads: {facts.peak.threads}"
        f"{measured and f' ({measured})'}"
    )


def cards_of(profile: Profile) -> Iterator[tuple[str, str]]:
    """Yield the figures that stand first: their names and texts."""
    times = [ns / 1e6 for ns in iteration_times_of(profile)]
    if statistics := statistics_of(times):
        yield "median iteration", f"{statistics.median:.3f} ms"
        if is_loaded_in_steps(profile):
            steps = statistics_of([step.duration_ns / 1e6 for step in profile.timed_steps()])
            yield "median step, with its loading", f"{steps.median:.3f} ms" if steps else ""
        if statistics.standard_deviation is not None:
            yield "standard deviation", f"{statistics.standard_deviation:.3f} ms"
        batch = profile.facts.batch
        if rate := iterations_per_second(profile):
            what = "samples" if batch else "iterations"
            yield "throughput", f"{rate * (batch or 1):,.1f} {what}/s"
    executed = {execution.operator for execution in profile.timed_executions}
    yield "operators executed", f"{len(executed)}"
    if (peak := profile.facts.peak_memory_bytes) is not None:
        yield "peak memory", f"{peak / 2**20:,.1f} MiB"


def format_cards(profile: Profile) -> str:
    cards = "".join(
        f"<div class=card><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>"
        for name, text in cards_of(profile)
    )
    return f"<dl class=cards>{cards}</dl>"


def format_overview(profile: Profile) -> str:
    """Return the facts, and what the engine could not report."""
    facts = keep_flags(format_facts((name, printable(text)) for name, text in facts_of(profile)))
    missing = format_list(map(printable, profile.facts.dropped))
    missing = missing or "<p>Nothing that it was asked for.</p>"
    return f"{facts}<h3>What the engine could not report</h3>{missing}"


def format_summary(text: str, name: str = "") -> str:
    words = keep_flags(escape(printable_text(f"{name}{text}")))
    return f"<p class=summary>{words}</p>" if text else ""


def keep_flags(words: str) -> str:
    """Return HTML in which no line ends within a flag."""
    return re.sub(r"(?<![\w-])--\w[\w-]*", r"<span class=flag>\g<0></span>", words)
