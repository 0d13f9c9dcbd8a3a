"""Records what `lar run` does with every pair of flags, and compares two recordings.

    uv run python tools/option_pairs.py record old.jsonl models/digits_cnn.{mge,onnx}
    uv run python tools/option_pairs.py record new.jsonl models/... --like old.jsonl
    uv run python tools/option_pairs.py compare old.jsonl new.jsonl

The command line is driven from outside: flags are read from `lar run --help all`, values come from
the table below, and a case is its exit code, standard error, the first lines of standard output,
the files written, whether a worker process was started, and the seconds. `record` runs the `lar`
of the Python that runs this script, so an older tree is recorded with the Python of that tree.

Thousands of runs are made affordable by forking: one process imports what a first run imported,
and each case is a fork of it that executes `python -m lar`; the worker that it starts is forked
too instead of a new interpreter. Seconds are therefore those of a warm process. `--cold` measures
refusals, one for each message, in processes of their own: their wall time, and the processors'
time, which is the same on a busy machine.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.abc
import importlib.util
import itertools
import json
import os
import random
import re
import runpy
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

STDOUT_LINES = 3
STDERR_CHARACTERS = 4000
FILES_NAMED = 12
REFUSED = 2

# The value given to a flag that takes one: {out} is an empty folder of the case, {in} holds the
# files that are read, {suffix} is the model's.
VALUES: Mapping[str, str] = {
    "--iter": "2",
    "--warmup-iter": "0",
    "--timeout": "50",
    "--stall-timeout": "40",
    "--python": sys.executable,
    "--tag": "pair",
    "--store": "{out}/results.db",
    "--duration": "0.1",
    "--target-ci": "20%",
    "--min-time": "0.1",
    "--max-time": "0.5",
    "--warmup": "0.1",
    "--percentile": "50,99.9",
    "--idle-ms": "1",
    "--rate": "50",
    "--arrivals": "fixed",
    "--multithread": "2",
    "--multithread-default": "2",
    "--multi-thread-core-ids": "0,1",
    "--thread": "2",
    "--hint": "latency",
    "--streams": "2",
    "--precision": "bfloat16",
    "--layout-transform": "cpu",
    "--layout-transform-dump": "{out}/layout{suffix}",
    "--fast-run-algo-policy": "{out}/algorithms.cache",
    "--fast-run-shared-batch-size": "3",
    "--workspace-limit": "1048576",
    "--engine-option": "session.disable_prepacking=1",
    "--tensorrt-cache": "{out}/tensorrt.cache",
    "--graph-optimization-level": "basic",
    "--disable-optimizer": "ConstantFolding",
    "--io-dump": "{out}/io.txt",
    "--bin-io-dump": "{out}/bin_io",
    "--bin-out-dump": "{out}/bin_out",
    "--dump-filter": ".",
    "--profile": "{out}/profile.json",
    "--profile-host": "{out}/profile_host.json",
    "--profile-raw": "{out}/profile_raw.json",
    "--range-by": "conv=convolutions",
    "--range": "1e30",
    "--check-var-value": "1",
    "--model-dump": "{out}/dump{suffix}",
    "--packed-model-dump": "{out}/packed.lite",
    "--pack-info-json": "{in}/info.json",
    "--pack-cache": "{in}/algorithms.cache",
    "--c-opr-lib": "{in}/operators.so",
    "--engine-fix": "x2apic",
    "--scheduler": "dask://127.0.0.1:9",
    "--on": "arm",
    "--engine-env": "LAR_PAIRS=1",
    "--input": "{in}/digit.npy",
    "--input-layout": "nchw",
    "--resize": "8x8",
    "--mean": "1",
    "--scale": "0.5",
    "--batch-size": "2",
    "--fill": "ones",
    "--seed": "3",
    "--labels": "{in}/labels.txt",
    "--get-static-mem-info": "{out}/static_memory",
    "--json": "{out}/result.json",
    "--csv": "{out}/result.csv",
    "--html": "{out}/result.html",
}
# Values that depend on the model's format.
VALUES_BY_SUFFIX: Mapping[str, Mapping[str, str]] = {
    "--engine": {".mge": "megengine", ".onnx": "onnxruntime"},
    "--driver": {".mge": "lite", ".onnx": "session"},
    "--provider": {".mge": "cpu", ".onnx": "cpu"},
}
# Flags that take a value but are given without one.
BARE = ("--cuda",)
# Flags that end the program before it reads another flag.
LEFT_OUT = ("--help",)
# What a flag that this script does not know is given, by the word that the help shows for it.
VALUES_BY_METAVAR: Mapping[str, str] = {
    "N": "2",
    "S": "1",
    "FILE": "{in}/info.json",
    "DIR": "{out}/folder",
    "NAME": "name",
    "REGEX": ".",
}
# Pairs with one of these are recorded last: they concern how a run is fed and reported.
PLAIN = frozenset(
    f"--{name}"
    for name in (
        *("iter", "warmup-iter", "timeout", "stall-timeout", "engine-env", "copy-to-host"),
        *("duration", "target-ci", "min-time", "max-time", "warmup", "percentile"),
        *("idle-ms", "rate", "arrivals"),
        *("input", "input-layout", "resize", "mean", "scale", "bgr", "rgb", "batch-size", "fill"),
        *(
            "seed",
            "labels",
            "resume",
            "model-info",
            "verbose",
            "json",
            "csv",
            "html",
            "in-process",
            "debug",
        ),
    )
)
# What MegEngine's library prints whenever a process that has loaded it is forked.
PRINTED_BY_FORKS = "debug: failed to load cuda func: cuCtxGetCurrent\n"
# A float32 array of shape 1,1,8,8, as a file that NumPy has saved.
DIGIT_HEADER = (
    b"{'descr': '<f4', 'fortran_order': False, 'shape': (1, 1, 8, 8), }".ljust(117) + b"\n"
)
DIGIT = b"\x93NUMPY\1\0\x76\0" + DIGIT_HEADER + struct.pack("<64f", *range(64))
BLAS_THREADS = "OPENBLAS_NUM_THREADS"
FLAG_LINE = re.compile(
    r"^ +(?:-\w, )?(--[a-z0-9][a-z0-9-]*)(?:[ =](\S+?))?(?:, --\S+(?: \S+)?)*(?:  .*)?$"
)


@dataclass(frozen=True)
class Case:
    """What one command line did."""

    model: str
    flags: tuple[str, ...]
    exit_code: int
    stderr: str
    stdout: tuple[str, ...]
    files: tuple[str, ...]
    workers: int
    seconds: float
    cold_seconds: float | None = None
    cold_cpu_seconds: float | None = None

    @property
    def key(self) -> tuple[str, tuple[str, ...]]:
        """The case's identity: the model's suffix and the flags in alphabetical order."""
        return Path(self.model).suffix, tuple(sorted(self.flags))


# --- the cases ------------------------------------------------------------------------------------


def read_flags(help_text: str) -> dict[str, str]:
    """Return the flags of a help text in its order, each with the word shown for its value."""
    found: dict[str, str] = {}
    for line in help_text.splitlines():
        match = FLAG_LINE.match(line)
        if match and match[1] not in LEFT_OUT:
            found.setdefault(match[1], match[2] or "")
    return found


def words_of(flag: str, metavar: str, suffix: str) -> tuple[str, ...]:
    """Return the words of a flag on the command line, its value with placeholders for folders.

    Raises:
        SystemExit: the flag takes a value that this script has no example for.
    """
    if not metavar or flag in BARE:
        return (flag,)
    value = VALUES_BY_SUFFIX.get(flag, {}).get(suffix) or VALUES.get(flag)
    if value is None and metavar.startswith("{"):
        value = metavar.strip("{}").split(",")[0]
    if value is None:
        value = VALUES_BY_METAVAR.get(metavar)
    if value is None:
        sys.exit(f"option_pairs: no value known for {flag} {metavar}: add one to VALUES")
    return flag, value


def plan_cases(flags: Sequence[str]) -> list[tuple[str, ...]]:
    """Return no flag, every flag and every pair of flags.

    Pairs stand in a fixed random order, those without plain flags first, so that a recording that
    was stopped is a fair sample.
    """
    pairs = list(itertools.combinations(flags, 2))
    random.Random(1).shuffle(pairs)
    pairs.sort(key=lambda pair: len(PLAIN.intersection(pair)))
    return [(), *((flag,) for flag in flags), *pairs]


def write_inputs(folder: Path) -> None:
    """Write the small files that values of flags name."""
    folder.mkdir()
    (folder / "digit.npy").write_bytes(DIGIT)
    (folder / "info.json").write_text('{"name": "pairs", "valid": true}\n')
    (folder / "labels.txt").write_text("1\n")
    (folder / "algorithms.cache").write_bytes(b"\0\0\0\0")
    library = importlib.util.find_spec("_ctypes")  # any shared library that has no operators
    if library and library.origin:
        shutil.copy(library.origin, folder / "operators.so")


# --- running one ----------------------------------------------------------------------------------


def replace_spawning(note: Path) -> None:
    """Let processes of this very Python be forked, with the libraries that are loaded here.

    A line in the file `note` says that one was started.
    """
    spawn = os.posix_spawn

    def fork_or_spawn(
        path: str, arguments: list[str], environment: Mapping[str, str], **settings: Any
    ) -> int:
        if path != sys.executable or "-c" not in arguments:
            return spawn(path, arguments, environment, **settings)
        with note.open("a") as file:
            file.write("worker\n")
        pid = os.fork()
        if pid == 0:
            run_as_new(arguments, environment, settings)
        if settings.get("setpgroup") == 0:  # here too: it may be killed before it has begun
            with contextlib.suppress(PermissionError, ProcessLookupError):
                os.setpgid(pid, pid)
        return pid

    os.posix_spawn = fork_or_spawn  # type: ignore[assignment]
    subprocess.run = without_peak(subprocess.run)


def without_peak(run: Callable[..., Any]) -> Callable[..., Any]:
    """Let the measurement of the machine's peak fail: it takes a second of each profiled run,
    which only lacks two figures of a report without it."""

    def run_another(command: Sequence[str], *values: Any, **settings: Any) -> Any:
        if command[:2] == [sys.executable, "-m"] and command[2].endswith(".peak"):
            raise subprocess.SubprocessError
        return run(command, *values, **settings)

    return run_another


def run_as_new(
    arguments: Sequence[str], environment: Mapping[str, str], settings: Mapping[str, Any]
) -> NoReturn:
    """Be the new process that `posix_spawn` would have made of this fork."""
    status = 1
    try:
        if settings.get("setpgroup") == 0:
            os.setpgid(0, 0)
        for action, *values in settings.get("file_actions", ()):
            if action != os.POSIX_SPAWN_DUP2:
                raise NotImplementedError(f"file action {action}")
            os.dup2(values[0], values[1])
        # `exec` would close these. The objects that own them live on in the frames below.
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):
                if not os.get_inheritable(int(name)):
                    os.close(int(name))
        reset_signals()
        os.environ.clear()
        os.environ.update(environment)
        reopen_streams()
        place = list(arguments).index("-c")
        sys.argv = ["-c", *arguments[place + 2 :]]
        exec(arguments[place + 1], {"__name__": "__main__"})
        status = 0
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    os._exit(status)


def reset_signals() -> None:
    """Set the handlers of a new Python process."""
    signal.set_wakeup_fd(-1)
    for number in signal.valid_signals():
        if callable(signal.getsignal(number)):
            signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


def reopen_streams() -> None:
    """Make Python's streams anew, without what this process has not yet written."""
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - open until the process ends
    sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, closefd=False)  # noqa: SIM115


def run_lar(words: Sequence[str]) -> NoReturn:
    """Execute `python -m lar WORDS` in this process, which ends with it."""
    sys.argv = ["lar", *words]
    status = 0
    try:
        runpy.run_module("lar", run_name="__main__", alter_sys=False)
    except SystemExit as leaving:
        status = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
        status = 1
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def in_fork(body: Callable[[], NoReturn], output: Path, limit: float) -> tuple[int, float]:
    """Run a body in a fork whose output goes into two files; return its exit code (minus the
    signal that ended it) and the seconds. One that lasts longer than `limit` is killed."""
    began = time.monotonic()
    with silenced():
        pid = os.fork()
    if pid == 0:
        os.setsid()
        write = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        for name, target in (("stdout", 1), ("stderr", 2)):
            os.dup2(os.open(f"{output}.{name}", write), target)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        reopen_streams()
        body()
    handle = os.pidfd_open(pid)
    if not select.select([handle], [], [], limit)[0]:
        os.killpg(pid, signal.SIGKILL)
    os.close(handle)
    _, status = os.waitpid(pid, 0)
    return os.waitstatus_to_exitcode(status), time.monotonic() - began


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Discard what libraries print while this is open."""
    saved = {target: os.dup(target) for target in (1, 2)}
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for target in saved:
        os.dup2(nowhere, target)
    try:
        yield
    finally:
        for target, copy in saved.items():
            os.dup2(copy, target)
            os.close(copy)
        os.close(nowhere)


class Recorder:
    """Runs cases in a folder of their own, all with the same input files."""

    def __init__(self, model: Path, metavars: Mapping[str, str], limit: float) -> None:
        self.model = model
        self.metavars = metavars
        self.limit = limit
        self.folder = Path(tempfile.mkdtemp(prefix="pairs"))
        write_inputs(self.folder / "in")

    def close(self) -> None:
        """Remove all files."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def command(self, flags: Sequence[str], out: Path) -> list[str]:
        """Return the words after `lar`, the model and at most two iterations."""
        words = ["run", str(self.model)]
        words += [] if "--iter" in flags else ["--iter", "1"]
        for flag in flags:
            for word in words_of(flag, self.metavars[flag], self.model.suffix):
                word = word.replace("{out}", str(out)).replace("{suffix}", self.model.suffix)
                words.append(word.replace("{in}", str(self.folder / "in")))
        return words

    def record(self, flags: Sequence[str]) -> Case:
        """Run one case in a fork."""
        out, output, note = (self.folder / name for name in ("out", "case", "note"))
        out.mkdir()
        note.unlink(missing_ok=True)
        words = self.command(flags, out)

        def body() -> NoReturn:
            replace_spawning(note)
            run_lar(words)

        code, seconds = in_fork(body, output, self.limit)
        stdout = Path(f"{output}.stdout").read_text(errors="replace")
        stderr = Path(f"{output}.stderr").read_text(errors="replace")
        case = Case(
            model=str(self.model),
            flags=tuple(flags),
            exit_code=code,
            stderr=self.without_places(stderr)[:STDERR_CHARACTERS],
            stdout=tuple(self.without_places(stdout).splitlines()[:STDOUT_LINES]),
            files=self.name_files(out),
            workers=len(note.read_text().splitlines()) if note.exists() else 0,
            seconds=round(seconds, 4),
        )
        shutil.rmtree(out)
        return case

    def without_places(self, text: str) -> str:
        """Return a text without the names of temporary folders and of the model's folder."""
        text = text.replace(PRINTED_BY_FORKS, "").replace(str(self.folder / "out"), "OUT")
        text = text.replace(str(self.folder / "in"), "IN")
        return text.replace(f"{self.model.parent}/", "")

    def name_files(self, out: Path) -> tuple[str, ...]:
        """Return the first files that stand in the case's folder, and how many more."""
        names = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
        more = (f"and {len(names) - FILES_NAMED} more",) if len(names) > FILES_NAMED else ()
        return (*names[:FILES_NAMED], *more)

    def measure_cold(self, case: Case) -> Case:
        """Return a case with its seconds in a new process, the better of two."""
        walls, processors = [], []
        for _ in range(2):
            out = self.folder / "cold"
            out.mkdir()
            command = [sys.executable, "-m", "lar", *self.command(case.flags, out)]
            began, used = time.monotonic(), os.times()
            subprocess.run(
                command, capture_output=True, stdin=subprocess.DEVNULL, timeout=90, check=False
            )
            walls.append(time.monotonic() - began)
            now = os.times()
            processors.append(
                now.children_user + now.children_system - used.children_user - used.children_system
            )
            shutil.rmtree(out)
        return replace(
            case, cold_seconds=round(min(walls), 3), cold_cpu_seconds=round(min(processors), 3)
        )


# --- importing beforehand -------------------------------------------------------------------------


class ImportNotes(importlib.abc.MetaPathFinder):
    """Writes the name of each module that is looked for into a file, and finds none."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        with self.file.open("a") as file:
            file.write(f"{name}\n")


def modules_of_a_run(model: Path, folder: Path) -> list[str]:
    """Return the modules that a run imports, in its parent and in its worker, in their order."""
    names = folder / "modules"

    def body() -> NoReturn:
        sys.meta_path.insert(0, ImportNotes(names))
        replace_spawning(folder / "note")
        run_lar(["run", str(model), "--iter", "1"])

    code, _ = in_fork(body, folder / "pilot", 120)
    if code:
        sys.exit(
            f"option_pairs: a run without flags fails:\n{(folder / 'pilot.stderr').read_text()}"
        )
    return list(dict.fromkeys(names.read_text().split()))


def import_beforehand(models: Sequence[Path]) -> None:
    """Import here what a run of each model imports, so that forks need not."""
    with tempfile.TemporaryDirectory() as folder:
        names = [
            name
            for number, model in enumerate(models)
            for name in modules_of_a_run(model, make_folder(Path(folder, str(number))))
        ]
    # A thread of NumPy's library would not be there in a fork, which then may wait for it.
    os.environ[BLAS_THREADS] = "1"
    with silenced():
        for name in names:
            if name not in ("lar.__main__", "__main__"):
                with contextlib.suppress(Exception):
                    importlib.import_module(name)
    del os.environ[BLAS_THREADS]
    if len(os.listdir("/proc/self/task")) > 1:
        sys.exit("option_pairs: a library has started a thread: forks of it may hang")


def make_folder(folder: Path) -> Path:
    folder.mkdir()
    return folder


# --- recording all --------------------------------------------------------------------------------


def help_of_run() -> str:
    """Return the help of all flags of `lar run`."""
    command = [sys.executable, "-m", "lar", "run", "--help", "all"]
    environment = {**os.environ, "COLUMNS": "100"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    return done.stdout


def record_share(
    recorder: Recorder,
    cases: Sequence[tuple[str, ...]],
    file: Path,
    deadline: float,
    skipped: Callable[[tuple[str, ...]], bool],
) -> None:
    """Append cases to a file, a line of JSON each, until all are done or the time is over."""
    try:
        for flags in cases:
            if time.monotonic() > deadline:
                break
            if skipped(flags):
                continue
            case = recorder.record(flags)
            if case.exit_code == -signal.SIGKILL:  # hanging twice is no accident
                case = recorder.record(flags)
            write_case(file, case)
    finally:
        recorder.close()


def write_case(file: Path, case: Case) -> None:
    """Append one line; lines of several processes do not mix, each being one write."""
    line = (json.dumps(asdict(case)) + "\n").encode()
    handle = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        os.write(handle, line)
    finally:
        os.close(handle)


def read_cases(file: Path) -> list[Case]:
    """Read a recording, a later line of the same case standing for an earlier one."""
    found: dict[tuple[str, tuple[str, ...]], Case] = {}
    for line in file.read_text().splitlines():
        fields = json.loads(line)
        lists = {name: tuple(fields[name]) for name in ("flags", "stdout", "files")}
        case = Case(**{**fields, **lists})
        found[case.key] = case
    return list(found.values())


def record(options: argparse.Namespace) -> int:
    """Record all cases that the file lacks; return the exit code."""
    metavars = read_flags(help_of_run())
    if options.flags:
        metavars = {flag: metavars[flag] for flag in options.flags.split(",")}
    for flag, metavar in metavars.items():
        words_of(flag, metavar, options.models[0].suffix)  # all have values before the first runs
    known = {case.key for case in read_cases(options.file)} if options.file.exists() else set()
    wanted = {case.key for case in read_cases(options.like)} if options.like else None
    import_beforehand(options.models)
    deadline = time.monotonic() + options.budget
    for model in options.models:

        def skipped(flags: tuple[str, ...], suffix: str = model.suffix) -> bool:
            key = (suffix, tuple(sorted(flags)))
            return key in known or (wanted is not None and key not in wanted)

        cases = plan_cases(list(metavars))
        children = []
        for share in range(options.jobs):
            recorder = Recorder(model, metavars, options.limit)
            if not (pid := os.fork()):
                record_share(
                    recorder, cases[share :: options.jobs], options.file, deadline, skipped
                )
                os._exit(0)
            children.append(pid)
        for pid in children:
            os.waitpid(pid, 0)
    if options.cold:
        record_cold(options, metavars)
    print(f"{len(read_cases(options.file))} cases in {options.file}")
    return 0


def record_cold(options: argparse.Namespace, metavars: Mapping[str, str]) -> None:
    """Measure one refusal of each message in processes of its own."""
    seen = set()
    for model in options.models:
        recorder = Recorder(model, metavars, options.limit)
        for case in read_cases(options.file):
            template = (case.workers, generalise(case.stderr))
            if case.model != str(model) or case.exit_code != REFUSED or template in seen:
                continue
            seen.add(template)
            write_case(options.file, recorder.measure_cold(case))
        recorder.close()


# --- comparing ------------------------------------------------------------------------------------

NUMBER = re.compile(r"(?<![\w-])-?\d[\d.,]*(?:e[+-]?\d+)?(?:ms|us|ns|s|%)?(?![\w-])")
FLAG = re.compile(r"--[a-z0-9][a-z0-9-]*")
# Lines that come and go with what else the machine does.
FLEETING = re.compile(
    r"^note: .*(disturbed|other work)|^searching: |^lar: note: .*waited|^hint: MKL "
    r"|^\x1b\[\d+m|:onnxruntime:"
)


def lasting_lines(text: str) -> list[str]:
    """Return the lines that remain the same from run to run, without their numbers, tracebacks
    and what MegEngine itself prints."""
    lines, in_traceback = [], False
    for line in text.splitlines():
        if line.startswith("Traceback"):
            in_traceback = True
        elif line.startswith("lar: "):
            in_traceback = False
        if not in_traceback and not FLEETING.search(line):
            lines.append(NUMBER.sub("N", line).strip())
    return lines


def generalise(text: str) -> str:
    """Return a message without its numbers and with its flags as one word."""
    return FLAG.sub("--FLAG", "\n".join(lasting_lines(text)))


@dataclass(frozen=True)
class Difference:
    """A kind of difference: what it is, and how it was and is."""

    kind: str
    old: str
    new: str


def differences_of(old: Case, new: Case) -> Iterator[Difference]:
    """Find what differs between two recordings of a case."""
    if old.exit_code != new.exit_code:
        yield Difference(
            "exit code",
            f"{old.exit_code}: {generalise(old.stderr)}",
            f"{new.exit_code}: {generalise(new.stderr)}",
        )
    else:
        was, now = lasting_lines(old.stderr), lasting_lines(new.stderr)
        gone = "\n".join(line for line in was if line not in now)
        come = "\n".join(line for line in now if line not in was)
        if gone or come:
            yield Difference("message", FLAG.sub("--FLAG", gone), FLAG.sub("--FLAG", come))
    if old.files != new.files:
        yield Difference("files", " ".join(old.files), " ".join(new.files))
    if new.exit_code == REFUSED:
        yield from faults_of_refusal(new)
    if old.exit_code == 0 and old.stdout != new.stdout:
        before, after = (generalise("\n".join(case.stdout)) for case in (old, new))
        if before != after:
            yield Difference("first lines", before, after)


def faults_of_refusal(case: Case) -> Iterator[Difference]:
    """Find what a refusal should not be, whatever it was before."""
    if case.stdout and not case.workers and "--in-process" not in case.flags:
        yield Difference("output before a refusal", "", generalise("\n".join(case.stdout)))
    if "hint:" not in case.stderr:
        yield Difference("refusal without a hint", "", generalise(case.stderr))
    if case.workers:
        yield Difference("refusal by a worker", "", generalise(case.stderr))


def compare(options: argparse.Namespace) -> int:
    """Print each kind of difference with its number of cases; return 1 when there is one."""
    old, new = ({case.key: case for case in read_cases(file)} for file in options.files)
    both = [key for key in old if key in new]
    groups: dict[Difference, list[tuple[str, tuple[str, ...]]]] = defaultdict(list)
    for key in both:
        for difference in differences_of(old[key], new[key]):
            groups[difference].append(key)
    for kind in dict.fromkeys(sorted((each.kind for each in groups), key=order_of_kinds)):
        of_kind = {each: keys for each, keys in groups.items() if each.kind == kind}
        print(f"\n## {kind}: {sum(map(len, of_kind.values()))} cases, {len(of_kind)} kinds")
        for difference, keys in sorted(of_kind.items(), key=lambda item: -len(item[1])):
            print(f"\n{len(keys)} x, as {'; '.join(map(name_key, keys[: options.examples]))}")
            print(indent("- ", difference.old))
            print(indent("+ ", difference.new))
    print(f"\n{len(both)} cases in both, {len(old) - len(both)} only in the old, ", end="")
    print(f"{len(new) - len(both)} only in the new recording")
    for name, cases in (("old", old), ("new", new)):
        print(f"{name}: {summarise([cases[key] for key in both])}")
    return 1 if groups else 0


def order_of_kinds(kind: str) -> int:
    kinds = (
        *("exit code", "output before a refusal", "refusal without a hint", "refusal by a worker"),
        *("files", "first lines", "message"),
    )
    return kinds.index(kind) if kind in kinds else len(kinds)


def name_key(key: tuple[str, tuple[str, ...]]) -> str:
    suffix, flags = key
    return f"{suffix} {' '.join(flags)}"


def indent(sign: str, text: str) -> str:
    return "\n".join(f"    {sign}{line}" for line in text.splitlines() or [""])


def summarise(cases: Sequence[Case]) -> str:
    """Return the number of cases by exit code, and of refusals by who refused."""
    codes = Counter(case.exit_code for case in cases)
    refusals = [case for case in cases if case.exit_code == REFUSED]
    late = sum(case.workers > 0 for case in refusals)
    cold = [
        (case.cold_seconds, case.cold_cpu_seconds)
        for case in cases
        if case.cold_seconds is not None
    ]
    text = ", ".join(f"exit {code}: {count}" for code, count in sorted(codes.items()))
    text += f"; {late} of {len(refusals)} refusals by a worker"
    if cold:
        wall, processor = (
            max(figure or 0.0 for figure in each) for each in zip(*cold, strict=True)
        )
        text += f"; {len(cold)} refusals cold: at most {wall:.2f} s, {processor:.2f} s of processor"
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(required=True)
    recording = commands.add_parser("record", help="record all pairs of flags")
    recording.add_argument("file", type=Path, help="recording, continued when it exists")
    recording.add_argument("models", type=lambda text: Path(text).resolve(), nargs="+")
    recording.add_argument("--flags", help="only these: --iter,--json")
    recording.add_argument("--like", type=Path, help="only the cases of this recording")
    recording.add_argument("--jobs", type=int, default=2)
    recording.add_argument("--limit", type=float, default=20, help="seconds of one case")
    recording.add_argument("--budget", type=float, default=1500, help="seconds of all cases")
    recording.add_argument("--cold", action="store_true", help="measure refusals cold too")
    recording.set_defaults(action=record)
    comparing = commands.add_parser("compare", help="compare two recordings")
    comparing.add_argument("files", type=Path, nargs=2)
    comparing.add_argument("--examples", type=int, default=3, help="cases named of each kind")
    comparing.set_defaults(action=compare)
    options = parser.parse_args(arguments)
    action: Callable[[argparse.Namespace], int] = options.action
    return action(options)


if __name__ == "__main__":
    sys.exit(main())
