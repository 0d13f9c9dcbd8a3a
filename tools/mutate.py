"""Makes small changes to the code, one at a time, and counts the changes that tests notice.

    uv run python tools/mutate.py --count 200 --seed 1 2
    uv run python tools/mutate.py --count 40 --under lar/measurement
    uv run python tools/mutate.py --count 20 --under lar/inputs --list

A change replaces a comparison by another one, adds one to a number, swaps `and` with `or`, adds or
removes a `not`, or returns another value of the function's type. Values of another type are not
returned, since mypy would notice them.

First, each test file runs once in a copy of the tree that records which statements of the code are
executed, in child processes too. Then each change is made in a copy of the tree, in which test
files that execute the changed statement run until a test fails. The test files that execute most of
the changed module in the shortest time run first. Test files that fail or take too long without a
change are left out. Changes that no test noticed are printed as differences.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import difflib
import itertools
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Queue

from tables import read_lines

LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "large")
MOST_SECONDS = 150  # of the test files for one change
LIMIT_SECONDS = 90  # for one test file without a change
WANTED = 85  # per cent of the changes that must be noticed
PROGRESS = 20  # changes after which a line says how many were noticed

# Code of another value for a returned value, by its type.
OTHERS = {"bool": "(not ({}))", "int": "(({}) + 1)", "float": "(({}) + 1)", "str": "(({}) + '.')"}
# The comparisons by which each comparison may be replaced.
OTHER_COMPARISONS: Mapping[type[ast.cmpop], list[type[ast.cmpop]]] = {
    first: others
    for first, *others in (
        [getattr(ast, name) for name in line.split()] for line in read_lines(__file__)
    )
}


@dataclass(frozen=True)
class Change:
    """A small change of a file, and whether tests noticed it.

    The bytes from `start` to `end` are replaced by `text`.
    """

    file: str
    line: int
    kind: str
    start: int
    end: int
    text: str
    status: str = ""

    def apply(self, source: bytes) -> bytes:
        """Return a file's content with the change made."""
        return source[: self.start] + self.text.encode() + source[self.end :]

    def describe(self, tree: Path) -> str:
        """Return the place of the change, and the changed lines before and after."""
        source = (tree / self.file).read_bytes()
        before, after = (text.decode().splitlines() for text in (source, self.apply(source)))
        lines = [*difflib.unified_diff(before, after, lineterm="", n=0)][3:]
        place = f"{self.status or 'change'}: {self.file}:{self.line} ({self.kind})"
        return "\n    ".join([place, *lines])


def find_changes(tree: Path, folders: Sequence[str]) -> list[Change]:
    """Return all possible changes of the code in `folders`, in a fixed order."""
    found = []
    for folder in folders:
        place = tree / folder
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            source = path.read_bytes()
            lengths = [len(line) for line in source.splitlines(keepends=True)]
            offsets = [0, *itertools.accumulate(lengths)]
            for kind, node, text in changes_in(ast.parse(source)):
                start = offsets[node.lineno - 1] + node.col_offset
                end = offsets[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
                name = str(path.relative_to(tree))
                found.append(Change(name, node.lineno, kind, start, end, text))
    return found


def other_value(value: ast.expr, kind: str) -> str:
    """Return code for another value of the type `kind`; empty if no other value is known."""
    text = ast.unparse(value)
    nothing = "None" if "None" in kind and text != "None" else ""
    return OTHERS[kind].format(text) if kind in OTHERS else nothing


def changes_in(node: ast.AST, kind: str = "") -> Iterator[tuple[str, ast.expr, str]]:
    """Yield each possible change: its kind, the expression to replace, and the new text.

    `kind` is the type that the function around the node returns.
    """
    if isinstance(node, ast.FunctionDef) and node.returns:
        kind = ast.unparse(node.returns)
    match node:
        case ast.Compare():
            for place, operator in enumerate(node.ops):
                for other in OTHER_COMPARISONS[type(operator)]:
                    turned = copy.copy(node)
                    turned.ops = [*node.ops[:place], other(), *node.ops[place + 1 :]]
                    yield "comparison", node, f"({ast.unparse(turned)})"
        case ast.BoolOp():
            other_operator = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield "and/or", node, f"({ast.unparse(ast.BoolOp(other_operator, node.values))})"
        case ast.UnaryOp(op=ast.Not()):
            yield "not", node, f"({ast.unparse(node.operand)})"
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            yield "number", node, repr(1 - value)
            return
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            yield "number", node, repr(value + 1)
        case ast.If(test=test) | ast.IfExp(test=test):
            text = ast.unparse(test)
            is_changed = isinstance(test, (ast.Compare, ast.BoolOp, ast.UnaryOp))
            if not is_changed and text != "TYPE_CHECKING":
                yield "not", test, f"(not {text})"
        case ast.Return(value=ast.expr() as returned) if text := other_value(returned, kind):
            yield "return", returned, text
    for child in parts_of(node):
        yield from changes_in(child, kind)


def parts_of(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a node in which changes are made.

    Types and decorators, such as the size of a cache, are not changed. Neither are formatted texts,
    since Python 3.10 does not report the places of their parts.
    """
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    for name, value in ast.iter_fields(node):
        for each in value if isinstance(value, list) else [value]:
            is_code = isinstance(each, ast.AST) and not isinstance(each, ast.JoinedStr)
            if is_code and name not in ("annotation", "returns", "decorator_list"):
                yield each


# Which tests

# Executed at the start of each module. A statement's number is the place of its byte in a file,
# which all processes that a test file starts share.
BEGIN = """
import mmap as _mmap, os as _os
_executed = _mmap.mmap(_os.open(_os.environ.get({variable!r}, {other!r}), _os.O_RDWR), 0)
"""
VARIABLE = "EXECUTED_STATEMENTS"


class Recording(ast.NodeTransformer):
    """Adds code to a module that records each statement before it is executed.

    Statements of modules and classes are not recorded: they are executed at the import. `lines`
    gets the first and the last line of each recorded statement.
    """

    def __init__(self, lines: list[tuple[str, int, int]], file: str) -> None:
        self.lines, self.file = lines, file

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for name, value in ast.iter_fields(node):
            is_block = isinstance(value, list) and value and isinstance(value[0], ast.stmt)
            if is_block and not isinstance(node, (ast.Module, ast.ClassDef)):
                setattr(node, name, [*self.recorded(value)])
        return node

    def recorded(self, statements: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
        """Yield statements, with a record before each statement that may have one."""
        for statement in statements:
            if not isinstance(statement, (ast.Global, ast.Nonlocal)):
                yield from ast.parse(f"_executed[{len(self.lines)}] = 1").body
                self.lines.append((self.file, statement.lineno, statement.end_lineno or 0))
            yield statement


def record_statements(tree: Path, other: Path) -> list[tuple[str, int, int]]:
    """Make the code in a tree record the statements that it executes.

    Processes in whose environment `VARIABLE` is missing write into the file `other`. Return the
    file, the first line and the last line of each statement, in the order of their numbers.
    """
    begin = BEGIN.format(variable=VARIABLE, other=str(other))
    lines: list[tuple[str, int, int]] = []
    for path in sorted((tree / "lar").rglob("*.py")):
        module = ast.parse(path.read_bytes())
        Recording(lines, str(path.relative_to(tree))).visit(module)
        names = (type(it) is ast.ImportFrom and it.module == "__future__" for it in module.body)
        start = 1 + max((place for place, is_it in enumerate(names) if is_it), default=-1)
        module.body[start:start] = ast.parse(begin).body
        path.write_text(ast.unparse(ast.fix_missing_locations(module)))
    other.write_bytes(bytes(max(1, len(lines))))
    return lines


# Running them


def run_tests(
    tree: Path, files: Sequence[str], limit: float, *flags: str, **variables: str
) -> int | None:
    """Run test files of a tree; return the exit code of pytest.

    `variables` are added to the environment. Return None if the tests took longer than `limit`
    seconds.
    """
    words = ("-n", "0", "-q", "-p", "no:cacheprovider", *flags, *files)
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", *words],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(limit)
        status = process.poll()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # also processes that pytest started
    return status


class Trial:
    """Tries changes in copies of a tree, with the test files that execute the changed statement."""

    def __init__(self, tree: Path, folder: Path, jobs: int) -> None:
        self.folder, self.jobs = folder, jobs
        self.copies: Queue[Path] = Queue()
        self.seconds: dict[str, float] = {}  # by test file, of those that pass in time
        self.executed: dict[str, frozenset[int]] = {}  # by test file, the numbers of statements
        self.clock = itertools.count(1)
        for name in ("recording", *map(str, range(jobs))):
            shutil.copytree(tree, folder / name, ignore=LEFT_OUT)
        for number in range(jobs):
            self.copies.put(folder / str(number))
        self.statements = record_statements(folder / "recording", folder / "other")
        self.tests = [str(path.relative_to(tree)) for path in (tree / "tests").rglob("test_*.py")]

    def record(self) -> None:
        """Run each test file once, and keep its seconds and the statements that it executes."""
        with ThreadPoolExecutor(self.jobs) as pool:
            for test, seconds in zip(
                self.tests, pool.map(self.record_one, self.tests), strict=True
            ):
                if seconds is None:
                    print(f"left out: {test} fails or is too slow", flush=True)
                else:
                    self.seconds[test] = seconds

    def record_one(self, test: str) -> float | None:
        """Record one test file; return its seconds, or None if it fails or takes too long.

        A test file that fails in the copy that records is tried again in a plain copy.
        """
        place = self.folder / test.replace("/", ".")
        place.write_bytes(bytes(max(1, len(self.statements))))
        plain = self.copies.get()
        try:
            for tree in (self.folder / "recording", plain):
                began = time.monotonic()
                status = run_tests(tree, [test], LIMIT_SECONDS, **{VARIABLE: str(place)})
                if status == 0:
                    return time.monotonic() - began
        finally:
            self.copies.put(plain)
            content = place.read_bytes()
            self.executed[test] = frozenset(at for at, byte in enumerate(content) if byte)
            place.unlink()
        return None

    def choose(self, change: Change) -> list[str]:
        """Return the test files to run for a change, those that are nearest to it first."""
        own = {at for at, (file, *_) in enumerate(self.statements) if file == change.file}
        spans = ((self.statements[at][1:], at) for at in own)
        around = [(end - first, at) for (first, end), at in spans if first <= change.line <= end]
        changed = {min(around)[1]} if around else own  # any, for code outside functions
        nearest = sorted(
            (test for test in self.seconds if self.executed[test] & changed),
            key=lambda test: -len(self.executed[test] & own) / self.seconds[test],
        )
        ends = itertools.accumulate(self.seconds[test] for test in nearest)
        return [test for test, end in zip(nearest, ends, strict=True) if end < MOST_SECONDS]

    def attempt(self, change: Change) -> Change:
        """Make a change in a copy, run the chosen tests until one fails, and undo the change.

        Return the change with its status: noticed, survived or untested.
        """
        tests = self.choose(change)
        if not tests:
            return replace(change, status="untested")
        place = self.copies.get()
        path = place / change.file
        source = path.read_bytes()
        try:
            self.write(path, change.apply(source))
            limit = 30 + 4 * sum(self.seconds[test] for test in tests)
            status = run_tests(place, tests, limit, "-x")
        finally:
            self.write(path, source)
            self.copies.put(place)
        return replace(change, status="survived" if status == 0 else "noticed")

    def write(self, path: Path, source: bytes) -> None:
        """Write a file with a new modification time, so that no outdated compiled file is used."""
        path.write_bytes(source)
        moment = 1_000_000_000 + next(self.clock) * 10
        os.utime(path, (moment, moment))


def summarise(tried: Sequence[Change], key: Callable[[Change], str]) -> Iterator[str]:
    """Yield a line for each group of changes: how many of its changes were noticed."""
    noticed = Counter(key(each) for each in tried if each.status == "noticed")
    for group, count in sorted(Counter(map(key, tried)).items()):
        yield f"{group:32} {noticed[group]:4} of {count}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Try random changes; return 1 if fewer than `WANTED` per cent were noticed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, nargs="+", default=[1])
    parser.add_argument("--under", nargs="+", default=["lar"], help="folders or files")
    parser.add_argument("--tree", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--list", action="store_true", help="print the changes, run no tests")
    options = parser.parse_args(arguments)
    tree = options.tree.resolve()
    found = find_changes(tree, options.under)
    samples = [random.Random(seed).sample(found, len(found)) for seed in options.seed]
    changes = [each for sample in samples for each in sample[: options.count]]
    if options.list:
        print("\n".join(each.describe(tree) for each in changes))
        return 0
    tried = []
    with tempfile.TemporaryDirectory(prefix="mutate") as folder:
        trial = Trial(tree, Path(folder), options.jobs)
        trial.record()
        with ThreadPoolExecutor(options.jobs) as pool:
            for each in pool.map(trial.attempt, changes):
                tried.append(each)
                if each.status != "noticed":
                    print(each.describe(tree), flush=True)
                if len(tried) % PROGRESS == 0:
                    print(count_noticed(tried), file=sys.stderr, flush=True)
    print(*summarise(tried, lambda change: "/".join(Path(change.file).parts[:2])), sep="\n")
    print(*summarise(tried, lambda change: change.kind), sep="\n")
    print(count_noticed(tried))
    return 0 if share_noticed(tried) >= WANTED or not tried else 1


def share_noticed(tried: Sequence[Change]) -> float:
    """Return how many per cent of the changes were noticed."""
    return 100 * sum(each.status == "noticed" for each in tried) / max(1, len(tried))


def count_noticed(tried: Sequence[Change]) -> str:
    """Return a line that says how many changes were noticed."""
    noticed = sum(each.status == "noticed" for each in tried)
    return f"{noticed} of {len(tried)} changes noticed: {share_noticed(tried):.0f} %"


if __name__ == "__main__":
    sys.exit(main())
