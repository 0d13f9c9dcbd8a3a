"""The architecture, read from the syntax trees: imports point down, and start-up stays cheap."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
PACKAGE = REPOSITORY / "lar"
MODULES = {
    ".".join(path.relative_to(REPOSITORY).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
}
each_module = pytest.mark.parametrize("name", MODULES)

# The modules of lar from the bottom up. A module may import those in a lower row, and those of
# the row entry it belongs to itself; the longest entry that begins its name counts.
LAYERS: tuple[tuple[str, ...], ...] = (
    ("lar",),  # the package itself: the version
    ("lar.testcases.cases", "lar.datasets.item", "lar.interrupts"),
    ("lar.errors", "lar.records", "lar.option_values"),
    ("lar.options", "lar.environment", "lar.engines.table", "lar.measurement", "lar.places"),
    ("lar.given_inputs",),
    (
        *("lar.engines", "lar.inputs", "lar.events", "lar.dumps", "lar.datasets"),
        *("lar.testcases.packed_file",),
    ),
    ("lar.testcases.source", "lar.datasets.resume", "lar.profiling"),
    ("lar.engines.base", "lar.engines.flops", "lar.plan", "lar.worker_process", "lar.artifacts"),
    ("lar.progress",),
    ("lar.isolation", "lar.comparison", "lar.testcases"),
    ("lar.engines.megengine", "lar.engines.onnxruntime", "lar.engines.fake"),
    ("lar.reports", "lar.api", "lar.feeds"),
    ("lar.execution",),
    ("lar.testcases.packing",),
    ("lar.sides",),
    ("lar.worker",),
    ("lar.commands",),
    ("lar.cli",),
    ("lar.__main__",),
)
RANKS = {entry: rank for rank, row in enumerate(LAYERS) for entry in row}

# Lazy imports that go up, each for a reason.
ALLOWED = {("lar.api", "lar.worker")}  # --in-process

LIBRARIES = ("numpy", "megengine", "megenginelite", "onnxruntime", "onnx", "cv2", "msgspec", "rich")


def entry_of(module: str) -> str:
    """The entry of LAYERS that a module belongs to."""
    fitting = [entry for entry in RANKS if module == entry or module.startswith(entry + ".")]
    return max(fitting, key=len)


def imports_of(tree: ast.AST) -> Iterator[str]:
    """The modules that a syntax tree imports, anywhere, but for type checking."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            module = node.module or ""
            for alias in node.names:
                full = f"{module}.{alias.name}"
                yield full if full in MODULES else module
        else:
            yield from imports_of(node)


def lar_imports_of(name: str) -> set[str]:
    tree = ast.parse(MODULES[name].read_text())
    return {found for found in imports_of(tree) if found.split(".")[0] == "lar"}


def modules_after(*arguments: str) -> set[str]:
    """The modules that a command line has imported when it is done."""
    code = (
        "import sys, json, io, contextlib\n"
        "from lar.cli import main\n"
        "with contextlib.redirect_stdout(io.StringIO()), "
        "contextlib.redirect_stderr(io.StringIO()):\n"
        "    try: main(sys.argv[1:])\n"
        "    except SystemExit: pass\n"
        "print(json.dumps(sorted(sys.modules)))\n"
    )
    output = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    return set(json.loads(output))


@each_module
def test_imports_point_down(name: str) -> None:
    own = entry_of(name)
    wrong = {
        found
        for found in lar_imports_of(name)
        if entry_of(found) != own
        and RANKS[entry_of(found)] >= RANKS[own]
        and (name, found) not in ALLOWED
    }
    assert not wrong


@each_module
def test_every_module_of_lar_has_its_place_in_the_layers(name: str) -> None:
    assert name == "lar" or entry_of(name) != "lar"


def test_the_parent_never_imports_the_worker() -> None:
    assert [name for name in MODULES if "lar.worker" in lar_imports_of(name)] == ["lar.api"]


def test_isolation_knows_no_engine() -> None:
    reached, todo = set(), {"lar.isolation"}
    while todo:
        reached |= todo
        todo = {found for name in todo for found in lar_imports_of(name)} - reached
    assert not {name for name in reached if name.startswith("lar.engines") or name == "lar.worker"}


@each_module
def test_a_module_says_what_it_is(name: str) -> None:
    docstring = ast.get_docstring(ast.parse(MODULES[name].read_text()))
    assert docstring


@each_module
def test_no_module_is_long(name: str) -> None:
    assert len(MODULES[name].read_text().splitlines()) <= 400


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--help"],
        ["--version"],
        ["run", "--help"],
        ["info", "--help"],
        ["compare", "--help"],
        ["report", "--help"],
        ["compare", "one", "--rtol", "x"],
        ["models/digits_cnn.onnx", "--itre", "3"],
        ["models/digits_cnn.onnx", "--iter", "x"],
        ["models/digits_cnn.onnx", "--cuda", "--cpu"],
        ["models/no_such_model.onnx"],
        ["run"],
        ["info", "models/digits_cnn.onnx", "--foo"],
        ["info", "models/no_such_model.onnx"],
        ["info", "models/digits_cnn.onnx", "--json", "no/such/folder"],
        ["engines", "--foo"],
        ["pack", "models/digits_cnn.onnx", "--foo"],
        ["cache", "show", "--foo"],
        ["models/digits_cnn.onnx", "--json", "no/such/folder"],
        ["models/digits_cnn.onnx", "--csv", "models"],
        ["models/digits_cnn.onnx", "--labels", "none", "--input", "inputs/digits.npz"],
    ],
    ids=" ".join,
)
def test_help_and_usage_errors_import_no_library(arguments: list[str]) -> None:
    modules = modules_after(*arguments)
    assert "lar.cli" in modules
    # Of lar itself, what runs models is the slowest to import.
    assert not modules & {*LIBRARIES, "lar.api", "lar.isolation"}


def test_the_parent_of_a_run_imports_no_engine(tmp_path: Path) -> None:
    modules = modules_after("models/one_operator.onnx", "--json", str(tmp_path / "result.json"))
    assert (tmp_path / "result.json").exists()
    assert not modules & (set(LIBRARIES) - {"msgspec"})
