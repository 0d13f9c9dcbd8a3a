"""What a command line imports: start-up stays cheap."""

from __future__ import annotations

import shlex
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from lar.engines.openvino.driver import import_openvino
from tests.command_lines import run_python

LIBRARIES = (
    *("numpy", "megengine", "megenginelite", "onnxruntime", "openvino", "onnx", "cv2"),
    *("msgspec", "rich", "distributed"),
)

MAIN = """
import sys, io, contextlib
from lar.cli.main import main
for arguments in eval(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try: main(arguments)
        except SystemExit: pass
    print(*sys.modules)
"""
# Help and usage errors, each with modules that it may import, but none of those above it.
ROWS = (Path(__file__).parent / "light_command_lines.txt").read_text().splitlines()[1:]
LIGHT = [line.partition(" | ")[0] for line in ROWS]
LATER = [line.partition(" | ")[2].split() for line in ROWS]


def modules_after_each(*commands: list[str]) -> list[set[str]]:
    """The modules that one process has imported after each of some command lines."""
    # -E: engines that tests add to PYTHONPATH are slow to find.
    output = run_python("-E", "-c", MAIN, repr(commands), code=0).stdout
    return [set(line.split()) for line in output.splitlines()]


def modules_after(*arguments: str) -> set[str]:
    """The modules that a command line has imported when it is done."""
    (modules,) = modules_after_each([*arguments])
    return modules


@pytest.fixture(scope="module")
def imported() -> list[set[str]]:
    """What all of `LIGHT` import, one after the other: what one has imported is there after those
    that follow it too."""
    return modules_after_each(*(shlex.split(line)[1:] for line in LIGHT))


@pytest.mark.parametrize("number", range(len(LIGHT)), ids=LIGHT)
def test_help_and_usage_errors_import_no_library(imported: list[set[str]], number: int) -> None:
    assert "lar.cli.main" in imported[number]
    # Of lar itself, what runs models is the slowest to import.
    assert not imported[number] & {*LIBRARIES, "lar.running.api", "lar.running.isolation"}
    assert not (late := imported[number] & {*chain(*LATER[number + 1 :])}), f"{late}: import late"


def test_the_parent_of_a_run_imports_no_engine_and_no_numpy(tmp_path: Path) -> None:
    model, files = "models/one_operator.onnx", [str(tmp_path / name) for name in "abc"]
    found = modules_after_each(
        [model, "--json", files[0]],
        [model, "--iter", "1", "--bin-io-dump", files[1]],
        [model, "--iter", "1", "--profile", files[2]],
    )
    assert sorted(map(str, tmp_path.iterdir())) == sorted([*files, f"{files[1]}.index.json"])
    assert not found[-1] & (set(LIBRARIES) - {"msgspec"})
    code = "import sys, lar.running.bench, lar.tuning.search; print(*sys.modules)"
    assert "numpy" not in run_python("-c", code, code=0).stdout.split()


def test_the_parent_of_a_run_reads_no_table_of_operators_caches_or_settings(
    tmp_path: Path,
) -> None:
    own_format = tmp_path / "m.xml"
    openvino = import_openvino()
    openvino.save_model(openvino.Core().read_model("models/one_operator.onnx"), own_format)
    modules = modules_after(str(own_format), "--iter", "1")
    assert "lar.engines.openvino.model_file" in modules
    assert not modules & (set(LIBRARIES) - {"msgspec"})
    modules = modules_after("models/one_operator.mge", "--iter", "1")
    assert "lar.engines.megengine.packed_model" in modules
    assert not modules & {"lar.engines.caches", "lar.engines.operator_facts", "statistics"}


def test_what_a_model_holds_is_told_without_what_tells_of_runs() -> None:
    modules = modules_after("info", "models/one_operator.onnx")
    assert "lar.records.run" in modules
    assert not modules & {"lar.reports.run_text", "lar.measurement.statistics"}


def test_dumps_that_agree_are_compared_without_what_runs_models(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.ones(3, np.float32))
    modules = modules_after("compare", str(tmp_path / "a.npy"), str(tmp_path / "a.npy"))
    assert "lar.comparison.compare" in modules
    running = {"single_operators", "plan", "isolation", "truth", "worker_process", "steps"}
    assert not modules & {f"lar.running.{name}" for name in running}
    assert "lar.files.work_folders" not in modules


def test_a_refusal_imports_only_what_it_needs() -> None:
    modules = modules_after("models/digits_cnn.mge", "--fast-run-shared-batch-size", "3")
    assert "lar.engines.megengine.options" in modules
    # Of no use to it: the tables of other engines, and what reads stacks of items.
    assert not modules & {"lar.engines.onnxruntime.options", "zipfile", "ast"}


def test_a_worker_is_started_before_records_are_imported() -> None:
    code = (
        "import os, sys\n"
        "def spawn(*_, **__): os.write(1, ' '.join(sys.modules).encode()); os._exit(0)\n"
        "os.fork = spawn\n"
        "from lar.cli.main import main\n"
        "sys.argv[1:] = ['models/one_operator.onnx', '--iter', '1']; main()"
    )
    modules = set(run_python("-c", code, code=0).stdout.split())
    assert "lar.running.worker_process" in modules
    assert not modules & {"dataclasses", "lar.records.run", "lar.running.isolation", "numpy"}
