"""A program that runs command lines of lar, each in a fork of itself.

It has imported already what every run needs, which takes longer than a short run. The engine it
has not, so that each fork meets it fresh.

A request is a line of JSON on standard input: what runs at once, each `[words, folder, seconds]`.
A run goes on in its folder, writes both outputs to `output` there, and is killed after so many
seconds. The answer is a line of JSON: the exit codes, as subprocess gives them.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from typing import NoReturn

from lar.cli.main import run_from_shell

NEEDED = (
    "numpy",
    "lar.cli.run",
    "lar.running.steps",
    "lar.worker.main",
    "lar.worker.execution",
    "lar.inputs",
)


def start(words: list[str], folder: str, seconds: int) -> int:
    """Run a command line in a fork and return its process id."""
    process = os.fork()
    if not process:
        run(words, folder, seconds)
    return process


def run(words: list[str], folder: str, seconds: int) -> NoReturn:
    signal.alarm(seconds)
    os.chdir(folder)
    output = os.open("output", os.O_WRONLY | os.O_CREAT)
    os.dup2(output, 1)
    os.dup2(output, 2)
    sys.argv[1:] = words
    run_from_shell()


def main() -> None:
    """Answer requests until there are no more."""
    for name in NEEDED:
        importlib.import_module(name)
    for line in sys.stdin:
        processes = [start(*run) for run in json.loads(line)]
        codes = [os.waitstatus_to_exitcode(os.waitpid(each, 0)[1]) for each in processes]
        print(json.dumps(codes), flush=True)


if __name__ == "__main__":
    main()
