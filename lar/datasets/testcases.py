"""Testcases at a path: a file of MegEngine, or a folder with the layout of ONNX's test data.

A folder has the model in `model.onnx`, or in a file with another name if the folder has only one
.onnx. The folders `test_data_set_0`, `test_data_set_1`, ... beside the model have TensorProto
messages: `input_0.pb` and `output_0.pb` are for the first input and the first output of the model.
Folders of testcases are described in the docs of onnx/backend/test.

In a file of MegEngine, lar reads only where each graph begins and ends. The file has "mgbtest0",
the number of testcases (u32), the model's graph, and a graph for each testcase. A graph in the
newer format begins with the size of the rest of the graph (u32), a u32 and "mgv2". A graph in the
older format begins with "MGBC", 12 bytes, the size of the weights (u64) and the weights. After the
weights, a graph in the older format has the size of the rest of the graph (u32), a u32 and "mgb1".

Numbers are little-endian. The outputs of a testcase's graph are constants, one for each input of
the model's graph, ordered by the names of the inputs. The model's graph also has an input for each
expected output.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from lar.errors import UsageError
from lar.files.input_file import open_input
from lar.inputs import INPUT, OUTPUT, numbered
from lar.options.paths import split_items

if TYPE_CHECKING:
    from lar.records.run import Case

MAGIC = b"mgbtest0"
BROKEN = "copy or pack it again"
HEADER = struct.Struct("<8sI")

NEW_IDENTIFIER, OLD_IDENTIFIER, OLD_MAGIC = b"mgv2", b"mgb1", b"MGBC"
GRAPH_HEAD = struct.Struct("<I4x4s")
OLD_HEAD = struct.Struct("<4s12xQ")


class Source(NamedTuple):
    """A model file and its testcases, which are folders, or are packed in the model file.

    `is_input` says that `--input` names the folder of the testcase.
    """

    model: str
    folders: tuple[str, ...] = ()
    packed: int = 0
    is_input: bool = False

    @property
    def case_count(self) -> int:
        """The number of testcases; 0 for a model without testcases."""
        return len(self.folders) or self.packed


def source_of(path: str) -> Source:
    """Return the model and testcases at a path; a path that cannot be read has no testcases.

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
    """Return the model and testcases in a folder; a folder without testcases is itself the model.

    Raises:
        UsageError: the folder has testcases, but no model or several models.
        OSError: the folder cannot be read.
    """
    sets = numbered(folder, r"test_data_set_(\d{1,9})")
    folders = tuple(path for _, path in sets if os.path.isdir(path))
    if not folders:
        return Source(folder)
    models = sorted(name for name in os.listdir(folder) if name.lower().endswith(".onnx"))
    if "model.onnx" not in models and len(models) != 1:
        found = f"several models: {', '.join(models)}" if models else "no model"
        hint = "put the model of the testcases there as model.onnx"
        raise UsageError(f"holds testcases and {found}", hint, subject=folder)
    name = "model.onnx" if "model.onnx" in models else models[0]
    return Source(os.path.join(folder, name), folders)


def check_data(texts: Sequence[str]) -> None:
    """Refuse texts of `-d` that are wrong for every model, before anything is loaded.

    Raises:
        UsageError: naming `-d`.
    """
    from lar.inputs.grammar import check_texts  # few runs need it

    check_texts(texts, "-d")


def add_test_set(source: Source, texts: Sequence[str]) -> Source:
    """Return the source; add the folder of `--input` as a testcase if it has expected outputs."""
    parts = split_items(*texts)
    if source.case_count or len(parts) != 1 or not os.path.isdir(parts[0]):
        return source
    folder = os.path.normpath(parts[0])
    whole = numbered(folder, INPUT) and numbered(folder, OUTPUT)
    return source._replace(folders=(folder,), is_input=True) if whole else source


def cases_of(source: Source) -> Iterator[Case]:
    """Yield the testcases; a testcase that is packed in the model file has only a name."""
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


def graphs_in(path: str) -> list[tuple[int, int]]:
    """Return where each graph of a file begins and ends; the graph of the model comes first.

    The result is empty if the file contains no graphs.

    Raises:
        UsageError: the file is damaged, or cannot be read.
    """
    with open_input(path) as file:
        head = file.read(HEADER.size)
        if not head.startswith(MAGIC):
            return []
        if len(head) < HEADER.size:
            raise broken(path, "the file is cut short")
        size, count = os.fstat(file.fileno()).st_size, HEADER.unpack(head)[1]
        graphs, begin = [], HEADER.size
        while begin < size:
            end = end_of_graph(file, begin, size)
            if end is None:
                raise broken(path, f"its testcases are damaged: no graph begins at byte {begin}")
            if end > size:
                wanted = f"a graph should go on to byte {end}, the file ends at byte {size}"
                raise broken(path, f"the file is cut short: {wanted}")
            graphs.append((begin, end))
            begin = end
    found = max(len(graphs) - 1, 0)
    if not count or found != count:
        what = "the file is cut short" if found < count else "its testcases are damaged"
        raise broken(path, f"{what}: its header counts {count} testcases, it holds {found}")
    return graphs


def broken(path: str, problem: str) -> UsageError:
    return UsageError(problem, BROKEN, subject=path)


def end_of_graph(file: BinaryIO, begin: int, size: int) -> int | None:
    """Return the end of the graph that begins at a byte, or None if no graph begins there.

    If the file ends inside the graph's head, the returned number is greater than the file's size.
    """
    file.seek(begin)
    head = file.read(OLD_HEAD.size)
    identifier = NEW_IDENTIFIER
    if head.startswith(OLD_MAGIC):
        identifier = OLD_IDENTIFIER
        begin += OLD_HEAD.size + int.from_bytes(head[16:], "little")
        file.seek(min(begin, size))
        head = file.read(GRAPH_HEAD.size)
    if len(head) < GRAPH_HEAD.size:
        return begin + GRAPH_HEAD.size
    length, found = GRAPH_HEAD.unpack_from(head)
    return begin + 4 + length if found == identifier else None
