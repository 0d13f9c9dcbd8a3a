"""Reads results from the printed output of `load_and_run`, MegEngine's C++ benchmark program.

On phones, MegEngine's models are measured with `load_and_run`. Each version of the program prints
the line for an iteration in its own form, and this module reads all known forms.

The program sdk/load-and-run, up to version 8.x, prints `iter 0/10: 245.185ms
(exec=10.574,device=242.226)`. The program lite/load_and_run 8.9999 prints `iter 0/10: 9.275 ms
(exec=0.888 ms)`. The program lite/load_and_run, from version 1.9 on, prints `iter 0/10: e2e=9.275
ms (host=0.888 ms)`. For a model without inputs, versions up to 8.x print `=== finished run #0:
time=9.275ms`. Since version 1.13, each line begins with the time and the place in MegEngine's
source code.

If the output begins with the command line, the options are read from the command line. If the
output lacks the command line, the options are read from the program's messages, which mention only
some options.

The file load_and_run_log.json has the patterns of the lines that `load_and_run` prints. Each
pattern comes with the name of a method of `LoggedRun`, which is called with the pattern's groups.
The file load_and_run_log.json also has the patterns of the messages in which `load_and_run` reports
its options. The value of an option is the number in the message, or true if the message has no
number.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from lar.errors import UsageError
from lar.options import table
from lar.options.command_line import read_command
from lar.options.table import BY_KEY
from lar.records import run as records
from lar.records.run import Case, CaseResult, EngineFacts, Verdict, error_of

DRIVER = "load_and_run"
USUAL_LIMIT = 1e-4  # the default limit for the error of a testcase
HINT = "save all that load_and_run prints: load_and_run MODEL ... > FILE 2>&1"

# `[22 07:52:39 operator()@strategy_normal.cpp:88]`, with or without a level after it.
PREFIX = re.compile(r"\s*(?:\[\d\d \d\d:\d\d:\d\d [^\]]*\]\s*(?:\[\w+\])?)?\s*")
VERSIONS = re.compile(
    r"(?:mgb load-and-run: )?using (?:megbrain )+([\d.]+)(?:\(\d+\))? and megdnn ([\d.]+)", re.I
)
# A command line. A sentence may name the program too, so the model must have a suffix or a folder.
COMMAND = re.compile(r"(?:.*?[\s/\\;&])?load_and_run\s+((?!-)[^\s.]*[./]\S.*)")
# The last lines of a run that failed; WHAT finds the reason in them.
ENDS = re.compile(
    r"terminate called|libc\+\+abi: terminating"
    r"|(?:\S+: (?:line \d+:)?\s*\d*\s*)?"
    r"(?:Segmentation fault|Aborted|Illegal instruction|Bus error|Killed)\b"
)
WHAT = re.compile(r"(?:what\(\):|terminating (?:with|due to) uncaught exception[^:]*::\w+:)\s*(.+)")
TIME = r"(-?(?:\d+\.?\d*|nan|inf))\s*(?:ms)?"
# A line that begins like a line of a run, but matches no pattern, is damaged.
OURS = re.compile(r"iter \d+/|warm ?up \d|load model: |=== (?:prepare|finished)")


class Said(msgspec.Struct):
    """The patterns of the lines and messages that load_and_run prints.

    If several patterns match a line, the first of these patterns is used.
    """

    lines: list[tuple[str, str]]
    settings: dict[str, str]


SAID = msgspec.json.decode(Path(__file__).with_suffix(".json").read_bytes(), type=Said)
LINES = [(take, re.compile(pattern.replace("TIME", TIME))) for take, pattern in SAID.lines]


class Row(NamedTuple):
    """The times of one iteration in seconds."""

    end_to_end: float
    host: float
    device: float | None
    runner: int
    case: int


@dataclass
class Test:
    """The iterations that one runner executes with one testcase, or with the inputs of the run."""

    case: int
    runner: int
    count: int
    rows: list[Row] = field(default_factory=list)
    is_finished: bool = False


@dataclass
class LoggedRun:
    """The facts about one run, from the lines that have been read so far.

    Each method stores the facts of a line, or raises a ValueError if this line cannot follow the
    previous lines.
    """

    version: str
    megdnn: str
    model: str = ""
    inputs: tuple[str, ...] = ()
    settings: dict[str, records.Setting] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    warmups: list[Row] = field(default_factory=list)
    case: int = 0
    case_count: int = 0
    announced: int | None = None
    tests: list[Test] = field(default_factory=list)
    verdicts: dict[int, Verdict] = field(default_factory=dict)  # the worst one of each testcase
    ending: str = ""
    reason: str = ""
    tail: list[str] = field(default_factory=list)

    @property
    def phase(self) -> records.Phase:
        if self.tests:
            return "iterations"
        if self.warmups or "prepare" in self.seconds:
            return "warmup"
        return "prepare" if "load" in self.seconds else "load"

    @property
    def open_tests(self) -> list[Test]:
        return [test for test in self.tests if not test.is_finished]

    def take_time(self, name: str, text: str) -> None:
        """Store the printed duration of the load or of the preparation.

        Only the first duration is used. load_and_run prints the duration of the preparation again
        before each iteration of the warm-up.
        """
        self.seconds.setdefault(name, seconds_of(text))

    def take_warmup(self, index: str, text: str) -> None:
        runner = sum(row.case == int(index) for row in self.warmups)
        self.warmups.append(Row(seconds_of(text), seconds_of(text), None, runner, int(index)))

    def take_iteration(self, index: str, count: str, whole: str, host: str, device: str) -> None:
        """Store the times of an iteration in a `Test`.

        The iteration with the number 0 begins a new `Test`.
        """
        if index == "0":
            runner = sum(test.case == self.case for test in self.tests)
            self.tests.append(Test(self.case, runner, int(count)))
        for test in self.open_tests:
            if (len(test.rows), test.count) == (int(index), int(count)):
                known = device and float(device) >= 0
                times = seconds_of(whole), seconds_of(host), float(device) / 1e3 if known else None
                test.rows.append(Row(*times, test.runner, test.case))
                return
        raise ValueError(f"is iteration {index} of {count}, and the one before it is missing")

    def take_run(self, index: str, time: str) -> None:
        """Store the time of an iteration of a model without inputs."""
        self.take_iteration(index, str(self.announced), time, time, "")

    def expect_cases(self, count: str) -> None:
        self.case_count = int(count)

    def expect_iterations(self, count: str) -> None:
        self.announced = int(count)

    def begin_test(self, case: str, count: str = "") -> None:
        self.case, self.announced = int(case), int(count) if count else self.announced

    def end_test(self, case: str, _: str) -> None:
        for test in self.open_tests:
            if test.case == int(case or 0) and len(test.rows) == test.count:
                test.is_finished = True
                return
        if self.open_tests:
            raise ValueError("ends a test, and some of its iterations are missing")
        self.announced = self.announced or 0  # a test without iterations

    def take_verdict(self, error: str, name: str, id: str) -> None:
        """Store the verdict of an assertion that did not end the run.

        load_and_run does not print the limit of an assertion that does not end the run.
        """
        value = float(error)
        passed = math.isfinite(value)
        limit = max(value, USUAL_LIMIT) if passed else USUAL_LIMIT
        known = value if passed else None
        verdict = Verdict(
            output=name, name=name, id=int(id), shown=True, error=known, limit=limit, passed=passed
        )
        self.verdicts[self.case] = max(self.verdicts.get(self.case, verdict), verdict, key=error_of)

    def take_reason(self, reason: str) -> None:
        """Store the reason for a failure, which is clearer than the exception's own text."""
        self.reason = reason

    def take_line(self, text: str) -> None:
        """Store the facts that one line contains.

        Raises:
            ValueError: the line is damaged; the error message says how it is damaged.
        """
        for take, pattern in LINES:
            if found := pattern.match(text):
                getattr(self, take)(*(group or "" for group in found.groups()))
                return
        if OURS.match(text):
            raise ValueError(f"is damaged: {text[:60]!r}")
        self.take_message(text)

    def take_message(self, text: str) -> None:
        """Store the facts of a message: the reason for a failure, or the value of an option."""
        what = WHAT.search(text)
        if ENDS.match(text):
            self.ending, self.reason = self.ending or text, what[1] if what else self.reason
        elif what:
            self.reason = self.reason or what[1]
        elif (found := re.search(r"enable (\w+) optimization", text)) and (
            f"enable_{found[1]}" in BY_KEY
        ):
            self.settings.setdefault(f"enable_{found[1]}", True)
        for key, pattern in SAID.settings.items():
            if found := re.search(pattern, text):
                self.settings.setdefault(key, int(found[1]) if found.groups() else True)

    def find_cut(self) -> str:
        """Return the place at which the output is cut short.

        The result is empty if the output is complete, or if the run failed.
        """
        unfinished = self.open_tests
        if self.ending or (not unfinished and self.announced == 0):
            return ""
        if unfinished:
            return f"after iteration {len(unfinished[-1].rows) - 1} of {unfinished[-1].count}"
        if not self.tests:
            return "before the first iteration"
        is_cut = self.case_count > len({test.case for test in self.tests})
        return f"before testcase {len(self.tests)} of {self.case_count}" if is_cut else ""


def is_log(data: bytes) -> bool:
    """Return whether a file holds the printed output of load_and_run."""
    text = decode(data)
    return VERSIONS.search(text) is not None and "load" in text.lower()


def decode(data: bytes) -> str:
    """Decode a log, which is in UTF-8, or in UTF-16 if a Windows shell has written it."""
    is_wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    return data.decode("utf-16" if is_wide else "utf-8-sig", errors="replace")


def read_log(data: bytes, name: str) -> tuple[records.RunResult, ...]:
    """Return the runs of a log, in the order of the log.

    In error messages, `name` is the name of the file.

    Raises:
        UsageError: a line is damaged, or a run was cut short before its end.
    """
    runs: list[LoggedRun] = []
    command = ""
    lines = decode(data).splitlines(keepends=True)
    for number, line in enumerate(lines, start=1):
        text = PREFIX.sub("", line, count=1).rstrip()
        if found := VERSIONS.match(text):
            runs.append(LoggedRun(found[1], found[2], *read_command(command)))
            command = ""
        elif (found := COMMAND.match(text)) and not ENDS.match(text):
            command = found[1]
        elif runs:
            runs[-1].tail.append(text)
            try:
                runs[-1].take_line(text)
            except ValueError as error:
                is_cut = number == len(lines) and not line.endswith(("\n", "\r"))
                problem = f"was cut short in line {number}" if is_cut else f"line {number} {error}"
                raise UsageError(problem, HINT, subject=name) from None
    if not runs:
        raise UsageError("does not name the version of load_and_run", HINT, subject=name)
    for where in filter(None, (run.find_cut() for run in runs)):
        raise UsageError(f"was cut short {where}", HINT, subject=name)
    return tuple(map(result_of, runs))


def seconds_of(text: str) -> float:
    """Convert the text of a time in milliseconds to seconds.

    Raises:
        ValueError: the text is not a time.
    """
    seconds = float(text) / 1e3
    if not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError(f"is damaged: {text} is not a time")
    return seconds


def result_of(run: LoggedRun) -> records.RunResult:
    """Return the result of a run."""
    runners = max((test.runner for test in run.tests), default=0) + 1
    if runners > 1 or (table.THREAD.key in run.settings and run.tests):
        run.settings[table.THREAD.key] = runners  # the runners that have printed times
    cases = sorted({*(test.case for test in run.tests), *run.verdicts})
    is_tested = run.case_count > 0 or len(cases) > 1 or bool(run.verdicts)
    results = tuple(case_result(it, run.verdicts.get(it)) for it in cases if is_tested)
    rows = [row for test in run.tests for row in test.rows]
    rows.sort(key=lambda row: (row.runner, row.case))
    printed = "printed by load_and_run"
    device = printed if any(row.device is not None for row in rows) else ""
    place = f"cuda:{run.settings[table.CUDA.key]}" if table.CUDA.is_given(run.settings) else "cpu"
    libraries = {"megdnn": run.megdnn}
    facts = EngineFacts(
        name="megengine", version=run.version, driver=DRIVER, device=place, libraries=libraries
    )
    return records.RunResult(
        spec=records.RunSpec(
            model=run.model,
            engine="megengine",
            driver=DRIVER,
            device=place,
            inputs=run.inputs,
            settings=run.settings,
            warmup_iterations=max((row.case + 1 for row in run.warmups), default=0),
            iterations=max((test.count for test in run.tests), default=run.announced or 0),
            cases=tuple(Case(name=each.name) for each in results),
        ),
        status="crashed" if run.ending else "ok",
        phase=run.phase if run.ending else "done",
        engine=facts,
        load_seconds=run.seconds.get("load"),
        prepare_seconds=run.seconds.get("prepare"),
        warmup=samples_of(sorted(run.warmups, key=lambda row: row.runner), runners),
        samples=samples_of(rows, runners, is_tested=is_tested),
        sources=records.TimeSources(end_to_end=printed, host=printed, device=device),
        cases=results,
        failure=records.Failure(run.reason or run.ending, exit_code=4) if run.ending else None,
        log_tail="\n".join(run.tail[-20:]) if run.ending else "",
    )


def case_result(case: int, verdict: Verdict | None) -> CaseResult:
    """Return the result of a testcase, given the worst verdict on the testcase."""
    passed, verdicts = (verdict.passed, (verdict,)) if verdict else (None, ())
    return CaseResult(name=f"#{case}", passed=passed, verdicts=verdicts)


def samples_of(rows: Iterable[Row], runners: int, *, is_tested: bool = False) -> records.Samples:
    """Return the samples of iterations; the samples of the first runner come first."""
    end_to_end, host, device, runner, case = [*zip(*rows, strict=True)] or [()] * 5
    return records.Samples(
        end_to_end=end_to_end,
        host=host,
        device=device,
        queue_delay=(None,) * len(host),
        runner=runner if runners > 1 else (),
        case=case if is_tested else (),
    )
