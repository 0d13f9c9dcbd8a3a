"""The architecture, read from the syntax trees: folders import downwards, modules in no circle."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.command_lines import ROOT

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "lar").rglob("*.py"))
}

# The folders of lar from the top down. A module imports those of its own folder and of the rows
# below; `lar` itself, which holds the version and the names of the public API, and `lar.errors`
# are for all.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("cli",),
    ("farm",),
    ("tuning",),
    ("running", "reports"),
    ("worker", "results"),
    ("engines",),
    ("profiles", "comparison"),
    ("graphs", "datasets"),
    ("inputs", "dumps", "measurement"),
    ("options", "files", "records"),
)
RANKS = {folder: rank for rank, row in enumerate(LAYERS) for folder in row}
FOR_ALL = ("lar", "lar.errors")
ON_TOP = ("lar.__main__", "lar.testing")  # nothing imports them


def folder_of(module: str) -> str:
    """The folder directly in `lar` that a module belongs to, empty for a file there."""
    parts = module.split(".")
    return parts[1] if (ROOT / "lar" / "/".join(parts[1:2])).is_dir() and parts[1:] else ""


def imports_in(name: str, tree: ast.Module) -> Iterator[str]:
    """The modules of lar that a module names: imported at its top, inside functions, for types
    only, or as a string that is imported later."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "lar")
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name}: a relative import"
            if (node.module or "").split(".")[0] == "lar":
                full = {f"{node.module}.{alias.name}" for alias in node.names}
                found = full & MODULES.keys()
                yield from found
                if found != full:
                    yield node.module or ""
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            module = node.value.partition(":")[0]
            if re.fullmatch(r"lar(\.\w+)+", module) and module in MODULES:
                yield module


class Parsed(NamedTuple):
    """What a module's syntax tree says."""

    imports: set[str]
    docstring: str | None


@pytest.fixture(scope="module")
def parsed() -> dict[str, Parsed]:
    """What the syntax trees of all modules of lar say."""
    found = {}
    for name, path in MODULES.items():
        tree = ast.parse(path.read_text())
        found[name] = Parsed({*imports_in(name, tree)} - {name}, ast.get_docstring(tree))
    return found


@pytest.fixture(scope="module")
def graph(parsed: dict[str, Parsed]) -> dict[str, set[str]]:
    """What each module of lar imports."""
    return {name: each.imports for name, each in parsed.items()}


def test_every_folder_has_its_place() -> None:
    assert {folder_of(name) for name in MODULES} - {""} == set(RANKS)
    assert {name for name in MODULES if not folder_of(name)} == {*FOR_ALL, *ON_TOP}


def test_imports_point_down(graph: dict[str, set[str]]) -> None:
    wrong = [
        f"{name} imports {found}"
        for name, imported in graph.items()
        if folder_of(name)
        for found in sorted(imported)
        if found not in FOR_ALL
        and folder_of(found) != folder_of(name)
        and RANKS[folder_of(found)] <= RANKS[folder_of(name)]
    ]
    assert not wrong


def test_few_folders_are_for_all(graph: dict[str, set[str]]) -> None:
    arrows = {(folder_of(name), folder_of(it)) for name, found in graph.items() for it in found}
    users = Counter(used for user, used in arrows if user and user != used)
    for_all = {folder for folder, count in users.items() if 2 * count > len(RANKS) - 1}
    assert for_all - {""} <= {"options", "files", "records"}
    assert len(LAYERS) <= 10


def test_nothing_imports_what_stands_on_top(graph: dict[str, set[str]]) -> None:
    assert not [name for name, imported in graph.items() if imported & {*ON_TOP} and name != "lar"]


def test_records_import_nothing_but_errors(graph: dict[str, set[str]]) -> None:
    imported = {
        found
        for name in MODULES
        if folder_of(name) == "records"
        for found in graph[name]
        if folder_of(found) != "records"
    }
    assert imported <= {"lar.errors"}


def test_no_module_imports_itself_by_way_of_others(graph: dict[str, set[str]]) -> None:
    graph = {name: imported - {"lar"} for name, imported in graph.items() if name != "lar"}
    circles = []
    for name in graph:
        reached: set[str] = set()
        todo = set(graph[name])
        while todo:
            reached |= todo
            todo = {found for each in todo for found in graph[each]} - reached
        if name in reached:
            circles.append(name)
    assert not circles


def test_a_module_says_what_it_is(parsed: dict[str, Parsed]) -> None:
    assert not [name for name, each in parsed.items() if not each.docstring]
