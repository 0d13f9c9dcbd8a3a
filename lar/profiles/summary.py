"""The paragraph on top of a report: what takes the time, what limits it, what to try, the cost of
profiling, how disturbed the run was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from lar.profiles.breakdown import steps_of
from lar.profiles.costs import describe_cost
from lar.profiles.disturbance import describe_disturbance
from lar.profiles.recommendations import Recommendation, Shown
from lar.profiles.roofline import (
    Bound,
    Work,
    host_peak_of,
    piece_of,
    savings_of,
    work_of,
)
from lar.profiles.thread_balance import describe_balance
from lar.profiles.times import Kind
from lar.profiles.totals import Totals, group_by, operator_totals
from lar.records.profile import Profile

# Types of operators that are named, and the part of the operators' time that is worth naming.
MOST_TYPES = 2
LEAST_SHARE = 0.10
# Suggestions that are named.
MOST_TRIES = 2

# What binds the work of a type of operators, and how near to the machine's roofs it comes.
BOUNDS: Mapping[Bound, str] = {
    "compute": "{name} is bound by computing: {reached} of this machine",
    "memory": "{name} is bound by memory: {reached} of this machine",
    "cache": "{name} moves more than the main memory could, out of the caches",
    "latency": "{name} is far from the roofs of this machine, at {reached}: it is bound by latency",
}


def summarize(profile: Profile, found: Sequence[Recommendation], kind: Kind = "compute") -> str:
    """Return the paragraph about a profile, empty if nothing was timed.

    `found` are the recommendations for it, and `kind` is the time of operators that the report
    shows: shares are those of its tables. Where profiling cost much, times are without that
    (`lar.profiles.costs`).
    """
    shown = Shown(profile)
    if not shown.iteration_ns:
        return ""
    sentences = (
        *sentences_of_time(shown, kind),
        *sentences_of_limit(shown),
        describe_balance(profile),
        *sentences_of_tries(profile, found),
        describe_cost(profile).removesuffix("."),
        describe_disturbance(profile),
    )
    return " ".join(f"{text[:1].upper()}{text[1:]}." for text in sentences if text)


def sentences_of_time(shown: Shown, kind: Kind) -> Iterator[str]:
    """Yield what an iteration takes, and which operators take most of it."""
    count = len(shown.profile.timed_steps())
    length = f"an iteration takes {format_ns(shown.iteration_ns)}"
    calm, among = shown.calm_steps, ""
    if 0 < len(calm) < count:
        among = f", {format_ns(shown.calm_ns)} of the {len(calm)} undisturbed"
    yield f"{length} (median of {count}{among})" if count > 1 else length
    facts = shown.profile.facts
    if facts.dispatch_only:
        yield (
            f"what operators take on {facts.device} is not known: their times are those of the "
            "host, which has the device do them"
        )
    operators = operator_totals(shown.profile, kind)
    if any(each.ranking_ns for each in operators.values()):
        yield describe_operators(shown.profile, kind, operators)


class TimePart(NamedTuple):
    """The time of some operators in all iterations: in sum, as shares in tables are, and as the
    median of each operator times its calls, which rows are ranked by."""

    total_ns: int
    typical_ns: float

    def shares_of(self, whole: TimePart, digits: int = 0) -> tuple[str, ...]:
        """Return its share and, where that by the medians is quite another one, this too: some
        calls were disturbed then."""
        in_sum = self.total_ns / whole.total_ns if whole.total_ns else 0.0
        by_medians = self.typical_ns / whole.typical_ns
        differs = abs(by_medians - in_sum) >= LEAST_SHARE
        return f"{in_sum:.{digits}%}", *((f"{by_medians:.0%} by medians",) if differs else ())


def time_of_operators(operators: Iterable[Totals]) -> TimePart:
    totals = [*operators]
    return TimePart(sum(it.total_ns for it in totals), sum(it.ranking_ns for it in totals))


def describe_operators(profile: Profile, kind: Kind, operators: Mapping[int, Totals]) -> str:
    """Return which types of operators take most of their time, and which operator is the first,
    both by median x calls."""
    whole = time_of_operators(operators.values())
    by_type = group_by(operators, lambda place: profile.operators[place].type)
    times = {
        name: time_of_operators(operators[place] for place in places)
        for name, places in by_type.items()
    }
    order = sorted(times, key=lambda name: -times[name].typical_ns)
    least_ns = LEAST_SHARE * whole.typical_ns
    named = [name for name in order[:MOST_TYPES] if times[name].typical_ns >= least_ns]
    parts = []
    for name in named or order[:1]:
        share, *notes = times[name].shares_of(whole)
        if (count := len(by_type[name])) > 1:
            notes.insert(0, f"{count} operators")
        parts.append(f"{name} {share}" + (f" ({', '.join(notes)})" if notes else ""))
    first = max(operators, key=lambda place: operators[place].ranking_ns)
    own = time_of_operators([operators[first]])
    return (
        f"of the operators' time ({'compute' if profile.on_device else kind}, in sum), "
        f"{' and '.join(parts)}; the slowest, by median x calls, is "
        f"{profile.operators[first].name} with "
        f"{format_ns(own.typical_ns / len(steps_of(profile)))} "
        f"({', '.join(own.shares_of(whole, digits=1))})"
    )


def sentences_of_limit(shown: Shown) -> Iterator[str]:
    """Yield what binds the type of operators that takes most time, and what roofs would save."""
    profile = shown.profile
    peak = host_peak_of(profile)
    if peak is None or not shown.computing_ns:
        return
    name, work = busiest_type(shown)
    computing, moving = work.compute_percent(peak), work.memory_percent(peak)
    reached = " and ".join(
        # A measured peak is that of one program: quicker code is possible.
        f"{percent:.0f}% of the {what}" if percent <= 100 else f"more than the measured {what}"
        for percent, what in ((computing, "peak of operations"), (moving, "bandwidth"))
        if percent is not None
    )
    if bound := work.bound(peak):
        yield BOUNDS[bound].format(name=name, reached=reached)
    savings = savings_of(profile)
    place = max(savings, key=lambda each: savings[each], default=None)
    if place is not None and sum(savings.values()) >= LEAST_SHARE * shown.iteration_ns:
        yield (
            f"at their roofs operators would save {format_ns(sum(savings.values()))} of an "
            f"iteration, first of all {profile.operators[place].name} ({format_ns(savings[place])})"
        )


def busiest_type(shown: Shown) -> tuple[str, Work]:
    """Return the type of operators that takes most time, and its work in an iteration."""
    operators = shown.profile.operators
    by_type = group_by(shown.operator_ns, lambda place: operators[place].type)
    name = max(by_type, key=lambda each: sum(shown.operator_ns[it] for it in by_type[each]))
    pieces = (piece_of(shown.profile, it, round(shown.operator_ns[it])) for it in by_type[name])
    return name, work_of(pieces)


def sentences_of_tries(profile: Profile, found: Sequence[Recommendation]) -> Iterator[str]:
    """Yield what to try and why, or that no setting is expected to help, with the first note."""
    settings = [each for each in found if each.gain is not None]
    if settings:
        tries = (
            f"{' '.join(each.flags)}, since {each.text.rpartition('; ')[0]}"
            for each in settings[:MOST_TRIES]
        )
        yield f"to try: {'; or '.join(tries)}"
        return
    yield describe_nothing(profile)
    if found:
        yield found[0].text


def describe_nothing(profile: Profile) -> str:
    """Return that no setting is suggested, in a sentence without its full stop."""
    engine = profile.facts.engine or "the engine"
    return f"nothing to try: no other setting of {engine} is expected to make it faster here"


def format_ns(duration_ns: float) -> str:
    """Return a time in the unit that fits it."""
    for unit, length in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if duration_ns >= length:
            return f"{duration_ns / length:.3g} {unit}"
    return f"{duration_ns:.0f} ns"
