"""Has MegEngine choose algorithms (by fast-run, a cache file or TensorRT), and reads the choices.

The enum LiteAlgoSelectStrategy gives a number to each strategy by which the engine chooses
algorithms: 1 HEURISTIC, 2 PROFILE, 4 REPRODUCIBLE, 8 OPTIMIZED. The engine accepts these sums of
strategies: 1, 2, 3, 5, 6, 7 and 10. With the sum 3 (PROFILE and HEURISTIC), the engine reads its
cache and measures nothing.

For an operator that the cache lacks, the engine chooses an algorithm by heuristics and logs no
warning. At the log level DEBUG, the engine logs each choice of an algorithm in one line. For later
operators with the same shapes and parameters, the engine repeats the choice and logs nothing. Here
is an example of such a line (in the log, it is not wrapped):

    ... ConvBiasForward: tensor layouts({1(2048),32(64),8(8),8(1) Float32} , ...) -> ({...} )):
    algo=WINOGRAD:FB_GI_F32_MK4_4x8:4:4:8:3 workspace=0.06MiB attribute=1.

In the log, the line begins with the time and with a place in MegEngine's source code. If the engine
passes the message to lar in memory, the message lacks this time and this place. A layout consists
of the size of each axis and, in brackets, the stride of the axis.

The format of the lines is defined in MegEngine 1.13, in
src/opr/impl/search_policy/algo_chooser.cpp. The functions of the log are defined in
src/core/impl/common.cpp.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lar.dumps import Kernel
from lar.engines.caches import Algorithm, Operand, Operator
from lar.engines.listener import Listener, SideListener
from lar.engines.megengine import cache as caches
from lar.engines.megengine.cache import AlgorithmCache, bytes_of, read_cache, winograd_of
from lar.engines.megengine.symbols import find_function
from lar.errors import EXIT_CODES, UsageError
from lar.files.input_file import read_input
from lar.options import table
from lar.records import run as records
from lar.records.comparison import Tolerance
from lar.records.run import Pacing, RunContext, RunResult, RunSpec, Stopping

if TYPE_CHECKING:
    from lar.engines.megengine.lite import LiteDriver

FLAG = table.FAST_RUN_ALGO_POLICY.flag
CHOICE = re.compile(
    r"(?:\] |^)(\w+): tensor layouts\((.*)\)\): algo=(\S+) workspace=([\d.]+)MiB", re.MULTILINE
)
LAYOUT = re.compile(r"\{(.*?) ?(\w+)\}")
SIZE = re.compile(r"(\d+)\(")


@dataclass(frozen=True)
class LoggedChoice:
    """A choice of an algorithm, which lar has read from a line of the engine's log.

    The shape of a missing operand is empty.
    """

    operator: str
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    algorithm: str
    workspace_mib: float

    @property
    def text(self) -> str:
        """The shapes as text for the user, such as {1,16,8,8} {32,16,3,3} -> {1,32,8,8} Float32."""
        return caches.format_operands([Operand(it, (), self.dtype) for it in self.shapes if it])


def choices_in(log: str) -> list[LoggedChoice]:
    """Return the choices in a log, without repetitions."""
    return list(dict.fromkeys(choice_of(match) for match in CHOICE.finditer(log)))


def choice_of(match: re.Match[str]) -> LoggedChoice:
    layouts = LAYOUT.findall(match[2])
    shapes = tuple(tuple(map(int, SIZE.findall(sizes))) for sizes, _ in layouts)
    dtypes = "/".join(dict.fromkeys(dtype for sizes, dtype in layouts if sizes))
    return LoggedChoice(match[1], shapes, dtypes, match[3], float(match[4]))


# void (*)(LogLevel, const char* file, const char* function, int line, const char* format, va_list)
LogHandler = ctypes.CFUNCTYPE(
    *(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p),
    ctypes.c_void_p,
)
# Both functions return the value that was set before.
SET_LOG_HANDLER = "_ZN3mgb15set_log_handlerEPFvNS_8LogLevelEPKcS2_iS2_P13__va_list_tagE"
SET_LOG_LEVEL = "_ZN3mgb13set_log_levelENS_8LogLevelE"
DEBUG = 0
CHOOSER = b"setup_algo"  # the function whose messages report a choice
VA_LIST_BYTES = 24  # System V ABI of x86-64, figure 3.34
MESSAGE_BYTES = 8192


class ChoiceListener:
    """Passes the engine's log messages about chosen algorithms to the function `take`.

    The listener passes on the messages that the engine logs after `begin` is called, until `end` is
    called.
    """

    def __init__(self, take: Callable[[bytes], object]) -> None:
        self.take = take
        self._format = ctypes.CDLL(None).vsnprintf
        self._handler = LogHandler(self._handle)  # kept alive, as the engine calls it later
        self._print: Any = None
        self._level = DEBUG
        self._set_handler: Any = None
        self._set_level: Any = None

    def begin(self, flag: str) -> bool:
        """Begin to receive the engine's log messages.

        `flag` is the option that needs the messages.

        Returns:
            False if this build of the engine lacks the functions of the log.
        """
        try:
            self._set_handler = find_function(flag, SET_LOG_HANDLER, [LogHandler], LogHandler)
            self._set_level = find_function(flag, SET_LOG_LEVEL, [ctypes.c_int], ctypes.c_int)
        except UsageError:
            return False
        self._print = self._set_handler(self._handler)
        self._level = self._set_level(DEBUG)
        # The engine may still log after Python has ended, and must not call the handler then.
        atexit.register(self.end)
        return True

    def end(self) -> None:
        """Restore the way in which the engine logged before `begin`."""
        if self._print is not None:
            self._set_handler(self._print)
            self._set_level(self._level)
            self._print = None

    def _handle(self, level: int, source: bytes, function: bytes, *said: Any) -> None:
        show, (_, form, values) = self._print, said  # None when another thread has just ended it
        if function == CHOOSER:
            unread = ctypes.string_at(values, VA_LIST_BYTES)
            # A buffer for each message: copies of a model choose in several threads at once.
            buffer = ctypes.create_string_buffer(MESSAGE_BYTES)
            self._format(buffer, MESSAGE_BYTES, form, ctypes.c_void_p(values))
            ctypes.memmove(values, unread, VA_LIST_BYTES)
            self.take(buffer.value)
        if level >= self._level and show is not None:
            show(level, source, function, *said)


def algorithms_in(log: str) -> dict[Kernel, str]:
    """Return the algorithm that was chosen for each kernel, according to a log.

    The engine may choose several algorithms for one kernel, since operators with the same type and
    shapes may differ in parameters that the log does not contain. If a kernel has several
    algorithms, their names are joined by "or".
    """
    found: dict[Kernel, list[str]] = {}
    for choice in choices_in(log):
        kernel = Kernel(choice.operator, tuple(shape for shape in choice.shapes if shape))
        found.setdefault(kernel, []).append(choice.algorithm)
    return {kernel: " or ".join(dict.fromkeys(names)) for kernel, names in found.items()}


HEURISTIC, PROFILE, REPRODUCIBLE, OPTIMIZED = 1, 2, 4, 8


def is_search(settings: Mapping[str, Any]) -> bool:
    """Return whether a run makes a search, which measures the times of algorithms."""
    return bool(table.FAST_RUN.of(settings) or table.FULL_RUN.of(settings))


def strategy_of(settings: Mapping[str, Any]) -> int:
    """Return the number of the engine's strategy that the run's options ask for."""
    reproducible = REPRODUCIBLE if table.REPRODUCIBLE.of(settings) else 0
    if is_search(settings):
        return PROFILE | (reproducible or (OPTIMIZED if table.FAST_RUN.of(settings) else 0))
    return HEURISTIC | reproducible | (PROFILE if table.FAST_RUN_ALGO_POLICY.of(settings) else 0)


def choose_algorithms(driver: LiteDriver, _: object) -> None:
    """Set the engine's strategy and cache file.

    Several options have this function as their hook; only the first call has an effect.
    """
    if driver.algorithms_chosen:
        return
    driver.algorithms_chosen = True
    settings = driver.spec.settings
    batch = int(table.FAST_RUN_SHARED_BATCH_SIZE.of(settings) or 0)
    policy = strategy_of(settings), batch, table.BINARY_EQUAL_BETWEEN_BATCH.of(settings)
    driver.begins_alone = searching = is_search(settings)
    driver.network_setup.append(lambda network: network.set_network_algo_policy(*policy))
    path = table.FAST_RUN_ALGO_POLICY.of(settings)
    if path or (searching and driver.context.work_folder):
        # A search without a cache file has one too, for its progress; it is removed after the run.
        use_cache(driver, Path(str(path)) if path else None, searching=searching)


def use_cache(driver: LiteDriver, path: Path | None, *, searching: bool) -> None:
    """Copy a cache file into the work folder, and have the engine read the copy.

    The engine adds the results of a search to the copy, and never writes the user's file. When the
    worker has ended, even if it was interrupted, `keep_search` merges the copy into the user's
    file.

    Raises:
        UsageError: the cache file is damaged, locked or not writable, or it is missing and the run
            makes no search.
    """
    cache = known_cache(path, searching=searching) if path else {}
    if driver.runner:  # all runners of the process share the first one's cache
        return
    if path and table.WINOGRAD_TRANSFORM.of(driver.spec.settings) and not searching:
        cache = caches.prefer_winograd(cache)
    copy = work_copy(driver.context)
    for place in (copy, known_before(driver.context)):
        place.write_bytes(caches.bytes_of(cache))
    driver.lite.LiteGlobal.set_persistent_cache(str(copy), searching)
    # Choices are only made in the warm-up then; without a warm-up, listening would be timed.
    if not searching and driver.spec.warmup_iterations:
        ChoiceListener(driver.choices.append).begin(FLAG)


def known_cache(path: Path, *, searching: bool) -> AlgorithmCache:
    """Return the content of a cache file, which is empty if the search will create the file.

    Raises:
        UsageError: the cache file is damaged, locked or not writable, or it is missing and the run
            makes no search.
    """
    cache = {} if searching and not path.exists() else read_cache(path)
    if searching:
        from lar.files.locks import locked  # most runs search nothing
        from lar.files.report_file import check_writable

        with locked(str(path.resolve().parent), FLAG):  # check now, before the long search
            check_writable(str(path), FLAG)
    return cache


def work_copy(context: RunContext) -> Path:
    """Return the path of the engine's own copy of the cache."""
    return Path(context.work_folder) / "engine.cache"


def known_before(context: RunContext) -> Path:
    """Return the path of the copy that holds the cache's content before the search.

    A copy of the old content is needed, because the user's cache file changes during the search.
    """
    return Path(context.work_folder) / "known.cache"


def keep_search(spec: RunSpec, context: RunContext) -> None:
    """Merge the results of a search into the user's cache file.

    Raises:
        UsageError: the file cannot be written.
    """
    policy, found = table.FAST_RUN_ALGO_POLICY.of(spec.settings), found_by(context)
    if policy and found and is_search(spec.settings):
        caches.update_cache(str(policy), lambda old: {**old, **found}, FLAG)


def found_by(context: RunContext) -> AlgorithmCache | None:
    """Return the content of the engine's own copy of the cache.

    The result is None if the copy is missing or empty.
    """
    copy = work_copy(context)
    return read_cache(copy) if copy.exists() and copy.stat().st_size else None


def warn_of_missed(driver: LiteDriver, _: str) -> None:
    """Warn if operators were executed that are not in the cache."""
    if not driver.choices:
        return
    ran = choices_in(b"\n".join(driver.choices).decode(errors="replace"))
    operators = caches.operators_of(read_cache(work_copy(driver.context)))
    taken = sum(find_known(choice, operators) != (None, None) for choice in ran)
    driver.uncached_operators = len(ran) - taken
    if taken < len(ran):
        driver.notes.append(
            f"{FLAG}: the cache has {taken or 'none'} of the {len(ran)} operators that ran: it is "
            "of another model, of a search with other options, or of a search that was cut short; "
            "add --fast-run to search with these options"
        )


def is_of(choice: LoggedChoice, operator: Operator) -> bool:
    """Return whether a logged choice may be for a given operator of a cache.

    The result may be wrong, since the log does not contain all parameters of an operator. A size of
    0 in the shape of a cached operator stands for any batch size.
    """

    def fits(operand: Operand, ran: Sequence[int]) -> bool:
        sizes = [size or real for size, real in zip(operand.shape, ran, strict=False)]
        return len(operand.shape) == len(ran) and sizes == [*ran]

    operands, shapes = operator.operands, choice.shapes
    is_alike = choice.operator == operator.name and len(operands) == len(shapes)
    return is_alike and all(map(fits, operands, shapes))


def find_known(
    choice: LoggedChoice, operators: Iterable[Operator]
) -> tuple[Operator, Algorithm] | tuple[None, None]:
    """Find a logged choice in a cache; return the operator of the choice and the chosen algorithm.

    The operator and the algorithm are None if the cache does not contain this choice.
    """
    known = (
        (operator, algorithm)
        for operator in operators
        if is_of(choice, operator)
        for algorithm in operator.algorithms
        if algorithm.name == choice.algorithm
    )
    return next(known, (None, None))


def describe_search(spec: RunSpec, context: RunContext) -> str:
    """Return a text with the number of operators that the search has measured so far."""
    if not (context.work_folder and is_search(spec.settings)):
        return ""
    known = count_entries(known_before(context))
    measured = max(0, count_entries(work_copy(context)) - known)
    # If the cache has some operators already, maybe no operator is left to measure.
    if known and not measured:
        return ""
    return f"searching: {measured} operator{'s' if measured != 1 else ''} measured"


def count_entries(path: Path) -> int:
    """Return the number of a cache's entries, 0 while the cache file is being written."""
    try:
        return len(read_cache(path))
    except UsageError:
        return 0


# `--tensorrt` and `--tensorrt-cache`: TensorRT computes the operators that it can, on CUDA devices.
#
# TensorRT builds an engine for each part of the graph, which takes long; the cache file keeps the
# engines. It holds the number of engines, and for each its key and its content, both after their
# size. Numbers have 32 bits, little endian (src/tensorrt/impl/tensorrt_engine_cache.cpp in
# MegEngine).

VERSION = "_ZN3mgb20get_tensorrt_versionEv"  # -1 in a library without TensorRT


def use_tensorrt(driver: LiteDriver, _: bool) -> None:
    """Have the network use TensorRT.

    Raises:
        UsageError: this MegEngine is built without TensorRT.
    """
    if find_function(table.TENSORRT.flag, VERSION, [], ctypes.c_int)() < 0:
        problem = "this MegEngine is built without TensorRT"
        raise UsageError(problem, "leave the flag out", flag=table.TENSORRT.flag)
    driver.network_setup.append(lambda network: network.use_tensorrt())


def use_engines(driver: LiteDriver, path: str) -> None:
    """Copy a cache file of TensorRT's engines into the work folder, for MegEngine to read.

    Raises:
        UsageError: the file cannot be read or written, or is not a cache of TensorRT's engines.
    """
    from lar.files.report_file import check_writable

    if driver.runner:
        return
    place, copy = Path(path), engines_copy(driver)
    if place.exists():
        copy.write_bytes(read_engines(place))
    check_writable(path, table.TENSORRT_CACHE.flag)
    driver.call("LITE_set_tensor_rt_cache", str(copy).encode())


def keep_engines(driver: LiteDriver, path: str) -> None:
    """Replace the content of the cache file by all of TensorRT's engines that this run has used.

    Raises:
        UsageError: the file cannot be written.
    """
    from lar.files.report_file import OutputFile

    driver.call("LITE_dump_tensor_rt_cache")
    with OutputFile(os.path.realpath(path), "--tensorrt-cache", is_text=False) as file:
        file.write(engines_copy(driver).read_bytes())


def engines_copy(driver: LiteDriver) -> Path:
    """Return the path at which MegEngine itself keeps the cache of TensorRT's engines."""
    return Path(driver.context.work_folder) / "tensorrt.cache"


def read_engines(path: Path) -> bytes:
    """Return the content of a cache file of TensorRT's engines.

    Raises:
        UsageError: the file cannot be read, or is not a whole cache.
    """
    data = read_input(path, table.TENSORRT_CACHE.flag)
    try:
        reader = caches.Reader(data)
        reader.pairs()
        reader.end()
    except ValueError as error:
        problem = f"is not a cache of TensorRT's engines, or is damaged: {error}"
        hint = "choose another file"
        raise UsageError(problem, hint, flag=table.TENSORRT_CACHE.flag, subject=path) from None
    return data


# `--winograd-transform`: winograd algorithms for all operators that have one in the cache.
#
# lar also measures how much faster they are, and how far their numbers are from other algorithms'.
# The engine keeps a choice until its process ends, so the run is made in steps, each in its own
# process:
#
# 1. With --fast-run or --full-run, the search.
# 2. An iteration that prefers winograd algorithms; the engine's log shows the algorithms it took.
# 3. An iteration without winograd algorithms, to compare the numbers.
# 4. The run that the user asked for, which prefers winograd algorithms.
#
# The user's cache file keeps the results of the search in the order of the search.


Step = Callable[[RunSpec, RunContext, Listener], RunResult]

# The usual error of winograd in float32 is at most a thousandth of this.
LARGE_ERROR = 0.01
WRONG = (
    "--winograd-transform: the numbers of winograd algorithms are far from the others'; "
    "leave it out, or pick other algorithms with `lar cache pick`"
)


def choices_of(
    ran: Sequence[LoggedChoice], cache: AlgorithmCache
) -> tuple[records.AlgorithmChoice, ...]:
    """Return a record of each convolution that ran, with the times that the search measured.

    Each entry of the cache is used for at most one convolution.
    """
    choices = []
    left = caches.operators_of(cache)
    for each in (choice for choice in ran if "Conv" in choice.operator):
        name, winograd = each.algorithm, winograd_of(each.algorithm)
        choice = records.AlgorithmChoice(
            operator=each.operator, shapes=each.text, algorithm=name, winograd=winograd
        )
        operator, timed = find_known(each, left)
        if operator and timed:
            left.remove(operator)
            choice = replace(choice, shapes=operator.shapes, seconds=timed.seconds)
            other = caches.best_of(operator.algorithms, caches.is_direct)
            if timed.winograd and other:
                choice = replace(choice, other_algorithm=other.name, other_seconds=other.seconds)
        choices.append(choice)
    return tuple(choices)


@dataclass(eq=False)
class StepFailed(Exception):
    """The exception for a failed step; the result of the step becomes the result of the run."""

    result: RunResult


class StepListener(SideListener):
    """Stores the engine's log of a step, and passes log and progress to another listener."""

    log = b""

    def on_log(self, text: bytes) -> None:
        self.log += text
        super().on_log(text)


class Tried(NamedTuple):
    """The chosen algorithms and the outputs of an iteration that used a given cache."""

    choices: list[LoggedChoice]
    outputs: tuple[records.OutputSummary, ...]
    folder: Path


def run_with_winograd(
    step: Step, run: Step, spec: RunSpec, context: RunContext, listener: Listener
) -> RunResult:
    """Execute a run that prefers winograd algorithms, and report how much time winograd saves.

    `step` executes a spec in a separate worker process, and `run` executes the run that the user
    asked for.

    Raises:
        UsageError: the cache file cannot be used.
    """
    policy = table.FAST_RUN_ALGO_POLICY.of(spec.settings)
    searching = is_search(spec.settings)
    if (spec.warmup_iterations + spec.iterations == 0) or not (policy or searching):
        return run(spec, context, listener)
    cache = known_cache(Path(str(policy)), searching=searching) if policy else {}
    steps = Steps(spec, context, listener, step)
    errors: tuple[records.NumericError, ...] = ()
    try:
        if searching:
            cache = steps.search(cache)
        preferred = steps.try_cache("winograd", caches.prefer_winograd(cache))
        chosen = choices_of(preferred.choices, cache)
        if any(choice.winograd for choice in chosen):
            direct = steps.try_cache("direct", caches.without_winograd(cache))
            errors = tuple(compare_outputs(preferred, direct))
    except StepFailed as stopped:
        return stopped.result
    result = run(*steps.with_cache(caches.prefer_winograd(cache), "run"), listener)
    if any(each.relative is None or each.relative > LARGE_ERROR for each in errors):
        result = replace(result, warnings=(*result.warnings, WRONG))
    return replace(result, algorithms=chosen, numeric_errors=errors)


@dataclass(frozen=True)
class Steps:
    """The steps that precede a run with winograd algorithms.

    Each step has its own folder in the work folder of the run.
    """

    spec: RunSpec
    context: RunContext
    listener: Listener
    step: Step

    def search(self, known: AlgorithmCache) -> AlgorithmCache:
        """Search for algorithms for operators that the cache lacks; return the whole cache.

        The results are also written into the user's cache file.
        """
        spec = replace(alone(self.with_cache(known, "search")[0]), iterations=0)
        # The step has the run's own work folder, so its results are kept even if it fails.
        self.execute("the search", spec, self.context, StepListener(self.listener))
        keep_search(self.spec, self.context)
        return found_by(self.context) or known

    def try_cache(self, name: str, cache: AlgorithmCache) -> Tried:
        """Execute a warm-up iteration and one more iteration with a cache.

        Two iterations are needed, since with --fake-first the first iteration computes nothing.
        """
        asked, context = self.with_cache(cache, name)
        spec = alone(asked)
        spec = replace(spec, settings={**spec.settings, table.VERBOSE.key: True})
        listener, folder = StepListener(Listener()), Path(context.work_folder) / "outputs"
        context = replace(context, outputs_folder=str(folder))
        result = self.execute(f"the trial of {name} algorithms", spec, context, listener)
        return Tried(choices_in(listener.log.decode(errors="replace")), result.outputs, folder)

    def with_cache(self, cache: AlgorithmCache, name: str) -> tuple[RunSpec, RunContext]:
        """Return the spec and the context of the run, with another cache file and work folder."""
        folder = Path(self.context.work_folder) / name
        folder.mkdir(exist_ok=True)
        path = folder / "given.cache"
        path.write_bytes(bytes_of(cache))
        settings = {**self.spec.settings, table.FAST_RUN_ALGO_POLICY.key: str(path)}
        return replace(self.spec, settings=settings), replace(self.context, work_folder=str(folder))

    def execute(
        self, name: str, spec: RunSpec, context: RunContext, listener: Listener
    ) -> RunResult:
        """Execute a step, which writes its files into its own folder; the folder is removed later.

        Raises:
            StepFailed: the step failed.
        """
        written = {
            key: str(Path(context.work_folder) / key) + Path(path).suffix
            for key, path in context.written.items()
            if key in spec.settings
        }
        result = self.step(spec, replace(context, written=written), listener)
        if result.status == "ok":
            return result
        failure = result.failure
        # A usage error or an interruption concerns the run itself, so its message stays.
        if failure and failure.exit_code not in (2, EXIT_CODES["interrupted"]):
            failure = failure.within(name)
        none = records.Samples()
        raise StepFailed(replace(result, failure=failure, warmup=none, samples=none))


def alone(spec: RunSpec) -> RunSpec:
    """Return the spec of a step: one warm-up iteration and one timed iteration, without dumps.

    A step has no time limit. A step has only one runner and one testcase, since further runners or
    testcases would disturb the measurement.
    """
    settings = {
        key: value
        for key, value in spec.settings.items()
        if key != table.THREAD.key and table.BY_KEY[key].purpose != "dump"
    }
    if table.MULTI_THREAD_CORE_IDS.is_given(settings):
        cores = str(settings[table.MULTI_THREAD_CORE_IDS.key]).split(",")
        settings[table.MULTI_THREAD_CORE_IDS.key] = ",".join(cores[: len(cores) // spec.runners])
    once = replace(spec, settings=settings, cases=spec.cases[:1], warmup_iterations=1, iterations=1)
    return replace(once, stopping=Stopping(), pacing=Pacing())


def compare_outputs(actual: Tried, expected: Tried) -> Iterator[records.NumericError]:
    """Yield the numeric error of each output of a step, compared with another step's output."""
    import numpy as np

    from lar.comparison.metrics import bounds_of, measure

    for index, output in enumerate(actual.outputs):
        files = [tried.folder / f"{index:03}.npy" for tried in (actual, expected)]
        if all(file.exists() for file in files):
            first, second = map(np.load, files)
            found = measure(first, second, bounds_of(Tolerance(), output.dtype))
            is_finite = not found.nonfinite_mismatches
            yield records.NumericError(
                output=output.name,
                absolute=found.max_absolute or 0.0 if is_finite else None,
                relative=found.max_error or 0.0 if is_finite else None,
            )
