"""All options of a MegEngine run: each ends in time, and those that cannot go together are told.

What they do is seen in test_options_layouts.py, test_options_execution.py, test_options_graph.py
and, for the options that choose algorithms, test_algorithms.py.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lar.engines.megengine.options import ROWS
from lar.options.table import BY_KEY
from tests.cli.failures import check_error
from tests.engines.megengine.programs import DIGITS, MODELS, run_well
from tests.worker_forks import FORKS

if TYPE_CHECKING:
    from tests.conftest import RunLar


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
    done = run_well(run_lar, *arguments, *twice, cwd=tmp_path)
    assert shown in done.stdout + done.stderr
    name, _, value = variable.partition("=")
    assert json.loads(file.read_text())["spec"]["environment"] == {name: value, "LAR_TEST": "a=b"}
    plain = run_lar(*arguments, cwd=tmp_path)
    assert shown not in plain.stdout + plain.stderr


@pytest.mark.parametrize("text", ["KEY", "=1", "1KEY=2", ""])
def test_what_is_no_variable_is_refused(run_lar: RunLar, text: str) -> None:
    check_error(run_lar("run", DIGITS, f"--engine-env={text}"), 2, "KEY=VALUE")


# The whole table

CORE = min(os.sched_getaffinity(0))
VALUES: Mapping[str, str] = {
    "engine_fix": "--engine-fix x2apic",
    "thread": "--thread 2",
    "multithread": "--multithread 2",
    "multithread_default": "--multithread-default 2",
    "multi_thread_core_ids": f"--multithread 1 --multi-thread-core-ids {CORE}",
    "fast_run_algo_policy": "--fast-run --fast-run-algo-policy new.cache",
    "fast_run_shared_batch_size": "--fast-run --fast-run-shared-batch-size 4",
    "binary_equal_between_batch": "--fast-run --binary-equal-between-batch",
    "workspace_limit": "--workspace-limit 1M",
    "tensorrt_cache": "--tensorrt --tensorrt-cache new.cache",
    "range": "--range 1000",
    "check_var_value": "--check-var-value 1",
    "c_opr_lib": "--c-opr-lib missing.so",
    "get_static_mem_info": "--get-static-mem-info plan",
    "layout_transform_dump": "--layout-transform cpu --engine-fix x2apic"
    " --layout-transform-dump new.mge",
    "model_dump": "--model-dump new.mge",
    "packed_model_dump": "--packed-model-dump new.lite",
    "pack_info_json": "--packed-model-dump new.lite --pack-info-json missing.json",
    "pack_cache": "--packed-model-dump new.lite --pack-cache missing.cache",
    "io_dump": "--io-dump new.txt",
    "bin_io_dump": "--bin-io-dump new",
    "bin_out_dump": "--bin-out-dump new --dump-filter .",
    "profile": "--profile new.json",
    "profile_host": "--profile-host new.json",
    "profile_raw": "--profile-raw new.json",
    "profile_memory": "--profile new.json --profile-memory",
    "profile_syscalls": "--profile new.json --profile-syscalls",
    "range_by": "--profile new.json --range-by conv=body",
}
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
    arguments = VALUES.get(key, "--" + key.replace("_", "-")).split()
    words = ["run", str(MODELS / f"{model}.mge"), *arguments, "--iter", "2"]
    done = run_lar(*words, cwd=tmp_path, timeout=30)
    refused = key in NEED_A_FILE or (key in NOT_ON_INT8 and model == "int8")
    codes = (0, 2) if key in NEED_CUDA else (2,) if refused else (0,)
    assert done.returncode in codes, done.stderr
    assert "Traceback" not in done.stderr
    assert ("lar: error: " in done.stderr) == bool(done.returncode)
    assert "expected one argument" not in done.stderr


# Options that cannot go together, or not here


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("--enable-chwn4", "--fast-run"),
        ("--enable-ioc16", "--fake-first"),
        ("--disable-mem-opt", "--enable-nhwcd4"),
        ("--optimize-for-inference", "--const-shape"),
    ],
)
def test_options_that_need_different_drivers_are_both_named(
    run_lar: RunLar, first: str, second: str
) -> None:
    done = run_lar("run", DIGITS, first, second)
    assert done.returncode == 2
    error, hint = done.stderr.strip().splitlines()
    assert first in error
    assert second in error
    assert re.search(rf"{first} needs (the driver )?graph", hint)
    assert re.search(rf"{second} needs (the driver )?lite", hint)


@pytest.mark.parametrize(
    ("model", "flags", "error", "hint"),
    [
        (
            *("digits_cnn", "--thread 2 --record-comp-seq2"),
            *("--thread 2 and --record-comp-seq2 exclude each other: ", "take --record-comp-seq"),
        ),
        (
            *("digits_cnn", "--fake-first --record-comp-seq"),
            *("--fake-first and --record-comp-seq exclude each other: ", "leave one"),
        ),
        (
            *("digits_cnn", "--fake-first --enable-nchw44"),
            *("--fake-first: it cannot go with a layout on ", "leave one"),
        ),
        ("int8", "--fast-run --enable-nchw44", "--fast-run: an operator of ", "--full-run takes"),
    ],
)
def test_what_the_engine_fails_at_is_told_by_the_flags(
    run_lar: RunLar, model: str, flags: str, error: str, hint: str
) -> None:
    done = run_lar("run", str(MODELS / f"{model}.mge"), "--iter", "1", *flags.split())
    assert done.returncode == 2
    said = done.stderr.splitlines()
    assert any(line.startswith(f"lar: error: {error}") for line in said), done.stderr
    assert any(line.startswith(f"hint: {hint}") for line in said), done.stderr


def test_one_runner_may_record(run_lar: RunLar) -> None:
    run_well(run_lar, "run", DIGITS, "--iter", "1", "--thread", "1", "--record-comp-seq2")


def test_a_crash_that_the_engine_announces_is_told_by_the_flag(run_lar: RunLar) -> None:
    done = run_lar("run", DIGITS, "--iter", "1", "--record-comp-seq2", "--enable-nchw44")
    assert done.returncode == 4
    assert "lar: error: --record-comp-seq2: MegEngine crashes in recording this" in done.stderr
    assert "hint: take --record-comp-seq, or leave the layout out" in done.stderr
    assert "may be damaged" not in done.stderr


@pytest.mark.parametrize(
    "flag", ["--full-run", "--enable-nchw44", "--winograd-transform", "--record-comp-seq2"]
)
def test_an_engine_that_cannot_names_those_that_can(run_lar: RunLar, flag: str) -> None:
    check_error(run_lar("run", str(MODELS / "digits_cnn.onnx"), flag), 2, flag, "megengine")


@pytest.mark.parametrize("first", ["nchw4", "nchw44", "nhwcd4"])
@pytest.mark.parametrize("second", ["nchw32", "chwn4", "nchw88"])
def test_two_layouts_exclude_each_other(run_lar: RunLar, first: str, second: str) -> None:
    done = run_lar("run", DIGITS, f"--enable-{first}", f"--enable-{second}")
    check_error(done, 2, f"--enable-{first}", f"--enable-{second}")
