"""The threads of a session of ONNX Runtime: how many, and on which cores."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.engines.onnxruntime.drivers import DIGITS, REPOSITORY, load, run

if TYPE_CHECKING:
    from tests.conftest import RunLar

usable_cores = sorted(os.sched_getaffinity(0))
two_cores = pytest.mark.skipif(len(usable_cores) < 2, reason="needs two cores")


def threads_of_process() -> set[str]:
    return set(os.listdir("/proc/self/task"))


@pytest.mark.parametrize(
    ("settings", "threads"),
    [
        ({"cpu_default": True}, 1),
        ({"multithread": 1}, 1),
        ({"multithread": 3}, 3),
        ({"multithread_default": 3}, 3),
    ],
)
def test_threads_are_as_many_as_asked_for_with_the_calling_one(
    settings: dict[str, Any], threads: int
) -> None:
    before = threads_of_process()
    driver = load(**settings)
    run(driver)
    assert len(threads_of_process() - before) == threads - 1


# In a process of its own: the calling thread stays bound.
BIND = """
import json, os, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from lar.engines import engine_named
from lar.engines.onnxruntime.session import SessionDriver
from lar.records.run import RunSpec

def cores():
    found = {}
    for status in Path("/proc/self/task").glob("*/status"):
        (line,) = [x for x in status.read_text().splitlines() if x.startswith("Cpus_allowed_list")]
        found[int(status.parent.name)] = line.split()[1]
    return found

before = cores()
spec = RunSpec(
    model=sys.argv[2], engine="onnxruntime", driver="session", settings=json.loads(sys.argv[3])
)
driver = SessionDriver(spec, engine_named("onnxruntime").rows)
driver.load()
expected, deadline = json.loads(sys.argv[4]), time.monotonic() + 40
while True:
    after = cores()
    started = [after[thread] for thread in sorted(after) if thread not in before]
    found = [after[os.getpid()], *started]
    # A thread that the engine starts binds itself, in its own time.
    if found == expected or time.monotonic() > deadline:
        break
    time.sleep(0.01)
print(json.dumps(found))
"""


def check_cores(expected: list[str], **settings: Any) -> None:
    """Check the core that each thread is bound to, the calling thread's first."""
    arguments = [str(REPOSITORY), str(DIGITS), json.dumps(settings), json.dumps(expected)]
    ended = subprocess.run(
        [sys.executable, "-c", BIND, *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert json.loads(ended.stdout) == expected


@two_cores
@pytest.mark.parametrize(
    "threads", [{}, {"multithread": 2}, {"multithread_default": 2}], ids=["", "n", "default"]
)
def test_threads_are_bound_to_the_cores_in_their_order(threads: dict[str, int]) -> None:
    first, second = map(str, usable_cores[:2])
    check_cores([first, second], multi_thread_core_ids=f"{first},{second}", **threads)
    check_cores([second, first], multi_thread_core_ids=f"{second},{first}", **threads)


def test_one_core_binds_the_calling_thread_alone() -> None:
    core = str(usable_cores[-1])
    check_cores([core], multi_thread_core_ids=core)
    check_cores([core], multi_thread_core_ids=core, cpu_default=True)


def test_a_core_for_every_thread_even_where_two_share_one() -> None:
    core = str(usable_cores[0])
    check_cores([core] * 3, multi_thread_core_ids=f"{core},{core},{core}")


def test_a_core_that_cannot_be_used_is_refused(run_lar: RunLar) -> None:
    ended = run_lar(str(DIGITS), "--multi-thread-core-ids", "9999")
    assert ended.returncode == 2
    assert "--multi-thread-core-ids 9999: core 9999 cannot be used here" in ended.stderr
    assert f"usable cores: {', '.join(map(str, usable_cores))}" in ended.stderr


@pytest.mark.parametrize(
    "threads", [["--multithread", "3"], ["--multithread-default", "1"], ["--cpu-default"]]
)
def test_cores_must_be_as_many_as_threads(run_lar: RunLar, threads: list[str]) -> None:
    core = usable_cores[0]
    ended = run_lar(str(DIGITS), "--multi-thread-core-ids", f"{core},{core}", *threads)
    assert (ended.returncode, ended.stdout) == (2, "")
    count = threads[1] if threads[1:] else "1"
    assert f"{core},{core} names 2 cores for {count} thread" in ended.stderr
