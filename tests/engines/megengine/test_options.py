"""All options of a MegEngine run: each ends in time, and those that cannot go together are told.

What they do is seen in test_options_execution.py, test_options_graph.py and, for the options that
choose algorithms, test_algorithms.py.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lar.engines.megengine.options import ROWS
from lar.options.table import BY_KEY
from tests.conftest import RunLar
from tests.engines.megengine.programs import DIGITS, MODELS
from tests.worker_forks import FORKS

# What the engine tells, and its environment


@pytest.mark.parametrize("driver", ["lite", "graph"])
def test_the_engines_log_is_shown_when_asked_for(run_lar: RunLar, driver: str) -> None:
    arguments = ["run", DIGITS, "--iter", "1", "--driver", driver]
    assert "algo=" in run_lar(*arguments, "--verbose").stderr
    assert "algo=" not in run_lar(*arguments).stderr


def test_the_log_comes_whole_however_slowly_it_is_written(tmp_path: Path) -> None:
    slow = "tests.engines.megengine.probe:print_slowly"
    log = FORKS.run_program("megengine", "graph", slow, [DIGITS], tmp_path)
    assert "algo=" in log
    assert "static memory allocation: nr_opr=" in log  # one of the last lines


@pytest.mark.parametrize(
    ("model", "variable", "shown"),
    [
        (DIGITS, "MKL_VERBOSE=1", "MKL_VERBOSE SGEMM"),
        ("script.fake", "PYTHONVERBOSE=1", "import 'lar_scripted.script'"),
    ],
)
def test_a_variable_reaches_the_engine_and_the_result(
    run_lar: RunLar, tmp_path: Path, model: str, variable: str, shown: str
) -> None:
    (tmp_path / "script.fake").write_text("{}")
    file = tmp_path / "result.json"
    arguments = ["run", model, "--iter", "1", "--verbose", "--json", str(file)]
    twice = ["--engine-env", variable, "--engine-env", "LAR_TEST=a=b"]
    done = run_lar(*arguments, *twice, cwd=tmp_path, code=0)
    assert shown in done.stdout + done.stderr
    name, _, value = variable.partition("=")
    assert json.loads(file.read_text())["spec"]["environment"] == {name: value, "LAR_TEST": "a=b"}
    plain = run_lar(*arguments, cwd=tmp_path)
    assert shown not in plain.stdout + plain.stderr


# The whole table

CORE = str(min(os.sched_getaffinity(0)))
# How options are given that take a value or need another option.
VALUES = json.loads(Path(__file__).with_name("option_values.json").read_text())
# What these lines are refused for: a device that is not here, a file that is missing, a type that
# the flag is not for.
NEED_CUDA = ("cuda", "enable_jit", "tensorrt", "tensorrt_cache")
NEED_A_FILE = ("c_opr_lib", "pack_info_json", "pack_cache")
NOT_ON_INT8 = ("enable_chwn4", "enable_ioc16", "check_var_value")

# One hangs here, others are in layout_transform_dump, io_dump and bin_out_dump.
LEFT_OUT = (
    *("enable_nchw88", "layout_transform"),
    *("io_dump_stdout", "io_dump_stderr", "dump_filter"),
)


KEYS = [row.key for row in ROWS if row.key not in LEFT_OUT]
# What integers may change: the graph, its layouts and the algorithms.
OF_THE_GRAPH = ("layout", "algorithm", "graph", "check")


@pytest.mark.parametrize(
    ("model", "key"),
    [
        *(("digits_cnn", key) for key in KEYS),
        *(("int8", key) for key in KEYS if BY_KEY[key].group.name in OF_THE_GRAPH),
    ],
)
def test_each_option_ends_in_time(run_lar: RunLar, tmp_path: Path, key: str, model: str) -> None:
    arguments = VALUES.get(key, "--" + key.replace("_", "-")).replace("CORE", CORE).split()
    words = ["run", str(MODELS / f"{model}.mge"), *arguments, "--iter", "2"]
    done = run_lar(*words, cwd=tmp_path, timeout=30)
    refused = key in NEED_A_FILE or (key in NOT_ON_INT8 and model == "int8")
    codes = (0, 2) if key in NEED_CUDA else (2,) if refused else (0,)
    assert done.returncode in codes, done.stderr
    assert "Traceback" not in done.stderr
    assert ("lar: error: " in done.stderr) == bool(done.returncode)
    assert "expected one argument" not in done.stderr
