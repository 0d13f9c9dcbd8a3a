"""How a run ends that is ended from outside: no reader, no terminal, no room, Ctrl-C."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.failures import check_error, end_of, run_shell, started
from tests.cli.marks import needs_full
from tests.command_lines import run_lar, run_python
from tests.conftest import WriteScript
from tests.running.isolated_runs import NO_BYTECODE, SOON, eventually, needs_proc

LAR = [sys.executable, "-m", "lar"]


def written(folder: Path) -> tuple[str, int, int]:
    """The status in `r.json`, and the number of iterations there and in `r.csv`."""
    result = json.loads((folder / "r.json").read_text())
    rows = len((folder / "r.csv").read_text().splitlines()) - 1
    return result["status"], len(result["samples"]["end_to_end"]), rows


def test_reports_are_whole_when_the_reader_of_the_lines_goes_away(
    write_script: WriteScript, tmp_path: Path
) -> None:
    words = [write_script(), "--iter", "3000", "--json", "r.json", "--csv", "r.csv"]
    done = run_shell('$LAR "$@" | head -n 1; echo "${PIPESTATUS[0]}"', *words, cwd=tmp_path)
    assert (done.stdout.splitlines()[-1], done.stderr) == ("141", "")
    assert written(tmp_path)[:2] == ("ok", 3000)
    assert written(tmp_path)[2] >= 3000


def test_reports_are_written_when_the_terminal_is_closed(
    write_script: WriteScript, tmp_path: Path
) -> None:
    script = write_script(times=[[0.01, 0.001, None]], real_time=True)
    words = [*LAR, script, "--iter", "5000", "--json", "r.json", "--csv", "r.csv"]
    child, terminal = pty.fork()
    if not child:
        os.chdir(tmp_path)
        os.execv(words[0], words)
    shown = b""
    while b"iter 3/5000" not in shown:
        shown += os.read(terminal, 1 << 16)
    os.close(terminal)
    began = time.monotonic()
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 130
    assert time.monotonic() - began < SOON
    assert written(tmp_path)[0] == "interrupted"
    assert 3 < written(tmp_path)[1] < 5000


@needs_full
@pytest.mark.parametrize("flags", [["--json", "/dev/full"], ["--csv", "/dev/full"]])
def test_a_full_disk_is_one_exit_code_and_the_other_report_is_written(
    write_script: WriteScript, tmp_path: Path, flags: list[str]
) -> None:
    other = {"--json": "--csv", "--csv": "--json"}[flags[0]]
    done = run_lar(write_script(), *flags, other, "other", cwd=tmp_path, code=4)
    assert done.stderr.splitlines() == [
        f"lar: error: {flags[0]}: /dev/full: cannot be written: no space left on device",
        "hint: make room on the disk",
    ]
    assert (tmp_path / "other").stat().st_size > 0


@needs_full
def test_a_full_disk_below_standard_output_spares_the_report(
    write_script: WriteScript, tmp_path: Path
) -> None:
    words = [write_script(), "--json", "r.json", "--csv", "r.csv"]
    done = run_shell('$LAR "$@" >/dev/full', *words, cwd=tmp_path)
    check_error(done, 4, "standard output cannot be written: no space left on device")
    assert written(tmp_path)[0] == "ok"


def test_a_file_that_may_not_grow_is_a_full_disk(write_script: WriteScript, tmp_path: Path) -> None:
    command = f"{NO_BYTECODE}; ulimit -f 16; exec $LAR $1 --iter 300 --json r.json >/dev/null"
    (tmp_path / "r.json").write_text("old")
    done = run_shell(command, write_script(), cwd=tmp_path)
    check_error(done, 4, "the limit of a file's size is reached", "the limit is 16 KiB")
    assert [(path.name, path.read_text()) for path in tmp_path.glob("*.json")] == [
        ("r.json", "old")
    ]


def catches_signals(process: subprocess.Popen[str]) -> bool:
    """Whether a process has a handler of its own for SIGTERM, which Python has not."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


@needs_proc
def test_an_interrupt_at_any_moment_is_one_line(write_script: WriteScript) -> None:
    script = write_script(times=[[0.01, 0.001, None]], real_time=True)
    for delay in range(0, 20, 3):
        with started(script, "--iter", "5000") as process:
            assert eventually(lambda process=process: catches_signals(process), 20)  # type: ignore[misc]
            time.sleep(delay / 100)
            process.send_signal(signal.SIGINT)
            _, errors = end_of(process)
        assert (process.returncode, errors) == (130, "lar: error: interrupted\n"), delay


def test_an_interrupt_is_heeded_before_the_slow_imports() -> None:
    code = (
        "import _signal, sys; known = set(sys.modules)\n"
        "from lar.__main__ import main\n"
        "def look(number, handler):\n"
        "    print(*sorted(set(sys.modules) - known))\n"
        "    handler(number, None)\n"
        "sys.stdout.reconfigure(line_buffering=True)\n"
        "_signal.signal = look\n"
        "main()\n"
    )
    done = run_python("-c", code, code=130)
    assert done.stderr == "lar: error: interrupted\n"
    loaded = set(done.stdout.split())
    assert {name for name in loaded if name.startswith("lar")} == {"lar", "lar.__main__"}
    assert not loaded & {"typing", "re", "contextlib", "argparse"}


DROPPING = {
    "import": "import dropping",
    "free": "Freed()",
    # In C, while it looks up what it knows of the type.
    "types": "armed = True; msgspec.json.decode(b'{}', type=known); armed = False",
}


@pytest.mark.parametrize("where", DROPPING)
def test_an_interrupt_that_a_library_drops_comes_again(tmp_path: Path, where: str) -> None:
    (tmp_path / "dropping.py").write_text(
        "import os, signal\n"
        "try: os.kill(os.getpid(), signal.SIGINT)\n"
        "except BaseException: raise ImportError('as NumPy does') from None\n"
    )
    code = (
        "import os, signal, time\n"
        "from typing import Dict, List\n"
        "import msgspec\n"
        "from lar.running.interrupts import heed_interrupts\n"
        "armed = False\n"
        "class Compared(type):\n"
        "    def __hash__(cls):\n"
        "        if armed: os.kill(os.getpid(), signal.SIGINT)\n"
        "        return 1\n"
        "class Value(metaclass=Compared): pass\n"
        "known = Dict[str, List[Value]]\n"
        "class Freed:\n"
        "    def __del__(self): os.kill(os.getpid(), signal.SIGINT)\n"
        "heed_interrupts()\n"
        "try:\n"
        f"    {DROPPING[where]}\n"
        "    time.sleep(20)\n"
        "except KeyboardInterrupt: print('interrupted')\n"
    )
    done = run_python("-c", code, env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert done.stdout == "interrupted\n", done.stderr


def test_an_interrupt_before_the_command_begins_is_one_line() -> None:
    code = (
        "import os, signal, sys\n"
        "from lar.cli import main\n"
        "from lar.running import interrupts\n"
        "heed = interrupts.heed_interrupts\n"
        "def be_interrupted(): heed(); os.kill(os.getpid(), signal.SIGINT)\n"
        "interrupts.heed_interrupts = be_interrupted\n"
        "sys.argv = ['lar', '--version']\n"
        "main.run_from_shell()\n"
    )
    done = run_python("-c", code)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "lar: error: interrupted\n"


def test_a_limit_of_cpu_time_ends_the_engine(write_script: WriteScript) -> None:
    script = write_script(faults=[{"at": "start", "do": "spin", "index": 1}])
    done = run_shell("ulimit -St 1; exec $LAR $1 >/dev/null", script, cwd=Path(script).parent)
    assert done.returncode == 4
    said, _ = done.stderr.splitlines()
    where = "in phase iterations (iteration 0)"
    assert said == f"lar: error: the engine crashed {where}: killed by SIGXCPU"
