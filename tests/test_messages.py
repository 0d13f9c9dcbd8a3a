"""Messages are put together once, of their parts: no finished one is edited or looked into."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.command_lines import ROOT
from tests.tables import each_row

EDITS = {"replace", "removeprefix", "removesuffix", "startswith", "endswith", "partition", "split"}
MESSAGES = {"message", "warning", "warnings"}


def edits_in(source: str) -> Iterator[int]:
    """Yield the lines that call a text's method on `error.message`, or on each of `warnings`."""
    for node in ast.walk(ast.parse(source)):
        if (value := edited_by(node)) and is_message(value):
            yield value.lineno
        loops = getattr(node, "generators", [node] if isinstance(node, ast.For) else [])
        names = {
            loop.target.id
            for loop in loops
            if isinstance(loop.target, ast.Name) and is_message(loop.iter)
        }
        for each in ast.walk(node) if names else ():
            value = edited_by(each)
            if isinstance(value, ast.Name) and value.id in names:
                yield value.lineno


def edited_by(node: ast.AST) -> ast.expr | None:
    """Return what a call's method edits or looks into, None where it is no such call."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.value if node.func.attr in EDITS else None
    return None


def is_message(node: ast.expr) -> bool:
    """Return whether an expression is a message, or messages: `x.message`, `warnings`."""
    if isinstance(node, ast.Attribute):
        return node.attr in MESSAGES
    return isinstance(node, ast.Name) and node.id in MESSAGES


@each_row("cases/edits of messages")
def test_an_edit_of_a_message_is_found(source: str) -> None:
    assert list(edits_in(source))


def test_no_message_is_edited() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / "lar").rglob("*.py"))
        for line in sorted(set(edits_in(path.read_text())))
    ]
    assert found == []
