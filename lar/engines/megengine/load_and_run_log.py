"""What MegEngine's C++ program `load_and_run` printed, as results: how phones are measured.

Its lines have changed with its versions; all that are known are read:

    iter 0/10: 245.185ms (exec=10.574,device=242.226)      sdk/load-and-run, to 8.x
    iter 0/10: 9.275 ms (exec=0.888 ms)                    lite/load_and_run, 8.9999
    iter 0/10: e2e=9.275 ms (host=0.888 ms)                lite/load_and_run, 1.9 and later
    === finished run #0: time=9.275ms                      a model without inputs, to 8.x

Since 1.13 the time and the place in the source stand before each line. With the command line before
them, the lines say what was run; without, the messages of the options do, as far as they name them.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import re
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from lar.errors import UsageError
from lar.options import table
from lar.records.facts import EngineFacts
from lar.records.run import (
    Failure,
    Phase,
    RunResult,
    RunSpec,
    Samples,
    Setting,
    Status,
    TimeSources,
)
from lar.records.testcase import Case, CaseResult, Verdict, add_verdicts

DRIVER = "load_and_run"
USUAL_LIMIT = 1e-4  # of the error of testcases
HINT = "save all that load_and_run prints: load_and_run MODEL ... > FILE 2>&1"

# `[22 07:52:39 operator()@strategy_normal.cpp:88]`, with or without a level after it.
PREFIX = re.compile(r"\s*(?:\[\d\d \d\d:\d\d:\d\d [^\]]*\]\s*(?:\[\w+\])?)?\s*")
NUMBER = r"(-?(?:\d+\.?\d*|nan|inf))\s*(?:ms)?"

VERSIONS = re.compile(
    r"(?:mgb load-and-run: )?using (?:megbrain )+([\d.]+)(?:\(\d+\))? and megdnn ([\d.]+)", re.I
)
# A sentence may name the program too: a model is a file with a suffix, or in a folder.
COMMAND = re.compile(r"(?:.*?[\s/\\;&])?load_and_run\s+((?!-)[^\s.]*[./]\S.*)")
LOAD = re.compile(rf"load model: {NUMBER}")
PREPARE = re.compile(rf"=== prepare: {NUMBER}")
WARMUP = re.compile(rf"warm ?up (\d+):?\s+{NUMBER}")
ITERATION = re.compile(
    rf"iter (\d+)/(\d+): (?:e2e=)?{NUMBER} \((?:exec|host)={NUMBER}(?:,device={NUMBER})?\)"
)
PLAIN_RUN = re.compile(rf"=== finished run #(\d+): time={NUMBER}")
ANNOUNCED = re.compile(r"=== going to run (?:input )?for (\d+) times")
CASES = re.compile(r"=== going to run (\d+) testcases")
CASE = re.compile(r"=== going to run test #(\d+) for (\d+) times|run testcase: (\d+)")
FINISHED = re.compile(rf"=== finished test #(\d+): time={NUMBER}|avg time: {NUMBER}")
ASSERTION = re.compile(r"assert ?equal: err=(\S+) \(name=(.*) id=(\d+)\)", re.I)
# What begins like one of the lines above and is none of them has been damaged.
OURS = re.compile(r"iter \d+/|warm ?up \d|load model: |=== (?:prepare|finished)")

# The messages of options, by what is set.
SWITCHES = {
    table.FAST_RUN: r"enable fast-run strategy",
    table.FULL_RUN: r"enable full-run strategy",
    table.REPRODUCIBLE: r"enable reproducible strategy",
    table.WINOGRAD_TRANSFORM: r"enable winograd transform",
    table.CPU: r"us(?:e|ing) cpu (?:mode|device)",
    table.CPU_DEFAULT: r"us(?:e|ing) cpu[: ]default (?:mode|device)",
    table.TENSORRT: r"use tensorrt mode",
}
LAYOUT = re.compile(r"enable (\w+) optimization")
THREADS = re.compile(r"using multithread\(threads number:(\d+)\) device")
RUNNERS = re.compile(r"use (\d+) threads")
LITE_MODE = "run model force lite mode"

# How a run that fails ends, with the reason where one is given.
ENDS = re.compile(
    r"terminate called|libc\+\+abi: terminating"
    r"|(?:\S+: (?:line \d+:)?\s*\d*\s*)?"
    r"(?:Segmentation fault|Aborted|Illegal instruction|Bus error|Killed)\b"
)
REASON = re.compile(r"extra message:\s*(.+)")
WHAT = re.compile(r"(?:what\(\):|terminating (?:with|due to) uncaught exception[^:]*::\w+:)\s*(.+)")


@dataclass
class Test:
    """The iterations of one testcase, or of the input, by one runner."""

    case: int
    runner: int
    count: int
    rows: list[tuple[float, float, float | None]] = field(default_factory=list)
    is_finished: bool = False


@dataclass
class LoggedRun:
    """What the lines of one run have said so far."""

    version: str = ""
    megdnn: str = ""
    model: str = ""
    inputs: tuple[str, ...] = ()
    settings: dict[str, Setting] = field(default_factory=dict)
    load_seconds: float | None = None
    prepare_seconds: float | None = None
    warmups: list[tuple[int, float]] = field(default_factory=list)
    case: int = 0
    case_count: int = 0
    announced: int | None = None
    tests: list[Test] = field(default_factory=list)
    verdicts: dict[int, list[list[Verdict]]] = field(default_factory=dict)
    ending: str = ""
    reason: str = ""
    tail: list[str] = field(default_factory=list)

    @property
    def phase(self) -> Phase:
        if self.tests:
            return "iterations"
        if self.warmups or self.prepare_seconds is not None:
            return "warmup"
        return "load" if self.load_seconds is None else "prepare"


def is_log(data: bytes) -> bool:
    """Return whether a file holds what load_and_run printed."""
    text = decode(data)
    return VERSIONS.search(text) is not None and "load" in text.lower()


def decode(data: bytes) -> str:
    """Return the text of a log; a shell of Windows writes UTF-16."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        return data.decode("utf-16", errors="replace")
    return data.decode("utf-8-sig", errors="replace")


def read_log(data: bytes, name: str) -> tuple[RunResult, ...]:
    """Return the runs of a log, in their order; `name` is for messages.

    Raises:
        UsageError: a line is damaged, or a run was cut short before its end.
    """
    runs: list[LoggedRun] = []
    command = ""
    lines = decode(data).splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        text = line[PREFIX.match(line).end() :].rstrip()  # type: ignore[union-attr]
        if found := VERSIONS.match(text):
            runs.append(LoggedRun(version=found[1], megdnn=found[2]))
            take_command(runs[-1], command)
            command = ""
        elif (found := COMMAND.match(text)) and not ENDS.match(text):
            command = found[1]
        elif runs:
            runs[-1].tail.append(text)
            try:
                read_line(runs[-1], text)
            except ValueError as error:
                is_cut = number == len(lines) and not line.endswith(("\n", "\r"))
                problem = f"was cut short in line {number}" if is_cut else f"line {number} {error}"
                raise UsageError(problem, HINT, subject=name) from None
    if not runs:
        raise UsageError("does not name the version of load_and_run", HINT, subject=name)
    for run in runs:
        check_whole(run, name)
    return tuple(map(result_of, runs))


def take_command(run: LoggedRun, command: str) -> None:
    """Take what the command line of a run says: the model, its inputs, its options."""
    try:
        words = shlex.split(command, comments=True)
    except ValueError:  # a quotation mark without its twin
        words = command.split()
    if not words:
        return
    run.model, *rest = words
    while rest:
        flag, equals, value = rest.pop(0).partition("=")
        if not flag.startswith("--"):
            continue
        key = flag[2:].replace("-", "_")
        option = table.BY_KEY.get(key)
        takes_value = option.parse is not None if option else True
        if takes_value and not equals and rest and not rest[0].startswith("--"):
            value = rest.pop(0)
        if key == table.INPUT.key:
            run.inputs += (value,)
        elif option is None or option.by_engine:
            run.settings[key] = setting_of(key, value)


def setting_of(key: str, text: str) -> Setting:
    """Return the value of an option as lar has it; as text if lar does not have it."""
    option = table.BY_KEY.get(key)
    if option is table.CUDA and not text:
        return 0  # the first device
    if option is None or option.parse is None:
        return text or True
    with contextlib.suppress(argparse.ArgumentTypeError):
        value: Any = option.parse(text)
        if isinstance(value, (bool, int, float, str)):
            return value
    return text or True


def read_line(run: LoggedRun, text: str) -> None:
    """Take what one line says.

    Raises:
        ValueError: it is damaged; the text says how.
    """
    if found := ITERATION.match(text):
        times = (seconds_of(found[3]), seconds_of(found[4]), seconds_or_none(found[5]))
        add_iteration(run, int(found[1]), int(found[2]), times)
    elif found := PLAIN_RUN.match(text):
        seconds = seconds_of(found[2])
        add_iteration(run, int(found[1]), run.announced or 0, (seconds, seconds, None))
    elif found := FINISHED.match(text):
        end_test(run, int(found[1] or 0))
    elif found := WARMUP.match(text):
        run.warmups.append((int(found[1]), seconds_of(found[2])))
    elif found := LOAD.match(text):
        first = run.load_seconds is None
        run.load_seconds = seconds_of(found[1]) if first else run.load_seconds
    elif found := PREPARE.match(text):
        # One is printed before each warm-up iteration: only the first is the preparation.
        first = run.prepare_seconds is None
        run.prepare_seconds = seconds_of(found[1]) if first else run.prepare_seconds
    elif OURS.match(text):
        raise ValueError(f"is damaged: {text[:60]!r}")
    else:
        read_message(run, text)


def read_message(run: LoggedRun, text: str) -> None:
    """Take what a line says that has no time."""
    if found := CASES.match(text):
        run.case_count = int(found[1])
    elif found := CASE.match(text):
        run.case = int(found[1] or found[3] or 0)
        run.announced = int(found[2]) if found[2] else run.announced
    elif found := ANNOUNCED.match(text):
        run.announced = int(found[1])
    elif found := ASSERTION.match(text):
        verdict = verdict_of(found[1], found[2], int(found[3]))
        run.verdicts.setdefault(run.case, []).append([verdict])
    elif found := LAYOUT.search(text):
        key = f"enable_{found[1].replace('-', '_')}"
        if key in table.BY_KEY:
            run.settings.setdefault(key, True)
    elif found := THREADS.search(text):
        run.settings.setdefault(table.MULTITHREAD.key, int(found[1]))
    elif found := RUNNERS.fullmatch(text):
        run.settings.setdefault(table.THREAD.key, int(found[1]))
    elif LITE_MODE in text:
        run.settings.setdefault("lite", True)
    elif ENDS.match(text):
        run.ending = run.ending or text
        if found := WHAT.search(text):
            run.reason = found[1]
    elif found := REASON.match(text):
        run.reason = found[1]  # says more than what the exception is
    elif found := WHAT.match(text):
        run.reason = run.reason or found[1]
    else:
        for option, pattern in SWITCHES.items():
            if re.search(pattern, text):
                run.settings.setdefault(option.key, True)


def seconds_of(text: str) -> float:
    """Return a time in milliseconds as seconds.

    Raises:
        ValueError: it is none.
    """
    seconds = float(text) / 1e3
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"is damaged: {text} is not a time")
    return seconds


def seconds_or_none(text: str | None) -> float | None:
    """Return a device's time, None where there is none."""
    seconds = math.nan if text is None else float(text) / 1e3
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def add_iteration(
    run: LoggedRun, index: int, count: int, times: tuple[float, float, float | None]
) -> None:
    """Add an iteration to the test that it goes on with; the first begins another.

    Raises:
        ValueError: those before it are missing.
    """
    if index == 0:
        runner = sum(test.case == run.case for test in run.tests)
        run.tests.append(Test(run.case, runner, count))
    ready = (test for test in run.tests if not test.is_finished and len(test.rows) == index)
    test = next(ready, None)
    if test is None or test.count != count:
        raise ValueError(f"is iteration {index} of {count}, and the one before it is missing")
    test.rows.append(times)


def end_test(run: LoggedRun, case: int) -> None:
    """Take the end of a test.

    Raises:
        ValueError: its iterations are missing.
    """
    for test in run.tests:
        if not test.is_finished and test.case == case and len(test.rows) == test.count:
            test.is_finished = True
            return
    if any(not test.is_finished for test in run.tests):
        raise ValueError("ends a test, and some of its iterations are missing")
    if run.announced is None:
        run.announced = 0  # of no iteration


def verdict_of(error: str, name: str, id: int) -> Verdict:
    """Return the record of an assertion that was printed and did not end the run; its limit is
    not printed."""
    value = float(error)
    is_finite = math.isfinite(value)
    return Verdict(
        output=name,
        name=name,
        id=id,
        shown=True,
        error=value if is_finite else None,
        limit=max(value, USUAL_LIMIT) if is_finite else USUAL_LIMIT,
        passed=is_finite,
    )


def check_whole(run: LoggedRun, name: str) -> None:
    """Refuse a run whose lines end before it does, unless it failed.

    Raises:
        UsageError: saying where.
    """
    if run.ending:
        return
    where = ""
    unfinished = [test for test in run.tests if not test.is_finished]
    if unfinished:
        test = unfinished[-1]
        where = f"after iteration {len(test.rows) - 1} of {test.count}"
    elif not run.tests and run.announced != 0:
        where = "before the first iteration"
    elif run.case_count > len({test.case for test in run.tests}) and run.announced != 0:
        where = f"before testcase {len(run.tests)} of {run.case_count}"
    if where:
        raise UsageError(f"was cut short {where}", HINT, subject=name)


def result_of(run: LoggedRun) -> RunResult:
    """Return the result of a run."""
    runners = max((test.runner for test in run.tests), default=0) + 1
    if runners > 1 or (table.THREAD.key in run.settings and run.tests):
        run.settings[table.THREAD.key] = runners  # those that have printed their times
    cases = sorted({*(test.case for test in run.tests), *run.verdicts})
    is_tested = run.case_count > 0 or len(cases) > 1 or bool(run.verdicts)
    names = {case: f"#{case}" for case in cases} if is_tested else {}
    warmups = max((index for index, _ in run.warmups), default=-1) + 1
    status: Status = "crashed" if run.ending else "ok"
    failure = None
    if run.ending:
        failure = Failure(run.reason or run.ending, exit_code=4)
    tests = sorted(run.tests, key=lambda test: (test.runner, test.case))
    with_device = any(row[2] is not None for test in tests for row in test.rows)
    is_cuda = table.CUDA.is_given(run.settings)
    device = f"cuda:{run.settings[table.CUDA.key]}" if is_cuda else "cpu"
    return RunResult(
        spec=RunSpec(
            model=run.model,
            engine="megengine",
            driver=DRIVER,
            device=device,
            inputs=run.inputs,
            settings=run.settings,
            warmup_iterations=warmups,
            iterations=max((test.count for test in tests), default=run.announced or 0),
            cases=tuple(Case(name=name) for name in names.values()),
        ),
        status=status,
        phase="done" if status == "ok" else run.phase,
        engine=EngineFacts(
            name="megengine",
            version=run.version,
            driver=DRIVER,
            device=device,
            libraries={"megdnn": run.megdnn},
        ),
        load_seconds=run.load_seconds,
        prepare_seconds=run.prepare_seconds,
        warmup=warmup_samples(run.warmups, runners),
        samples=samples_of(tests, runners, is_tested=is_tested),
        sources=TimeSources(
            end_to_end="printed by load_and_run",
            host="printed by load_and_run",
            device="printed by load_and_run" if with_device else "",
        ),
        cases=tuple(case_results(run, names)),
        failure=failure,
        log_tail="\n".join(run.tail[-20:]) if run.ending else "",
    )


def case_results(run: LoggedRun, names: dict[int, str]) -> Iterable[CaseResult]:
    """Return the worst error of each output of each testcase."""
    results: tuple[CaseResult, ...] = ()
    for number, (case, name) in enumerate(names.items()):
        for verdicts in run.verdicts.get(case, []):
            results = add_verdicts(results, number, name, verdicts)
        if len(results) == number:
            results = (*results, CaseResult(name=name, passed=None))
    return results


def warmup_samples(warmups: list[tuple[int, float]], runners: int) -> Samples:
    """Return the samples of the warm-up, those of the first runner first."""
    seen: dict[int, int] = {}
    rows: list[tuple[int, int, float]] = []
    for index, seconds in warmups:
        rows.append((seen.get(index, 0), index, seconds))
        seen[index] = seen.get(index, 0) + 1
    rows.sort()
    times = tuple(seconds for _, _, seconds in rows)
    unknown = (None,) * len(times)
    return Samples(
        end_to_end=times,
        host=times,
        device=unknown,
        queue_delay=unknown,
        runner=tuple(runner for runner, _, _ in rows) if runners > 1 else (),
    )


def samples_of(tests: list[Test], runners: int, *, is_tested: bool) -> Samples:
    """Return the samples of the tests of all runners."""
    rows = [row for test in tests for row in test.rows]
    return Samples(
        end_to_end=tuple(row[0] for row in rows),
        host=tuple(row[1] for row in rows),
        device=tuple(row[2] for row in rows),
        queue_delay=(None,) * len(rows),
        runner=tuple(repeat(tests, "runner")) if runners > 1 else (),
        case=tuple(repeat(tests, "case")) if is_tested else (),
    )


def repeat(tests: list[Test], what: str) -> Iterator[int]:
    """Yield a number of each test for each of its iterations."""
    for test in tests:
        yield from [getattr(test, what)] * len(test.rows)
