"""Work beside this process: the result is the same, whatever becomes of the copy."""

from __future__ import annotations

from pathlib import Path

from tests.command_lines import run_python

# In a process with one thread, as few of the tests' have, which believes that it has two CPUs.
SCRIPT = Path(__file__).with_name("apart.txt").read_text()


def test_a_copy_works_and_where_it_cannot_this_process_does() -> None:
    done = run_python("-c", SCRIPT, code=0)
    assert done.stdout == "no result\nfault True False False\nnone is left\n", done.stderr
