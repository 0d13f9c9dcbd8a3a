"""The files that an engine writes during a run, as a dumped model.

The engine writes them beside their places; they take their places whole, when the run has ended
well, and what stood there before stays until then.
"""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from lar.errors import UsageError
from lar.options import BY_KEY
from lar.records import RunSpec


def artifacts_of(spec: RunSpec) -> dict[str, Path]:
    """Return the files and folders that a run writes, by the option's key."""
    return {
        key: Path(str(value))
        for key, value in spec.settings.items()
        if key in BY_KEY and BY_KEY[key].writes
    }


@contextlib.contextmanager
def place_artifacts(spec: RunSpec) -> Iterator[RunSpec]:
    """Give a spec whose engine writes into folders beside the places, which go away in the end.

    Raises:
        UsageError: a place cannot be written; the flag is named.
    """
    with contextlib.ExitStack() as stack:
        written = {}
        for key, place in artifacts_of(spec).items():
            flag = BY_KEY[key].flag
            try:
                check_place(place, flag, BY_KEY[key].writes)
                beside = os.path.realpath(place.absolute().parent)
                folder = stack.enter_context(
                    tempfile.TemporaryDirectory(prefix=".lar-", dir=beside)
                )
            except OSError as error:
                raise cannot_write(flag, place, error) from None
            written[key] = os.path.join(folder, "written" + place.suffix)
        yield replace(spec, written=written) if written else spec


def check_place(place: Path, flag: str, kind: str) -> None:
    """Refuse a place that does not fit.

    Raises:
        UsageError: a folder where a file should go, or a folder with something in it.
        OSError: it may not be written.
    """
    if kind == "folder":
        if place.exists() and not place.is_dir():
            raise UsageError(f"{flag}: {place}: is not a folder", "choose another name")
        if place.is_dir() and any(place.iterdir()):
            raise UsageError(f"{flag}: {place}: the folder is not empty", "give a new folder")
    elif place.is_dir():
        raise UsageError(f"{flag}: {place}: is a folder; give a file name")
    elif place.exists() and not place.is_file():
        raise UsageError(f"{flag}: {place}: is not a regular file", "give a file name")
    elif place.exists() and not os.access(place, os.W_OK):
        raise PermissionError(13, "permission denied")


def deliver_artifacts(spec: RunSpec) -> None:
    """Move what the engine has written to its places.

    Raises:
        UsageError: the engine wrote nothing, or the place cannot be written any more.
    """
    for key, place in artifacts_of(spec).items():
        flag, source = BY_KEY[key].flag, Path(spec.written[key])
        if not source.exists():
            raise UsageError(f"{flag}: {place}: the engine has written nothing")
        try:
            if source.is_dir():
                with contextlib.suppress(FileNotFoundError):
                    place.rmdir()  # it was empty when the run began
            elif place.exists():
                source.chmod(stat.S_IMODE(place.stat().st_mode))
            # What a link leads to is replaced, not the link.
            os.replace(source, os.path.realpath(place))
        except OSError as error:
            raise cannot_write(flag, place, error) from None


def cannot_write(flag: str, place: Path, error: OSError) -> UsageError:
    reason = (error.strerror or str(error)).lower()
    return UsageError(f"{flag}: {place}: cannot be written: {reason}", "choose another place")
