"""The files and folders that an engine writes during a run: a dumped model, dumped tensors.

The engine writes them beside their places. They move there when the run has ended well; what stood
there stays until then. Dumps move however the run ended: people look for the tensors before a
crash.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

from lar.engines import engine_named
from lar.errors import UsageError, count_of, error_of_write, printable_lines
from lar.files.report_file import open_for_writing
from lar.files.work_folders import error_of_full_disk, work_folder
from lar.measurement.machine import read_model_file
from lar.options.paths import index_place
from lar.options.table import BY_KEY
from lar.records.run import Failure, RunContext, RunResult, RunSpec
from lar.running.plan import STREAMS, TENSORS


def artifacts_of(spec: RunSpec) -> dict[str, Path]:
    """Return the files and folders that a run writes, by the option's key."""
    return {
        key: Path(str(value))
        for key, value in spec.settings.items()
        if key in BY_KEY and BY_KEY[key].writes
    }


@contextlib.contextmanager
def place_artifacts(spec: RunSpec, context: RunContext) -> Iterator[tuple[RunSpec, RunContext]]:
    """Have the engine write into folders beside the places, which go away in the end.

    The outputs of a data set are written to their place right away. To resume one, the run has
    the items left.

    Raises:
        UsageError: a place cannot be written, or has a dump that may not be overwritten; the
            flag is named.
    """
    overwrite, resume = context.overwrite, context.resume
    with contextlib.ExitStack() as stack:
        written = {}
        for key, place in artifacts_of(spec).items():
            flag, kind = BY_KEY[key].flag, BY_KEY[key].writes
            try:
                grows = key == "bin_out_dump" and bool(spec.items)
                # If two runs write one file, the later one wins; if two write one folder, nobody
                # would know which file is whose.
                claim = str(place) if kind == "folder" else ""
                beside = folder_beside(place, kind)
                folder = stack.enter_context(work_folder(beside, claim=claim, flag=flag))
                if not (grows and resume and place.is_dir()):
                    check_place(place, flag, kind, overwrite)
                if BY_KEY[key] in TENSORS:
                    check_place(index_place(place), flag, "file", overwrite)
                if grows and (resume or not place.is_dir() or not any(place.iterdir())):
                    spec = stack.enter_context(grow_dump(spec, place))
                    written[key] = str(place)
                    continue
            except OSError as error:
                raise error_of_write(error, flag=flag, subject=place) from None
            written[key] = os.path.join(folder, "written" + place.suffix)
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


def folder_beside(place: Path, kind: str) -> str | None:
    """Return the folder that a place is in, the nearest that exists where folders are made."""
    if kind in STREAMS:
        return None
    if kind == "file":
        return os.path.dirname(os.path.realpath(place))  # what a link leads to is replaced
    parent = place.absolute().parent
    while not parent.exists():
        parent = parent.parent
    return os.path.realpath(parent)


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
        if found:
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
    for key, place in artifacts_of(spec).items():
        flag, source = BY_KEY[key].flag, Path(written[key])
        if not ok and BY_KEY[key].purpose != "dump":
            continue
        if not source.exists() or (source.is_dir() and not any(source.iterdir())):
            if not ok:
                continue
            nothing_ran = spec.warmup_iterations + spec.iterations == 0
            hint = "it writes when it runs: --iter 1" if nothing_ran else ""
            raise UsageError("the engine has written nothing", hint, flag=flag, subject=place)
        try:
            if BY_KEY[key].purpose == "dump" and (name := finish(key, source, spec, result)):
                kind = count_of(len(spec.item_names), "item") if spec.items else "all testcases"
                warnings.append(f"{flag}: {place}: of {kind} it holds {name} alone")
            if source != place:
                deliver(source, place, BY_KEY[key].writes)
        except OSError as error:
            subject = place_named(key, place)
            raise error_of_write(error, flag=flag, subject=subject) from None
        if not ok:
            where = f": {place}" if BY_KEY[key].writes not in STREAMS else ""
            warnings.append(f"{flag}{where}: holds what was dumped before the run ended")
    return replace(result, warnings=(*result.warnings, *warnings)) if warnings else result


def place_named(key: str, place: Path) -> str:
    """Return a place as a message names it: output for a stream waits in a temporary file."""
    return tempfile.gettempdir() if BY_KEY[key].writes in STREAMS else str(place)


def full_disk_of(spec: RunSpec, written: Mapping[str, str]) -> Failure | None:
    """Return the failure of a run if the disk is too full for what its engine writes, else None.

    lar looks for it when a run has failed: few engines report it.
    """
    temporary = tempfile.gettempdir()
    places = [(temporary, "", temporary)]
    for key, place in written.items():
        subject = place_named(key, Path(str(spec.settings[key])))
        places.insert(-1, (os.path.dirname(place), BY_KEY[key].flag, subject))
    for folder, flag, subject in places:
        if error := error_of_full_disk(folder):
            return Failure.of(error_of_write(error, flag=flag, subject=subject))
    return None


def finish(key: str, source: Path, spec: RunSpec, result: RunResult) -> str:
    """Filter a dump, and write the index of one that is a folder.

    Returns the item or testcase that was dumped, empty if it was all there is.

    Raises:
        UsageError: it is damaged, or the filter leaves nothing.
        OSError: it cannot be written.
    """
    from lar.dumps.delivery import finish_dump, finish_text, name_of_run, number_of_run

    pattern = str(spec.settings.get("dump_filter", ""))
    facts = engine_named(spec.engine).describe_dump(source)
    if BY_KEY[key] in TENSORS:
        from lar.engines.model_names import name_by_model

        name = partial(name_by_model, model=Path(spec.model), engine=spec.engine)
        index = finish_dump(source, facts, pattern, spec, result, name)
        return "" if key == "bin_out_dump" else name_of_run(spec, index.iteration)
    finish_text(source, pattern, result.status == "ok")
    # An engine that does not say which iteration it was has dumped them all, one after the other.
    first = facts.iteration
    return "" if first is None else name_of_run(spec, number_of_run(spec, first))


def deliver(source: Path, place: Path, kind: str) -> None:
    """Move what was written to its place.

    Raises:
        OSError: it cannot be.
    """
    if kind in STREAMS:
        with source.open(encoding="utf-8", errors="replace", newline="\n") as text:
            stream = sys.stdout if kind == "stdout" else sys.stderr
            stream.writelines(map(printable_lines, text))
    elif source.is_dir():
        deliver_folder(source, place)
    else:
        if place.exists():
            source.chmod(stat.S_IMODE(place.stat().st_mode))
        # What a link leads to is replaced, not the link.
        os.replace(source, os.path.realpath(place))


def deliver_folder(source: Path, place: Path) -> None:
    """Move a folder to its place, and its index if it has one; an old dump there goes.

    Raises:
        OSError: it cannot be.
    """
    os.makedirs(place.absolute().parent, exist_ok=True)
    if place.is_dir():  # the folder stays: somebody may stand in it, or have mounted it
        for old in [*place.iterdir()]:
            old.unlink()
        for new in source.iterdir():
            shutil.move(new, place / new.name)
    else:
        os.replace(source, os.path.realpath(place))
    index = index_place(source)
    if index.exists():
        os.replace(index, index_place(place))
