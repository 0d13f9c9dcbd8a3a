"""The map, `lar/README.md`: what it names is there, and its lists do what they say."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import NamedTuple

from tests.command_lines import ROOT, run_python
from tests.engines.added import describe

MAP = (ROOT / "lar" / "README.md").read_text()

STEP = re.compile(
    r"^\d+\. `(?P<path>[^`]+)`, (?:(?P<side>before|after) the line\s+`(?P<line>[^`]+)`|a new file):"
    r"(?:[^\n]+\n)+?   ```\w+\n(?P<code>.*?)^   ```$",
    re.MULTILINE | re.DOTALL,
)


class Step(NamedTuple):
    """One step of a list: the code that goes into a file, and where in it."""

    path: str
    side: str
    line: str
    code: str


def chapter_of(title: str) -> str:
    """The text under a heading."""
    found = re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", MAP, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def steps_of(title: str) -> list[Step]:
    """The steps of a list, each of which must be one that can be followed."""
    chapter = chapter_of(title)
    steps = [
        Step(
            found["path"],
            found["side"] or "",
            found["line"] or "",
            re.sub(r"^   ", "", found["code"], flags=re.MULTILINE),
        )
        for found in STEP.finditer(chapter)
    ]
    assert len(steps) == len(re.findall(r"^\d+\. ", chapter, re.MULTILINE))
    return steps


def follow(step: Step, copy: Path) -> None:
    """Do what a step says, in a copy of the repository's package."""
    path = copy / step.path
    if not step.side:
        assert not path.exists(), f"{step.path} is no new file"
        path.parent.mkdir(exist_ok=True)
        path.write_text(step.code)
        return
    lines = path.read_text().splitlines(keepends=True)
    places = [at for at, line in enumerate(lines) if line.rstrip("\n") == step.line]
    found = f"{step.path} has the line {step.line} {len(places)} times"
    assert len(places) == 1, f"{found}: mend the list in lar/README.md"
    at = places[0] + (step.side == "after")
    path.write_text("".join([*lines[:at], step.code, *lines[at:]]))


def lar_with(title: str, copy: Path, *words: str) -> str:
    """What a command line prints in a copy of lar to which a list's example has been added."""
    if not (copy / "lar").exists():
        # With what is compiled, and without what another process is compiling.
        unwanted = shutil.ignore_patterns("*.pyc.*", "docs")
        shutil.copytree(ROOT / "lar", copy / "lar", ignore=unwanted)
        (copy / "lar" / "docs").mkdir()
        for step in steps_of(title):
            follow(step, copy)
    done = run_python(
        "-m", "lar", *words, cwd=copy, env={**os.environ, "PYTHONPATH": str(copy), "COLUMNS": "100"}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_option_of_lar_is_added_as_the_list_says(tmp_path: Path) -> None:
    model = str(ROOT / "models" / "one_operator.onnx")
    words = [model, "--pause=2.3", "--stall-timeout=2", "--iter", "2", "--json", "result.json"]
    lar_with("To add an option of lar", tmp_path, *words)
    result = json.loads((tmp_path / "result.json").read_text())
    assert result["spec"]["pause_seconds"] == 2.3


def test_an_option_of_an_engine_is_added_as_the_list_says(tmp_path: Path) -> None:
    title = "To add an option of an engine"
    model = str(ROOT / "models" / "one_operator.onnx")
    assert "--denormals-as-zero" not in (ROOT / "lar" / "options" / "table.py").read_text()
    printed = lar_with(title, tmp_path, model, "--denormals-as-zero", "--iter", "2", "--json", "-")
    assert '"settings":{"denormals_as_zero":true}' in printed
    assert "with denormal numbers as 0" in lar_with(title, tmp_path, "run", "--help", "graph")
    table = lar_with(title, tmp_path, "engines", "--options")
    assert "| --denormals-as-zero | no | session.set_denormal_as_zero (session) |" in table
    assert "denormals-as-zero" in lar_with(title, tmp_path, "tune", model, "--list-space")


def test_an_engine_is_added_as_the_list_says(tmp_path: Path) -> None:
    for step in steps_of("To add an engine"):
        follow(step, tmp_path)
    declared = (tmp_path / "pyproject.toml").read_text()
    describe(tmp_path, "lar_tiny", declared.partition('"lar.engines"]\n')[2].replace('"', ""))
    model = tmp_path / "model.tiny"
    model.write_text("tiny 2.5\n")
    code = f"import lar.testing; lar.testing.check_engine('tiny', {str(model)!r})"
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = run_python("-c", code, cwd=tmp_path, env={**os.environ, "PYTHONPATH": path})
    assert (done.returncode, done.stderr) == (0, "")


def test_an_input_format_is_added_as_the_list_says(tmp_path: Path) -> None:
    (tmp_path / "data.floats").write_text("0.5\n0.25\n-1\n2\n")
    model = str(ROOT / "models" / "one_operator.onnx")
    words = [model, "--iter", "1", "--json", "-", "--input", "data.floats"]
    assert '"source":"data.floats"' in lar_with("To add an input format", tmp_path, *words)


def test_a_report_style_is_added_as_the_list_says(tmp_path: Path) -> None:
    title = "To add a report style"
    model = str(ROOT / "models" / "digits_cnn.onnx")
    lar_with(title, tmp_path, model, "--iter", "1", "--profile", "profile.json")
    words = ["report", "profile.json", "--style", "bytes", "--top", "2"]
    lines = lar_with(title, tmp_path, *words).splitlines()
    assert lines[0].split() == ["operator", "moved"]
    assert lines[3:4] in ([], [""])  # what profiling cost may stand below
    assert "moved (bytes)" in lar_with(title, tmp_path, *words, "--csv", "-")
    assert lar_with(title, tmp_path, "report", "profile.json").startswith("time: ")


def test_every_path_is_there() -> None:
    named = set(re.findall(r"`((?:lar|tests|tools)/[\w./]*)`", MAP))
    assert len(named) > 30
    new = {step.path for step in steps_of("To add a report style") if not step.side}
    assert [path for path in sorted(named - new) if not (ROOT / path).exists()] == []


def test_a_name_alone_is_in_the_folder_of_the_path_before_it() -> None:
    lacking = []
    for row in re.findall(r"^\|.* \| (.+) \|$", chapter_of(r"Where is it\?"), re.MULTILINE):
        folder = ""
        for name in re.findall(r"`([\w./*]+\.(?:py|pyi|json|txt))`", row):
            folder = os.path.dirname(name) or folder
            path = f"{folder}/{os.path.basename(name)}"
            if not [*ROOT.glob(path)]:
                lacking.append(path)
    assert not lacking


def test_the_table_has_many_features_in_different_modules() -> None:
    rows = re.findall(r"^\| (.+) \| `(lar/.+\.py)` \|$", chapter_of(r"Where is it\?"), re.MULTILINE)
    assert len(rows) >= 25
    assert len({path for _, path in rows}) == len(rows)


def test_the_picture_has_every_folder() -> None:
    from tests.test_layers import LAYERS

    picture = chapter_of("The folders").partition("```text")[2].partition("```")[0]
    rows = [line for line in picture.splitlines() if line.strip()]
    assert len(rows) == len(LAYERS)
    for row, folders in zip(rows, LAYERS, strict=True):
        assert re.split(r"\s{2,}", row.strip())[0].split(" | ") == list(folders)


def test_the_way_of_a_run_names_modules_that_there_are() -> None:
    picture = chapter_of("The way of a run").partition("```text")[2].partition("```")[0]
    named = re.findall(r"\b[a-z_]+/[a-z_]+\.py\b", picture)
    assert len(named) >= 9
    assert [name for name in named if not (ROOT / "lar" / name).exists()] == []


def test_it_says_the_three_sentences() -> None:
    assert (
        "A RunSpec goes in, a RunResult comes out. A run happens in a child process. Everything "
        "after it is a pure function of records." in " ".join(MAP.split())
    )


def test_each_dependency_says_what_it_is_for() -> None:
    required = re.findall(r'"([A-Za-z][\w-]*)[<>=]', (ROOT / "pyproject.toml").read_text())
    text = (ROOT / "CONTRIBUTING.md").read_text()
    chapter = text.partition("## What lar depends on\n")[2].partition("\n## ")[0]
    assert required
    assert not [name for name in required if not re.search(rf"\b{name}\b", chapter)]
