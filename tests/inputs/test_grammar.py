from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lar.errors import UsageError
from lar.inputs.grammar import NumbersItem, PathItem, ShapeItem, items_of
from tests.refusals import refused
from tests.tables import each_row


@each_row("inputs/literals/grammar")
def test_an_item_is_a_name_and_a_value(text: str, kind: str, fields: dict[str, Any]) -> None:
    (item,) = items_of([text])
    assert type(item).__name__ == kind
    assert json.loads(msgspec.json.encode(item)) == fields


def test_items_are_split_at_semicolons_and_flags_add_up() -> None:
    assert items_of(["a:x.npy; b:[1,2];", "c:{3}"]) == (
        PathItem("a", "x.npy"),
        NumbersItem("b", "[1,2]"),
        ShapeItem("c", (3,), "{3}"),
    )


def test_a_name_of_the_model_may_hold_a_colon() -> None:
    names = ["input", "input:0"]
    assert items_of(["input:0:cat.npy"], names) == (PathItem("input:0", "cat.npy"),)
    assert items_of(["input:x:cat.npy"], names) == (PathItem("input", "x:cat.npy"),)
    assert items_of(["input:0"], names) == (NumbersItem("input", "0"),)


def test_an_existing_file_is_a_path_colon_and_comma_or_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("data:cat.npy", "x.bin,int8,3"):
        Path(name).touch()
        assert items_of([name]) == (PathItem("", name),)
        assert items_of([f"n:{name}"]) == (PathItem("n", name),)
    for name in ("[x].npy", "{1}.npy"):
        Path(name).touch()
        assert items_of([name]) == (PathItem("", name),)
        assert items_of([f"data:{name}"]) == (PathItem("data", name),)
    Path("5").touch()
    assert items_of(["5"]) == (NumbersItem("", "5"),)


@each_row("inputs/literals/items")
def test_what_is_no_item_is_refused(text: str, problem: str) -> None:
    assert refused(problem, items_of, [text]).message.startswith("--input: ")
    refused("not a shape", items_of, ["{" + "9" * 5000 + "}"])


@settings(max_examples=100)
@given(st.text() | st.text(alphabet="a:;{}[],.x19 -e"))
def test_any_text_is_split_or_refused(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert items_of([text], ["a", "a:1"])
