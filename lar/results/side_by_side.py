"""Results side by side: rows of runs, the facts in which they differ, ratios and what they show."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Literal

from lar.errors import UsageError, nearest
from lar.measurement.differences import (
    Spread,
    compare_groups,
    spread_of,
    usual_spread,
)
from lar.measurement.intervals import median_interval
from lar.measurement.statistics import causes_of, percentile_of, statistics_of
from lar.measurement.student import quantile_of_t
from lar.measurement.summary import (
    items_in_iteration,
    iterations_per_second,
    median_of_known,
    summarize,
)
from lar.records.run import RunResult
from lar.records.summary import Difference, Interval, Trust
from lar.results.facts import NAMES, NamedResult, describe_options, facts_of, is_option

Doubt = Literal["", "single", "disturbed", "machine"]
"""Why a difference shows nothing:

single     there is one run on each side
disturbed  no run of a side has a figure to trust
machine    one side was run after the other, while the machine did something else too
"""

SEVERAL = "several"  # the fact of a row whose runs differ in it
CALM_SHARE = 0.1  # of disturbed iterations, at most


@dataclass(frozen=True)
class Run:
    """One run: the times that stand for it, which figure they are, and how many were disturbed.

    `times` are those of all iterations, of the undisturbed ones, or the CPU times that are the
    latency of a quiet machine, as `trust` has it; with "nothing" they are of all, and decide
    nothing. `is_watched` says whether disturbances were looked for.
    """

    result: RunResult
    times: tuple[float, ...]
    trust: Trust
    disturbed_count: int
    is_watched: bool

    @property
    def median(self) -> float | None:
        return percentile_of(sorted(self.times), 50) if self.times else None

    @property
    def sample_count(self) -> int:
        return len(self.result.samples.end_to_end)

    @property
    def is_trusted(self) -> bool:
        """Whether its times can show a difference."""
        return self.trust != "nothing" and bool(self.median)


@dataclass(frozen=True, kw_only=True)
class Row:
    """The runs of a row of the table, and the facts about them.

    `doubt` is why a difference from the baseline shows nothing, empty if it may.
    """

    name: str
    facts: Mapping[str, str]
    runs: tuple[Run, ...]
    baseline: str = ""
    ratio: float | None = None
    difference: Difference | None = None
    doubt: Doubt = ""

    @property
    def is_judged(self) -> bool:
        """Whether a difference from the baseline could be shown."""
        return (
            self.difference is not None
            and not self.doubt
            and self.difference.smallest_detectable is not None
        )

    @property
    def results(self) -> tuple[RunResult, ...]:
        return tuple(run.result for run in self.runs)

    @property
    def timed(self) -> tuple[Run, ...]:
        """The runs that have samples of more than no time."""
        return tuple(run for run in self.runs if run.median)

    @property
    def sample_count(self) -> int:
        return sum(run.sample_count for run in self.runs)

    @property
    def disturbed_count(self) -> int:
        return sum(run.disturbed_count for run in self.runs)

    @property
    def statuses(self) -> str:
        """The statuses of its runs, the first of each kind."""
        return ", ".join(dict.fromkeys(result.status for result in self.results))

    @cached_property
    def median(self) -> float | None:
        """The median of the runs' medians."""
        medians = sorted(run.median or 0.0 for run in self.timed)
        return percentile_of(medians, 50) if medians else None

    @cached_property
    def interval(self) -> Interval | None:
        """That of the median: over the runs if there are several, else over the samples of one."""
        if len(self.timed) == 1:
            return median_interval(self.timed[0].times)
        return interval_of_runs([run.median or 0.0 for run in self.timed])

    @cached_property
    def minimum(self) -> float | None:
        return min((min(run.times) for run in self.timed), default=None)

    def percentile(self, rank: int) -> float | None:
        """Return a percentile of the samples of a single run, None where they are too few."""
        if len(self.timed) != 1:
            return None
        statistics = statistics_of(self.timed[0].times)
        return statistics.percentiles.get(rank) if statistics else None

    @cached_property
    def cpu_median(self) -> float | None:
        """The median of the runs' CPU times of an iteration."""
        return middle([median_of_known(result.samples.busiest_thread) for result in self.results])

    @property
    def iterations_per_second(self) -> float | None:
        return middle([iterations_per_second(result) for result in self.results])

    @property
    def items_per_second(self) -> float | None:
        return middle([items_per_second(result) for result in self.results])

    @property
    def load_seconds(self) -> float | None:
        return middle([result.load_seconds for result in self.results])

    @property
    def prepare_seconds(self) -> float | None:
        return middle([result.prepare_seconds for result in self.results])

    @property
    def peak_memory_bytes(self) -> float | None:
        return middle([result.peak_memory_bytes for result in self.results])


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """A table of results.

    `varying` are the names of the facts in which rows differ, `common` what all rows have in
    common, `warnings` what the ratios do not show.
    """

    rows: tuple[Row, ...]
    varying: tuple[str, ...]
    common: Mapping[str, str]
    has_names: bool
    warnings: tuple[str, ...] = field(default=())


def compare_results(
    named: Sequence[NamedResult], by: Sequence[str] = (), baseline: str = ""
) -> SideBySide:
    """Return results side by side: a row for each, or with `by` for those that agree in it.

    Raises:
        UsageError: `by` names no fact, or `baseline` no row.
    """
    facts = distinguish_models(named, [facts_of(each) for each in named])
    names = list(dict.fromkeys(name for each in facts for name in each))
    facts = [{name: each.get(name, "") for name in sorted(names, key=order_of)} for each in facts]
    rows = rows_by(named, facts, names_by(by, names)) if by else rows_of_each(named, facts)
    every = list(rows[0].facts)
    varying = tuple(name for name in every if len({row.facts[name] for row in rows}) > 1)
    rows = compare_rows(rows, varying, baseline)
    return SideBySide(
        rows=tuple(rows),
        varying=varying,
        common={name: rows[0].facts[name] for name in every if name not in varying},
        has_names=not by,
        warnings=tuple(warnings_for(rows, by, facts)),
    )


def order_of(name: str) -> tuple[int, str]:
    """Return the place of a fact's column."""
    return (NAMES.index("option" if is_option(name) else name), name)


def distinguish_models(
    named: Sequence[NamedResult], facts: list[dict[str, str]]
) -> list[dict[str, str]]:
    """Return the facts with two models of one name told apart by the beginning of their hashes."""
    hashes: dict[str, set[str]] = {}
    for each, its in zip(named, facts, strict=True):
        hashes.setdefault(its["model"], set()).add(hash_of(each.result))
    changed = []
    for each, its in zip(named, facts, strict=True):
        several = len(hashes[its["model"]] - {""}) > 1
        mark = f" ({hash_of(each.result)[:8]})" if several and hash_of(each.result) else ""
        changed.append({**its, "model": its["model"] + mark})
    return changed


def hash_of(result: RunResult) -> str:
    return result.model.sha256 if result.model else ""


def names_by(by: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the names of the facts that `by` asks for.

    Raises:
        UsageError: it names none.
    """
    chosen: list[str] = []
    for word in by:
        flag = "--" + word.lstrip("-").replace("_", "-")
        if word == "option":
            chosen += [name for name in names if is_option(name)]
        elif word in NAMES or word in names:
            chosen.append(word)
        elif flag in names:
            chosen.append(flag)
        else:
            near = nearest(word, [*NAMES, *names])
            hint = f"did you mean {near}?" if near else f"facts: {', '.join(NAMES)}"
            raise UsageError(
                "no result has such an option, and no fact has that name",
                f"{hint}; or the flag of an option",
                flag="--by",
                subject=word,
            )
    return list(dict.fromkeys(chosen))


def rows_of_each(named: Sequence[NamedResult], facts: Sequence[dict[str, str]]) -> list[Row]:
    """Return a row for the results of each name: one, or the runs of a bench's variant."""
    groups: dict[str, list[int]] = {}
    for place, each in enumerate(named):
        groups.setdefault(each.name, []).append(place)
    return [
        Row(name=name, facts=shared_facts(facts, places), runs=runs_at(named, places))
        for name, places in groups.items()
    ]


def rows_by(
    named: Sequence[NamedResult], facts: Sequence[dict[str, str]], by: Sequence[str]
) -> list[Row]:
    """Return a row for all results that agree in some facts, in the order of the first of each."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for place, its in enumerate(facts):
        groups.setdefault(tuple(its[name] for name in by), []).append(place)
    rows = []
    for places in groups.values():
        shared = shared_facts(facts, places)
        name = name_of_row(shared, by)
        rows.append(Row(name=name, facts=shared, runs=runs_at(named, places)))
    return rows


def shared_facts(facts: Sequence[Mapping[str, str]], places: Sequence[int]) -> dict[str, str]:
    """Return the facts of several results, `several` for those in which they differ."""
    return {
        name: value if all(facts[at][name] == value for at in places) else SEVERAL
        for name, value in facts[places[0]].items()
    }


def runs_at(named: Sequence[NamedResult], places: Sequence[int]) -> tuple[Run, ...]:
    return tuple(run_of(named[at].result) for at in places)


def name_of_row(facts: Mapping[str, str], by: Sequence[str]) -> str:
    """Return the name of a row of several results: what distinguishes it."""
    words = [facts[name] for name in by if not is_option(name) and facts[name]]
    options = describe_options({name: facts[name] for name in by})
    return ", ".join([*words, *([options] if options else [])]) or "no options"


def run_of(result: RunResult) -> Run:
    """Return a run with the times that stand for it."""
    samples, summary = result.samples, result.summary or summarize(result)
    if summary is None:
        return Run(result, (), "nothing", 0, False)
    times: tuple[float, ...] = samples.end_to_end
    if summary.trust == "undisturbed latency":
        disturbed = {*chain.from_iterable(causes_of(samples).values())}
        times = tuple(each for place, each in enumerate(times) if place not in disturbed)
    elif summary.trust == "cpu":
        times = tuple(each for each in samples.busiest_thread if each is not None)
    watched = any(
        each is not None for column in (samples.queue_delay, samples.steal) for each in column
    )
    return Run(result, times, summary.trust, summary.disturbed_count, watched)


def is_calm(runs: Sequence[Run]) -> bool:
    """Return whether hardly an iteration was disturbed, as far as that is known."""
    return all(run.disturbed_count <= CALM_SHARE * run.sample_count for run in runs)


def are_in_turns(one: Sequence[Run], other: Sequence[Run]) -> bool:
    """Return whether neither side was run before the other was begun, as far as that is known."""
    first, second = ([run.result.started_at for run in side] for side in (one, other))
    if not all((*first, *second)):
        return False
    return min(first) <= max(second) and min(second) <= max(first)


def interval_of_runs(medians: Sequence[float]) -> Interval | None:
    """Return the interval of the median of several runs, each of which is one value."""
    logs = [math.log(median) for median in medians]
    spread = spread_of(logs)
    if spread is None:
        return None
    mean = math.fsum(logs) / len(logs)
    reach = quantile_of_t(0.975, spread.degrees) * spread.deviation / math.sqrt(len(logs))
    return Interval(math.exp(mean - reach), math.exp(mean + reach))


def middle(values: Sequence[float | None]) -> float | None:
    """Return the median of the values that are known."""
    known = sorted(value for value in values if value is not None)
    return percentile_of(known, 50) if known else None


def items_per_second(result: RunResult) -> float | None:
    """Return the items of all runners in a second, None where the batch is not known."""
    rate, items = iterations_per_second(result), items_in_iteration(result)
    return rate * items if rate and items else None


def compare_rows(rows: Sequence[Row], varying: Sequence[str], asked: str) -> list[Row]:
    """Return rows with the ratio of each to its baseline, and what that shows.

    Raises:
        UsageError: no row is the baseline that was asked for.
    """
    baselines = find_baselines(rows, varying, asked)
    comparisons = sum(
        base is not None and base is not row for row, base in zip(rows, baselines, strict=True)
    )
    compared = []
    no_doubt: Doubt = ""
    for row, base in zip(rows, baselines, strict=True):
        if base is None:
            compared.append(row)
            continue
        ratio = 1.0 if base is row and row.median else None
        difference, doubt = None, no_doubt
        if base is not row and row.median and base.median:
            ratio = row.median / base.median
            a, b = ([run for run in each.timed if run.is_trusted] for each in (base, row))
            difference = compare_groups(
                *([run.median or 0.0 for run in side] for side in (a, b)),
                usual=spread_of_others(rows, row, base),
                comparisons=comparisons,
            )
            ratio = difference.ratio if difference else ratio
            doubt = doubt_of(difference, base, row)
        compared.append(
            replace(row, baseline=base.name, ratio=ratio, difference=difference, doubt=doubt)
        )
    return compared


def doubt_of(difference: Difference | None, base: Row, row: Row) -> Doubt:
    """Return why a difference between two rows shows nothing, empty if it may."""
    if difference is None:
        return "disturbed"
    if difference.smallest_detectable is None:
        return "single"
    same = base.facts["machine"] == row.facts["machine"]
    in_turns = are_in_turns(base.timed, row.timed)
    return "machine" if same and not in_turns and not is_calm([*base.timed, *row.timed]) else ""


def spread_of_others(rows: Sequence[Row], row: Row, base: Row) -> Spread | None:
    """Return how much runs of the other rows on the same machine differ, for a single run that has
    no others of its kind."""
    machine = row.facts["machine"]
    if base.facts["machine"] != machine:
        return None
    others = [
        it for it in rows if it is not row and it is not base and it.facts["machine"] == machine
    ]
    return usual_spread([[math.log(run.median or 1.0) for run in each.timed] for each in others])


def find_baselines(rows: Sequence[Row], varying: Sequence[str], asked: str) -> list[Row | None]:
    """Return the baseline of each row, None for a row that has none.

    Without one asked for, it is the first row of the same model.

    Raises:
        UsageError: no row is it, or it is not clear which.
    """
    if not asked:
        firsts: dict[str, Row] = {}
        return [firsts.setdefault(stem_of(row), row) for row in rows]
    named = [row for row in rows if row.name == asked]
    if len(named) == 1:
        return [named[0]] * len(rows)
    name, equals, value = asked.partition("=")
    for fact in varying:
        wanted = value if equals and name in (fact, fact.lstrip("-")) else asked
        if is_option(fact) and asked.lstrip("-").replace("_", "-") == fact[2:]:
            wanted = "yes"
        if any(row.facts[fact] == wanted for row in rows):
            return [match_baseline(rows, row, varying, fact, wanted) for row in rows]
    if asked == "none":  # the rows without options
        flags = [fact for fact in varying if is_option(fact)]
        plain = [row for row in rows if not any(row.facts[flag] for flag in flags)]
        if plain:
            return [
                next((it for it in plain if agree(it, row, varying, flags)), None) for row in rows
            ]
    near = nearest(asked, [row.name for row in rows])
    values = dict.fromkeys(row.facts[fact] for row in rows for fact in varying if row.facts[fact])
    raise UsageError(
        "names no row",
        f"did you mean {near}?"
        if near
        else f"give one of: {', '.join(row.name for row in rows)}"
        + (f"; or a value: {', '.join(values)}" if values else ""),
        flag="--baseline",
        subject=asked,
    )


def match_baseline(
    rows: Sequence[Row], row: Row, varying: Sequence[str], fact: str, wanted: str
) -> Row | None:
    """Return the row that has the wanted fact and agrees with a row in all others.

    Raises:
        UsageError: several do.
    """
    found = [it for it in rows if it.facts[fact] == wanted and agree(it, row, varying, [fact])]
    if any(it is row for it in found):
        return row
    if len(found) > 1:
        raise UsageError(
            f"stands for {len(found)} rows",
            f"give one of: {', '.join(it.name for it in found)}",
            flag="--baseline",
            subject=wanted,
        )
    return found[0] if found else None


def agree(one: Row, other: Row, varying: Sequence[str], but: Sequence[str]) -> bool:
    """Return whether two rows agree in all facts but some."""
    return all(one.facts[name] == other.facts[name] for name in varying if name not in but)


def stem_of(row: Row) -> str:
    """Return the name of a row's model without its suffix: other engines read it in another
    format."""
    return os.path.splitext(row.facts["model"])[0]


DOUBTS: Mapping[Doubt, str] = {
    "single": "a single run on each side shows nothing of {}: two processes of one program "
    "differ too. Give several runs of each and pool them with --by, or compare with `lar bench`",
    "disturbed": "nothing can be said of {}: too few iterations were undisturbed. Run it again "
    "when the machine is quiet, or compare with `lar bench`",
    "machine": "nothing can be said of {}: one side was run after the other, on a machine that "
    "did something else too. Make the runs in turns, or compare with `lar bench`",
}


def warnings_for(
    rows: Sequence[Row], by: Sequence[str], facts: Sequence[Mapping[str, str]]
) -> list[str]:
    """Return what the figures do not show, and why."""
    warnings = []
    timed = [row for row in rows if row.timed]
    compared = [row for row in rows if row.ratio and row.baseline != row.name]
    for doubt, text in DOUBTS.items():
        if doubted := [row for row in compared if row.doubt == doubt]:
            which = "any ratio" if len(doubted) == len(compared) else name_rows(doubted)
            warnings.append(text.format(which))
    by_name = {row.name: row for row in rows}
    apart = [
        row
        for row in compared
        if row.is_judged
        and row.facts["machine"] == by_name[row.baseline].facts["machine"]
        and not are_in_turns(row.timed, by_name[row.baseline].timed)
    ]
    if apart:
        warnings.append(
            f"the runs of {name_rows(apart)} and of the baseline were not made in turns: a change "
            "of the machine between the two would look like a difference"
        )
    few = [row for row in timed if row.interval is None]
    if few:
        counts = ", ".join(f"{row.name} ({row.sample_count})" for row in few)
        warnings.append(f"too few independent samples for an interval of the median: {counts}")
    disturbed = [row for row in rows if row.disturbed_count]
    if disturbed:
        counts = ", ".join(
            f"{row.name} ({row.disturbed_count} of {row.sample_count})" for row in disturbed
        )
        warnings.append(
            f"iterations were disturbed, and left out or taken by their CPU time: {counts}"
        )
    unwatched = [row for row in timed if not any(it.is_watched for it in row.timed)]
    if unwatched:
        which = "" if len(unwatched) == len(timed) else f" in {name_rows(unwatched)}"
        warnings.append(f"nothing is known of disturbances{which}")
    pooled = sorted({name for row in rows for name, value in row.facts.items() if value == SEVERAL})
    if by and pooled:
        warnings.append(f"rows pool runs that differ in {', '.join(pooled)}")
    return warnings + [f"{row.name}: {describe_failure(row)}" for row in rows if not row.timed]


def name_rows(rows: Sequence[Row]) -> str:
    return ", ".join(row.name for row in rows)


def describe_failure(row: Row) -> str:
    """Return why a row has no times."""
    result = row.results[0]
    if result.failure is not None:
        return f"{result.status} in phase {result.phase}: {result.failure.message}"
    return "no iteration was timed"
