"""Makes small changes to the code, one at a time, and counts those that the tests notice.

    uv run python tools/mutate.py --count 200 --seed 1
    uv run python tools/mutate.py --count 40 --under lar/measurement
    uv run python tools/mutate.py --count 20 --under lar/inputs --list

A change turns a comparison, adds one to a number, swaps `and` with `or`, adds or removes a `not`,
or returns another value. Each is made in a copy of the tree, and the tests beside the module run
until the first fails: the files named after it or its package, then those that import it, then
those of the modules that import it, and last those of its folder. Files that start processes come
after the others, and only --slow-files of them. Files that fail or take too long without any
change are left out. Changes that survived are printed as differences.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import difflib
import importlib
import itertools
import math
import os
import random
import re
import select
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Literal, NoReturn

LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "large")
# At most so many files of tests that start no processes, for one change.
FAST_FILES = 4
# A file with one of these words starts processes, so it comes after those that do not.
STARTS_PROCESSES = re.compile(r"\brun_lar\b|subprocess|\belsewhere\b|run_isolated|multiprocessing")

OTHER_COMPARISONS: Mapping[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}


@dataclass(frozen=True)
class Change:
    """A small change: these bytes of a file become others."""

    file: str
    line: int
    kind: str
    start: int
    end: int
    text: str

    def apply(self, source: bytes) -> bytes:
        """Return the source with the change."""
        return source[: self.start] + self.text.encode() + source[self.end :]

    def difference(self, source: bytes) -> str:
        """Return the lines that change, before and after."""
        before, after = (text.decode().splitlines() for text in (source, self.apply(source)))
        lines = difflib.unified_diff(before, after, lineterm="", n=0)
        return "\n".join(f"    {line}" for line in itertools.islice(lines, 3, None))


class ChangeFinder(ast.NodeVisitor):
    """Finds all changes of one file; types and texts are left as they are."""

    def __init__(self, file: str, source: bytes) -> None:
        self.file = file
        self.changes: list[Change] = []
        lengths = [len(line) for line in source.splitlines(keepends=True)]
        self.offsets = [0, *itertools.accumulate(lengths)]

    def add(self, kind: str, node: ast.expr, text: str) -> None:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self.offsets[node.lineno - 1] + node.col_offset
        end = self.offsets[node.end_lineno - 1] + node.end_col_offset
        self.changes.append(Change(self.file, node.lineno, kind, start, end, text))

    def visit_Compare(self, node: ast.Compare) -> None:
        for place, operator in enumerate(node.ops):
            for other in OTHER_COMPARISONS[type(operator)]:
                turned = copy.copy(node)
                turned.ops = [*node.ops[:place], other(), *node.ops[place + 1 :]]
                self.add("comparison", node, f"({ast.unparse(turned)})")
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        other = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self.add("and/or", node, f"({ast.unparse(ast.BoolOp(other, node.values))})")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self.add("not", node, f"({ast.unparse(node.operand)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
            self.add("number", node, repr(node.value + 1))

    def negate(self, test: ast.expr) -> None:
        """Add a `not` to a condition that has none of the other changes."""
        if not isinstance(test, (ast.Compare, ast.BoolOp, ast.UnaryOp)):
            self.add("not", test, f"(not {ast.unparse(test)})")

    def visit_If(self, node: ast.If) -> None:
        if ast.unparse(node.test) != "TYPE_CHECKING":
            self.negate(node.test)
            self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self.negate(node.test)
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        value = node.value
        if isinstance(value, ast.Constant) and isinstance(value.value, bool):
            self.add("return", value, str(not value.value))
        elif value is not None and not (isinstance(value, ast.Constant) and value.value is None):
            self.add("return", value, "None")
        self.generic_visit(node)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Python 3.10 has no places for what stands in a formatted text."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        for default in (*node.args.defaults, *node.args.kw_defaults):
            if default is not None:
                self.visit(default)
        for part in (*node.decorator_list, *node.body):
            self.visit(part)


def find_changes(tree: Path, folders: Sequence[str]) -> list[Change]:
    """Return all changes in these folders of a tree, in a fixed order."""
    found = []
    for folder in folders:
        place = tree / folder
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            source = path.read_bytes()
            finder = ChangeFinder(str(path.relative_to(tree)), source)
            finder.visit(ast.parse(source))
            found += finder.changes
    return found


# --- which tests ----------------------------------------------------------------------------------


def module_name(file: str) -> str:
    """Return the name of a module: `lar.inputs.npy` for `lar/inputs/npy.py`."""
    return file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def imported_names(path: Path) -> set[str]:
    """Return the modules, or what may be modules, that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


class TestChooser:
    """Chooses the files of tests beside a module."""

    def __init__(self, tree: Path, slow_files: int) -> None:
        self.slow_files = slow_files
        self.tests = {
            str(path.relative_to(tree)): imported_names(path)
            for path in sorted((tree / "tests").rglob("test_*.py"))
        }
        self.modules = {
            str(path.relative_to(tree)): imported_names(path)
            for path in sorted((tree / "lar").rglob("*.py"))
        }
        self.slow = {
            test for test in self.tests if STARTS_PROCESSES.search((tree / test).read_text())
        }

    def choose(self, file: str) -> list[str]:
        """Return the files of tests for a module, the nearest and fastest first."""
        module = Path(file)
        folder = Path("tests", *module.parent.parts[1:])
        callers = {
            module_name(other)
            for other, names in self.modules.items()
            if module_name(file) in names and other != file
        }
        groups = (
            [str(folder / f"test_{module.stem}.py")],
            self.tests_named(folder / f"test_{module.stem}_"),
            self.tests_named(folder.parent / f"test_{folder.name}"),
            [test for test, names in self.tests.items() if module_name(file) in names],
            [test for test, names in self.tests.items() if callers & names],
            self.tests_named(folder / "test_"),
        )
        known = [[test for test in group if test in self.tests] for group in groups]
        everything = dict.fromkeys(test for group in known for test in group)
        fast = [test for test in everything if test not in self.slow][:FAST_FILES]
        # Of those that start processes, only the nearest are worth their time.
        slow = [test for test in everything if test in self.slow][: self.slow_files]
        return fast + slow

    def tests_named(self, beginning: Path) -> list[str]:
        return [test for test in self.tests if test.startswith(str(beginning))]


# --- running them ---------------------------------------------------------------------------------


Status = Literal["noticed", "survived", "untested", "left"]


@dataclass(frozen=True)
class Outcome:
    """What the tests made of a change."""

    change: Change
    status: Status
    timed_out: bool = False
    difference: str = ""


def run_tests(tree: Path, files: Sequence[str], limit: float) -> int | None:
    """Run files of tests in a fork until the first fails; return the exit code of pytest, or None
    when they took longer than the limit."""
    pid = os.fork()
    if pid == 0:
        os.setsid()
        run_pytest(tree, files)
    handle = os.pidfd_open(pid)
    ended = bool(select.select([handle], [], [], limit)[0])
    os.close(handle)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)  # what it has started too
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status) if ended else None


def run_pytest(tree: Path, files: Sequence[str]) -> NoReturn:
    """Be a process that runs files of tests of a tree, without any output."""
    status = 1
    try:
        nowhere = os.open(os.devnull, os.O_RDWR)
        for target in range(3):
            os.dup2(nowhere, target)
        os.chdir(tree)
        os.environ["PYTHONPATH"] = str(tree)
        sys.path.insert(0, str(tree))
        import pytest

        status = int(pytest.main(["-n", "0", "-x", "-q", "-p", "no:cacheprovider", *files]))
    except BaseException:
        status = 1
    os._exit(status)


class Trial:
    """Copies of a tree in which changes are tried, and what each file of tests takes there."""

    def __init__(
        self, tree: Path, jobs: int, limit: float, slow_files: int, budget: float = math.inf
    ) -> None:
        self.tree = tree
        self.limit = limit
        self.chooser = TestChooser(tree, slow_files)
        self.folder = Path(tempfile.mkdtemp(prefix="mutate"))
        self.copies: Queue[Path] = Queue()
        self.deadline = time.monotonic() + budget
        self.seconds: dict[str, float | None] = {}
        self.clock = itertools.count(1)
        for number in range(jobs):
            shutil.copytree(tree, self.folder / str(number), ignore=LEFT_OUT)
            self.copies.put(self.folder / str(number))

    def close(self) -> None:
        """Remove the copies."""
        shutil.rmtree(self.folder, ignore_errors=True)

    @contextlib.contextmanager
    def borrow(self) -> Iterator[Path]:
        """Lend a copy to one thread at a time."""
        place = self.copies.get()
        try:
            yield place
        finally:
            self.copies.put(place)

    def measure(self, test: str) -> float | None:
        """Return the seconds of a file of tests without a change; None if it fails, or is slow."""
        if test not in self.seconds:
            began = time.monotonic()
            with self.borrow() as place:
                status = run_tests(place, [test], self.limit)
            self.seconds[test] = time.monotonic() - began if status == 0 else None
            if status != 0:
                print(f"left out: {test} {'fails' if status else 'is too slow'}", flush=True)
        return self.seconds[test]

    def attempt(self, change: Change) -> Outcome:
        """Make a change in a copy, run its tests, and take it back."""
        if time.monotonic() > self.deadline:
            return Outcome(change, "left")
        seconds = {test: self.measure(test) for test in self.chooser.choose(change.file)}
        taken = [test for test, time_taken in seconds.items() if time_taken is not None]
        if not taken:
            return Outcome(change, "untested")
        limit = 30 + 4 * sum(seconds[test] or 0.0 for test in taken)
        with self.borrow() as place:
            path = place / change.file
            source = path.read_bytes()
            self.write(path, change.apply(source))
            try:
                status = run_tests(place, taken, limit)
            finally:
                self.write(path, source)
        survived: Status = "survived" if status == 0 else "noticed"
        return Outcome(change, survived, status is None, change.difference(source))

    def write(self, path: Path, source: bytes) -> None:
        """Write a file with a time of its own, so that nothing compiled before is taken for it."""
        path.write_bytes(source)
        moment = 1_000_000_000 + next(self.clock) * 10
        os.utime(path, (moment, moment))


def try_all(trial: Trial, changes: Sequence[Change], jobs: int) -> list[Outcome]:
    """Try every change that there is time for, and print those that survive as they come."""
    outcomes = []
    with ThreadPoolExecutor(jobs) as pool:
        for outcome in pool.map(trial.attempt, changes):
            if outcome.status == "left":
                continue
            outcomes.append(outcome)
            if outcome.status != "noticed":
                print(describe(outcome.change, outcome.status, outcome.difference), flush=True)
            if len(outcomes) % 20 == 0:
                print(count_noticed(outcomes), flush=True)
    return outcomes


def count_noticed(outcomes: Sequence[Outcome]) -> str:
    """Return how many changes were noticed, and for how many of them the tests did not end."""
    noticed = sum(each.status == "noticed" for each in outcomes)
    share = 100 * noticed / max(1, len(outcomes))
    text = f"{noticed} of {len(outcomes)} changes noticed: {share:.0f} %"
    timed_out = sum(each.timed_out for each in outcomes)
    return text + (f", {timed_out} since the tests did not end" if timed_out else "")


def describe(change: Change, status: str, difference: str) -> str:
    """Return a change with its place and its lines before and after."""
    return f"{status}: {change.file}:{change.line} ({change.kind})\n{difference}"


def summarise(outcomes: Sequence[Outcome], key: Callable[[Change], str]) -> Iterator[str]:
    """Return a line for each group: how many changes were noticed, of how many."""
    noticed = Counter(key(each.change) for each in outcomes if each.status == "noticed")
    for group, count in sorted(Counter(key(each.change) for each in outcomes).items()):
        yield f"{group:32} {noticed[group]:4} of {count}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Try random changes; return 1 when fewer than wanted were noticed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--under", nargs="+", default=["lar"], help="folders or files")
    parser.add_argument("--tree", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=float, default=45, help="seconds of one file of tests")
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds to begin changes")
    parser.add_argument("--slow-files", type=int, default=6, help="files that start processes")
    parser.add_argument("--wanted", type=float, default=85, help="per cent to be noticed")
    parser.add_argument("--list", action="store_true", help="print the changes, run no tests")
    options = parser.parse_args(arguments)
    possible = find_changes(options.tree.resolve(), options.under)
    random.Random(options.seed).shuffle(possible)
    changes = possible[: options.count]
    if options.list:
        for change in changes:
            difference = change.difference((options.tree / change.file).read_bytes())
            print(describe(change, "change", difference))
        return 0
    preload()
    tree = options.tree.resolve()
    trial = Trial(tree, options.jobs, options.limit, options.slow_files, options.budget)
    try:
        outcomes = try_all(trial, changes, options.jobs)
    finally:
        trial.close()
    for line in summarise(outcomes, lambda change: "/".join(Path(change.file).parts[:2])):
        print(line)
    for line in summarise(outcomes, lambda change: change.kind):
        print(line)
    print(count_noticed(outcomes))
    noticed = sum(each.status == "noticed" for each in outcomes)
    return 0 if 100 * noticed >= options.wanted * len(outcomes) else 1


def preload() -> None:
    """Import what tests of all modules import, so that forks need not."""
    for name in ("hypothesis", "msgspec", "numpy", "onnx", "pytest"):
        importlib.import_module(name)


if __name__ == "__main__":
    sys.exit(main())
