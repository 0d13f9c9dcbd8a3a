"""Outside `lar/engines/` no module knows an engine by its name: it asks the `Engine`."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.command_lines import ROOT

LAR = ROOT / "lar"
NAMES = re.compile(r"megengine|onnx ?runtime|\blite\b", re.IGNORECASE)

# What has the name of an engine and is none: the formats that MegEngine has given to files of
# tensors and profiles, which others read and write too, and the style of reports named after its
# tool `profile_analyze`.
STYLE = r"megengine|lar\.reports\.styles\.megengine"
ALLOWED = {
    "lar/dumps/binary.py": r".*MegEngine's tensor files cannot hold arrays with ",
    "lar/options/command_line.py": "lite",  # a flag of load_and_run
    "lar/cli/report.py": r"megengine|.*\(default megengine;.*",
    "lar/reports/styles/__init__.py": STYLE,
    "lar/reports/styles/megengine.py": (
        rf"{STYLE}|lar\.profiles\.megengine_file|MegEngine's part of the profile is damaged: "
    ),
}


def words_of(path: Path) -> Iterator[str]:
    """The identifiers and texts of a module, without its docstrings and comments."""
    tree = ast.parse(path.read_text())
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    docstrings = {
        id(body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and (body := node.body) and isinstance(body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if id(node) not in docstrings:
                yield node.value
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        for field in ("name", "id", "attr", "arg"):
            if isinstance(name := getattr(node, field, None), str):
                yield name


def test_no_module_outside_the_engines_names_one() -> None:
    wrong = [
        f"{name}: {word}"
        for path in LAR.rglob("*.py")
        if LAR / "engines" not in path.parents
        for name in [path.relative_to(LAR.parent).as_posix()]
        for word in sorted(set(words_of(path)))
        if NAMES.search(word) and not re.fullmatch(ALLOWED.get(name, ""), word, re.DOTALL)
    ]
    assert not wrong
