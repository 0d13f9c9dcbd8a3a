"""Names that files hold steer no terminal, end no line and are no markup, whatever command prints
them; files that programs read keep them."""

from __future__ import annotations

import csv
import json
import re
import shlex
from pathlib import Path

import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from lar.errors import printable, printable_lines
from lar.reports.formats import cell_of
from tests.command_lines import Done, run_lar

# Of a terminal: escapes, of one byte too, bidirectional overrides, line ends; and of a page.
EVIL = "\x1b[2J\u202eb\r\n\x9b31m\x7f\u2028\u200b</script><b>\"'|=`"
FILE = "evil\x1b[31m\n\u202e<b>.onnx"


def save_hostile_model(path: Path) -> None:
    """Save a model whose names, axes, texts and metadata are hostile."""

    def value(name: str, size: int) -> onnx.ValueInfoProto:
        shape = [f"N{EVIL}", size]
        return helper.make_tensor_value_info(name + EVIL, TensorProto.FLOAT, shape)

    weights = helper.make_tensor(f"=w{EVIL}", TensorProto.FLOAT, [8, 4], np.ones(32, np.float32))
    nodes = [
        helper.make_node(
            kind, [each + EVIL for each in inputs], [output + EVIL], f"-{kind}{EVIL}", f"doc{EVIL}"
        )
        for kind, inputs, output in (
            ("MatMul", ("@in", "=w"), "+mid"),
            ("Relu", ("+mid",), "=out"),
            ("Softmax", ("=out",), "@soft"),
        )
    ]
    outputs = [value("=out", 4), value("@soft", 4)]
    model = helper.make_model(
        helper.make_graph(nodes, f"graph{EVIL}", [value("@in", 8)], outputs, [weights], EVIL),
        ir_version=8,
        opset_imports=[helper.make_opsetid("", 17)],
        producer_name=f"producer{EVIL}",
        doc_string=f"doc{EVIL}",
    )
    helper.set_model_props(model, {f"=key{EVIL}": f"value{EVIL}"})
    onnx.save(model, path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the model, and all that one run of it writes."""
    folder = tmp_path_factory.mktemp("hostile")
    save_hostile_model(folder / FILE)
    files = "--json r.json --csv r.csv --html r.html --save --store store"
    words = f"--iter 2 --profile p.json {files}".split()
    check_printed(run_lar(FILE, *words, "--model-info", cwd=folder), 0)
    check_printed(run_lar(FILE, "--iter", "1", "--io-dump", "io.txt", cwd=folder), 0)
    return folder


def hidden_in(text: str) -> set[str]:
    """The characters that a terminal obeys or does not show, but for line ends and tabs."""
    return {each for each in text if not each.isprintable()} - {"\n", "\t"}


def check_printed(done: Done, code: int) -> None:
    """Check that nothing is printed that a terminal obeys, and no line begins within a name."""
    assert done.returncode == code, done.stderr
    for text in (done.stdout, done.stderr):
        assert not hidden_in(text), text
        if "csv" not in done.args:  # whose cells may have several lines
            assert not any(line.startswith(r"\u009b") for line in text.splitlines())


NAMES = {
    "EVIL": EVIL,
    "FILE": FILE,
    "QUOTED": shlex.quote(FILE),
    "OUTPUT": f"out{EVIL.replace('/', '')}",
    "NO_TEXT": "r\udcff.json",
}
TEXT = Path(__file__).with_name("hostile_names.txt").read_text()
LINES = re.findall(r"^lar (.*?)(?:  # exit code (\d))?$", TEXT, re.MULTILINE)


@pytest.mark.parametrize(("line", "code"), LINES, ids=[line for line, _ in LINES])
def test_no_name_of_a_file_steers_a_terminal(folder: Path, line: str, code: str) -> None:
    words = [word.format_map(NAMES) for word in shlex.split(line)]
    check_printed(run_lar(*words, cwd=folder), int(code or 0))


def test_a_file_keeps_names_and_a_terminal_does_not_get_them(folder: Path) -> None:
    (folder / "info.json").unlink(missing_ok=True)
    run_lar("info", FILE, "--json", "info.json", cwd=folder)
    printed = run_lar("info", FILE, "--json", "-", cwd=folder).stdout
    content = json.loads((folder / "info.json").read_text())
    assert content == json.loads(printed)
    assert content["inputs"][0]["name"] == f"@in{EVIL}"
    with (folder / "r.csv").open(newline="") as file:
        row = next(csv.DictReader(file))
    assert row["model"] == FILE
    printed = run_lar("report", "p.json", "--csv", "-", cwd=folder).stdout
    assert not hidden_in(printed)
    assert printable_lines(f"'-MatMul{EVIL}").replace('"', '""') in printed


@pytest.mark.parametrize("form", ["text", "json", "csv", "html", "markdown"])
def test_the_name_of_a_file_may_be_no_text(folder: Path, form: str) -> None:
    named = folder / "r\udcff.json"
    named.write_bytes((folder / "r.json").read_bytes())
    done = run_lar("results", str(named), "--format", form, "-o", f"x.{form}", cwd=folder)
    assert done.stdout == f"wrote x.{form}\n", done.stderr
    assert "udcff.json" in (folder / f"x.{form}").read_text()


def test_a_name_in_a_model_may_be_no_text(tmp_path: Path) -> None:
    save_hostile_model(tmp_path / "m.onnx")
    bad = (tmp_path / "m.onnx").read_bytes().replace(b"\x7f", b"\xff")
    (tmp_path / "m.onnx").write_bytes(bad)
    assert run_lar("m.onnx", "--iter", "1", cwd=tmp_path, code=2).stderr.startswith(
        "lar: error: m.onnx: holds a name or a string that is not UTF-8: "
    )


def test_a_text_that_a_model_gives_may_be_no_utf_8(tmp_path: Path) -> None:
    text = helper.make_tensor("text", TensorProto.STRING, [1], [b"caf\xe9"])
    graph = helper.make_graph(
        [helper.make_node("Constant", [], ["y"], value=text)],
        "latin",
        [],
        [helper.make_tensor_value_info("y", TensorProto.STRING, [1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    done = run_lar("m.onnx", "--iter", "1", cwd=tmp_path, code=2)
    assert "a string that is not UTF-8" in done.stderr


def test_a_page_shows_what_a_name_hides(folder: Path) -> None:
    page = (folder / "r.html").read_text()
    assert not hidden_in(page)
    assert "</script><b>" not in page
    assert "evil\\u001b[31m\\n\\u202e&lt;b&gt;.onnx" in page


def test_a_spreadsheet_computes_no_name() -> None:
    for text in ("=1+1", "+1+1", "-1+1", "@SUM(1)", "\t=1", "\r=1", "\uff1d1", "--cpu"):
        assert cell_of(text) == f"'{text}"
    for value in ("-1.5", "+1e3", -1.5, 3, None, "a=b", "-", ""):
        assert cell_of(value) == value


@pytest.mark.parametrize("letters", ["\x00", "\x7f", "\x9b", "\u2028", "\ud800", "\U000e0001"])
def test_an_escape_leaves_json_what_it_is(letters: str) -> None:
    escaped = printable(letters)
    assert escaped.isascii()
    assert escaped.isprintable()
    assert json.loads(f'"{escaped}"') == letters
    if letters != "\ud800":
        assert msgspec.json.decode(f'"{escaped}"') == letters
