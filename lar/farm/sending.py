"""What a job takes along: its files, and its request with their places on the worker."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lar.engines import engine_for, engine_named
from lar.errors import UsageError
from lar.farm.store import FILES, ROOT, WRITTEN, SentFile, hash_content
from lar.files.input_file import RAW_FORM, open_input, split_items
from lar.options.table import ALLOW_EXTERNAL_DATA, BY_KEY
from lar.records.dataset import Item
from lar.records.run import RunContext, RunSpec
from lar.records.testcase import Case

# Hashes of files by what distinguishes them, so that those of many jobs are read once.
_hashes: dict[tuple[int, int, int, int], str] = {}


class Sending:
    """Collects the files of a job; `names` has what the user calls each place on the worker."""

    def __init__(self) -> None:
        self.files: dict[str, SentFile] = {}
        self.paths: dict[str, str] = {}  # on this machine, by the SHA-256
        self.folders: set[str] = set()
        self.names: dict[str, str] = {}
        self.caches: dict[str, str] = {}  # the files that a run may change, by their places

    def add(self, path: str, flag: str = "", *, own: bool = False) -> str:
        """Take along a file, or a folder with its files; return where it will be.

        Raises:
            UsageError: it cannot be read.
        """
        if os.path.isdir(path):
            for entry in sorted(os.listdir(path)):
                inner = os.path.join(path, entry)
                if os.path.isfile(inner):
                    self.add(inner, flag)
            return self.add_folder(path)
        place = self.place_of(path)
        sha256, size = hash_file(path, flag)
        self.paths[sha256] = os.path.abspath(path)
        own = own or (place in self.files and self.files[place].own)
        self.files[place] = SentFile(place, sha256, size, own)
        return f"{ROOT}/{place}"

    def add_folder(self, path: str) -> str:
        """Have a folder there, empty as far as no file of it is taken along."""
        place = self.place_of(path)
        self.folders.add(place)
        return f"{ROOT}/{place}"

    def add_cache(self, path: str, flag: str) -> str:
        """Take along a file that the run reads, if it is there, and may write."""
        if os.path.isfile(path):
            self.add(path, flag, own=True)
        place = self.place_of(path)
        self.folders.add(os.path.dirname(place))
        self.caches[place] = path
        return f"{ROOT}/{place}"

    def place_of(self, path: str) -> str:
        """Return the place of a path from the job's folder."""
        place = FILES + os.path.abspath(path)
        self.names[place] = path
        return place

    def add_model(self, model: str, engine: str) -> str:
        """Take along a model, and the files that it names.

        Raises:
            UsageError: one cannot be read, or is named by a path that holds here alone.
        """
        try:
            beside = engine_named(engine).files_beside(Path(model))
        except (OSError, ValueError):
            beside = ()  # the engine says what is wrong with it
        for name in beside:
            if os.path.isabs(name):
                raise UsageError(
                    f"its weights are in {name}, and other machines have no such path",
                    "have the model name them from its own folder",
                    subject=model,
                )
            path = os.path.normpath(os.path.join(os.path.dirname(model), name))
            if os.path.isfile(path):
                self.add(path)
        return self.add(model)

    def add_with_weights(self, model: str) -> str:
        """Take along a model that any engine may read."""
        return self.add_model(model, engine_for(Path(model), None).name)

    def add_inputs(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Take along the files in texts of `--input`; return the texts with their places."""
        return tuple(";".join(map(self.add_item, split_items(text))) for text in texts)

    def add_item(self, item: str) -> str:
        """Take along the file of an item: `PATH`, `NAME:PATH`, `PATH,float32,1x3`."""
        form = re.search(RAW_FORM, item)
        whole = item[: form.start()] if form else item
        begins = [0, *(index + 1 for index, letter in enumerate(whole) if letter == ":")]
        for begin in begins:
            path = whole[begin:].strip()
            if path and os.path.exists(path):
                return item[:begin] + self.add(path, "--input") + item[len(whole) :]
        return item

    def rewrite_settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Take along the files of options; return the options with their places."""
        return {key: self.rewrite_option(key, value) for key, value in settings.items()}

    def rewrite_option(self, key: str, value: Any) -> Any:
        """Return the value of an option with the places of its files."""
        option = BY_KEY.get(key)
        if option is None or value is None:
            return value
        if option.key == ALLOW_EXTERNAL_DATA.key:
            several = value.splitlines() if isinstance(value, str) else value
            folders = [self.add_folder(folder) for folder in several]
            return "\n".join(folders) if isinstance(value, str) else folders
        if option.purpose == "cache":
            return self.add_cache(str(value), option.flag)
        if option.reads:
            return self.add(str(value), option.flag)
        if key == "input":
            return list(self.add_inputs([value] if isinstance(value, str) else value))
        if option.writes in ("file", "folder"):
            place = f"{WRITTEN}/{key}"
            self.folders.add(place)
            name = os.path.basename(os.path.normpath(str(value)))
            self.names[f"{place}/{name}"] = str(value)
            return f"{ROOT}/{place}/{name}"
        return value

    def rewrite_spec(self, spec: RunSpec) -> RunSpec:
        """Take along the files of a run; return its spec with their places.

        Raises:
            UsageError: a file cannot be read, or the run needs what is on this machine alone.
        """
        if spec.python:
            raise UsageError(
                "is on this machine, and the run on another",
                "start a worker with that Python",
                flag="--python",
                subject=spec.python,
            )
        has_files = any(item.inputs for item in spec.items)
        return replace(
            spec,
            model=self.add_model(spec.model, spec.engine),
            # Of a data set the files of its items are what is read.
            inputs=spec.inputs if has_files else self.add_inputs(spec.inputs),
            settings=self.rewrite_settings(spec.settings),
            items=tuple(map(self.rewrite_item, spec.items)),
            cases=tuple(map(self.rewrite_case, spec.cases)),
        )

    def rewrite_item(self, item: Item) -> Item:
        """Take along the files of an item of a data set."""
        return replace(
            item, inputs=tuple((name, self.add(path, "--input")) for name, path in item.inputs)
        )

    def rewrite_case(self, case: Case) -> Case:
        """Take along the files of a testcase."""
        return replace(
            case,
            inputs=tuple((name, self.add(path)) for name, path in case.inputs),
            expected=tuple(replace(each, file=self.add(each.file)) for each in case.expected),
        )

    def rewrite_context(self, context: RunContext, model: str) -> RunContext:
        """Return a context with places on the worker: of the model, and of what is written."""
        written = {}
        for key, path in context.written.items():
            folder = f"{WRITTEN}/{key}"
            self.folders.add(folder)
            place = f"{folder}/{os.path.basename(path)}"
            self.names[place] = path
            written[key] = f"{ROOT}/{place}"
        facts = context.model and replace(context.model, path=model)
        outputs = ""
        if context.outputs_folder:
            self.names[f"{WRITTEN}/outputs"] = context.outputs_folder
            outputs = f"{ROOT}/{WRITTEN}/outputs"
        names = self.rewrite_names(context.names)
        return replace(
            context,
            model=facts,
            written=written,
            outputs_folder=outputs,
            names=names,
            work_folder="",
        )

    def rewrite_names(self, names: Mapping[str, str]) -> dict[str, str]:
        """Return what the user calls files by their places on the worker; others stay."""
        return {
            f"{ROOT}/{FILES}{path}" if os.path.isabs(path) else path: name
            for path, name in names.items()
        }


def hash_file(path: str, flag: str = "") -> tuple[str, int]:
    """Return the SHA-256 and the size of a file.

    Raises:
        UsageError: it cannot be read.
    """
    with open_input(path, flag) as file:
        status = os.fstat(file.fileno())
        key = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if key not in _hashes:
            _hashes[key] = hash_content(file)
    return _hashes[key], status.st_size
