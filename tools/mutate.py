"""Makes small changes to the code, one at a time, and counts the changes that tests notice.

    uv run python tools/mutate.py --count 200 --seed 1
    uv run python tools/mutate.py --count 40 --under lar/measurement
    uv run python tools/mutate.py --count 20 --under lar/inputs --list

A change replaces a comparison by another one, adds one to a number, swaps `and` with `or`, adds or
removes a `not`, or returns another value of the function's type. Values of another type are not
returned, since mypy would notice them.

Each change is made in a copy of the tree, in which the nearest test files run until a test fails. A
test file is near to a changed module if it is named after the module, or after a module that
imports it or that it imports. It is also near if it imports the module or a module that imports it,
if it contains the name of the changed function or of the command, or if it is in the matching
folder. Test files that start processes run last. Test files that fail or take too long without a
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
import re
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
TEST_FILES = 60  # the most test files for one change
LIMIT_SECONDS = 90  # for one test file without a change
WANTED = 85  # per cent of the changes that must be noticed
PROGRESS = 20  # changes after which a line says how many were noticed
STARTS_PROCESSES = re.compile(r"\brun_lar\b|subprocess|\belsewhere\b|run_isolated|multiprocessing")

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


def names_around(tree: ast.AST, line: int) -> Iterator[str]:
    """Yield the names of the functions, classes and constants whose definition includes a line."""
    for node in ast.walk(tree):
        match node:
            case (
                (ast.FunctionDef(name=name) | ast.ClassDef(name=name))
                | ast.Assign(targets=[ast.Name(id=name)], col_offset=0)
                | ast.AnnAssign(target=ast.Name(id=name), col_offset=0)
            ) if node.lineno <= line <= (node.end_lineno or line):
                yield name


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


def imported_names(path: Path) -> set[str]:
    """Return all names that a file imports and that may be modules."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def module_name(file: str) -> str:
    """Return the name of a module: `lar.inputs.feed` for `lar/inputs/feed.py`."""
    return file.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def mirrors(test: str, file: str) -> bool:
    """Return whether a test file is named after a module or its package, in the matching folder."""
    beside, folder = Path(test).parent.parts[1:], Path(file).parent.parts[1:]
    names = tuple(f"test_{name}" for name in (Path(file).stem, *folder[-1:]))
    return folder[: len(beside)] == beside and Path(test).name.startswith(names)


class TestChooser:
    """Chooses the test files to run for a change."""

    def __init__(self, tree: Path) -> None:
        tests, modules = (
            {str(path.relative_to(tree)): imported_names(path) for path in sorted(paths)}
            for paths in ((tree / "tests").rglob("test_*.py"), (tree / "lar").rglob("*.py"))
        )
        self.tests, self.modules = tests, modules
        self.texts = {test: (tree / test).read_text() for test in tests}
        self.tree = tree

    def choose(self, change: Change) -> list[str]:
        """Return the nearest test files for a change; files that start processes come last."""
        module = module_name(change.file)
        callers = {module_name(it): it for it, names in self.modules.items() if module in names}
        called = [it for it in self.modules if module_name(it) in self.modules[change.file]]
        folder = Path("tests", *Path(change.file).parent.parts[1:])
        parsed = ast.parse((self.tree / change.file).read_bytes())
        named = re.compile(rf"\b({'|'.join(names_around(parsed, change.line)) or module})\b")
        faces = self.faces_of(change.file)
        points = Counter[str]()
        for test, names in self.tests.items():
            nearness = (
                8 * mirrors(test, change.file)
                + 4 * (module in names)
                + 2 * (not callers.keys().isdisjoint(names))
                + 2 * any(mirrors(test, it) for it in callers.values())
                + 2 * (Path(test).parent == folder)
                + any(mirrors(test, it) for it in called)
                + 2 * (f'"{Path(change.file).stem}"' in self.texts[test])  # a command
                + 6 * any(f".{face}(" in self.texts[test] for face in faces)
            )
            if nearness:
                points[test] = nearness + 3 * bool(named.search(self.texts[test]))
        nearest = [test for test, _ in points.most_common(TEST_FILES)]
        return sorted(nearest, key=lambda test: bool(STARTS_PROCESSES.search(self.texts[test])))

    def faces_of(self, file: str) -> list[str]:
        """Return the names by which a package offers parts of one of its modules (by `late`)."""
        package = (self.tree / file).with_name("__init__.py").read_text()
        return re.findall(rf"(\w+) = .*late.*\"\.{Path(file).stem}\.", package)


# Running them


def run_tests(tree: Path, files: Sequence[str], limit: float) -> int | None:
    """Run test files of a tree until a test fails; return the exit code of pytest.

    Return None if the tests took longer than `limit` seconds.
    """
    words = ("-n", "0", "-x", "-q", "-p", "no:cacheprovider", *files)
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", *words],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree)},
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
    """Tries changes in copies of a tree, and keeps the seconds that each test file takes."""

    def __init__(self, tree: Path, folder: Path, jobs: int) -> None:
        self.chooser = TestChooser(tree)
        self.copies: Queue[Path] = Queue()
        self.seconds: dict[str, float | None] = {}
        self.clock = itertools.count(1)
        for number in range(jobs):
            shutil.copytree(tree, folder / str(number), ignore=LEFT_OUT)
            self.copies.put(folder / str(number))

    def measure(self, place: Path, test: str) -> float | None:
        """Return the seconds of a test file without a change; None if it fails or is too slow."""
        if test not in self.seconds:
            began = time.monotonic()
            status = run_tests(place, [test], LIMIT_SECONDS)
            self.seconds[test] = time.monotonic() - began if status == 0 else None
            if status != 0:
                print(f"left out: {test} {'fails' if status else 'is too slow'}", flush=True)
        return self.seconds[test]

    def attempt(self, change: Change) -> Change:
        """Make a change in a copy, run the nearest tests, and undo the change.

        Return the change with its status: noticed, survived or untested.
        """
        place = self.copies.get()
        path = place / change.file
        source = path.read_bytes()
        try:
            seconds = {it: self.measure(place, it) for it in self.chooser.choose(change)}
            taken = [test for test, took in seconds.items() if took is not None]
            if not taken:
                return replace(change, status="untested")
            self.write(path, change.apply(source))
            limit = 30 + 4 * sum(seconds[test] or 0.0 for test in taken)
            status = run_tests(place, taken, limit)
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
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--under", nargs="+", default=["lar"], help="folders or files")
    parser.add_argument("--tree", type=Path, default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--list", action="store_true", help="print the changes, run no tests")
    options = parser.parse_args(arguments)
    tree = options.tree.resolve()
    changes = find_changes(tree, options.under)
    random.Random(options.seed).shuffle(changes)
    changes = changes[: options.count]
    if options.list:
        print("\n".join(each.describe(tree) for each in changes))
        return 0
    tried = []
    with tempfile.TemporaryDirectory(prefix="mutate") as folder:
        trial = Trial(tree, Path(folder), options.jobs)
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
