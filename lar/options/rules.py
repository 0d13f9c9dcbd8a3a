"""Which options need or exclude which others, and why: checked before anything is started.

`RULES` hold for every engine. Rules of the same kinds that hold for one engine stand beside its
rows, in `lar/engines/*/options.py`. To add one, write it into the table: it is declared once, and
nothing else has to know of it.
"""

from __future__ import annotations

import abc
import os
from collections.abc import Callable, Iterable, Mapping
from itertools import combinations, product
from typing import Any, NamedTuple, TypeVar

from lar.errors import UsageError
from lar.options.option import Option, is_set
from lar.options.table import (
    ARRIVALS,
    BGR,
    BIN_OUT_DUMP,
    C_OPR_LIB,
    CHECK_VAR_VALUE,
    CPU,
    CPU_DEFAULT,
    CSV,
    CUDA,
    DUMP_FILTER,
    DUMPS,
    DURATION,
    FAKE_FIRST,
    FORCE,
    GET_STATIC_MEM_INFO,
    HTML,
    IDLE_MS,
    IN_PROCESS,
    INPUT,
    INPUT_LAYOUT,
    IO_DUMP_STDOUT,
    ITER,
    JSON,
    LABELS,
    LAYOUT_CHOICES,
    MAX_TIME,
    MEAN,
    MIN_TIME,
    MODEL_INFO,
    MULTI_THREAD_CORE_IDS,
    MULTITHREAD,
    MULTITHREAD_DEFAULT,
    ON,
    OPERATOR_DUMPS,
    OPTIONS,
    OVERWRITE,
    PACK_CACHE,
    PACK_INFO_JSON,
    PROFILE_FILES,
    PROFILE_MEMORY,
    PROFILE_RAW,
    PROFILE_SYSCALLS,
    PROFILES,
    PROVIDER,
    PYTHON,
    RANGE,
    RANGE_BY,
    RATE,
    RECORD_COMP_SEQ,
    RECORD_COMP_SEQ2,
    RESIZE,
    RESUME,
    RGB,
    SAVE,
    SCALE,
    SCHEDULER,
    SEARCHES,
    SETTINGS,
    STORE,
    TAG,
    TARGET_CI,
    TEXT_DUMPS,
    THREAD,
    TIMEOUT,
    WARMUP,
    WARMUP_ITER,
)

T = TypeVar("T")


class Asked(NamedTuple):
    """What a run is asked to do, as far as rules look at it."""

    values: Mapping[str, Any]  # of options, by key
    warmup_iterations: int = 1
    iterations: int = 10
    has_dataset: bool = False
    testcases: str = ""  # the model or folder that brings testcases, empty without
    input_is_testcase: bool = False  # `--input` names that folder
    environment: Mapping[str, str] = {}  # of the process that runs the engine

    @property
    def executions(self) -> int:
        """How often the model is run, on one item."""
        return self.warmup_iterations + self.iterations


class Condition:
    """A condition on what is asked for: an option is given, or has a certain value.

    `name` is what a message calls it, as `--thread 4`; `options` are those that it looks at.
    """

    def __init__(
        self, name: Callable[[Asked], str], holds: Callable[[Asked], bool], *options: Option[Any]
    ) -> None:
        self.name = name
        self.holds = holds
        self.options = options


Term = Condition | Option[Any]  # an option stands for the condition that it is given
Terms = Term | tuple[Term, ...]


def condition_of(term: Term) -> Condition:
    """Return the condition that a term of a rule stands for."""
    if isinstance(term, Condition):
        return term
    return Condition(lambda _: term.flag, lambda asked: term.is_given(asked.values), term)


def having(option: Option[T], test: Callable[[T], bool]) -> Condition:
    """The option is given, with a value that passes the test."""

    def holds(asked: Asked) -> bool:
        value = option.of(asked.values)
        return value is not None and option.is_given(asked.values) and test(value)

    return Condition(lambda asked: f"{option.flag} {option.of(asked.values)}", holds, option)


def valued(option: Option[str], *values: str) -> Condition:
    """The option is given, with one of these values."""
    return having(option, lambda value: value in values)


def fact(name: str, holds: Callable[[Asked], bool], *options: Option[Any]) -> Condition:
    """Something that follows from what is asked for, with a name of its own."""
    return Condition(lambda _: name, holds, *options)


def typed(flag: str, default: object = None) -> Condition:
    """The flag of a command was typed, with another value than its default."""
    key = flag.removeprefix("--").replace("-", "_")
    return fact(flag, lambda asked: is_set(asked.values[key]) and asked.values[key] != default)


class Rule(abc.ABC):
    """A rule about options; `why` is its reason, as the message gives it."""

    why: str

    @abc.abstractmethod
    def refusal(self, asked: Asked) -> UsageError | None:
        """Return the error of what breaks the rule, None for what keeps it."""


class Exclusion(Rule):
    """Pairs of which only one may hold. In `hint`, {first} and {second} stand for the pair."""

    def __init__(self, pairs: Iterable[tuple[Term, Term]], why: str, hint: str) -> None:
        self.pairs = [(condition_of(first), condition_of(second)) for first, second in pairs]
        self.why = why
        self.hint = hint

    def refusal(self, asked: Asked) -> UsageError | None:
        for first, second in self.pairs:
            if first.holds(asked) and second.holds(asked):
                names = {"first": first.name(asked), "second": second.name(asked)}
                return UsageError(
                    "{first} and {second} exclude each other: {why}".format(**names, why=self.why),
                    self.hint.format(**names),
                )
        return None


class Need(Rule):
    """Where one of `terms` holds, one of `any_of` must. In `hint`, {first} stands for the term."""

    def __init__(
        self, terms: Iterable[Term], any_of: Iterable[Term], why: str, hint: str = ""
    ) -> None:
        needed = tuple(any_of)
        self.terms = [condition_of(term) for term in terms]
        self.any_of = [condition_of(term) for term in needed]
        self.why = why
        usages = [term.usage for term in needed if isinstance(term, Option)]
        self.hint = hint or f"add {' or '.join(usages)}"

    def refusal(self, asked: Asked) -> UsageError | None:
        if any(term.holds(asked) for term in self.any_of):
            return None
        for term in self.terms:
            if term.holds(asked):
                name = term.name(asked)
                *others, last = (other.name(asked) for other in self.any_of)
                needed = f"{', '.join(others)} or {last}" if others else last
                return UsageError(
                    f"{name} needs {needed}: {self.why}", self.hint.format(first=name)
                )
        return None


class Ban(Rule):
    """Conditions that may not hold at all."""

    def __init__(self, terms: Iterable[Term], why: str, hint: str) -> None:
        self.terms = [condition_of(term) for term in terms]
        self.why = why
        self.hint = hint

    def refusal(self, asked: Asked) -> UsageError | None:
        for term in self.terms:
            if term.holds(asked):
                return UsageError(self.why, self.hint, flag=term.name(asked))
        return None


class Limit(Rule):
    """What a value must be besides what its parser checks, given the other options.

    `find_fault` returns what is wrong with it, and a hint; None if nothing is.
    """

    def __init__(
        self, option: Option[Any], find_fault: Callable[[Asked], tuple[str, str] | None], why: str
    ) -> None:
        self.option = option
        self.find_fault = find_fault
        self.why = why

    def refusal(self, asked: Asked) -> UsageError | None:
        fault = self.find_fault(asked) if self.option.is_given(asked.values) else None
        if fault is None:
            return None
        problem, hint = fault
        return UsageError(f"{problem}: {self.why}", hint, flag=self.option.flag)


class Presence(Rule):
    """The file that an option names to read must be there, `unless` something makes it."""

    why = "what is missing would be found only when the engine is loaded"

    def __init__(
        self, option: Option[str], hint: str = "check the path", unless: Iterable[Term] = ()
    ) -> None:
        self.option = option
        self.hint = hint
        self.unless = [condition_of(term) for term in unless]

    def refusal(self, asked: Asked) -> UsageError | None:
        path = self.option.of(asked.values)
        if path is None or os.path.isfile(path):
            return None
        if os.path.isdir(path):
            problem, hint = "is a folder, not a file", "give a file name"
        elif os.path.exists(path):
            problem, hint = "is not a regular file", "copy it into a file"
        elif any(term.holds(asked) for term in self.unless):
            return None
        else:
            problem, hint = "no such file", self.hint
        return UsageError(problem, hint, flag=self.option.flag, subject=path)


class Content(Rule):
    """The file that an option names to read must hold what the engine takes of it.

    `check` reads the file and raises a UsageError for what is wrong with it.
    """

    why = "what is wrong in the file would be found only when the engine is loaded"

    def __init__(self, option: Option[str], check: Callable[[str], object]) -> None:
        self.option = option
        self.check = check

    def refusal(self, asked: Asked) -> UsageError | None:
        path = self.option.of(asked.values)
        if path is not None:
            try:
                self.check(path)
            except UsageError as error:
                return error
        return None


def terms_of(given: Terms) -> tuple[Term, ...]:
    return given if isinstance(given, tuple) else (given,)


def excludes(
    first: Terms, *others: Term, why: str, hint: str = "leave one of them out"
) -> Exclusion:
    """The first (or each of the first) and any of the others exclude each other."""
    return Exclusion(product(terms_of(first), others), why, hint)


def exclude_each_other(*terms: Term, why: str, hint: str = "give one of them") -> Exclusion:
    """Any two of these exclude each other."""
    return Exclusion(combinations(terms, 2), why, hint)


def needs(first: Terms, *, any_of: Iterable[Term], why: str, hint: str = "") -> Need:
    """The first (or each of the first) needs one of the others."""
    return Need(terms_of(first), any_of, why, hint)


def bans(*terms: Term, why: str, hint: str) -> Ban:
    """None of these can be asked for."""
    return Ban(terms, why, hint)


def check_rules(rules: Iterable[Rule], asked: Asked) -> None:
    """Refuse what breaks a rule; of several broken ones, the first in the table is reported.

    Raises:
        UsageError: naming the options, with the reason and what to do.
    """
    for rule in rules:
        error = rule.refusal(asked)
        if error is not None:
            raise error


# Facts

NO_EXECUTION = fact("--iter 0", lambda asked: asked.executions == 0, ITER, WARMUP_ITER)
NO_WARMUP = fact("--warmup-iter 0", lambda asked: asked.warmup_iterations == 0, WARMUP_ITER)
DATASET = fact("a data set", lambda asked: asked.has_dataset)
TESTCASES = Condition(
    lambda asked: f"the testcases of {asked.testcases}", lambda asked: bool(asked.testcases)
)
FED_BESIDES = fact(
    INPUT.flag, lambda asked: INPUT.is_given(asked.values) and not asked.input_is_testcase, INPUT
)
FED_OTHERWISE = tuple(
    option for option in OPTIONS if option.purpose in ("input", "dataset") and option is not INPUT
)
SEVERAL_RUNNERS = having(THREAD, lambda count: count > 1)
ONE_CHANNEL_ORDER = exclude_each_other(BGR, RGB, why="the channels of an image have one order")
WITHOUT_TESTCASES = "leave {first} out, or give model and input files instead of testcases"

OPEN_END = (DURATION, TARGET_CI)
ON_STDOUT = tuple(valued(option, "-") for option in (JSON, CSV, HTML))


def late_minimum(asked: Asked) -> tuple[str, str] | None:
    """Return what is wrong with a --min-time that --max-time comes before."""
    least, most = MIN_TIME.of(asked.values), MAX_TIME.of(asked.values)
    if least is None or most is None or least <= most:
        return None
    return f"{least:g} s is more than --max-time {most:g}", "give --max-time more"


def early_timeout(asked: Asked) -> tuple[str, str] | None:
    """Return what is wrong with a --timeout that comes before the end of measuring."""
    limit = TIMEOUT.of(asked.values)
    for option in (DURATION, MIN_TIME):
        seconds = option.of(asked.values)
        if limit is not None and seconds is not None and limit <= seconds:
            return f"{limit:g} s is no more than {option.flag} {seconds:g}", "give --timeout more"
    return None


RULES: tuple[Rule, ...] = (
    # End and pace of measuring
    excludes(
        ITER,
        *OPEN_END,
        why="--iter N times exactly N iterations, however long they take",
    ),
    excludes(
        DURATION,
        TARGET_CI,
        MIN_TIME,
        MAX_TIME,
        why="--duration S measures for S seconds, however well the median is known then",
        hint="leave --duration out: --target-ci 1% --max-time S measures for at most S seconds",
    ),
    excludes(WARMUP, TARGET_CI, why="it warms up until times settle", hint="leave {first} out"),
    excludes(
        WARMUP,
        TESTCASES,
        *DUMPS,
        *PROFILE_FILES,
        why="they count the iterations of the warm-up",
        hint="give --warmup-iter N instead of {first}",
    ),
    excludes(RATE, IDLE_MS, why="each says when an iteration begins"),
    excludes(
        RATE,
        TARGET_CI,
        why="how long a request waits depends on many before it, and no interval is known for that",
        hint="give --duration S instead of --target-ci",
    ),
    excludes(
        (*OPEN_END, RATE),
        TESTCASES,
        why="each testcase is run --iter times",
        hint=WITHOUT_TESTCASES,
    ),
    excludes(
        (*OPEN_END, RATE),
        DATASET,
        why="each item of a data set is run --iter times",
        hint="leave {first} out",
    ),
    excludes(
        (*OPEN_END, RATE),
        *DUMPS,
        why="a dump takes longer than what is measured, and grows with each iteration",
        hint="run twice",
    ),
    excludes(
        OPEN_END,
        *PROFILE_FILES,
        why="a profile grows with each iteration",
        hint="give --iter N instead of {first}",
    ),
    excludes(
        (RATE, IDLE_MS),
        *PROFILE_FILES,
        why="a profile counts what the CPU does between iterations as theirs",
        hint="run twice",
    ),
    excludes(RATE, NO_EXECUTION, why="nothing is run", hint="give --iter 1 or more"),
    excludes(
        RATE,
        NO_WARMUP,
        why="the first request would take as long as the engine takes to get ready",
        hint="give --warmup-iter 1 or more",
    ),
    needs((MIN_TIME, MAX_TIME), any_of=(TARGET_CI,), why="it bounds the time that this takes"),
    needs(ARRIVALS, any_of=(RATE,), why="no request arrives"),
    Limit(MIN_TIME, late_minimum, "measuring would end before it may"),
    Limit(TIMEOUT, early_timeout, "the run would be ended before it has measured"),
    needs((TAG, STORE), any_of=(SAVE,), why="nothing is stored"),
    needs(FORCE, any_of=(SETTINGS,), why="nothing else is refused that it would allow"),
    # Device and threads
    excludes(CUDA, CPU, CPU_DEFAULT, PROVIDER, why="they name different devices"),
    excludes(
        CUDA,
        MULTITHREAD,
        MULTITHREAD_DEFAULT,
        MULTI_THREAD_CORE_IDS,
        why="threads and cores belong to the CPU",
    ),
    exclude_each_other(
        CPU_DEFAULT,
        MULTITHREAD,
        MULTITHREAD_DEFAULT,
        why="each says which threads compute an operator",
    ),
    # How the engine computes
    exclude_each_other(*LAYOUT_CHOICES, why="a convolution runs in one layout"),
    exclude_each_other(*SEARCHES, why="--full-run is the wider search of the two"),
    exclude_each_other(
        RECORD_COMP_SEQ, RECORD_COMP_SEQ2, why="--record-comp-seq2 records as well, and frees more"
    ),
    # Inputs
    ONE_CHANNEL_ORDER,
    excludes(
        (FED_BESIDES, *FED_OTHERWISE),
        TESTCASES,
        why="testcases bring their own inputs",
        hint=WITHOUT_TESTCASES,
    ),
    needs(
        (INPUT_LAYOUT, RESIZE, MEAN, SCALE, BGR, RGB),
        any_of=(INPUT,),
        why="the data generated without it is not an image",
        hint="give --input an image file, or an array of 3 or 4 axes from a file",
    ),
    excludes(
        SEVERAL_RUNNERS,
        TESTCASES,
        why="testcases are run one after the other",
        hint=WITHOUT_TESTCASES,
    ),
    excludes(
        FAKE_FIRST,
        TESTCASES,
        why="the first execution computes nothing, and its outputs would be wrong",
        hint=WITHOUT_TESTCASES,
    ),
    excludes(
        SEVERAL_RUNNERS,
        DATASET,
        why="the items of a data set are run one after the other",
        hint="leave {first} out",
    ),
    needs(
        (LABELS, RESUME),
        any_of=(DATASET,),
        why="it is about the items of a data set",
        hint="give --input a folder or a list",
    ),
    needs(RESUME, any_of=(BIN_OUT_DUMP,), why="the outputs dumped show which items are done"),
    # Dumps
    exclude_each_other(*TEXT_DUMPS, why="the text goes to one place"),
    excludes(
        OPERATOR_DUMPS,
        *PROFILE_FILES,
        why="dumping takes many times as long as what would be timed",
        hint="run twice",
    ),
    excludes(
        BIN_OUT_DUMP,
        NO_EXECUTION,
        why="nothing is run whose outputs could be dumped",
        hint="give --iter 1",
    ),
    needs(
        (DUMP_FILTER, OVERWRITE),
        any_of=DUMPS,
        why="no dump is made",
        hint="add --bin-io-dump DIR, or another dump",
    ),
    excludes(
        IO_DUMP_STDOUT,
        *ON_STDOUT,
        why="both go to standard output",
        hint="give one of them a file: --io-dump FILE",
    ),
    exclude_each_other(
        *ON_STDOUT, why="both go to standard output", hint="give one of them a file"
    ),
    # Profiles
    exclude_each_other(*PROFILES, why="--profile-host writes all that --profile does"),
    needs(
        (PROFILE_MEMORY, PROFILE_SYSCALLS, RANGE_BY),
        any_of=PROFILES,
        why="no profile is made",
        hint="add --profile FILE",
    ),
    bans(
        *(valued(option, "-") for option in PROFILE_FILES),
        why="a profile goes to a file",
        hint="give a file name",
    ),
    excludes(
        PROFILE_RAW,
        SEVERAL_RUNNERS,
        why="the engine writes a profile of its own for each copy of a model",
        hint="take --profile, or leave --thread out",
    ),
    excludes(
        PROFILE_SYSCALLS,
        SEVERAL_RUNNERS,
        why="which copy of a model a thread of the system computes is not known",
        hint="leave --thread out",
    ),
    excludes(PROFILE_FILES, NO_EXECUTION, why="nothing is run", hint="give --iter 1 or more"),
    excludes(PROFILE_FILES, RESUME, why="a resumed run has no profile of what was done before it"),
    # Checks
    excludes(
        GET_STATIC_MEM_INFO,
        RANGE,
        CHECK_VAR_VALUE,
        why="the checkers run small graphs, whose memory would be recorded instead",
        hint="run twice",
    ),
    # Files that are read
    Presence(LABELS),
    Presence(PACK_INFO_JSON),
    Presence(PACK_CACHE),
    Presence(C_OPR_LIB),
    # Other machines
    needs(ON, any_of=(SCHEDULER,), why="a label is that of a scheduler's workers"),
    excludes(SCHEDULER, PYTHON, why="that Python is on this machine"),
    excludes(SCHEDULER, IN_PROCESS, why="the run is made on another machine"),
    excludes(SCHEDULER, MODEL_INFO, why="a model is read on this machine", hint="use `lar info`"),
    # Finding faults
    excludes(IN_PROCESS, PYTHON, why="another Python is another process"),
    excludes(IN_PROCESS, TIMEOUT, why="only a process of its own can be ended in time"),
)
