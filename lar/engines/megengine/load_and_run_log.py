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
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from lar.errors import UsageError
from lar.options import table
from lar.options.table import BY_KEY
from lar.records.facts import EngineFacts
from lar.records.run import (
    Failure,
    Phase,
    RunResult,
    RunSpec,
    Samples,
    Setting,
    TimeSources,
)
from lar.records.testcase import Case, CaseResult, Verdict, add_verdicts

DRIVER = "load_and_run"
USUAL_LIMIT = 1e-4  # of the error of testcases
HINT = "save all that load_and_run prints: load_and_run MODEL ... > FILE 2>&1"

# `[22 07:52:39 operator()@strategy_normal.cpp:88]`, with or without a level after it.
PREFIX = re.compile(r"\s*(?:\[\d\d \d\d:\d\d:\d\d [^\]]*\]\s*(?:\[\w+\])?)?\s*")
VERSIONS = re.compile(
    r"(?:mgb load-and-run: )?using (?:megbrain )+([\d.]+)(?:\(\d+\))? and megdnn ([\d.]+)", re.I
)
# A sentence may name the program too: a model is a file with a suffix, or in a folder.
COMMAND = re.compile(r"(?:.*?[\s/\\;&])?load_and_run\s+((?!-)[^\s.]*[./]\S.*)")
# How a run that fails ends, with the reason where one is given.
ENDS = re.compile(
    r"terminate called|libc\+\+abi: terminating"
    r"|(?:\S+: (?:line \d+:)?\s*\d*\s*)?"
    r"(?:Segmentation fault|Aborted|Illegal instruction|Bus error|Killed)\b"
)
WHAT = re.compile(r"(?:what\(\):|terminating (?:with|due to) uncaught exception[^:]*::\w+:)\s*(.+)")
# The messages of options, by what is set: to the number in the message, where it has one.
SETTINGS: Mapping[str, str] = {
    table.FAST_RUN.key: r"enable fast-run strategy",
    table.FULL_RUN.key: r"enable full-run strategy",
    table.REPRODUCIBLE.key: r"enable reproducible strategy",
    table.WINOGRAD_TRANSFORM.key: r"enable winograd transform",
    table.CPU.key: r"us(?:e|ing) cpu (?:mode|device)",
    table.CPU_DEFAULT.key: r"us(?:e|ing) cpu[: ]default (?:mode|device)",
    table.TENSORRT.key: r"use tensorrt mode",
    table.MULTITHREAD.key: r"using multithread\(threads number:(\d+)\) device",
    table.THREAD.key: r"use (\d+) threads$",
    "lite": "run model force lite mode",
}


class Row(NamedTuple):
    """The times of an iteration in seconds."""

    end_to_end: float
    host: float
    device: float | None
    runner: int
    case: int


@dataclass
class Test:
    """The iterations of one testcase, or of the input, by one runner."""

    case: int
    runner: int
    count: int
    rows: list[Row] = field(default_factory=list)
    is_finished: bool = False


@dataclass
class LoggedRun:
    """What the lines of one run have said so far; a method raises a ValueError for a line that
    cannot follow the ones before."""

    version: str
    megdnn: str
    model: str = ""
    inputs: tuple[str, ...] = ()
    settings: dict[str, Setting] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    warmups: list[Row] = field(default_factory=list)
    case: int = 0
    case_count: int = 0
    announced: int | None = None
    tests: list[Test] = field(default_factory=list)
    verdicts: dict[int, list[Verdict]] = field(default_factory=dict)
    ending: str = ""
    reason: str = ""
    tail: list[str] = field(default_factory=list)

    @property
    def phase(self) -> Phase:
        if self.tests:
            return "iterations"
        if self.warmups or "prepare" in self.seconds:
            return "warmup"
        return "prepare" if "load" in self.seconds else "load"

    def take_time(self, name: str, text: str) -> None:
        """Take how long the load or the preparation took: the first time that is printed, as the
        latter is before each iteration of the warm-up."""
        self.seconds.setdefault(name, seconds_of(text))

    def take_warmup(self, index: str, text: str) -> None:
        runner = sum(row.case == int(index) for row in self.warmups)
        self.warmups.append(Row(seconds_of(text), seconds_of(text), None, runner, int(index)))

    def take_iteration(self, index: str, count: str, whole: str, host: str, device: str) -> None:
        """Take an iteration of the test that it goes on with; the first begins another."""
        if index == "0":
            runner = sum(test.case == self.case for test in self.tests)
            self.tests.append(Test(self.case, runner, int(count)))
        for test in self.tests:
            if not test.is_finished and (len(test.rows), test.count) == (int(index), int(count)):
                known = device and float(device) >= 0
                times = seconds_of(whole), seconds_of(host), float(device) / 1e3 if known else None
                test.rows.append(Row(*times, test.runner, test.case))
                return
        raise ValueError(f"is iteration {index} of {count}, and the one before it is missing")

    def begin_test(self, case: str, count: str) -> None:
        self.case, self.announced = int(case), int(count) if count else self.announced

    def end_test(self, case: str) -> None:
        open_tests = [test for test in self.tests if not test.is_finished]
        for test in open_tests:
            if test.case == int(case or 0) and len(test.rows) == test.count:
                test.is_finished = True
                return
        if open_tests:
            raise ValueError("ends a test, and some of its iterations are missing")
        self.announced = self.announced or 0  # of no iteration

    def take_verdict(self, error: str, name: str, id: str) -> None:
        """Take an assertion, which did not end the run; its limit is not printed."""
        value = float(error)
        passed = math.isfinite(value)
        verdict = Verdict(
            output=name,
            name=name,
            id=int(id),
            shown=True,
            error=value if passed else None,
            limit=max(value, USUAL_LIMIT) if passed else USUAL_LIMIT,
            passed=passed,
        )
        self.verdicts.setdefault(self.case, []).append(verdict)

    def take_message(self, text: str) -> None:
        """Take the end of a run that failed, or what a message says of the options."""
        what = WHAT.search(text)
        if ENDS.match(text):
            self.ending, self.reason = self.ending or text, what[1] if what else self.reason
        elif what:
            self.reason = self.reason or what[1]
        elif (found := re.search(r"enable (\w+) optimization", text)) and (
            f"enable_{found[1]}" in BY_KEY
        ):
            self.settings.setdefault(f"enable_{found[1]}", True)
        for key, pattern in SETTINGS.items():
            if found := re.search(pattern, text):
                self.settings.setdefault(key, int(found[1]) if found.groups() else True)

    def take_command(self, command: str) -> None:
        """Take what the command line says: the model, its inputs, its options."""
        try:
            words = shlex.split(command, comments=True)
        except ValueError:  # a quotation mark without its twin
            words = command.split()
        if not words:
            return
        self.model, *rest = words
        while rest:
            flag, equals, value = rest.pop(0).partition("=")
            if not flag.startswith("--"):
                continue
            key = flag[2:].replace("-", "_")
            option = BY_KEY.get(key)
            takes_value = option is None or option.parse is not None
            if takes_value and not equals and rest and not rest[0].startswith("--"):
                value = rest.pop(0)
            if key == table.INPUT.key:
                self.inputs += (value,)
            elif option is None or option.by_engine:
                self.settings[key] = setting_of(key, value)

    def find_cut(self) -> str:
        """Return where the lines end before the run does, empty if it is whole or failed."""
        open_tests = [test for test in self.tests if not test.is_finished]
        if self.ending or (not open_tests and self.announced == 0):
            return ""
        if open_tests:
            return f"after iteration {len(open_tests[-1].rows) - 1} of {open_tests[-1].count}"
        if not self.tests:
            return "before the first iteration"
        is_cut = self.case_count > len({test.case for test in self.tests})
        return f"before testcase {len(self.tests)} of {self.case_count}" if is_cut else ""


TIME = r"(-?(?:\d+\.?\d*|nan|inf))\s*(?:ms)?"
# The lines of a run, and what takes their groups; the first that fits counts.
LINES: Sequence[tuple[str, Callable[..., None]]] = (
    (
        rf"iter (\d+)/(\d+): (?:e2e=)?{TIME} \((?:exec|host)={TIME}(?:,device={TIME})?\)",
        LoggedRun.take_iteration,
    ),
    (
        rf"=== finished run #(\d+): time={TIME}",
        lambda run, index, time: run.take_iteration(index, str(run.announced), time, time, ""),
    ),
    (rf"=== finished test #(\d+): time={TIME}", lambda run, case, _: run.end_test(case)),
    (rf"avg time: {TIME}", lambda run, _: run.end_test("0")),
    (rf"warm ?up (\d+):?\s+{TIME}", LoggedRun.take_warmup),
    (rf"load model: {TIME}", lambda run, time: run.take_time("load", time)),
    (rf"=== prepare: {TIME}", lambda run, time: run.take_time("prepare", time)),
    (r"=== going to run (\d+) testcases", lambda run, n: setattr(run, "case_count", int(n))),
    (r"=== going to run test #(\d+) for (\d+) times", LoggedRun.begin_test),
    (r"run testcase: (\d+)", lambda run, case: run.begin_test(case, "")),
    (
        r"=== going to run (?:input )?for (\d+) times",
        lambda run, count: setattr(run, "announced", int(count)),
    ),
    (r"(?i)assert ?equal: err=(\S+) \(name=(.*) id=(\d+)\)", LoggedRun.take_verdict),
    # Says more than what the exception is.
    (r"extra message:\s*(.+)", lambda run, reason: setattr(run, "reason", reason)),
)
# What begins like one of the lines above and is none of them has been damaged.
OURS = re.compile(r"iter \d+/|warm ?up \d|load model: |=== (?:prepare|finished)")


def is_log(data: bytes) -> bool:
    """Return whether a file holds what load_and_run printed."""
    text = decode(data)
    return VERSIONS.search(text) is not None and "load" in text.lower()


def decode(data: bytes) -> str:
    """Return the text of a log; a shell of Windows writes UTF-16."""
    is_wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    return data.decode("utf-16" if is_wide else "utf-8-sig", errors="replace")


def read_log(data: bytes, name: str) -> tuple[RunResult, ...]:
    """Return the runs of a log, in their order; `name` is for messages.

    Raises:
        UsageError: a line is damaged, or a run was cut short before its end.
    """
    runs: list[LoggedRun] = []
    command = ""
    lines = decode(data).splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        text = PREFIX.sub("", line, count=1).rstrip()
        if found := VERSIONS.match(text):
            runs.append(LoggedRun(version=found[1], megdnn=found[2]))
            runs[-1].take_command(command)
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
        if where := run.find_cut():
            raise UsageError(f"was cut short {where}", HINT, subject=name)
    return tuple(map(result_of, runs))


def read_line(run: LoggedRun, text: str) -> None:
    """Take what one line says.

    Raises:
        ValueError: it is damaged; the text says how.
    """
    for pattern, take in LINES:
        if found := re.match(pattern, text):
            take(run, *(group or "" for group in found.groups()))
            return
    if OURS.match(text):
        raise ValueError(f"is damaged: {text[:60]!r}")
    run.take_message(text)


def seconds_of(text: str) -> float:
    """Return a time in milliseconds as seconds.

    Raises:
        ValueError: it is none.
    """
    seconds = float(text) / 1e3
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"is damaged: {text} is not a time")
    return seconds


def setting_of(key: str, text: str) -> Setting:
    """Return the value of an option as lar has it; as text if lar does not have it."""
    option = BY_KEY.get(key)
    if option is table.CUDA and not text:
        return 0  # the first device
    with contextlib.suppress(argparse.ArgumentTypeError):
        value = option.parse(text) if option and option.parse else text
        if isinstance(value, (bool, int, float, str)):
            return value or True
    return text or True


def result_of(run: LoggedRun) -> RunResult:
    """Return the result of a run."""
    runners = max((test.runner for test in run.tests), default=0) + 1
    if runners > 1 or (table.THREAD.key in run.settings and run.tests):
        run.settings[table.THREAD.key] = runners  # those that have printed their times
    cases = sorted({*(test.case for test in run.tests), *run.verdicts})
    is_tested = run.case_count > 0 or len(cases) > 1 or bool(run.verdicts)
    names = {case: f"#{case}" for case in cases} if is_tested else {}
    rows = [row for test in run.tests for row in test.rows]
    rows.sort(key=lambda row: (row.runner, row.case))
    printed = "printed by load_and_run"
    with_device = any(row.device is not None for row in rows)
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
            warmup_iterations=max((row.case + 1 for row in run.warmups), default=0),
            iterations=max((test.count for test in run.tests), default=run.announced or 0),
            cases=tuple(Case(name=name) for name in names.values()),
        ),
        status="crashed" if run.ending else "ok",
        phase=run.phase if run.ending else "done",
        engine=EngineFacts(
            name="megengine",
            version=run.version,
            driver=DRIVER,
            device=device,
            libraries={"megdnn": run.megdnn},
        ),
        load_seconds=run.seconds.get("load"),
        prepare_seconds=run.seconds.get("prepare"),
        warmup=samples_of(sorted(run.warmups, key=lambda row: row.runner), runners),
        samples=samples_of(rows, runners, is_tested=is_tested),
        sources=TimeSources(
            end_to_end=printed, host=printed, device=printed if with_device else ""
        ),
        cases=case_results(run, names),
        failure=Failure(run.reason or run.ending, exit_code=4) if run.ending else None,
        log_tail="\n".join(run.tail[-20:]) if run.ending else "",
    )


def case_results(run: LoggedRun, names: Mapping[int, str]) -> tuple[CaseResult, ...]:
    """Return the worst error of each output of each testcase."""
    results: tuple[CaseResult, ...] = ()
    for number, (case, name) in enumerate(names.items()):
        for verdict in run.verdicts.get(case, []):
            results = add_verdicts(results, number, name, [verdict])
        if len(results) == number:
            results = (*results, CaseResult(name=name, passed=None))
    return results


def samples_of(rows: Iterable[Row], runners: int, *, is_tested: bool = False) -> Samples:
    """Return the samples of iterations; those of the first runner come first."""
    end_to_end, host, device, runner, case = [*zip(*rows, strict=True)] or [()] * 5
    return Samples(
        end_to_end=end_to_end,
        host=host,
        device=device,
        queue_delay=(None,) * len(host),
        runner=runner if runners > 1 else (),
        case=case if is_tested else (),
    )
