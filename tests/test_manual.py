"""The command lines of load_and_run's manual, as they are typed there, with lar in its place."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from pathlib import Path

from lar.engines.megengine.cache import operators_of, read_cache
from tests.command_lines import ROOT, run_lar, run_python

TIME = r"\d+\.\d{3}"

# The chapters on running a model, on layouts, on fast-run and on winograd, in the manual's order:
# each search writes what the next command reads.
COMMANDS = [
    "./load_and_run ./resnet50.mge --input cat.npy --iter 10",
    "./load_and_run ./resnet50.mge --input cat.npy --iter 10 --enable-nchw44",
    "./load_and_run ./resnet50.mge --input cat.npy --enable-nchw44 --fast-run "
    "--fast-run-algo-policy resnet50.cache",
    "./load_and_run ./resnet50.mge --input cat.npy --enable-nchw44 "
    "--fast-run-algo-policy resnet50.cache",
    "./load_and_run ./resnet50.mge --input cat.npy --enable-nchw44 --fast-run "
    "--winograd-transform --fast-run-algo-policy resnet50.cache",
]

# What the manual shows of a run; its first line names lar and the engine here.
LINES = [
    r"lar \S+: using MegEngine \S+ \(lite\) and megdnn \S+",
    rf"load model: {TIME}ms",
    rf"=== prepare: {TIME}ms; going to warmup",
    rf"warmup 0: {TIME}ms",
    r"=== going to run input for 10 times",
    *(rf"iter {index}/10: {TIME}ms \(exec={TIME},device=({TIME}|N/A)\)" for index in range(10)),
    rf"=== finished test #0: time={TIME}ms avg_time={TIME}ms sd={TIME}ms minmax={TIME},{TIME}",
]


def check(printed: str, patterns: list[str]) -> None:
    """Compare what a command printed with what the manual shows."""
    lines = printed.splitlines()
    assert len(lines) > len(patterns)
    for line, pattern in zip(lines, patterns, strict=False):
        assert re.fullmatch(pattern, line), line


def test_the_manuals_command_lines_work_one_after_the_other(tmp_path: Path) -> None:
    # A small model under the name of the manual's, and an input that fits it.
    shutil.copy(ROOT / "models" / "digits_cnn.mge", tmp_path / "resnet50.mge")
    shutil.copy(ROOT / "inputs" / "digit_7.npy", tmp_path / "cat.npy")
    for command in COMMANDS:
        _, *arguments = shlex.split(command)
        done = run_lar(*arguments, cwd=tmp_path, code=0)
        check(done.stdout, LINES)
        if "--fast-run" in arguments:
            assert operators_of(read_cache(tmp_path / "resnet50.cache"))
    # The last one prefers winograd, and says what that gives.
    assert re.search(r"^winograd: [12] of 3 kinds of convolution$", done.stdout, re.MULTILINE)
    assert sorted(os.listdir(tmp_path)) == ["cat.npy", "resnet50.cache", "resnet50.mge"]


def test_the_chapter_on_testcases_works_as_it_is_typed(tmp_path: Path) -> None:
    shutil.copy(ROOT / "models" / "uint8_input.mge", tmp_path / "resnet50.mge")
    shutil.copy(ROOT / "inputs" / "cat.jpg", tmp_path)
    command = (
        "python3 dump_with_testcase_mge.py ./resnet50.mge --optimize -d cat.jpg -o resnet50.mdl"
    )
    _, script, *words = shlex.split(command)
    run_python(
        str(ROOT / "tools" / script), *words, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)}, code=0
    )
    done = run_lar("./resnet50.mdl", "--iter", "10", cwd=tmp_path, code=0)
    name = r"assert_eq\(logits:expect,logits\)\[\d+\]"
    error = rf"assertequal: err=\S+ \(name={name} id=\d+\)"
    version, load, prepare, warmup, _, *iterations, end = LINES
    patterns = [
        *(version, load, rf"=== going to run 1 testcases; output vars: {name}\{{\}}"),
        *(prepare, error, warmup, "=== going to run test #0 for 10 times"),
        *(pattern for each in iterations for pattern in (error, each)),
        *(end, "", rf"=== total time: {TIME}ms"),
        r"testcases: 1 of 1 as expected, largest err=\S+",
    ]
    check(done.stdout, patterns)
