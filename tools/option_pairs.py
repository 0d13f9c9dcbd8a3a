"""Records what `lar run` does with every pair of flags, and compares two recordings.

    uv run python tools/option_pairs.py record old.jsonl models/digits_cnn.{mge,onnx}
    uv run python tools/option_pairs.py record new.jsonl models/...
    uv run python tools/option_pairs.py compare old.jsonl new.jsonl

The tool runs command lines and looks only at what they do. The flags come from the parser of `lar
run`, and the values of the flags from `option_pairs.txt`. For each command line, the tool records
the exit code, standard error, the first lines of standard output, the written files, the number of
started workers, and the seconds. To record an older version of lar, use the script of that version.

To make thousands of runs fast, command lines run in this process, as in the tests. Workers are
forked from a process that has already loaded the libraries, so that the recorded seconds do not
include the start of a process.
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
LIMIT_SECONDS = 20  # limit for one case
EXAMPLES = 3  # cases that are named for each difference
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
        """The key of the case: the model's suffix, and the flags in alphabetical order."""
        return Path(self.model).suffix, tuple(sorted(self.flags))


# --- the cases ------------------------------------------------------------------------------------


def flags_of_run() -> dict[str, str]:
    """Return the flags in the help of `lar run`, each with the word that stands for its value.

    The flags have the order of the help. `--help` is left out, since it ends the program.
    """
    found = {}
    for action in parser_of("run")._actions:
        names = [name for name in action.option_strings if name.startswith("--")]
        if names and names[0] != "--help" and action.help != argparse.SUPPRESS:
            metavar = action.metavar or f"{{{','.join(map(str, action.choices or ()))}}}"
            found[names[0]] = "" if action.nargs == 0 else str(metavar)
    return found


def read_values(suffix: str) -> dict[str, str]:
    """Return the values to give to flags, by the flag or by the word that stands for its value.

    `suffix` is the suffix of the model's file.
    """
    lines = (line.removeprefix(f"{suffix} ").split() for line in read_lines(__file__))
    return {words[0]: words[1] for words in lines if len(words) == 2}


def words_of(flag: str, metavar: str, suffix: str) -> tuple[str, ...]:
    """Return a flag and its value as words of a command line; the value may have placeholders.

    Raises:
        SystemExit: the flag takes a value, but no value is known for it.
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
    """Return the flags of each case: no flag, each single flag, and each pair of flags.

    Pairs have a fixed random order, so that a recording that was stopped is a fair sample.
    """
    pairs = list(itertools.combinations(flags, 2))
    random.Random(1).shuffle(pairs)
    return [(), *((flag,) for flag in flags), *pairs]


def write_inputs(folder: Path) -> None:
    """Write the small files that are named in values of flags."""
    folder.mkdir()
    np.save(folder / "digit.npy", np.arange(64, dtype=np.float32).reshape(1, 1, 8, 8))
    (folder / "info.json").write_text('{"name": "pairs", "valid": true}\n')
    (folder / "labels.txt").write_text("1\n")
    (folder / "algorithms.cache").write_bytes(bytes(4))
    library = importlib.util.find_spec("_ctypes")  # a shared library without operators
    if library and library.origin:
        shutil.copy(library.origin, folder / "operators.so")


# --- recording ------------------------------------------------------------------------------------


class Recorder:
    """Runs cases in a new folder; the output of engines goes to files in this folder."""

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
        """Return the words of the command line after `lar`, with the model.

        Without the flag `--iter`, the run has one iteration.
        """
        words = ["run", str(self.model), *(() if "--iter" in flags else ("--iter", "1"))]
        for flag in flags:
            given = words_of(flag, self.metavars[flag], self.model.suffix)
            words += [word.format(**self.places) for word in given]
        return words

    def record(self, flags: Sequence[str]) -> Case:
        """Run one case; a case that exceeds the time limit is recorded as killed."""
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
    """Run cases, and append each to a file as a line of JSON."""
    recorder = Recorder(model, metavars)
    # Without the measurement of the machine's peak, a profiled run is a second faster. Only two
    # figures of a report are missing.
    peak = mock.patch("lar.measurement.peak.measure_peak", return_value=None)
    workers = mock.patch("lar.running.worker_process.start_python", recorder.start_worker)
    try:
        with peak, workers, file.open("a", buffering=1) as opened:
            for flags in cases:
                # A single write, so that the lines of several processes do not mix.
                opened.write(msgspec.json.encode(recorder.record(flags)).decode() + "\n")
    finally:
        FORKS.close()
        shutil.rmtree(recorder.folder, ignore_errors=True)


def read_cases(file: Path) -> list[Case]:
    """Read a recording; if a case has several lines, the last line is used."""
    cases = (msgspec.json.decode(line, type=Case) for line in file.read_text().splitlines())
    return list({case.key: case for case in cases}.values())


def record(options: argparse.Namespace) -> int:
    """Record all cases that the file lacks; return the exit code."""
    metavars = flags_of_run()
    if options.flags:
        metavars = {flag: metavars[flag] for flag in options.flags.split(",")}
    for flag, metavar in metavars.items():
        words_of(flag, metavar, options.models[0].suffix)  # fail early if a value is missing
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
# Lines that depend on the load of the machine.
FLEETING = re.compile(
    r"^note: .*(disturbed|other work)|^searching: |^lar: note: .*waited|^hint: MKL "
    r"|^\x1b\[\d+m|:onnxruntime:"
)


def lasting_lines(text: str) -> list[str]:
    """Return the lines of a text that are equal in each run of one command.

    Numbers in the lines are replaced. Tracebacks, and lines that engines print, are left out.
    """
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
    """Return a message in which numbers and flags are replaced by fixed words."""
    return FLAG.sub("--FLAG", "\n".join(lasting_lines(text)))


@dataclass(frozen=True)
class Difference:
    """A difference between two recordings: its kind, the old text and the new text."""

    kind: str
    old: str
    new: str


def differences_of(old: Case, new: Case) -> Iterator[Difference]:
    """Yield the differences between two recordings of a case."""
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
    """Yield the faults of a refusal, even if the old recording has the same faults."""
    if case.stdout and not case.workers and "--in-process" not in case.flags:
        yield Difference("output before a refusal", "", generalise("\n".join(case.stdout)))
    if "hint:" not in case.stderr:
        yield Difference("refusal without a hint", "", generalise(case.stderr))
    if case.workers:
        yield Difference("refusal by a worker", "", generalise(case.stderr))


def compare(options: argparse.Namespace) -> int:
    """Print each difference with its number of cases; return 1 if there is a difference."""
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
    """Run `record` or `compare`; return the exit code."""
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
