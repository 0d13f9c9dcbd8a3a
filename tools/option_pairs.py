"""Records what `lar run` does with every pair of flags, and compares two recordings.

    uv run python tools/option_pairs.py record old.jsonl models/digits_cnn.{mge,onnx}
    uv run python tools/option_pairs.py record new.jsonl models/...
    uv run python tools/option_pairs.py compare old.jsonl new.jsonl

The command line is driven from outside: flags are those of the parser of `lar run`, values come
from `option_pairs.txt`, and a case is its exit code, standard error, the first lines of standard
output, the files written, whether a worker process was started, and the seconds. An older tree is
recorded with its own script.

Thousands of runs are made affordable as in the tests: command lines run in this process, and their
workers are forked from a process that has their libraries loaded. Seconds are therefore those of a
warm process.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import itertools
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import numpy as np
from processes import map_in_processes
from tables import read_lines

from lar.cli.arguments import parser_of
from tests.command_lines import OutOfTime, run_apart, run_here
from tests.worker_forks import FORKS, fork_or_start

STDOUT_LINES = 3
STDERR_CHARACTERS = 4000
LIMIT_SECONDS = 20  # of one case
EXAMPLES = 3  # cases named of each kind
REFUSED = 2

# Flags that take a value but are given without one.
BARE = ("--cuda",)


@dataclass(frozen=True)
class Case:
    """What one command line did."""

    model: str
    flags: tuple[str, ...]
    exit_code: int
    stderr: str
    stdout: tuple[str, ...]
    files: tuple[str, ...]
    workers: int
    seconds: float

    @property
    def key(self) -> tuple[str, tuple[str, ...]]:
        """The case's identity: the model's suffix and the flags in alphabetical order."""
        return Path(self.model).suffix, tuple(sorted(self.flags))


# --- the cases ------------------------------------------------------------------------------------


def flags_of_run() -> dict[str, str]:
    """Return the flags that the help of `lar run` shows in its order, each with the word shown for
    its value, without the one that ends the program before it reads another."""
    found = {}
    for action in parser_of("run")._actions:
        names = [name for name in action.option_strings if name.startswith("--")]
        if names and names[0] != "--help" and action.help != argparse.SUPPRESS:
            metavar = action.metavar or f"{{{','.join(map(str, action.choices or ()))}}}"
            found[names[0]] = "" if action.nargs == 0 else str(metavar)
    return found


def read_values(suffix: str) -> dict[str, str]:
    """Return what flags are given for a model of a format, by flag or by the word for a value."""
    lines = (line.removeprefix(f"{suffix} ").split() for line in read_lines(__file__))
    return {words[0]: words[1] for words in lines if len(words) == 2}


def words_of(flag: str, metavar: str, suffix: str) -> tuple[str, ...]:
    """Return the words of a flag on the command line, its value with placeholders.

    Raises:
        SystemExit: the flag takes a value that there is no example for.
    """
    if not metavar or flag in BARE:
        return (flag,)
    values = read_values(suffix)
    choice = metavar.strip("{}").split(",")[0] if metavar.startswith("{") else None
    value = values.get(flag) or choice or values.get(metavar)
    if value is None:
        sys.exit(f"option_pairs: no value known for {flag} {metavar}: add one to option_pairs.txt")
    return flag, value


def plan_cases(flags: Sequence[str]) -> list[tuple[str, ...]]:
    """Return no flag, every flag and every pair of flags.

    Pairs stand in a fixed random order: a recording that was stopped is a fair sample.
    """
    pairs = list(itertools.combinations(flags, 2))
    random.Random(1).shuffle(pairs)
    return [(), *((flag,) for flag in flags), *pairs]


def write_inputs(folder: Path) -> None:
    """Write the small files that values of flags name."""
    folder.mkdir()
    np.save(folder / "digit.npy", np.arange(64, dtype=np.float32).reshape(1, 1, 8, 8))
    (folder / "info.json").write_text('{"name": "pairs", "valid": true}\n')
    (folder / "labels.txt").write_text("1\n")
    (folder / "algorithms.cache").write_bytes(bytes(4))
    library = importlib.util.find_spec("_ctypes")  # any shared library that has no operators
    if library and library.origin:
        shutil.copy(library.origin, folder / "operators.so")


# --- recording ------------------------------------------------------------------------------------


class Recorder:
    """Runs cases in a folder of its own; what engines print themselves goes to files there."""

    def __init__(self, model: Path, metavars: Mapping[str, str]) -> None:
        self.model = model
        self.metavars = metavars
        self.folder = Path(tempfile.mkdtemp(prefix="pairs"))
        self.places = {name: str(self.folder / name) for name in ("in", "out")}
        self.places |= {"suffix": model.suffix, "python": sys.executable}
        self.started = 0
        write_inputs(self.folder / "in")
        for name, target in (("stdout", 1), ("stderr", 2)):
            with open(self.folder / name, "wb") as file:
                os.dup2(file.fileno(), target)

    def start_worker(self, *given: Any, **named: Any) -> int:
        self.started += 1
        return fork_or_start(*given, **named)

    def words_of(self, flags: Sequence[str]) -> list[str]:
        """Return the words after `lar`, the model and at most two iterations."""
        words = ["run", str(self.model), *(() if "--iter" in flags else ("--iter", "1"))]
        for flag in flags:
            given = words_of(flag, self.metavars[flag], self.model.suffix)
            words += [word.format(**self.places) for word in given]
        return words

    def record(self, flags: Sequence[str]) -> Case:
        """Run one case; one that lasts longer than the limit is as if it was killed."""
        out, began = self.folder / "out", time.monotonic()
        out.mkdir()
        self.started = 0
        for target in (1, 2):
            os.ftruncate(target, 0)
            os.lseek(target, 0, os.SEEK_SET)
        run = run_apart if "--in-process" in flags else run_here
        code, stdout, stderr = -signal.SIGKILL, "", ""
        with contextlib.suppress(OutOfTime):
            done = run(self.words_of(flags), None, LIMIT_SECONDS)
            code, stdout, stderr = done.returncode, done.stdout, done.stderr
        seconds = time.monotonic() - began
        stdout, stderr = (
            text + (self.folder / name).read_text(errors="replace")
            for name, text in (("stdout", stdout), ("stderr", stderr))
        )
        case = Case(
            model=str(self.model),
            flags=tuple(flags),
            exit_code=code,
            stderr=self.without_places(stderr)[:STDERR_CHARACTERS],
            stdout=tuple(self.without_places(stdout).splitlines()[:STDOUT_LINES]),
            files=tuple(sorted(str(it.relative_to(out)) for it in out.rglob("*") if it.is_file())),
            workers=self.started,
            seconds=round(seconds, 4),
        )
        shutil.rmtree(out)
        return case

    def without_places(self, text: str) -> str:
        """Return a text without the names of temporary folders and of the model's folder."""
        for name in ("out", "in"):
            text = text.replace(self.places[name], name.upper())
        return text.replace(f"{self.model.parent}/", "")


def record_share(
    file: Path, model: Path, metavars: Mapping[str, str], cases: Sequence[tuple[str, ...]]
) -> None:
    """Append cases to a file, a line of JSON each."""
    recorder = Recorder(model, metavars)
    # The measurement of the machine's peak takes a second of each profiled run, which only lacks
    # two figures of a report without it.
    peak = mock.patch("lar.measurement.peak.measure_peak", return_value=None)
    workers = mock.patch("lar.running.worker_process.start_python", recorder.start_worker)
    try:
        with peak, workers, file.open("a", buffering=1) as opened:
            for flags in cases:
                # One write: lines of several processes do not mix.
                opened.write(msgspec.json.encode(recorder.record(flags)).decode() + "\n")
    finally:
        FORKS.close()
        shutil.rmtree(recorder.folder, ignore_errors=True)


def read_cases(file: Path) -> list[Case]:
    """Read a recording, a later line of the same case standing for an earlier one."""
    cases = (msgspec.json.decode(line, type=Case) for line in file.read_text().splitlines())
    return list({case.key: case for case in cases}.values())


def record(options: argparse.Namespace) -> int:
    """Record all cases that the file lacks; return the exit code."""
    metavars = flags_of_run()
    if options.flags:
        metavars = {flag: metavars[flag] for flag in options.flags.split(",")}
    for flag, metavar in metavars.items():
        words_of(flag, metavar, options.models[0].suffix)  # all have values before the first runs
    known = {case.key for case in read_cases(options.file)} if options.file.exists() else set()
    for model in options.models:
        cases = [
            flags
            for flags in plan_cases(list(metavars))
            if (model.suffix, tuple(sorted(flags))) not in known
        ]
        shares = [cases[at :: options.jobs] for at in range(options.jobs)]
        map_in_processes(partial(record_share, options.file, model, metavars), shares, options.jobs)
    print(f"{len(read_cases(options.file))} cases in {options.file}")
    return 0


# --- comparing ------------------------------------------------------------------------------------

NUMBER = re.compile(r"(?<![\w-])-?\d[\d.,]*(?:e[+-]?\d+)?(?:ms|us|ns|s|%)?(?![\w-])")
FLAG = re.compile(r"--[a-z0-9][a-z0-9-]*")
# Lines that come and go with what else the machine does.
FLEETING = re.compile(
    r"^note: .*(disturbed|other work)|^searching: |^lar: note: .*waited|^hint: MKL "
    r"|^\x1b\[\d+m|:onnxruntime:"
)


def lasting_lines(text: str) -> list[str]:
    """Return the lines that remain the same from run to run, without their numbers, tracebacks
    and what MegEngine itself prints."""
    lines, in_traceback = [], False
    for line in text.splitlines():
        if line.startswith("Traceback"):
            in_traceback = True
        elif line.startswith("lar: "):
            in_traceback = False
        if not in_traceback and not FLEETING.search(line):
            lines.append(NUMBER.sub("N", line).strip())
    return lines


def generalise(text: str) -> str:
    """Return a message without its numbers and with its flags as one word."""
    return FLAG.sub("--FLAG", "\n".join(lasting_lines(text)))


@dataclass(frozen=True)
class Difference:
    """A kind of difference: what it is, and how it was and is."""

    kind: str
    old: str
    new: str


def differences_of(old: Case, new: Case) -> Iterator[Difference]:
    """Find what differs between two recordings of a case."""
    if old.exit_code != new.exit_code:
        sides = (f"{case.exit_code}: {generalise(case.stderr)}" for case in (old, new))
        yield Difference("exit code", *sides)
    else:
        was, now = lasting_lines(old.stderr), lasting_lines(new.stderr)
        gone = "\n".join(line for line in was if line not in now)
        come = "\n".join(line for line in now if line not in was)
        if gone or come:
            yield Difference("message", FLAG.sub("--FLAG", gone), FLAG.sub("--FLAG", come))
    if old.files != new.files:
        yield Difference("files", " ".join(old.files), " ".join(new.files))
    if new.exit_code == REFUSED:
        yield from faults_of_refusal(new)
    if old.exit_code == 0:
        before, after = (generalise("\n".join(case.stdout)) for case in (old, new))
        if before != after:
            yield Difference("first lines", before, after)


def faults_of_refusal(case: Case) -> Iterator[Difference]:
    """Find what a refusal should not be, whatever it was before."""
    if case.stdout and not case.workers and "--in-process" not in case.flags:
        yield Difference("output before a refusal", "", generalise("\n".join(case.stdout)))
    if "hint:" not in case.stderr:
        yield Difference("refusal without a hint", "", generalise(case.stderr))
    if case.workers:
        yield Difference("refusal by a worker", "", generalise(case.stderr))


def compare(options: argparse.Namespace) -> int:
    """Print each kind of difference with its number of cases; return 1 when there is one."""
    old, new = ({case.key: case for case in read_cases(file)} for file in options.files)
    both = [key for key in old if key in new]
    groups: dict[str, dict[Difference, list[str]]] = defaultdict(lambda: defaultdict(list))
    for key in both:
        for difference in differences_of(old[key], new[key]):
            groups[difference.kind][difference].append(" ".join([key[0], *key[1]]))
    for kind, found in groups.items():
        print(f"\n## {kind}: {sum(map(len, found.values()))} cases, {len(found)} kinds")
        for difference, names in sorted(found.items(), key=lambda item: -len(item[1])):
            print(f"\n{len(names)} x, as {'; '.join(names[:EXAMPLES])}")
            print(indent("- ", difference.old))
            print(indent("+ ", difference.new))
    print(f"\n{len(both)} cases in both, {len(old) - len(both)} only in the old, ", end="")
    print(f"{len(new) - len(both)} only in the new recording")
    for name, cases in (("old", old), ("new", new)):
        codes = sorted(Counter(cases[key].exit_code for key in both).items())
        print(f"{name}: {', '.join(f'exit {code}: {count}' for code, count in codes)}")
    return 1 if groups else 0


def indent(sign: str, text: str) -> str:
    return "\n".join(f"    {sign}{line}" for line in text.splitlines() or [""])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(required=True)
    recording = commands.add_parser("record", help="record all pairs of flags")
    recording.add_argument("file", type=Path, help="recording, continued when it exists")
    recording.add_argument("models", type=lambda text: Path(text).resolve(), nargs="+")
    recording.add_argument("--flags", help="only these: --iter,--json")
    recording.add_argument("--jobs", type=int, default=2)
    recording.set_defaults(action=record)
    comparing = commands.add_parser("compare", help="compare two recordings")
    comparing.add_argument("files", type=Path, nargs=2)
    comparing.set_defaults(action=compare)
    options = parser.parse_args(arguments)
    return int(options.action(options))


if __name__ == "__main__":
    sys.exit(main())
