"""The rules that say which options need or exclude each other, and why.

lar checks the rules before it starts anything. `RULES` hold for every engine, and are in
`rules.json`. The rules of one engine are in `lar/engines/*/rules.json`. To add a rule, write a row
into one of these files; no other code changes.
"""

from __future__ import annotations

import json
import os
from collections import ChainMap
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import combinations, product
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from lar.errors import UsageError, count_of
from lar.options import table
from lar.options.option import Option, is_set

T = TypeVar("T")


class Asked(NamedTuple):
    """The facts about a requested run that the rules examine."""

    values: Mapping[str, Any]  # the values of options, by key
    warmup_iterations: int = 1
    iterations: int = 10
    has_dataset: bool = False
    testcases: str = ""  # the model or folder that holds testcases, else empty
    input_is_testcase: bool = False  # `--input` names that folder
    environment: Mapping[str, str] = {}  # of the process that runs the engine

    @property
    def executions(self) -> int:
        """The number of times that the model is run on one item, warm-up included."""
        return self.warmup_iterations + self.iterations


class Condition:
    """A condition on a request, and its name in a message, such as `--thread 4`."""

    def __init__(self, name: Callable[[Asked], str], holds: Callable[[Asked], bool]) -> None:
        self.name = name
        self.holds = holds


Term = Condition | Option[Any]  # an option alone means that it is given
Terms = Term | tuple[Term, ...]

# Called with the request; it raises a UsageError if the rule is broken.
Rule = Callable[[Asked], None]


def condition_of(term: Term) -> Condition:
    """Return the condition that a term of a rule stands for."""
    if isinstance(term, Condition):
        return term
    return fact(term.flag, lambda asked: term.is_given(asked.values))


def terms_of(given: Terms) -> tuple[Term, ...]:
    return given if isinstance(given, tuple) else (given,)


def having(option: Option[T], test: Callable[[T], bool]) -> Condition:
    """Return the condition that an option is given, with a value that passes a test."""

    def holds(asked: Asked) -> bool:
        value = option.of(asked.values)
        return value is not None and option.is_given(asked.values) and test(value)

    return Condition(lambda asked: f"{option.flag} {option.of(asked.values)}", holds)


def valued(option: Option[str], *values: str) -> Condition:
    """Return the condition that an option is given, with one of these values."""
    return having(option, lambda value: value in values)


def fact(name: str, holds: Callable[[Asked], bool]) -> Condition:
    """Return a condition on the request, with a fixed name."""
    return Condition(lambda _: name, holds)


def typed(flag: str, default: object = None) -> Condition:
    """Return the condition that the user gave a command's flag, and not with its default value."""
    key = flag.removeprefix("--").replace("-", "_")
    return fact(flag, lambda asked: is_set(asked.values[key]) and asked.values[key] != default)


class Pairs:
    """A rule with pairs of conditions: the two conditions of a pair must not both hold.

    In the message and in the hint, {first} and {second} stand for the names of the two conditions.
    """

    says, flag = "{why}", "{first}"

    def __init__(self, pairs: Iterable[tuple[Term, Term]], hint: str = "") -> None:
        self.pairs = [(condition_of(first), condition_of(second)) for first, second in pairs]
        self.why, self.hint = "", hint

    def because(self, why: str, hint: str = "") -> Pairs:
        """Set the reason of the rule and the hint of its error, and return the rule."""
        self.why, self.hint = why, hint or self.hint
        return self

    def __call__(self, asked: Asked) -> None:
        for first, second in self.pairs:
            if first.holds(asked) and second.holds(asked):
                names = {"first": first.name(asked), "second": second.name(asked)}
                message = self.says.format(why=self.why, **names)
                flag = self.flag.format(**names)
                raise UsageError(message, self.hint.format(**names), flag=flag)


class Exclusion(Pairs):
    """Pairs of options or conditions that exclude each other."""

    says, flag = "{first} and {second} exclude each other: {why}", ""


class Need(Pairs):
    """A rule by which one condition needs at least one of several other conditions.

    The second condition of a pair is that all needed conditions are absent.
    """

    says, flag = "{first} needs {second}: {why}", ""


def excludes(first: Terms, *others: Term) -> Exclusion:
    """Return the rule that each condition in `first` excludes each condition in `others`."""
    return Exclusion(product(terms_of(first), others), "leave one of them out")


def exclude_each_other(*terms: Term) -> Exclusion:
    """Return the rule that at most one of the conditions in `terms` may hold."""
    return Exclusion(combinations(terms, 2), "give one of them")


def needs(first: Terms, *, any_of: Terms) -> Need:
    """Return the rule that each condition in `first` needs at least one condition in `any_of`."""
    needed = [condition_of(term) for term in terms_of(any_of)]
    usages = [term.usage for term in terms_of(any_of) if isinstance(term, Option)]

    def names(asked: Asked) -> str:
        *others, last = (condition.name(asked) for condition in needed)
        return f"{', '.join(others)} or {last}" if others else last

    lack = Condition(names, lambda asked: not any(each.holds(asked) for each in needed))
    return Need(product(terms_of(first), (lack,)), f"add {' or '.join(usages)}")


def bans(*terms: Term) -> Pairs:
    """Return the rule that forbids each condition in `terms`."""
    return Pairs(product(terms, (fact("", lambda _: True),)))


def needs_file(
    option: Option[str], hint: str = "check the path", unless: tuple[Option[Any], ...] = ()
) -> Rule:
    """Return the rule that an option must name an existing file.

    The file may be missing if an option of `unless` is given, since the run then creates the file.
    Without the rule, the engine would report a missing file later, when it loads the file.
    """

    def check(asked: Asked) -> None:
        path = option.of(asked.values)
        if path is None or os.path.isfile(path):
            return
        problem, help = "no such file", hint
        if os.path.isdir(path):
            problem, help = "is a folder, not a file", "give a file name"
        elif os.path.exists(path):
            problem, help = "is not a regular file", "copy it into a file"
        elif table.one_of(unless, asked.values):
            return
        raise UsageError(problem, help, flag=option.flag, subject=path)

    return check


def needs_cores(hint: str, threads: int | None = None) -> Rule:
    """Return the rule that a list of cores has a core for each thread of each model copy.

    If no flag sets the number of threads of a copy, this number is `threads`. If `threads` is None
    too, the cores are divided equally among the copies.
    """

    def check(asked: Asked) -> None:
        cores = table.MULTI_THREAD_CORE_IDS.of(asked.values)
        if cores is None:
            return
        named, copies = len(cores.split(",")), table.THREAD.of(asked.values) or 1
        counts = [
            option.of(asked.values) for option in (table.MULTITHREAD, table.MULTITHREAD_DEFAULT)
        ]
        given = 1 if table.CPU_DEFAULT.of(asked.values) else next(filter(None, counts), threads)
        needed = copies * (given or max(1, named // copies))
        if named != needed:
            raise UsageError(
                f"{cores} names {count_of(named, 'core')} for {count_of(needed, 'thread')}: "
                "each thread is bound to a core",
                hint,
                flag=table.MULTI_THREAD_CORE_IDS.flag,
            )

    return check


def read_rules(names: dict[str, Any]) -> tuple[Rule, ...]:
    """Return the rules in the file `rules.json` beside a module.

    `names` are the names that `globals()` returns in the module.

    A row of the file is an object, or the name of a rule in the code. An object in `rules.json`
    lists terms under `excludes` and `others`, or under `needs` and `any_of`, or under `bans`, or
    under `alone`. Each object in `rules.json` has a reason under `why`, and may have a `hint`. A
    term is a name that is defined in the module, in `lar.options.rules` or in the table of options.
    Some names in `rules.json` stand for several terms. The term `NAME=VALUE,...` means that the
    option has one of these values.
    """
    known = ChainMap(names, globals(), vars(table))
    rows = json.loads(Path(names["__file__"]).with_name("rules.json").read_text())
    return tuple(known[row] if isinstance(row, str) else rule_of(row, known) for row in rows)


def rule_of(row: Mapping[str, Any], known: Mapping[str, Any]) -> Rule:
    """Return the rule for an object in `rules.json`."""

    def terms(key: str) -> tuple[Term, ...]:
        return tuple(term for text in row[key] for term in terms_named(text, known))

    if "needs" in row:
        rule: Pairs = needs(terms("needs"), any_of=terms("any_of"))
    elif "excludes" in row:
        rule = excludes(terms("excludes"), *terms("others"))
    else:
        rule = exclude_each_other(*terms("alone")) if "alone" in row else bans(*terms("bans"))
    return rule.because(row["why"], row.get("hint", ""))


def terms_named(text: str, known: Mapping[str, Any]) -> Iterator[Term]:
    """Yield the terms that a text in `rules.json` stands for."""
    name, equals, values = text.partition("=")
    found: Any = known[name]
    for term in found if isinstance(found, tuple) else (found,):
        yield valued(term, *values.split(",")) if equals else term


def check_rules(rules: Iterable[Rule], asked: Asked) -> None:
    """Refuse a request that breaks a rule; the first broken rule gives the error.

    Raises:
        UsageError: a rule is broken. The error names the options, the reason and what to do.
    """
    for rule in rules:
        rule(asked)


# Facts

NO_EXECUTION = fact("--iter 0", lambda asked: asked.executions == 0)
NO_WARMUP = fact("--warmup-iter 0", lambda asked: asked.warmup_iterations == 0)
DATASET = fact("a data set", lambda asked: asked.has_dataset)
TESTCASES = Condition(
    lambda asked: f"the testcases of {asked.testcases}", lambda asked: bool(asked.testcases)
)
FED_BESIDES = fact(
    table.INPUT.flag,
    lambda asked: table.INPUT.is_given(asked.values) and not asked.input_is_testcase,
)
FED_OTHERWISE = tuple(
    option
    for option in table.OPTIONS
    if option.purpose in ("input", "dataset") and option is not table.INPUT
)
SEVERAL_RUNNERS = having(table.THREAD, lambda count: count > 1)
ONE_CHANNEL_ORDER = exclude_each_other(table.BGR, table.RGB).because(
    "the channels of an image have one order"
)
# Rules for flags that several commands have.
ON_SCHEDULER = needs(table.ON, any_of=table.SCHEDULER).because(
    "only the workers of a scheduler have labels"
)
SAVED = needs((table.TAG, table.STORE), any_of=table.SAVE).because("nothing is stored")
SHARED = (ON_SCHEDULER, SAVED)

OPEN_END = (table.DURATION, table.TARGET_CI)


def check_times(asked: Asked) -> None:
    """Refuse a --max-time below --min-time, and a --timeout shorter than the time to measure."""
    limit, least, most = (
        it.of(asked.values) for it in (table.TIMEOUT, table.MIN_TIME, table.MAX_TIME)
    )
    if least is not None and most is not None and least > most:
        raise UsageError(
            f"{least:g} s is more than --max-time {most:g}: the minimum is above the maximum",
            "raise --max-time",
            flag=table.MIN_TIME.flag,
        )
    for option in (table.DURATION, table.MIN_TIME):
        seconds = option.of(asked.values)
        if limit is not None and seconds is not None and limit <= seconds:
            raise UsageError(
                f"{limit:g} s is not more than {option.flag} {seconds:g}: lar would stop the run "
                "before the measurement is complete",
                "raise --timeout",
                flag=table.TIMEOUT.flag,
            )


# The rule for the file of --fast-run-algo-policy, for engines that have a cache.
CACHE_FILE = needs_file(
    table.FAST_RUN_ALGO_POLICY, "make it with --fast-run, then run without", unless=table.SEARCHES
)

LABELS_THERE, PACK_INFO_THERE, PACK_CACHE_THERE, C_OPR_LIB_THERE = map(
    needs_file, (table.LABELS, table.PACK_INFO_JSON, table.PACK_CACHE, table.C_OPR_LIB)
)

RULES = read_rules(globals())
