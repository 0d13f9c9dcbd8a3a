"""A path that stands for testcases: MegEngine's file of them, or a folder as ONNX has it.

    FOLDER/model.onnx                       or any other name, if it is the only .onnx there
    FOLDER/test_data_set_0/input_0.pb       TensorProto messages, numbered as the model's
                           output_0.pb      inputs and outputs are
    FOLDER/test_data_set_1/...

The folder's form is that of ONNX's own test data (docs of onnx/backend/test).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from lar.errors import UsageError
from lar.files.input_file import split_items
from lar.inputs.numbered_files import INPUT, OUTPUT, numbered
from lar.testcases.packed_file import graphs_in

if TYPE_CHECKING:
    from lar.records.run import Case


class Source(NamedTuple):
    """A model file, and its testcases: folders, or numbers of those inside the file.

    `is_input` is true if `--input` names the folder.
    """

    model: str
    folders: tuple[str, ...] = ()
    packed: int = 0
    is_input: bool = False

    @property
    def case_count(self) -> int:
        """How many testcases there are, 0 for a model alone."""
        return len(self.folders) or self.packed


def source_of(path: str) -> Source:
    """Find the testcases that a path stands for; a path that cannot be read has none.

    Raises:
        UsageError: the file or folder is incomplete.
    """
    try:
        if os.path.isdir(path):
            return source_in_folder(path)
        graphs = graphs_in(path) if os.path.isfile(path) else []
        return Source(path, packed=max(len(graphs) - 1, 0))
    except (OSError, ValueError):
        return Source(path)


def source_in_folder(folder: str) -> Source:
    """Find model and testcases in a folder; a folder without testcases stands for itself.

    Raises:
        UsageError: it has testcases and no model, or several models.
        OSError: it cannot be read.
    """
    sets = numbered(folder, r"test_data_set_(\d{1,9})")
    folders = tuple(path for _, path in sets if os.path.isdir(path))
    if not folders:
        return Source(folder)
    models = sorted(name for name in os.listdir(folder) if name.lower().endswith(".onnx"))
    if "model.onnx" not in models and len(models) != 1:
        found = f"several models: {', '.join(models)}" if models else "no model"
        raise UsageError(
            f"holds testcases and {found}",
            "put the model of the testcases there as model.onnx",
            subject=folder,
        )
    name = "model.onnx" if "model.onnx" in models else models[0]
    return Source(os.path.join(folder, name), folders)


def add_test_set(source: Source, texts: Sequence[str]) -> Source:
    """Return the source with the testcase that the texts of `--input` are: a folder with inputs
    and expected outputs."""
    parts = split_items(*texts)
    if source.case_count or len(parts) != 1 or not os.path.isdir(parts[0]):
        return source
    folder = os.path.normpath(parts[0])
    whole = numbered(folder, INPUT) and numbered(folder, OUTPUT)
    return source._replace(folders=(folder,), is_input=True) if whole else source


def cases_of(source: Source) -> Iterator[Case]:
    """Yield the testcases; those of a packed file are only named."""
    from lar.records.run import Case, Expected  # records are slow to import

    for number in range(source.packed):
        yield Case(name=f"testcase {number}")
    for folder in source.folders:
        outputs = numbered(folder, OUTPUT)
        yield Case(
            name=os.path.basename(folder),
            inputs=(("", folder),),
            expected=tuple(Expected(file=path, id=number) for number, path in outputs),
        )
