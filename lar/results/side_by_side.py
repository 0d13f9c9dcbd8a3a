"""Results side by side: rows of runs, the facts in which they differ, ratios and what they show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from lar.errors import UsageError, nearest
from lar.measurement.differences import Spread, compare_groups, spread_of, usual_spread
from lar.measurement.intervals import median_interval
from lar.measurement.statistics import statistics_of
from lar.measurement.student import quantile_of_t
from lar.measurement.summary import median_of_known
from lar.records.run import RunResult
from lar.records.summary import Difference, Interval
from lar.results.baselines import find_baselines
from lar.results.facts import NAMES, NamedResult, describe_options, facts_of, is_option
from lar.results.figures import Figure, Run, figure_of, is_calm

SEVERAL = "several"  # the fact of a row whose runs differ in it
NAMED = 3  # rows in a warning
FEWEST_RUNS = 4  # of both sides, that show by themselves how much runs differ

NOT_IN_TURNS = "one side was run after the other, on a machine that did something else too"
DISTURBED = "too few iterations were undisturbed"


@dataclass(frozen=True, kw_only=True)
class Row:
    """The runs of a row of the table, and the facts about them.

    `difference` is from the `baseline`, another row; None where one of the two has no trusted run.
    """

    name: str
    facts: Mapping[str, str]
    runs: tuple[Run, ...]
    baseline: str = ""
    ratio: float | None = None
    difference: Difference | None = None

    @property
    def results(self) -> tuple[RunResult, ...]:
        return tuple(run.result for run in self.runs)

    @cached_property
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
        return median_of_known([run.median for run in self.timed])

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
        return median_of_known(
            [median_of_known(result.samples.busiest_thread) for result in self.results]
        )

    @property
    def iterations_per_second(self) -> float | None:
        return median_of_known([run.iterations_per_second for run in self.timed])

    @property
    def items_per_second(self) -> float | None:
        return median_of_known([run.items_per_second for run in self.timed])

    @property
    def load_seconds(self) -> float | None:
        return median_of_known([result.load_seconds for result in self.results])

    @property
    def prepare_seconds(self) -> float | None:
        return median_of_known([result.prepare_seconds for result in self.results])

    @property
    def peak_memory_bytes(self) -> float | None:
        return median_of_known([result.peak_memory_bytes for result in self.results])


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """A table of results.

    `figure` is that of all rows, `varying` are the names of the facts in which rows differ,
    `common` what all rows have in common, `warnings` what the ratios do not show.
    """

    figure: Figure
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
    figure, runs = figure_of([each.result for each in named])
    facts = distinguish_models(named, [facts_of(each) for each in named])
    names = list(dict.fromkeys(name for each in facts for name in each))
    facts = [{name: each.get(name, "") for name in sorted(names, key=order_of)} for each in facts]
    rows = rows_by(runs, facts, names_by(by, names)) if by else rows_of_each(named, runs, facts)
    every = list(rows[0].facts)
    varying = tuple(name for name in every if len({row.facts[name] for row in rows}) > 1)
    rows = compare_rows(rows, find_baselines(rows, varying, baseline))
    return SideBySide(
        figure=figure,
        rows=tuple(rows),
        varying=varying,
        common={name: rows[0].facts[name] for name in every if name not in varying},
        has_names=not by,
        warnings=tuple(warnings_for(rows, by)),
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


def rows_of_each(
    named: Sequence[NamedResult], runs: Sequence[Run], facts: Sequence[dict[str, str]]
) -> list[Row]:
    """Return a row for the results of each name: one, or the runs of a bench's variant."""
    groups: dict[str, list[int]] = {}
    for place, each in enumerate(named):
        groups.setdefault(each.name, []).append(place)
    return [
        Row(
            name=name,
            facts=shared_facts(facts, places),
            runs=tuple(runs[place] for place in places),
        )
        for name, places in groups.items()
    ]


def rows_by(runs: Sequence[Run], facts: Sequence[dict[str, str]], by: Sequence[str]) -> list[Row]:
    """Return a row for all results that agree in some facts, in the order of the first of each."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for place, its in enumerate(facts):
        groups.setdefault(tuple(its[name] for name in by), []).append(place)
    rows = []
    for places in groups.values():
        shared = shared_facts(facts, places)
        own = tuple(runs[place] for place in places)
        rows.append(Row(name=name_of_row(shared, by), facts=shared, runs=own))
    return rows


def shared_facts(facts: Sequence[Mapping[str, str]], places: Sequence[int]) -> dict[str, str]:
    """Return the facts of several results, `several` for those in which they differ."""
    return {
        name: value if all(facts[at][name] == value for at in places) else SEVERAL
        for name, value in facts[places[0]].items()
    }


def name_of_row(facts: Mapping[str, str], by: Sequence[str]) -> str:
    """Return the name of a row of several results: what distinguishes it."""
    words = [facts[name] for name in by if not is_option(name) and facts[name]]
    options = describe_options({name: facts[name] for name in by})
    return ", ".join([*words, *([options] if options else [])]) or "no options"


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


def compare_rows(rows: Sequence[Row], baselines: Sequence[Row | None]) -> list[Row]:
    """Return rows with the ratio of each to its baseline, and what that shows."""
    comparisons = sum(
        base is not None and base is not row for row, base in zip(rows, baselines, strict=True)
    )
    usual = spreads_of_machines(rows)
    compared = []
    for row, base in zip(rows, baselines, strict=True):
        difference, ratio = None, None
        if base is not None and base is not row:
            same = row.facts["machine"] == base.facts["machine"]
            spread = usual.get(row.facts["machine"]) if same else None
            difference = compare_runs(base, row, spread, comparisons)
        if base is not None and row.median and base.median:
            ratio = difference.ratio if difference else row.median / base.median
        name = base.name if base else ""
        compared.append(replace(row, baseline=name, ratio=ratio, difference=difference))
    return compared


def compare_runs(base: Row, row: Row, usual: Spread | None, comparisons: int) -> Difference | None:
    """Return what the runs of two rows show; None where one has none to trust."""
    a, b = ([run.median or 0.0 for run in it.timed if run.is_trusted] for it in (base, row))
    found = compare_groups(
        a, b, usual=usual if len(a) + len(b) < FEWEST_RUNS else None, comparisons=comparisons
    )
    if found and is_apart(row, base) and not is_calm([*base.timed, *row.timed]):
        return replace(found, verdict="not judged", reason=NOT_IN_TURNS, smallest_detectable=None)
    return found


def spreads_of_machines(rows: Sequence[Row]) -> dict[str, Spread | None]:
    """Return how much runs of one row differ on each machine, for rows that have a single run."""
    groups: dict[str, list[list[float]]] = {}
    for row in rows:
        logs = [math.log(run.median or 1.0) for run in row.timed]
        groups.setdefault(row.facts["machine"], []).append(logs)
    return {machine: usual_spread(its) for machine, its in groups.items()}


def warnings_for(rows: Sequence[Row], by: Sequence[str]) -> list[str]:
    """Return what the figures do not show, and why; columns show the rest."""
    warnings = []
    timed = [row for row in rows if row.timed]
    compared = [row for row in rows if row.ratio and row.baseline != row.name]
    judged = [row for row in compared if row.difference and row.difference.verdict != "not judged"]
    if len(judged) < len(compared):
        warnings.append(
            "what is not judged needs several runs of each side, made in turns on a quiet machine "
            "and pooled with --by; or compare with `lar bench`"
        )
    by_name = {row.name: row for row in rows}
    apart = [row for row in judged if is_apart(row, by_name[row.baseline])]
    if apart:
        warnings.append(
            f"the runs of {name_rows(apart)} and of the baseline were not made in turns: a change "
            "of the machine between the two would look like a difference"
        )
    unwatched = [row for row in timed if not any(it.is_watched for it in row.timed)]
    if unwatched:
        which = "" if len(unwatched) == len(timed) else f" in {name_rows(unwatched)}"
        warnings.append(f"nothing is known of disturbances{which}")
    pooled = sorted({name for row in rows for name, value in row.facts.items() if value == SEVERAL})
    if by and pooled:
        warnings.append(f"rows pool runs that differ in {', '.join(pooled)}")
    return warnings + [f"{row.name}: {describe_failure(row)}" for row in rows if not row.timed]


def is_apart(row: Row, base: Row) -> bool:
    """Return whether two rows of one machine were run one after the other."""
    same = row.facts["machine"] == base.facts["machine"]
    return same and not are_in_turns(row.timed, base.timed)


def name_rows(rows: Sequence[Row]) -> str:
    """Return the names of the first rows, and how many there are more."""
    more = [f"{len(rows) - NAMED} more"] if len(rows) > NAMED else []
    return ", ".join([*(row.name for row in rows[:NAMED]), *more])


def describe_failure(row: Row) -> str:
    """Return why a row has no times."""
    result = row.results[0]
    if result.failure is not None:
        return f"{result.status} in phase {result.phase}: {result.failure.message}"
    return "no iteration was timed"
