"""Small changes are found, made one at a time, and counted by what the tests say of them."""

from __future__ import annotations

from pathlib import Path

import mutate

from tests.command_lines import run_python
from tests.tables import each_row

SOURCE = Path(__file__).with_name("mutated.txt").read_text()


def test_each_kind_of_change_is_found_but_none_in_texts(tmp_path: Path) -> None:
    (tmp_path / "lar").mkdir()
    (tmp_path / "lar" / "sizes.py").write_text(SOURCE)
    assert {change.text for change in mutate.find_changes(tmp_path, ["lar"])} == {
        "4",  # LIMIT
        "1",  # the default value
        "(value <= LIMIT)",
        "(value >= LIMIT)",
        "(value < LIMIT or not value == 2)",
        "(value == 2)",
        "(value != 2)",
        "3",  # in the comparison
        "(not is_small(value))",
        "(not (value < LIMIT and (not value == 2)))",
        "(('large') + '.')",
        "((f'{value + 1}') + '.')",
    }


@each_row("tools/cases/changes of a line")
def test_a_change_leaves_the_rest_of_the_line(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "module.py"
    path.write_text(text)
    first = mutate.find_changes(tmp_path, ["module.py"])[0]
    assert first.apply(path.read_bytes()).decode() == expected


def test_changes_are_tried_and_those_that_survive_are_listed(tmp_path: Path) -> None:
    for folder in ("lar", "tests"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "lar" / "sizes.py").write_text(
        "def is_small(value) -> bool:\n    return value < 7\n"
    )
    (tmp_path / "tests" / "test_sizes.py").write_text(
        "from lar.sizes import is_small\n\ndef test_it():\n    assert is_small(9) is False\n"
    )
    done = run_python("tools/mutate.py", "--tree", str(tmp_path), "--jobs", "1", code=1)
    lines = done.stdout.splitlines()
    assert lines.count("survived: lar/sizes.py:2 (number)") == 1, done.stderr
    assert lines.count("survived: lar/sizes.py:2 (comparison)") == 1
    assert "    -    return value < 7\n    +    return value < 8" in done.stdout
    assert lines[-1] == "2 of 4 changes noticed: 50 %"
