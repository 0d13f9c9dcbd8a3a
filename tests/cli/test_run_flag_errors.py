"""A command line that cannot be is refused in one clear line, before an engine starts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.cli.failures import check_error, check_not_started
from tests.cli.marks import needs_megengine

if TYPE_CHECKING:
    from tests.conftest import RunLar, WriteScript


@pytest.mark.parametrize(
    ("flags", "pieces"),
    [
        (["--iters", "5"], ["unknown flag --iters", "did you mean --iter?"]),
        (["--itr=5"], ["unknown flag --itr", "did you mean --iter?"]),
        (["-iter", "5"], ["unknown flag -iter", "did you mean --iter?"]),
        (["--warmup-it", "5"], ["unknown flag --warmup-it", "did you mean --warmup-iter?"]),
        (["--frobnicate"], ["unknown flag --frobnicate", "--help"]),
        (["another.onnx"], ["another.onnx", "too many"]),
        (["--iter"], ["--iter: expected one argument"]),
        (["--iter", "-1"], ["--iter: -1 is negative"]),
        (["--iter=-1"], ["--iter: -1 is negative"]),
        (["--iter", "ten"], ["--iter: 'ten' is not a whole number"]),
        (["--iter", "1.5"], ["--iter: '1.5' is not a whole number"]),
        (["--iter", ""], ["--iter: '' is not a whole number"]),
        (["--iter", "nan"], ["--iter: 'nan' is not a whole number"]),
        (["--iter", "99999999999999999999"], ["--iter: ", "too many", "at most"]),
        (["--iter", "9" * 5000], ["--iter: "]),
        (["--warmup-iter", "-1"], ["--warmup-iter: -1 is negative"]),
        (["--warmup_iter", "x"], ["--warmup-iter: 'x' is not a whole number"]),
        (["--timeout", "0"], ["--timeout: 0 is not a time above 0"]),
        (["--timeout", "nan"], ["--timeout: nan is not a time above 0"]),
        (["--timeout", "soon"], ["--timeout: 'soon' is not a time"]),
        (["--stall-timeout=-1"], ["--stall-timeout: -1 is not a time above 0"]),
        (["--seed", "-1"], ["--seed: '-1' is not a seed"]),
        (["--seed", "9" * 5000], ["--seed: "]),
        (["--cuda:x"], ["--cuda: 'x' is not a device number"]),
        (["--cuda:"], ["--cuda: '' is not a device number"]),
        (["--cuda:300"], ["--cuda: '300' is not a device number"]),
        (["--cpu", "--cuda"], ["--cuda and --cpu exclude each other"]),
        (["--rgb", "--bgr"], ["--bgr and --rgb exclude each other"]),
        (["--rgb=1"], ["--rgb: "]),
        (["--resize", "0x0"], ["--resize: '0x0' is not a size"]),
        (["--resize", "224"], ["--resize: '224' is not a size", "224x224"]),
        (["--resize", "999999x1"], ["--resize: '999999x1' is not a size"]),
        (["--scale", "nan"], ["--scale: 'nan' is not finite"]),
        (["--mean", "1,,2"], ["--mean: '1,,2' is not a number"]),
        (["--input-layout", "nhcw"], ["--input-layout: ", "'nhcw'", "nchw"]),
        (["--fill", "noise"], ["--fill: ", "'noise'", "uniform"]),
        (["--engine", "onnx"], ["--engine: there is no engine 'onnx'", "onnxruntime"]),
        (["--engine", "megengin"], ["--engine: ", "did you mean megengine?"]),
        (["--engine", "megengine"], ["a model in the ONNX format, which MegEngine does not read"]),
        (["--driver", "graph"], ["--driver: ONNX Runtime has no driver 'graph'", "session"]),
        (["--json", ""], ["--json"]),
    ],
)
def test_bad_flag(run_lar: RunLar, root: Path, flags: list[str], pieces: list[str]) -> None:
    done = run_lar("models/one_operator.onnx", *flags, cwd=root)
    check_error(done, 2, *pieces)
    assert "parse_" not in done.stderr  # no names of functions
    assert max(map(len, done.stderr.splitlines())) < 1000
    check_not_started(done)


@needs_megengine
def test_option_that_the_engine_or_driver_cannot_do(
    run_lar: RunLar, root: Path, write_script: WriteScript
) -> None:
    check_error(run_lar(write_script(), "--cuda"), 2, "--cuda", "cannot do this", "megengine")
    done = run_lar("models/one_operator.mge", "--driver", "graph", "--cuda:1", cwd=root)
    check_error(done, 2, "--driver graph cannot do --cuda", "lite")
    done = run_lar("models/one_operator.mge", "--driver", "graph", "--cuda", cwd=root)
    check_error(done, 2, "--driver graph cannot do --cuda", "lite")


@pytest.mark.parametrize("words", [["--iter", "5"], ["run"], ["run", "--iter=3"], ["--"]])
def test_no_model(run_lar: RunLar, words: list[str]) -> None:
    check_error(run_lar(*words), 2, "no model is given")


@pytest.mark.parametrize("words", [["--", "a.onnx", "--iter=3"], ["a.onnx", "--", "--iter", "3"]])
def test_flags_do_not_stand_after_two_hyphens(run_lar: RunLar, words: list[str]) -> None:
    check_error(run_lar(*words), 2, "--iter: stands after --", "leave the -- out")


def test_a_flag_of_two_names_is_named_by_both(run_lar: RunLar) -> None:
    done = run_lar("m.mge", "--runners", "0")
    assert done.returncode == 2
    assert done.stderr.startswith("lar: error: --thread, --runners: '0' is not a number from 1\n")
