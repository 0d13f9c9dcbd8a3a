"""Files on a worker by their content, and the folders of jobs that are made of them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

# Stands for the folder of a job in its request; the worker puts its own there.
ROOT = "/@lar-job@"
# In that folder: what is sent, under its whole path on the client, and what the run writes.
FILES, WRITTEN = "files", "written"
# Of the disk; with less, files that were not used lately make room.
FREE_SHARE = 0.05


@dataclass(frozen=True)
class SentFile:
    """A file of a job: where it stands in the job's folder, and what it holds.

    `own` has the job get a copy that it may write.
    """

    place: str
    sha256: str
    size_bytes: int
    own: bool = False


class Store:
    """The files that were sent to a worker, in a folder, each under the SHA-256 of its content."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def find_missing(self, hashes: Iterable[str]) -> list[str]:
        """Return those that are not here; those that are will be used, and stay."""
        return [sha256 for sha256 in hashes if not self._use(sha256)]

    def _use(self, sha256: str) -> bool:
        """Have a file count as used now; False if it is not here."""
        try:
            os.utime(self.folder / sha256)
        except OSError:
            return False
        return True

    def add_piece(self, sha256: str, offset: int, data: bytes) -> None:
        """Write a piece of a file that comes.

        Raises:
            OSError: there is no room.
        """
        if offset == 0:
            self.make_room()
        with open(self._part(sha256), "r+b" if offset else "wb") as file:
            file.seek(offset)
            file.write(data)

    def finish(self, sha256: str) -> bool:
        """Take a file whose pieces have all come; False if it is not what was sent."""
        part = self._part(sha256)
        try:
            with open(part, "rb") as file:
                found = hash_content(file)
            if found != sha256:
                part.unlink()
                return False
            part.chmod(0o444)
            os.replace(part, self.folder / sha256)
        except FileNotFoundError:  # another client has sent the same meanwhile
            return (self.folder / sha256).exists()
        return True

    def _part(self, sha256: str) -> Path:
        return self.folder / f"{sha256}.part"

    def make_room(self) -> None:
        """Remove files that were not used lately, as long as the disk is nearly full."""
        files = [(file.stat().st_mtime, file) for file in self.folder.iterdir()]
        for _, file in sorted(files):
            usage = shutil.disk_usage(self.folder)
            if usage.free >= FREE_SHARE * usage.total:
                return
            with contextlib.suppress(OSError):
                file.unlink()  # a job that runs has links of its own

    def lay_out(self, root: Path, files: Sequence[SentFile], folders: Iterable[str]) -> None:
        """Make the folder of a job, with its files where it looks for them.

        They are links, not symbolic ones: an engine may refuse what leads out of a folder.

        Raises:
            OSError: a file is not here any more, or cannot be put there.
        """
        for folder in folders:
            (root / folder).mkdir(parents=True, exist_ok=True)
        for file in files:
            source, place = self.folder / file.sha256, root / file.place
            place.parent.mkdir(parents=True, exist_ok=True)
            if file.own:
                shutil.copyfile(source, place)
                continue
            try:
                os.link(source, place)
            except OSError:  # a file system without links
                shutil.copyfile(source, place)


def hash_content(file: object) -> str:
    """Return the SHA-256 of an open file."""
    digest = hashlib.sha256()
    read = file.read  # type: ignore[attr-defined]
    while data := read(1 << 20):
        digest.update(data)
    return digest.hexdigest()
