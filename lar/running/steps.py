"""The steps of a run in the parent process, from preparing its files to its result.

    Make temporary places for the files that the run writes.
      Unpack the testcases of the run.
        Before a profiled run, make a plain run, which measures the times.
          Make a work folder, in which the engine may leave files.
            Run the model in a worker process, or in this process.
          Let the engine save results from the work folder, and remove this folder.
      Move the files of the run to their final places.

Each step is a function of the spec and the context. A step may change the spec and the context,
then calls the next step with them, and returns the result of the next step. A step that the run
does not need does nothing.

An engine writes files and folders during a run, such as a dumped model or dumped tensors. Each file
or folder is written into a temporary folder beside its final place. When the run has ended without
failure, lar moves the files to their final places; until then, old files stay. Dumps are moved even
if the run failed, since users need the tensors that were dumped before a crash.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from lar.engines import engine_named
from lar.engines.listener import Listener, SideListener
from lar.errors import LarError, UsageError, count_of, error_of_write, printable_lines, writing
from lar.files.report_file import check_replaceable, head_of, open_for_writing, take_place
from lar.files.work_folders import error_of_full_disk, work_folder
from lar.measurement.machine import read_instruction_sets, read_model_file
from lar.measurement.rows import SampleRows
from lar.measurement.summary import accuracy_of, summarize
from lar.options.option import Option
from lar.options.paths import index_place
from lar.options.table import (
    BIN_OUT_DUMP,
    BY_KEY,
    GET_STATIC_MEM_INFO,
    IO_DUMP,
    PROFILE_FILES,
    PROFILE_SYSCALLS,
    PROFILES,
    one_of,
)
from lar.records.events import Unpacked
from lar.records.run import Failure, RunContext, RunResult, RunSpec
from lar.running.isolation import INTERRUPTED, run_here, run_isolated, run_task, with_model
from lar.running.plan import STREAMS, TENSORS
from lar.running.worker_process import WorkerProcess

if TYPE_CHECKING:
    from lar.records.profile import Profile

MEMORY_PLAN = {"StaticMemoryInfo.json", "graph.json"}  # the files of --get-static-mem-info


def artifacts_of(spec: RunSpec) -> dict[Option[Any], Path]:
    """Return the path of each file or folder that a run writes, by the option that names it."""
    options = (BY_KEY[key] for key in spec.settings if key in BY_KEY)
    return {each: Path(str(spec.settings[each.key])) for each in options if each.writes}


@contextlib.contextmanager
def place_artifacts(spec: RunSpec, context: RunContext) -> Iterator[tuple[RunSpec, RunContext]]:
    """Let the engine write into temporary folders beside the final places of its files.

    Only the outputs of a data set are written directly to their final place. A resumed run has only
    those items of the data set that have no outputs yet.

    Raises:
        UsageError: a path cannot be written, or has a dump that may not be overwritten; the message
            names the flag to which the path was given.
    """
    with contextlib.ExitStack() as stack:
        written = {}
        for option, place in artifacts_of(spec).items():
            with writing(place, option.flag):
                grows = option is BIN_OUT_DUMP and bool(spec.items)
                folder = stack.enter_context(folder_beside(place, option.writes, option.flag))
                if not (grows and context.resume and place.is_dir()):
                    check_place(place, option.flag, option.writes, context.overwrite)
                if option in (IO_DUMP, *PROFILE_FILES):
                    check_replaceable(place, option.flag)
                if option in TENSORS:
                    check_index(index_place(place), option.flag)
                if grows and (context.resume or not place.is_dir() or not any(place.iterdir())):
                    spec = stack.enter_context(grow_dump(spec, place))
                    written[option.key] = str(place)
                    continue
            written[option.key] = os.path.join(folder, "written" + place.suffix)
        yield spec, replace(context, written=written)


@contextlib.contextmanager
def grow_dump(spec: RunSpec, place: Path) -> Iterator[RunSpec]:
    """Yield a spec with only the items whose outputs a folder lacks.

    Outputs are written straight into the folder, so that finished items stay even if lar is killed.
    Until all items are finished, the index says that items are missing. A folder that stays empty
    is removed.

    Raises:
        UsageError: the folder belongs to another run.
        OSError: the folder cannot be written.
    """
    from lar.dumps.delivery import go_on

    model = read_model_file(Path(spec.model))
    made = not place.exists()
    os.makedirs(place, exist_ok=True)
    try:
        yield go_on(spec, place, model.sha256)
    finally:
        with contextlib.suppress(OSError):
            if not any(place.iterdir()):
                index_place(place).unlink(missing_ok=True)
                if made:
                    place.rmdir()


def folder_beside(place: Path, kind: str, flag: str) -> contextlib.AbstractContextManager[str]:
    """Make a temporary folder beside a path, for the files that will be moved to this path.

    For a folder whose parent does not exist, the nearest parent that exists is used.

    Raises:
        UsageError: another process writes the same folder.
        OSError: the temporary folder cannot be made.
    """
    if kind in STREAMS:
        return work_folder()
    if kind == "file":
        # The target of a link is replaced. If two runs write one file, the later run wins.
        return work_folder(os.path.dirname(os.path.realpath(place)))
    parent = next(it for it in (*place.absolute().parents, Path(os.sep)) if it.exists())
    # Two processes must not write the same folder, or their files would be mixed.
    return work_folder(os.path.realpath(parent), claim=str(place), flag=flag)


def may_replace(flag: str, path: Path) -> bool:
    """Return whether --overwrite may replace a file in the folder that a flag names."""
    if flag == GET_STATIC_MEM_INFO.flag:
        return path.name in MEMORY_PLAN
    from lar.dumps.index import is_tensor

    return flag != "-o" and is_tensor(path)  # `lar pack -o` replaces no folder


def check_index(place: Path, flag: str) -> None:
    """Refuse a path to which the index of a dump cannot be written.

    Raises:
        UsageError: the path is a folder, or a file that is not the index of a dump.
        OSError: the path may not be written.
    """
    check_place(place, flag, "file")
    if (head := head_of(place)) and b'"lar.dump/' not in head:
        problem = "is not the index of a dump, so lar does not replace it"
        raise UsageError(problem, "give another folder, or remove it", flag=flag, subject=place)


def check_place(place: Path, flag: str, kind: str, overwrite: bool = False) -> None:
    """Refuse a path to which a file or a folder cannot be written.

    Raises:
        UsageError: the path of a file is a folder, the path of a folder is a file, or the folder is
            not empty.
        OSError: the path may not be written.
    """
    refusal = partial(UsageError, flag=flag, subject=place)
    if kind == "folder":
        if place.exists() and not place.is_dir():
            raise refusal("is not a folder", "choose another name")
        found, hint = [*place.iterdir()] if place.is_dir() else [], "give a new folder"
        is_replaceable = all(may_replace(flag, each) for each in found)
        if found and not overwrite:
            hint += ", or --overwrite to replace what is in it" * is_replaceable
            raise refusal("the folder is not empty", hint)
        if not is_replaceable:
            problem = f"--overwrite replaces only what {flag} wrote, and something else is in it"
            raise refusal(problem, hint)
    elif kind not in STREAMS and place.exists():
        if place.is_dir():
            raise refusal("is a folder; give a file name")
        if not place.is_file():
            raise refusal("is not a regular file", "give a file name")
        open_for_writing(place)


def deliver_artifacts(spec: RunSpec, written: Mapping[str, str], result: RunResult) -> RunResult:
    """Move the engine's files to their final places; return the result with further warnings.

    Raises:
        UsageError: the engine wrote nothing, or a path can no longer be written.
    """
    ok, warnings = result.status == "ok", []
    if result.failure is not None and result.failure.exit_code in (2, 4):
        result = replace(result, failure=full_disk_of(spec, written) or result.failure)
    for option, place in artifacts_of(spec).items():
        source, is_dump = Path(written[option.key]), option.purpose == "dump"
        is_empty = not source.exists() or (source.is_dir() and not any(source.iterdir()))
        if not ok and (is_empty or not is_dump):
            continue
        if is_empty:
            nothing_ran = spec.warmup_iterations + spec.iterations == 0
            problem, hint = "the engine has written nothing", "only iterations write it: --iter 1"
            raise UsageError(problem, hint * nothing_ran, flag=option.flag, subject=place)
        with writing(place_named(option, place), option.flag):
            if is_dump and (name := finish(option, source, spec, result)):
                kind = count_of(len(spec.item_names), "item") if spec.items else "all testcases"
                warnings.append(f"{option.flag}: {place}: of {kind} it holds {name} alone")
            if source != place:
                deliver(source, place, option.writes)
        if not ok:
            where = f": {place}" if option.writes not in STREAMS else ""
            warnings.append(f"{option.flag}{where}: holds what was dumped before the run ended")
    return replace(result, warnings=(*result.warnings, *warnings))


def place_named(option: Option[Any], place: Path) -> str:
    """Return how messages name the place to which an option's output is written.

    If the output goes to a stream such as standard output, it is first written into the system's
    temporary folder, and messages name this folder.
    """
    return tempfile.gettempdir() if option.writes in STREAMS else str(place)


def full_disk_of(spec: RunSpec, written: Mapping[str, str]) -> Failure | None:
    """Return the failure of a run whose engine has filled the disk, or None if the disk has room.

    The disk is checked when a run has failed, since few engines report a full disk.
    """
    places = [
        (os.path.dirname(written[option.key]), option.flag, place_named(option, place))
        for option, place in artifacts_of(spec).items()
    ]
    for folder, flag, subject in [*places, (tempfile.gettempdir(), "", tempfile.gettempdir())]:
        if error := error_of_full_disk(folder):
            return Failure.of(error_of_write(error, flag=flag, subject=subject))
    return None


def finish(option: Option[Any], source: Path, spec: RunSpec, result: RunResult) -> str:
    """Filter a dump, and write the index if the dump is a folder.

    If only one item or testcase was dumped, return its name; otherwise return an empty string.

    Raises:
        UsageError: the dump is damaged, or the filter leaves no tensors.
        OSError: the dump cannot be written.
    """
    from lar.dumps.delivery import finish_dump, finish_text, name_of_run, number_of_run

    pattern = str(spec.settings.get("dump_filter", ""))
    facts = engine_named(spec.engine).describe_dump(source)
    if option in TENSORS:
        from lar.engines.model_names import name_by_operators, operators_of

        operators = operators_of(Path(spec.model))
        name = partial(name_by_operators, operators=operators, engine=spec.engine)
        index = finish_dump(source, facts, pattern, spec, result, name)
        return "" if option is BIN_OUT_DUMP else name_of_run(spec, index.iteration)
    finish_text(source, pattern, result.status == "ok")
    # An engine that names no iteration has dumped all iterations, one after the other.
    first = facts.iteration
    return "" if first is None else name_of_run(spec, number_of_run(spec, first))


def deliver(source: Path, place: Path, kind: str) -> None:
    """Move a file or folder, and the index of a dump, to the final place; replace an old dump.

    Raises:
        OSError: the file or folder cannot be moved.
    """
    if kind in STREAMS:
        with source.open(encoding="utf-8", errors="replace", newline="\n") as text:
            getattr(sys, kind).writelines(map(printable_lines, text))
        return
    os.makedirs(place.absolute().parent, exist_ok=True)
    if source.is_dir() and place.is_dir():
        # The folder itself stays: it may be somebody's working directory, or a mount point.
        for old in [*place.iterdir()]:
            old.unlink()
        for new in source.iterdir():
            shutil.move(new, place / new.name)
    else:
        take_place(source, Path(os.path.realpath(place)))  # the target of a link is replaced
    index = index_place(source)
    if index.exists():
        os.replace(index, index_place(place))


IN_GZIP = (
    "the profile has more than 8 MB and is in gzip: `gzip -dc FILE` prints the JSON for programs "
    "that cannot read gzip, such as profile_analyze"
)

Make: TypeAlias = Callable[[RunSpec, RunContext, Listener], RunResult]
"""Makes a run and returns its result."""


def make_run(
    spec: RunSpec,
    context: RunContext,
    listener: Listener | None = None,
    early: WorkerProcess | None = None,
    *,
    make: Make | None = None,
) -> RunResult:
    """Make a planned run, in a worker process or in this process, and return its result.

    `early` is a worker that was started for the run in advance. `make` is a function that makes the
    run on another machine. `make` is called with the spec and the context, after temporary folders
    for the run's files were made.

    Raises:
        UsageError: a file that an option asks for cannot be written.
    """
    launch = run_here if context.in_process else partial(run_isolated, early=early)
    with place_artifacts(spec, context) as (left, placed):
        unpacking = contextlib.nullcontext((left, placed)) if make else unpack_cases(left, placed)
        with unpacking as ready:
            result = (make or maker_of(left, launch))(*ready, listener or Listener())
        result = deliver_artifacts(left, placed.written, result)
    if context.resume and spec.tell_classes:
        from lar.datasets.classes import add_earlier_classes  # few runs need it

        result = add_earlier_classes(spec, result)
    return result_as_asked(spec, left, result)


def maker_of(spec: RunSpec, launch: Make) -> Make:
    """Return a function that makes a run, after the files and testcases of the run are prepared.

    If the engine must divide the run, several worker processes make one part each. For a profile,
    the run is made twice. If the worker leaves files behind, the engine's method `settle` saves
    results from these files after the worker has ended.
    """
    engine, make = engine_named(spec.engine), launch
    if engine.staged and one_of(engine.staged.options, spec.settings):
        make = partial(engine.staged.run, run_isolated, launch)
    if make is not launch or engine.leaves_files(spec):
        make = partial(settle_run, make)
    if one_of(PROFILE_FILES, spec.settings):
        make = partial(run_profiled, make)
    return make


@contextlib.contextmanager
def unpack_cases(spec: RunSpec, context: RunContext) -> Iterator[tuple[RunSpec, RunContext]]:
    """Unpack the model and the testcases of a file that holds both, into a temporary folder.

    Raises:
        UsageError: the file is damaged.
    """
    if all(case.inputs for case in spec.cases):
        yield spec, context
        return
    with work_folder() as folder:
        found = run_task("unpack", Unpacked, spec, replace(context, work_folder=folder))
        asked = {case.name for case in spec.cases}
        cases = tuple(case for case in found.cases if case.name in asked)
        names = {**context.names, found.model: spec.model}
        fed = (file for case in cases for _, file in case.inputs)
        for file in (*fed, *(each.file for case in cases for each in case.expected)):
            names[file] = f"{spec.model}: {os.path.relpath(file, os.path.dirname(found.model))}"
        yield replace(spec, cases=cases), replace(context, model_file=found.model, names=names)


def result_as_asked(spec: RunSpec, ran: RunSpec, result: RunResult) -> RunResult:
    """Return a result with the spec that the user asked for, instead of the spec that was run."""
    numbers = [item.number for item in ran.items] or range(len(spec.cases))
    if numbers and spec.iterations:
        count = len(result.samples.end_to_end)
        cases = tuple(numbers[index // spec.iterations] for index in range(count))
        result = replace(result, samples=replace(result.samples, case=cases))
    result = replace(result, spec=spec)
    count, first, five = accuracy_of(result.items)
    if count:
        result = replace(result, top1=first / count, top5=five / count)
    return replace(result, summary=summarize(result))


def settle_run(make: Make, spec: RunSpec, context: RunContext, listener: Listener) -> RunResult:
    """Make a run in a work folder; then let the engine save results that were left there."""
    engine = engine_named(spec.engine)
    with work_folder() as folder:
        # The run may need several processes, and each of them needs the facts about the model.
        context = replace(with_model(spec, context), work_folder=folder)
        result = make(spec, context, listener)
        try:
            engine.settle(spec, context)
        except LarError as error:
            if result.status == "ok":
                raise
            # The failure of the run itself is more important.
            result = replace(result, warnings=(*result.warnings, error.message))
    return result


class ProfiledRun(SideListener):
    """Passes on only the progress of the profiled run, since the plain run reports all else."""

    def on_rows(self, rows: SampleRows, first: int, last: int, result: RunResult) -> None:
        whole = count_of(result.spec.sample_count, "iteration")
        self.shown.on_progress(f"profiling: {last} of {whole}", time.monotonic() - self.began)


def run_profiled(make: Make, spec: RunSpec, context: RunContext, listener: Listener) -> RunResult:
    """Make a plain run, which measures the times, and then a profiled run, which writes files.

    Return the result of the plain run, with the times of the profiled run added. If the plain run
    fails, the profiled run is not made.

    Raises:
        UsageError: a file cannot be written, or system calls cannot be traced here.
    """
    if PROFILE_SYSCALLS.is_given(spec.settings):
        from lar.measurement.syscalls import require_strace

        require_strace()
    written = context.written
    plain = make(plain_spec(spec), replace(context, written={}), listener)
    if plain.status != "ok":
        return replace(plain, spec=spec)
    result = with_profiled(plain, make(spec, context, ProfiledRun(listener)))
    option = next((each for each in PROFILES if each.key in written), None)
    if result.status != "ok" or option is None:
        return result
    from lar.profiles.trace_file import is_packed, is_packed_name  # few runs are profiled

    place = os.path.abspath(str(spec.settings[option.key]))
    try:
        with writing(place, option.flag):
            complete_profile(written[option.key], place, result, context.deadline(spec))
        in_gzip = is_packed(written[option.key]) and not is_packed_name(place)
    except KeyboardInterrupt:
        return replace(result, status="interrupted", failure=INTERRUPTED)
    return replace(result, warnings=(*result.warnings, IN_GZIP)) if in_gzip else result


def with_profiled(plain: RunResult, profiled: RunResult) -> RunResult:
    """Return the result of a plain run, with the times, status and warnings of the profiled run."""
    failure = profiled.failure
    if failure is not None and profiled.status != "interrupted":
        failure = replace(failure, problem=f"with the profiler: {failure.problem}")
    return replace(
        plain,
        spec=profiled.spec,
        status=profiled.status,
        phase=profiled.phase,
        failure=failure,
        log_tail=profiled.log_tail,
        wall_seconds=profiled.wall_seconds,
        profiled=profiled.samples,
        warnings=tuple(dict.fromkeys((*plain.warnings, *profiled.warnings))),
    )


def plain_spec(spec: RunSpec) -> RunSpec:
    """Return the spec of the same run without a profile and without any files to write."""
    left_out = {it.key for it in BY_KEY.values() if it.purpose == "profile" or it.writes}
    kept = {key: value for key, value in spec.settings.items() if key not in left_out}
    return replace(spec, settings=kept)


def complete_profile(path: str, place: str, result: RunResult, deadline: float | None) -> None:
    """Complete the profile in a file with the facts that only the parent process knows.

    `place` is the final place of the profile.

    Raises:
        OSError: the profile cannot be written.
    """
    import msgspec

    from lar.engines.model_names import name_operators
    from lar.measurement.peak import find_peak
    from lar.profiles.breakdown import noise_of
    from lar.profiles.costs import cost_of, plain_iterations_of
    from lar.profiles.ranges import PYTHON_THREAD, ranges_during, spans_of_ranges, watch_open_ranges
    from lar.profiles.trace_file import change_profile

    model = Path(result.spec.model)

    def complete(profile: Profile) -> Profile:
        facts, t0_ns = profile.facts, profile.facts.clock.t0_ns
        known = {**asdict(result.machine)} if result.machine else {}
        machine = {**known, "instruction_sets": read_instruction_sets()}
        watch_open_ranges(place, t0_ns)
        ranges = tuple(spans_of_ranges(ranges_during(t0_ns), t0_ns))
        folder = ""
        with contextlib.suppress(OSError):  # the working directory may have been removed
            folder = os.getcwd()
        return replace(
            profile,
            facts=msgspec.structs.replace(
                facts,
                arguments=command_line(),
                folder=folder,
                machine=machine,
                peak_memory_bytes=result.peak_memory_bytes,
                cost=cost_of(result.profiled, result.samples),
                peak=None if profile.on_device else find_peak(facts.threads or 1, deadline),
                noise=noise_of(result.profiled, result.spec.runners),
                plain=plain_iterations_of(result.samples),
            ),
            operators=name_operators(profile.operators, model=model, engine=facts.engine),
            spans=ranges,
            threads={PYTHON_THREAD: "python"} if ranges else {},
        )

    change_profile(path, complete)


def command_line() -> tuple[str, ...]:
    """Return the command line of this process if it runs lar itself; empty for another program."""
    program = Path(sys.argv[0]) if sys.argv else Path()
    is_own = program.name == "lar" or program.parts[-2:] == ("lar", "__main__.py")
    return tuple(sys.argv) if is_own else ()
