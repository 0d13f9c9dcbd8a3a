"""What a command line imports: start-up stays cheap."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
LIBRARIES = (
    "numpy",
    "megengine",
    "megenginelite",
    "onnxruntime",
    "openvino",
    "onnx",
    "cv2",
    "msgspec",
    "rich",
    "distributed",
)


MAIN = """
import sys, json, io, contextlib
from lar.cli.main import main
for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try: main(arguments)
        except SystemExit: pass
    print(json.dumps(sorted(sys.modules)))
"""
# Help, and usage errors.
NEEDLESS = [
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
    ["cache", "show", "tests/data/digits_cnn.cache"],
    ["cache", "pick", "--help"],
    ["report", "no/such/profile.json"],
    ["models/digits_cnn.onnx", "--json", "no/such/folder"],
    ["models/digits_cnn.onnx", "--csv", "models"],
    ["models/digits_cnn.onnx", "--labels", "none", "--input", "inputs/digits.npz"],
    ["models/digits_cnn.onnx", "--json", "x", "--csv", "x"],
    ["models/digits_cnn.onnx", "--enable-nchw88", "--graph-optimization-level", "basic"],
    ["models/digits_cnn.onnx", "--multithread", "2", "--multi-thread-core-ids", "0"],
    ["models/digits_cnn.onnx", "--engine", "openvino", "--fast-run"],
    ["models/digits_cnn.onnx", "--engine", "openvino", "--engine-option", "FOO=1"],
    ["models/digits_cnn.mge", "--fast-run-shared-batch-size", "3"],
    ["models/digits_cnn.mge", "--enable-nchw44", "--fake-first", "--record-comp-seq"],
    ["models/digits_cnn.mge", "--pack-cache", "gone", "--packed-model-dump", "x"],
]


def modules_after_each(*commands: list[str]) -> list[set[str]]:
    """The modules that one process has imported after each of some command lines."""
    output = subprocess.run(
        [sys.executable, "-c", MAIN, json.dumps(commands)],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    return [set(json.loads(line)) for line in output.splitlines()]


def modules_after(*arguments: str) -> set[str]:
    """The modules that a command line has imported when it is done."""
    (modules,) = modules_after_each([*arguments])
    return modules


@pytest.fixture(scope="module")
def needless() -> list[set[str]]:
    """What all of `NEEDLESS` import, one after the other: what one has imported is there after
    those that follow it too."""
    return modules_after_each(*NEEDLESS)


@pytest.mark.parametrize("number", range(len(NEEDLESS)), ids=[" ".join(each) for each in NEEDLESS])
def test_help_and_usage_errors_import_no_library(needless: list[set[str]], number: int) -> None:
    assert "lar.cli.main" in needless[number]
    # Of lar itself, what runs models is the slowest to import.
    assert not needless[number] & {*LIBRARIES, "lar.running.api", "lar.running.isolation"}


def test_ctrl_c_is_heeded_before_slow_imports() -> None:
    code = (
        "import sys; before = {*sys.modules}; import lar.__main__; "
        "print(*sorted({*sys.modules} - before))"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
    )
    modules = set(done.stdout.split())
    assert "lar.__main__" in modules
    assert not modules & {"typing", "re", "contextlib", "argparse"}


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
    searching = subprocess.check_output([sys.executable, "-c", code], cwd=REPOSITORY, text=True)
    assert "numpy" not in searching.split()


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
        "os.posix_spawn = spawn\n"
        "from lar.cli.main import main\n"
        "main(['models/one_operator.onnx', '--iter', '1'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    modules = set(done.stdout.split())
    assert "lar.running.worker_process" in modules
    assert not modules & {"dataclasses", "lar.records.run", "lar.running.isolation", "numpy"}
