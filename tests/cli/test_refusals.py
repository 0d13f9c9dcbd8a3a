"""What cannot be done is refused in one line, with a hint at what can, and nothing is written; and
what other command lines print in the same folder."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from lar.engines.megengine import defects
from lar.errors import printable
from lar.running import worker_process
from tests.cli.failures import check_error
from tests.cli.runs import (
    fill_store,
    save_kinds,
    write_dump,
    write_model_cache,
    write_profile_of_two,
)
from tests.command_lines import ROOT, Done, run_lar
from tests.tables import each_row

MOMENT = r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d\+00:00)?"
ONE = '{"inputs": [{"name": "data", "dtype": "float32", "shape": %s}], "outputs": {"prob": [1.0]}}'


def each_of(name: str, usual: int = 2) -> pytest.MarkDecorator:
    """The command lines of a file, each with the parts of what it prints and its exit code, which
    is the usual one unless the file says another."""
    text = (Path(__file__).parent / name).read_text()
    pattern = r"^lar(?: (.*?))??(?:  # exit code (\d))?\n((?:  .*\n)+)"
    found = re.findall(pattern, text, re.MULTILINE)
    assert len(found) == len(re.findall("^lar", text, re.MULTILINE))
    rows = [(command, parts.splitlines(), int(code or usual)) for command, code, parts in found]
    names = [printable(command)[:90] for command, _, _ in rows]
    return pytest.mark.parametrize(("command", "parts", "code"), rows, ids=names)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the refused command lines: models, inputs, dumps, results, and what is none."""
    place = tmp_path_factory.mktemp("refused")
    for name in ("models", "inputs"):
        shutil.copytree(ROOT / name, place / name)
    (place / "data").symlink_to(ROOT / "tests/data")
    for short, name in (("m", "one_operator"), ("d", "digits_cnn")):
        for suffix in (".onnx", ".mge"):
            shutil.copy(ROOT / "models" / f"{name}{suffix}", place / f"{short}{suffix}")
    for name in ("digits/a.npy", "digits/b.npy", "seven.npy"):
        (place / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / "inputs/digit_7.npy", place / name)
    (place / "digits.txt").write_text("seven.npy\nseven.npy\n")
    np.save(place / "four.npy", np.ones(4, np.float32))
    np.save(place / "four_integers.npy", np.ones(4, np.int32))
    shutil.copy(ROOT / "README.md", place)
    shutil.copy(place / "data/digits_cnn.cache", place / "a.cache")
    for name, shape in (("s.fake", "[4]"), ("photo.fake", "[1, 3, 224, 224]")):
        (place / name).write_text(ONE % shape)
    (place / "link.fake").symlink_to("s.fake")
    (place / "link.npy").symlink_to("four.npy")
    (place / "hard.npy").hardlink_to(place / "four.npy")
    (place / "fours.txt").write_text("four.npy\n")
    for folder in ("folder", "folder.index.json", "full"):
        (place / folder).mkdir()
    log = (place / "data/load_and_run/mobilenet_default.txt").read_bytes()
    for name, content in (
        ("full/file", b""),
        ("empty.json", b""),
        ("brace.json", b"{"),
        ("object.json", b'{"traceEvents": []}'),
        ("future.json", b'{"schema":"lar.profile/9"}'),
        ("foreign.index.json", b"a,b\n1,2\n"),
        ("whole.txt", log),
        ("cut.txt", log[:1900]),
        ("text", b"text " * 200),
        ("torn.onnx", b"\x08\x07 torn"),
    ):
        (place / name).write_bytes(content)
    for name in ("one", "other", "damaged"):
        arrays = {f"00000{number}": np.full((2, 3), number, np.float32) for number in (1, 2)}
        write_dump(place / name, **arrays)
    tensor = place / "damaged/000002"
    tensor.write_bytes(tensor.read_bytes()[:-4])
    save_kinds(place / "kinds")
    write_model_cache(place / "m.cache")
    fill_store(place / "store.sqlite")
    write_profile_of_two(place / "p.json")
    return place


def contents_of(place: Path) -> dict[str, tuple[int, int]]:
    """The files of a folder, each with its size and the time of its last change."""
    found = {path: path.stat() for path in place.rglob("*") if path.is_file()}
    return {str(path): (stat.st_size, stat.st_mtime_ns) for path, stat in found.items()}


def refuse(place: Path, command: str, parts: list[str], code: int = 2) -> Done:
    """Check that a command line is refused, and return what it prints."""
    before = contents_of(place)
    done = run_lar(*shlex.split(command), cwd=place)
    check_error(done, code, *(part.strip() for part in parts))
    assert max(map(len, done.stderr.splitlines())) < 1000
    assert "parse_" not in done.stderr  # no names of functions
    assert "try fewer options" not in done.stderr
    assert contents_of(place) == before
    return done


@each_of("refusals.txt")
def test_a_refusal_needs_no_worker(
    place: Path, command: str, parts: list[str], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*_: object, **__: object) -> None:
        raise AssertionError("a worker is started")

    monkeypatch.setattr(worker_process, "start_python", start)
    # Where every rule can be broken.
    monkeypatch.setattr(defects, "read_instruction_sets", lambda: "AuthenticAMD avx2")
    done = refuse(place, command, [part.removesuffix(" ...") for part in parts], code)
    assert done.stdout == ""
    if parts[0].startswith("  lar: error: ") and not parts[0].endswith(" ..."):
        assert [f"  {line}" for line in done.stderr.splitlines()][-len(parts) :] == parts


@each_of("refusals_of_workers.txt")
def test_a_worker_refuses_before_it_measures(
    place: Path, command: str, parts: list[str], code: int
) -> None:
    assert "iter " not in refuse(place, command, parts, code).stdout


@each_of("transcripts.txt", usual=0)
def test_all_that_is_printed(place: Path, command: str, parts: list[str], code: int) -> None:
    done = run_lar(*shlex.split(command), cwd=place, code=code)
    marked = [*done.stdout.splitlines(), *(f"! {line}" for line in done.stderr.splitlines())]
    printed = [f"  {re.sub(MOMENT, 'TIME', line)}".rstrip() for line in marked if line]
    assert "\n".join(printed) == "\n".join(parts)


@each_row("cli/cases/long values")
def test_a_long_value_is_refused_shortly(
    place: Path, flag: str, parts: list[tuple[str, int]], said: str
) -> None:
    text = "".join(part * count for part, count in parts)
    refuse(place, f"s.fake --warmup-iter 0 {flag} '{text}'", [said])


@each_row("cli/cases/interrupts")
def test_an_interrupt_is_one_line_and_nothing_is_written(
    place: Path, function: str, command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(function, interrupt)
    before = contents_of(place)
    done = run_lar(*command.split(), cwd=place, code=130)
    assert (done.stdout, done.stderr) == ("", "lar: error: interrupted\n")
    assert contents_of(place) == before
