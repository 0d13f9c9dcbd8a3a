"""The files that are sent to a worker or come back from a worker, and their paths on the worker."""

from __future__ import annotations

import json
import os
import posixpath
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import IO, Any

from lar.engines import engine_for, engine_named
from lar.errors import Interrupted, LarError, UsageError
from lar.files.input_file import open_input
from lar.files.report_file import OutputFile
from lar.measurement.machine import checksum_place
from lar.options.paths import find_path, is_below, split_items
from lar.options.table import ALLOW_EXTERNAL_DATA, BY_KEY
from lar.records.run import Case, Failure, RunContext, RunSpec

# In the arguments of a task, this stands for the task's folder; the worker replaces it.
ROOT = "/@lar-job@"
# The folders in a task's folder: for files that are sent, under their whole paths on the client,
# and for files that the run writes.
FILES, WRITTEN = "files", "written"


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer to a task: its value or its failure, and the files that the task wrote.

    `root` is the folder of the task. `written` maps the path of each written file to the content of
    the file, and the path of a written folder to None.
    """

    root: str
    value: Any = None
    failure: Failure | None = None
    written: Mapping[str, bytes | None] = field(default_factory=dict)


class Sending:
    """Collects the files of a job.

    The keys of `names` are the paths of files in the task's folder on the worker. The values are
    the user's paths of the same files.
    `wanted` has the paths on the worker from which files may be copied back.
    """

    def __init__(self) -> None:
        self.files: dict[str, str] = {}  # the identity of each file, by place
        self.paths: dict[str, str] = {}  # the path on this machine, by identity
        self.folders: set[str] = set()
        self.names: dict[str, str] = {}
        self.wanted: set[str] = set()

    def add(self, path: str, flag: str = "") -> str:
        """Add a file, or a folder with its files, to the job; return the path on the worker.

        Raises:
            UsageError: a file cannot be read.
        """
        if os.path.isdir(path):
            for inner in sorted(Path(path).iterdir()):
                if inner.is_file():
                    self.add(str(inner), flag)
            return self.add_folder(path)
        place = self.place_of(path)
        with open_input(path, flag) as file:
            self.files[place] = identity_of(file)
        self.paths[self.files[place]] = os.path.abspath(path)
        return f"{ROOT}/{place}"

    def add_folder(self, path: str) -> str:
        """Add a folder without its files to the job; return the folder's path on the worker."""
        place = self.place_of(path)
        self.folders.add(place)
        return f"{ROOT}/{place}"

    def add_cache(self, path: str, flag: str) -> str:
        """Add the cache file of a run to the job; return the file's path on the worker.

        The run may read and write the file.
        """
        if os.path.isfile(path):
            self.add(path, flag)
        place = self.place_of(path)
        self.folders.add(os.path.dirname(place))
        self.wanted.add(place)
        return f"{ROOT}/{place}"

    def add_written(self, key: str, path: str) -> str:
        """Return the path on the worker for an output file, which is copied back to `path`."""
        place = f"{WRITTEN}/{key}/{os.path.basename(os.path.normpath(path))}"
        self.folders.add(os.path.dirname(place))
        self.names[place] = path
        self.wanted.add(place)
        return f"{ROOT}/{place}"

    def place_of(self, path: str) -> str:
        """Return the path in the task's folder for a path on this machine."""
        place = FILES + os.path.abspath(path)
        self.names[place] = path
        return place

    def read(self, identity: str) -> bytes:
        """Return the content of a file.

        Raises:
            UsageError: the file cannot be read.
        """
        with open_input(self.paths[identity]) as file:
            return file.read()

    def name_all(self, value: Any, root: str) -> Any:
        """Return a worker's record in which the user's paths replace paths in the task's folder."""
        places = sorted(self.names, key=len, reverse=True)

        def name(text: str) -> str:
            if root in text:
                for place in places:
                    text = text.replace(f"{root}/{place}", self.names[place])
            return text.replace(f"{root}/{FILES}", "")

        return map_texts(value, name)

    def path_of(self, place: str) -> str:
        """Return the path on this machine for a file that a worker wrote.

        Raises:
            LarError: the file is outside the task's folder, or lar did not ask for the file.
        """
        for known in self.wanted:
            if check_place(place) == known or place.startswith(known + "/"):
                whole, path = self.names[known], self.names[known] + place[len(known) :]
                # A link in an existing folder may lead elsewhere.
                if place == known or is_below(path, whole):
                    return path
        raise LarError("the worker sent a file that lar did not ask for", subject=place)

    def receive(self, answer: Answer) -> Any:
        """Write the files of an answer to their paths on this machine; return the task's value.

        Raises:
            LarError: the job failed, a file cannot be written, or lar did not ask for a file.
        """
        if answer.failure is not None:
            error = self.name_all(answer.failure, answer.root).to_error()
            raise KeyboardInterrupt if isinstance(error, Interrupted) else error
        for place, content in answer.written.items():
            path = self.path_of(place)
            if content is None:
                os.makedirs(path, exist_ok=True)
                continue
            option = BY_KEY.get(place.split("/")[1])
            if option and option.purpose == "profile":  # its JSON names files
                try:
                    content = json.dumps(self.name_all(json.loads(content), answer.root)).encode()
                except ValueError:
                    raise LarError("the worker has sent a damaged profile", subject=path) from None
            os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
            with OutputFile(path, "", is_text=False) as file:
                file.write(content)
        return self.name_all(answer.value, answer.root)

    def add_model(self, model: str, engine: str) -> str:
        """Add a model and its weight files to the job; return the model's path on the worker.

        Raises:
            UsageError: a file cannot be read, or its path is valid only on this machine.
        """
        try:
            beside = engine_named(engine).files_beside(Path(model))
        except (OSError, ValueError):
            beside = ()  # the engine will report what is wrong
        for name in beside:
            if os.path.isabs(name):
                problem = f"its weights are in {name}, and other machines have no such path"
                raise UsageError(problem, "export the weights beside the model", subject=model)
            path = os.path.normpath(os.path.join(os.path.dirname(model), name))
            if os.path.isfile(path):
                self.add(path)
        if (sums := checksum_place(Path(model))).is_file():
            self.add(str(sums))
        return self.add(model)

    def add_with_weights(self, model: str) -> str:
        """Add a model and its weight files to the job; return the model's path on the worker.

        No engine has been chosen yet to run the model, so lar asks the first engine that reads the
        model's format for the weight files.
        """
        return self.add_model(model, engine_for(Path(model), None).name)

    def add_named(self, inputs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        """Add the files with input data to the job; return the inputs with paths on the worker."""
        return tuple((name, self.add(path, "--input")) for name, path in inputs)

    def add_inputs(self, texts: Iterable[str]) -> tuple[str, ...]:
        """Add the files of `--input` to the job; return its values with paths on the worker."""
        return tuple(";".join(map(self.add_item, split_items(text))) for text in texts)

    def add_item(self, item: str) -> str:
        """Add the file in a text `NAME:PATH` to the job; return the text with the worker's path."""
        place = find_path(item)
        if place is None:
            return item
        path = self.add(item[place].strip(), "--input")
        return item[: place.start] + path + item[place.stop :]

    def rewrite_settings(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Add the files of options to the job; return the options with paths on the worker."""
        return {key: self.rewrite_option(key, value) for key, value in settings.items()}

    def rewrite_option(self, key: str, value: Any) -> Any:
        """Add the files of an option to the job; return its value with paths on the worker."""
        option = BY_KEY.get(key)
        if option is None or value is None:
            return value
        if key == ALLOW_EXTERNAL_DATA.key:
            several = value.splitlines() if isinstance(value, str) else value
            return "\n".join(map(self.add_folder, several))
        if option.purpose == "cache":
            return self.add_cache(str(value), option.flag)
        if option.reads:
            return self.add(str(value), option.flag)
        if key == "input":
            return list(self.add_inputs([value] if isinstance(value, str) else value))
        if option.writes in ("file", "folder"):
            return self.add_written(key, str(value))
        return value

    def rewrite_spec(self, spec: RunSpec) -> RunSpec:
        """Add the files of a run to the job; return the run's spec with paths on the worker.

        Raises:
            UsageError: a file cannot be read, or the run needs a Python that only this machine has.
        """
        if spec.python:
            problem, hint = "is on this machine alone", "start a worker with that Python"
            raise UsageError(problem, hint, flag="--python", subject=spec.python)
        has_files = any(item.inputs for item in spec.items)
        return replace(
            spec,
            model=self.add_model(spec.model, spec.engine),
            # A data set has its files in its items.
            inputs=spec.inputs if has_files else self.add_inputs(spec.inputs),
            settings=self.rewrite_settings(spec.settings),
            items=tuple(replace(it, inputs=self.add_named(it.inputs)) for it in spec.items),
            cases=tuple(map(self.rewrite_case, spec.cases)),
        )

    def rewrite_case(self, case: Case) -> Case:
        """Add the files of a testcase to the job; return the testcase with paths on the worker."""
        expected = tuple(replace(each, file=self.add(each.file)) for each in case.expected)
        return replace(case, inputs=self.add_named(case.inputs), expected=expected)

    def rewrite_context(self, context: RunContext) -> RunContext:
        """Return a run's context with paths on the worker, for files to read and to write."""
        written = {key: self.add_written(key, path) for key, path in context.written.items()}
        return replace(context, written=written, names=self.rewrite_names(context.names))

    def rewrite_names(self, names: Mapping[str, str]) -> dict[str, str]:
        """Return `names` with paths on the worker in place of paths on this machine."""
        return {
            f"{ROOT}/{FILES}{path}" if os.path.isabs(path) else path: name
            for path, name in names.items()
        }


def identity_of(file: IO[bytes]) -> str:
    """Return a text that identifies a file, and changes when the file changes."""
    status = os.fstat(file.fileno())
    return f"{status.st_dev}-{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"


def check_place(place: str) -> str:
    """Check that a path is inside the folder of a task, and return the path.

    Raises:
        LarError: the path leads out of the folder.
    """
    if posixpath.normpath(place) != place or place.startswith(("/", "..")) or "\0" in place:
        raise LarError("is outside the folder of the job", subject=place)
    return place


def map_texts(value: Any, change: Callable[[str], str]) -> Any:
    """Return a record, or a part of a record, in which `change` is applied to each text."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {map_texts(key, change): map_texts(each, change) for key, each in value.items()}
    if isinstance(value, (tuple, list)):
        if value and isinstance(value[-1], (int, float)):  # samples, which have no texts
            return value
        return getattr(value, "_make", type(value))(map_texts(each, change) for each in value)
    if is_dataclass(value) and not isinstance(value, type):
        names = [each.name for each in fields(value) if each.init]
        return replace(value, **{name: map_texts(getattr(value, name), change) for name in names})
    return value
