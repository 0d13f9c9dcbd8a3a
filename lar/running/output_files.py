"""The files and folders that an engine writes during a run: a dumped model, dumped tensors.

The engine writes them beside their places. They move there when the run has ended well; what stood
there stays until then. Dumps move however the run ended: people look for the tensors before a
crash.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lar.engines import engine_named
from lar.errors import UsageError, count_of, error_of_write, printable_lines, writing
from lar.files.report_file import open_for_writing, take_place
from lar.files.work_folders import error_of_full_disk, work_folder
from lar.measurement.machine import read_model_file
from lar.options.option import Option
from lar.options.paths import index_place
from lar.options.table import BIN_OUT_DUMP, BY_KEY
from lar.records.run import Failure, RunContext, RunResult, RunSpec
from lar.running.plan import STREAMS, TENSORS


def artifacts_of(spec: RunSpec) -> dict[Option[Any], Path]:
    """Return the files and folders that a run writes, by their options."""
    options = (BY_KEY[key] for key in spec.settings if key in BY_KEY)
    return {each: Path(str(spec.settings[each.key])) for each in options if each.writes}


@contextlib.contextmanager
def place_artifacts(spec: RunSpec, context: RunContext) -> Iterator[tuple[RunSpec, RunContext]]:
    """Have the engine write into folders beside the places, which go away in the end.

    The outputs of a data set are written to their place right away. To resume one, the run has
    the items left.

    Raises:
        UsageError: a place cannot be written, or has a dump that may not be overwritten; the
            flag is named.
    """
    with contextlib.ExitStack() as stack:
        written = {}
        for option, place in artifacts_of(spec).items():
            with writing(place, option.flag):
                grows = option is BIN_OUT_DUMP and bool(spec.items)
                folder = stack.enter_context(folder_beside(place, option.writes, option.flag))
                if not (grows and context.resume and place.is_dir()):
                    check_place(place, option.flag, option.writes, context.overwrite)
                if option in TENSORS:
                    check_place(index_place(place), option.flag, "file", context.overwrite)
                if grows and (context.resume or not place.is_dir() or not any(place.iterdir())):
                    spec = stack.enter_context(grow_dump(spec, place))
                    written[option.key] = str(place)
                    continue
            written[option.key] = os.path.join(folder, "written" + place.suffix)
        yield spec, replace(context, written=written)


@contextlib.contextmanager
def grow_dump(spec: RunSpec, place: Path) -> Iterator[RunSpec]:
    """Give the spec of the items whose outputs a folder lacks.

    They are written right there, so that finished items stay even if lar is killed; until the end
    the index says that items are missing. A folder that stays empty goes away again.

    Raises:
        UsageError: the folder is of another run.
        OSError: it cannot be written.
    """
    from lar.dumps.resuming import go_on

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
    """Make a folder for what goes to a place: beside it, in the nearest folder that exists where
    folders are made.

    Raises:
        UsageError: another process writes the same folder.
        OSError: it cannot be made.
    """
    if kind in STREAMS:
        return work_folder()
    if kind == "file":
        # What a link leads to is replaced. If two runs write one file, the later one wins.
        return work_folder(os.path.dirname(os.path.realpath(place)))
    parent = next(it for it in (*place.absolute().parents, Path(os.sep)) if it.exists())
    # If two wrote one folder, nobody would know which file is whose.
    return work_folder(os.path.realpath(parent), claim=str(place), flag=flag)


def check_place(place: Path, flag: str, kind: str, overwrite: bool) -> None:
    """Refuse a place that does not fit.

    Raises:
        UsageError: a folder where a file should go, or a folder with something in it.
        OSError: it may not be written.
    """
    refusal = partial(UsageError, flag=flag, subject=place)
    if kind == "folder":
        if place.exists() and not place.is_dir():
            raise refusal("is not a folder", "choose another name")
        found = [*place.iterdir()] if place.is_dir() else []
        if found and not overwrite:
            hint = "give a new folder, or --overwrite to replace the dump in it"
            raise refusal("the folder is not empty", hint)
        from lar.dumps.index import is_tensor

        if not all(map(is_tensor, found)):
            problem = "--overwrite replaces dumps only, and something else is in it"
            raise refusal(problem, "give a new folder")
    elif kind not in STREAMS and place.exists():
        if place.is_dir():
            raise refusal("is a folder; give a file name")
        if not place.is_file():
            raise refusal("is not a regular file", "give a file name")
        open_for_writing(place)


def deliver_artifacts(spec: RunSpec, written: Mapping[str, str], result: RunResult) -> RunResult:
    """Move what the engine has written to its places; return the result with further warnings.

    Raises:
        UsageError: the engine wrote nothing, or the place cannot be written any more.
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
            problem, hint = "the engine has written nothing", "it writes when it runs: --iter 1"
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
    """Return a place as a message names it: output for a stream waits in a temporary file."""
    return tempfile.gettempdir() if option.writes in STREAMS else str(place)


def full_disk_of(spec: RunSpec, written: Mapping[str, str]) -> Failure | None:
    """Return the failure of a run if the disk is too full for what its engine writes, else None.

    lar looks for it when a run has failed: few engines report it.
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
    """Filter a dump, and write the index of one that is a folder.

    Returns the item or testcase that was dumped, empty if it was all there is.

    Raises:
        UsageError: it is damaged, or the filter leaves nothing.
        OSError: it cannot be written.
    """
    from lar.dumps.delivery import finish_dump, finish_text, name_of_run, number_of_run

    pattern = str(spec.settings.get("dump_filter", ""))
    facts = engine_named(spec.engine).describe_dump(source)
    if option in TENSORS:
        from lar.engines.model_names import name_by_model

        name = partial(name_by_model, model=Path(spec.model), engine=spec.engine)
        index = finish_dump(source, facts, pattern, spec, result, name)
        return "" if option is BIN_OUT_DUMP else name_of_run(spec, index.iteration)
    finish_text(source, pattern, result.status == "ok")
    # An engine that does not say which iteration it was has dumped them all, one after the other.
    first = facts.iteration
    return "" if first is None else name_of_run(spec, number_of_run(spec, first))


def deliver(source: Path, place: Path, kind: str) -> None:
    """Move what was written to its place, with its index if it has one; an old dump there goes.

    Raises:
        OSError: it cannot be.
    """
    if kind in STREAMS:
        with source.open(encoding="utf-8", errors="replace", newline="\n") as text:
            stream = sys.stdout if kind == "stdout" else sys.stderr
            stream.writelines(map(printable_lines, text))
        return
    os.makedirs(place.absolute().parent, exist_ok=True)
    if source.is_dir() and place.is_dir():
        # The folder stays: somebody may stand in it, or have mounted it.
        for old in [*place.iterdir()]:
            old.unlink()
        for new in source.iterdir():
            shutil.move(new, place / new.name)
    else:
        take_place(source, Path(os.path.realpath(place)))  # what a link leads to is replaced
    index = index_place(source)
    if index.exists():
        os.replace(index, index_place(place))
