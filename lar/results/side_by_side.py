"""Results side by side: rows of runs, the facts in which they differ, ratios and verdicts.

A row stands for one or more runs. The ratio of a row compares this row with another row, the
baseline.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from itertools import islice
from typing import Literal

from lar.errors import UsageError
from lar.measurement.differences import Spread, compare_groups, compare_pairs, usual_spread
from lar.measurement.statistics import (
    median_interval,
    median_of_known,
    percentile_of,
    statistics_of,
)
from lar.options.suggestions import nearest_spelling
from lar.records.run import RunResult
from lar.records.summary import Difference, Interval, Verdict
from lar.results import (
    NAMES,
    Figure,
    NamedResult,
    Run,
    describe_options,
    facts_of,
    figure_of,
    is_calm,
    is_option,
)

# The check of stored runs: are they slower than others of the same model, options and machine?
#
# Runs that are made one after another share the state of the machine: its other guests, its clock
# rate, its heat. An hour later, the state has changed. That moves all runs of a time together,
# often by more than they differ from each other. So lar compares sittings: runs within minutes of
# each other count as one value. Stored tags show how much sittings of one kind differ. Without
# tags, and with one sitting on each side, lar compares single runs. For that, the runs must have
# taken turns, so that both sides met the same states, or the machine must have been calm.


Unit = Literal["sittings", "runs"]
Sitting = Sequence[Run]

GAP_SECONDS = 600.0  # a longer gap between two runs begins a new sitting
FEWEST_TAGS = 3  # the tags that are needed to show how much sittings differ

NOT_IN_TURNS = "one side was run after the other, on a machine that did something else too"


@dataclass(frozen=True, kw_only=True)
class Check:
    """The verdict on new runs of one kind against runs of the baseline.

    `new` and `baseline` have only runs whose times can be trusted. `left_out` is the number of runs
    whose times cannot be trusted. `unit` says whether single runs or sittings (groups of runs made
    within minutes) are compared. `figure` is the kind of times that is compared.
    """

    name: str
    new: tuple[Run, ...]
    baseline: tuple[Run, ...]
    left_out: int
    unit: Unit
    difference: Difference | None
    figure: Figure = "latency"

    @property
    def verdict(self) -> Verdict:
        return self.difference.verdict if self.difference else "not judged"

    @property
    def reason(self) -> str:
        """Why `difference` is None."""
        which = "baseline's" if self.new else "new" if self.baseline else self.left_out
        return f"all {which} runs were disturbed"


def check_kind(
    name: str,
    new: Sequence[RunResult],
    baseline: Sequence[RunResult],
    others: Mapping[str, Sequence[RunResult]],
    comparisons: int = 1,
) -> Check:
    """Compare new runs of one kind with runs of the baseline.

    `others` has further stored runs of this kind, by tag. These runs show how much sittings (groups
    of runs made within minutes) usually differ.
    """
    sides = [new, baseline, *others.values()]
    figure, runs = figure_of([result for side in sides for result in side])
    left = iter(runs)
    fresh, base, *tags = [
        [run for run in islice(left, len(side)) if run.is_trusted] for side in sides
    ]
    difference, unit = compare_sides(base, fresh, tags, comparisons=comparisons)
    return Check(
        name=name,
        new=tuple(fresh),
        baseline=tuple(base),
        left_out=len(new) + len(baseline) - len(fresh) - len(base),
        unit=unit,
        difference=difference,
        figure=figure,
    )


def compare_sides(
    base: Sequence[Run],
    new: Sequence[Run],
    tags: Iterable[Sequence[Run]] = (),
    *,
    comparisons: int,
    one_machine: bool = True,
) -> tuple[Difference | None, Unit]:
    """Return how new runs differ from base runs, and whether single runs or sittings were compared.

    All runs are trusted. A sitting is a group of runs made within minutes. Each entry of `tags` has
    stored runs of the same command that are on neither side. All runs of an entry were made with
    one version of the program. Single runs may be compared if both sides met the same states of a
    machine, or if the two sides were run on different machines.
    """
    if not base or not new:
        return None, "sittings"
    a, b = ([time_of(sitting) for sitting in sittings_of(side)] for side in (base, new))
    others = [sittings_of(tag) for tag in tags]
    usual = usual_between_sittings(others)
    is_one_against_one = usual is None and max(len(a), len(b)) == 1
    if not is_one_against_one:
        return compare_groups(a, b, usual=usual, comparisons=comparisons), "sittings"
    if not one_machine or are_in_turns(base, new) or is_calm([*base, *new]):
        a, b = map(medians_of, (base, new))
        usual = usual_spread([*map(math.log, medians_of(it))] for tag in others for it in tag)
        return compare_groups(a, b, usual=usual, comparisons=comparisons), "runs"
    found = compare_groups(a, b)
    return found and replace(found, reason=NOT_IN_TURNS), "sittings"


def are_in_turns(one: Sequence[Run], other: Sequence[Run]) -> bool:
    """Return whether the runs of both sides are known to overlap in time."""
    first, second = ([run.result.started_at for run in side] for side in (one, other))
    are_known = all((*first, *second))
    return are_known and min(first) <= max(second) and min(second) <= max(first)


def usual_between_sittings(tags: Sequence[Sequence[Sitting]]) -> Spread | None:
    """Return the spread of sittings within a tag or, if this is unknown, the spread between tags.

    The program may have changed between tags, so that the spread between tags may be too large.
    """
    times = [[math.log(time_of(sitting)) for sitting in tag] for tag in tags if tag]
    within = usual_spread(times)
    if within is not None or len(times) < FEWEST_TAGS:
        return within
    return usual_spread([[each[0] for each in times]])


def sittings_of(runs: Sequence[Run]) -> list[list[Run]]:
    """Return groups of runs that were made soon after each other; the oldest group comes first."""
    sittings: list[list[Run]] = []
    last = None
    for run in sorted(runs, key=lambda run: run.result.started_at):
        started = moment_of(run.result.started_at)
        if not sittings or (started and last and started - last > GAP_SECONDS):
            sittings.append([])
        sittings[-1].append(run)
        last = started or last
    return sittings


def moment_of(started_at: str) -> float | None:
    """Return when a run was started, in seconds since 1970, or None if this is unknown."""
    try:
        return datetime.fromisoformat(started_at).timestamp()
    except (ValueError, OverflowError):
        return None


def time_of(sitting: Sitting) -> float:
    """Return the median of the medians of a sitting, which is runs made soon after each other."""
    return percentile_of(sorted(medians_of(sitting)), 50)


def medians_of(runs: Sequence[Run]) -> list[float]:
    """Return the medians of those runs that have a median."""
    return [run.median for run in runs if run.median]


# Results side by side: rows of runs, the facts in which they differ, ratios and verdicts


@dataclass(frozen=True, kw_only=True)
class Row:
    """The runs of a row of the table, and the facts about them.

    `difference` compares the row with its `baseline`, which is another row. `difference` is None if
    one of the two rows has no trusted run.
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
        """The runs from which the row's figures are computed: the runs that can be trusted.

        If no run can be trusted, the figures are computed from all runs that have a median.
        """
        timed = [run for run in self.runs if run.median]
        return tuple([run for run in timed if run.is_trusted] or timed)

    @property
    def medians(self) -> list[float]:
        """The medians of the timed runs."""
        return medians_of(self.timed)

    @property
    def sample_count(self) -> int:
        return sum(run.sample_count for run in self.runs)

    @property
    def disturbed_count(self) -> int:
        return sum(run.disturbed_count for run in self.runs)

    @property
    def statuses(self) -> str:
        """The statuses of the runs, each status once."""
        return ", ".join(dict.fromkeys(result.status for result in self.results))

    @cached_property
    def median(self) -> float | None:
        """The median of the runs' medians."""
        return median_of_known(self.medians)

    @cached_property
    def interval(self) -> Interval | None:
        """The interval of the median: from several runs' medians, or from one run's samples."""
        if len(self.timed) == 1:
            return median_interval(self.timed[0].times)
        # The interval of their ratio to one second, in which each run is one value.
        found = compare_pairs([[math.log(median)] for median in self.medians], once=True)
        return found.interval if found else None

    @cached_property
    def minimum(self) -> float | None:
        return min((min(run.times) for run in self.timed), default=None)

    def percentile(self, rank: int) -> float | None:
        """Return a percentile of the samples, or None for several runs or few samples."""
        if len(self.timed) != 1:
            return None
        statistics = statistics_of(self.timed[0].times)
        return statistics.percentiles.get(rank) if statistics else None

    def middle(self, figure: Callable[[Run], float | None]) -> float | None:
        """Return the median of `figure` over the timed runs, or over all runs if none is timed."""
        return median_of_known([figure(run) for run in self.timed or self.runs])


def find_baselines(rows: Sequence[Row], varying: Sequence[str], asked: str) -> list[Row | None]:
    """Return the baseline of each row, or None for a row without a baseline.

    By default, the baseline is the first row of the same model, in any format.

    Raises:
        UsageError: no row fits, or several rows fit.
    """
    if not asked:
        firsts: dict[str, Row] = {}
        stems = [os.path.splitext(row.facts["model"])[0] for row in rows]
        return [*map(firsts.setdefault, stems, rows)]
    named = [row for row in rows if row.name == asked]
    if len(named) == 1:
        return [*named * len(rows)]
    for wanted in facts_asked(asked, varying):
        if any(has(row, wanted) for row in rows):
            return match(rows, varying, asked, wanted)
    raise no_row(asked, rows, varying)


def facts_asked(asked: str, varying: Sequence[str]) -> Iterator[dict[str, str]]:
    """Yield the facts that `asked` may mean.

    The text `asked` may be the value of any varying fact. The text `none` may also mean that no
    varying option is set.
    """
    for fact in varying:
        yield {fact: value_asked(asked, fact)}
    if asked == "none":
        yield {fact: "" for fact in varying if is_option(fact)}


def value_asked(asked: str, fact: str) -> str:
    """Return the value in `asked`, which is the value alone, or has the form `FACT=VALUE`."""
    name, equals, value = asked.partition("=")
    if equals and name in (fact, fact.lstrip("-")):
        return value
    is_flag = is_option(fact) and asked.lstrip("-").replace("_", "-") == fact[2:]
    return "yes" if is_flag else asked


def match(
    rows: Sequence[Row], varying: Sequence[str], asked: str, wanted: Mapping[str, str]
) -> list[Row | None]:
    """For each row, return the row with the wanted facts that agrees with it in all other facts.

    Raises:
        UsageError: several rows fit.
    """
    keys = [tuple(row.facts[name] for name in varying if name not in wanted) for row in rows]
    found: dict[tuple[str, ...], list[Row]] = {}
    for row, key in zip(rows, keys, strict=True):
        if has(row, wanted):
            found.setdefault(key, []).append(row)

    def choose(row: Row, key: tuple[str, ...]) -> Row | None:
        same = [row] if has(row, wanted) else found.get(key, [])
        if len(same) > 1:
            problem, names = f"stands for {len(same)} rows", ", ".join(it.name for it in same)
            raise UsageError(problem, f"give one of: {names}", flag="--baseline", subject=asked)
        return same[0] if same else None

    return [*map(choose, rows, keys)]


def has(row: Row, wanted: Mapping[str, str]) -> bool:
    """Return whether a row has all the facts in `wanted`."""
    return all(row.facts[name] == value for name, value in wanted.items())


def no_row(asked: str, rows: Sequence[Row], varying: Sequence[str]) -> UsageError:
    """Return the error for a baseline that does not fit any row; the hint lists the rows."""
    names = [row.name for row in rows]
    near = nearest_spelling(asked, names)
    values = dict.fromkeys(row.facts[fact] for row in rows for fact in varying if row.facts[fact])
    hint = f"give one of: {', '.join(names)}"
    hint += f"; or a value: {', '.join(values)}" * bool(values)
    hint = f"did you mean {near}?" if near else hint
    return UsageError("names no row", hint, flag="--baseline", subject=asked)


SEVERAL = "several"  # the value of a fact that differs between the runs of a row
DISTURBED = "too few iterations were undisturbed"


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """A table of results.

    The times of all rows are of the kind `figure`. `varying` are the names of the facts that differ
    between rows; `common` has the facts in which all rows agree. `has_names` is False with `--by`,
    since a row then stands for all results with equal facts.
    """

    figure: Figure
    rows: tuple[Row, ...]
    varying: tuple[str, ...]
    common: Mapping[str, str]
    has_names: bool


def compare_results(
    named: Sequence[NamedResult], by: Sequence[str] = (), baseline: str = ""
) -> SideBySide:
    """Return results side by side: a row for each name or, if `by` is given, for equal facts `by`.

    Raises:
        UsageError: no fact has a name in `by`, or no row fits `baseline`.
    """
    figure, runs = figure_of([each.result for each in named])
    facts = facts_of_all(named)
    rows = rows_of(named, runs, facts, names_by(by, list(facts[0])))
    every = list(rows[0].facts)
    varying = tuple(name for name in every if len({row.facts[name] for row in rows}) > 1)
    rows = compare_rows(rows, find_baselines(rows, varying, baseline))
    return SideBySide(
        figure=figure,
        rows=tuple(rows),
        varying=varying,
        common={name: rows[0].facts[name] for name in every if name not in varying},
        has_names=not by,
    )


def order_of(name: str) -> tuple[int, str]:
    """Return the key by which the columns of facts are sorted."""
    return (NAMES.index("option" if is_option(name) else name), name)


def facts_of_all(named: Sequence[NamedResult]) -> list[dict[str, str]]:
    """Return the facts of each result, under the same names, in the order of the columns.

    Two models with the same name are distinguished by the beginning of their hashes.
    """
    facts = [facts_of(each.result, each.given_name) for each in named]
    names = sorted({name for its in facts for name in its}, key=order_of)
    models = [(each.result.model.sha256 if each.result.model else "") for each in named]
    known = {(its["model"], sha256) for its, sha256 in zip(facts, models, strict=True) if sha256}
    several = Counter(model for model, _ in known)
    for its, sha256 in zip(facts, models, strict=True):
        if sha256 and several[its["model"]] > 1:
            its["model"] += f" ({sha256[:8]})"
    return [{name: its.get(name, "") for name in names} for its in facts]


def names_by(by: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the names of the facts that `by` asks for.

    Raises:
        UsageError: `by` names no fact.
    """
    chosen: list[str] = []
    for word in by:
        flag = "--" + word.lstrip("-").replace("_", "-")
        options = [name for name in names if is_option(name)] if word == "option" else []
        found = options or [name for name in names if name in (word, flag)]
        if not found and word != "option":
            near = nearest_spelling(word, [*NAMES, *names])
            hint = f"did you mean {near}?" if near else f"facts: {', '.join(NAMES)}"
            raise UsageError(
                "is neither an option of a result nor the name of a fact",
                f"{hint}; or give the flag of an option",
                flag="--by",
                subject=word,
            )
        chosen += found
    return list(dict.fromkeys(chosen))


def rows_of(
    named: Sequence[NamedResult],
    runs: Sequence[Run],
    facts: Sequence[dict[str, str]],
    by: Sequence[str],
) -> list[Row]:
    """Return rows; the results of a row agree in the facts `by` or, without `by`, in the name.

    Rows come in the order of their first results.
    """
    groups: dict[tuple[str, ...], list[int]] = {}
    for place, (each, its) in enumerate(zip(named, facts, strict=True)):
        key = tuple(its[name] for name in by) if by else (each.name,)
        groups.setdefault(key, []).append(place)
    rows = []
    for (first, *_), places in groups.items():
        shared = shared_facts(facts, places)
        name = name_of_row(shared, by) if by else first
        rows.append(Row(name=name, facts=shared, runs=tuple(runs[place] for place in places)))
    return rows


def shared_facts(facts: Sequence[Mapping[str, str]], places: Sequence[int]) -> dict[str, str]:
    """Return the facts of several results; a fact that differs has the value `several`."""
    return {
        name: value if all(facts[at][name] == value for at in places) else SEVERAL
        for name, value in facts[places[0]].items()
    }


def name_of_row(facts: Mapping[str, str], by: Sequence[str]) -> str:
    """Return the name of a row of several results: the facts that distinguish it."""
    words = [facts[name] for name in by if not is_option(name) and facts[name]]
    options = describe_options({name: facts[name] for name in by})
    return ", ".join([*words, *([options] if options else [])]) or "no options"


def compare_rows(rows: Sequence[Row], baselines: Sequence[Row | None]) -> list[Row]:
    """Return the rows with the ratios to their baselines, and the verdicts on these ratios."""
    pairs = list(zip(rows, baselines, strict=True))
    comparisons = sum(base is not None and base is not row for row, base in pairs)
    compared = []
    for row, base in pairs:
        difference = ratio = None
        if base is not None and base is not row:
            a, b = ([run for run in it.runs if run.is_trusted] for it in (base, row))
            same = row.facts["machine"] == base.facts["machine"]
            difference, _ = compare_sides(a, b, comparisons=comparisons, one_machine=same)
        if base is not None and row.median and base.median:
            ratio = difference.ratio if difference else row.median / base.median
        name = base.name if base else ""
        compared.append(replace(row, baseline=name, ratio=ratio, difference=difference))
    return compared


def is_apart(row: Row, base: Row) -> bool:
    """Return whether two rows are of one machine, and were run one after the other."""
    same = row.facts["machine"] == base.facts["machine"]
    return same and not are_in_turns(row.timed, base.timed)
