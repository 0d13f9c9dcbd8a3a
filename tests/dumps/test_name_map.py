"""Maps of names: two columns, or JSON."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lar.dumps.name_map import parse_names, read_name_map
from lar.errors import UsageError

NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\t\n\r#"), min_size=1).map(
    lambda text: text.strip() or "x"
)
MAPS = st.dictionaries(NAMES, NAMES, min_size=1).filter(
    lambda names: len({*names.values()}) == len(names)
)


@given(MAPS)
def test_names_in_columns_and_in_json_are_read_back(names: dict[str, str]) -> None:
    columns = "# A\tB\n\n" + "".join(f"{one}\t{other}\n" for one, other in names.items())
    # What begins like JSON is none.
    if not columns.lstrip().startswith("{"):
        assert parse_names(columns.split("\n")) == names
    assert parse_names([json.dumps(names)]) == names


@given(st.lists(st.text()))
def test_any_text_is_a_map_or_refused(lines: list[str]) -> None:
    with contextlib.suppress(ValueError):
        assert parse_names(lines)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a b\na c\n", "has the name 'a' of A twice"),
        ("a b\nc b\n", "has the name 'b' of B twice"),
        ("a b c\n", "line 1 has 3 names, not two"),
        ("\n# none\n", "has no names"),
        ("{", "Input data was truncated"),
        ('{"a": 3}', "Expected `str`, got `int`"),
        ('{"a": {"b": "c"}}', "Expected `str`, got `object`"),
    ],
)
def test_what_is_no_map_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "map.txt"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        read_name_map(path)
    assert caught.value.message.startswith(f"--map: {path}: {problem}")
    assert caught.value.hint


def test_a_map_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "map"
    path.write_bytes("\ufeffa  b\r\nname of A\tname of B\r\n".encode())
    assert read_name_map(path) == {"a": "b", "name of A": "name of B"}
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(UsageError, match="not UTF-8 text"):
        read_name_map(path)
    with pytest.raises(UsageError, match=r"--map: .*none: no such file"):
        read_name_map(tmp_path / "none")
