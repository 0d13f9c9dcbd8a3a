"""Saves the optimised model of a session with ONNX Runtime, and loads such a model again.

A saved model has already been optimised. Therefore a saved model is loaded without optimisation,
and its outputs have the same bits as the outputs of the session that saved the model. The weights
of a saved model are in a separate file, which the engine maps into memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar.engines.formats import begins_like_ort, read_head
from lar.engines.onnx_file.fields import (
    Message,
    SavedModel,
    files_beside,
    graphs_in,
    place_of,
    tensors_outside,
)
from lar.errors import UsageError
from lar.files.work_folders import error_of_full_disk
from lar.options.table import MODEL_DUMP

if TYPE_CHECKING:
    from lar.engines.onnxruntime.session import Array, SessionDriver

WEIGHTS = "session.optimized_model_external_initializers_file_name"
PREPACKED = "session.save_external_prepacked_constant_initializers"
MOST_BYTES = 2**31 - 1  # of a protobuf message
ALIGNMENT = 64  # bytes, of the widest vectors
FOLDER = "session.model_external_initializers_file_folder_path"


@contextlib.contextmanager
def options_changed(driver: SessionDriver, level: str = "", **changed: Any) -> Iterator[None]:
    """Change options of the session, and the level of optimisation, during the `with` block."""
    options = driver.options
    if level:
        changed["graph_optimization_level"] = level_named(driver.onnxruntime, level)
    usual = {name: getattr(options, name) for name in changed}
    try:
        for name, value in changed.items():
            setattr(options, name, value)
        yield
    finally:
        for name, value in usual.items():
            setattr(options, name, value)


def level_named(onnxruntime: Any, level: str) -> Any:
    """Return the engine's constant for a level of optimisation, such as `disable` or `all`."""
    name = "ORT_DISABLE_ALL" if level == "disable" else f"ORT_ENABLE_{level.upper()}"
    return getattr(onnxruntime.GraphOptimizationLevel, name)


def save_optimized(
    driver: SessionDriver, path: Path, weights: str, *, prepacked: bool = False, level: str = ""
) -> None:
    """Save the driver's model, optimised as the driver's options say.

    `weights` is the name of the file, in the folder of `path`, for the larger constants. Without a
    file for the larger constants, ONNX Runtime would save references to the weight files of the
    original model. With `prepacked`, the file also has weights in the form into which operators
    would rearrange them during the load.
    """
    set_entry = driver.options.add_session_config_entry
    set_entry(WEIGHTS, weights)
    if prepacked:  # the engine warns of each entry that is set again
        set_entry(PREPACKED, "1")
    paths = {"optimized_model_filepath": str(path), "enable_profiling": False}
    try:
        with options_changed(driver, level, **paths):
            session = driver.open_session(driver.spec.model)
    except Exception as error:
        if full := error_of_full_disk(str(path.parent)):
            raise full from error
        raise
    finally:
        set_entry(WEIGHTS, "")
        if prepacked:
            set_entry(PREPACKED, "0")
    model = Message("Model", path.read_bytes())
    if prepacked and path.with_name(weights).exists():
        align_weights(model, path.with_name(weights))
    drop_lost_inputs(model, session)
    drop_repeated_constants(model, path.parent)
    path.write_bytes(model.encode())


def align_weights(model: Message, place: Path) -> None:
    """Align the weights and the rearranged weights in a saved model's weight file.

    ONNX Runtime (1.23) writes weights without gaps, but reads rearranged weights as if they were
    aligned for vector instructions. Without this function, ONNX Runtime would crash. In the model
    file, the entry for rearranged weights is `NAME|OFFSET;LENGTH;HASH|...`.
    """
    aligned = place.with_name(f"{place.name}.aligned")
    with place.open("rb") as source, aligned.open("wb") as target:

        def move(offset: str, length: str) -> str:
            target.write(bytes(-target.tell() % ALIGNMENT))
            begin = target.tell()
            source.seek(int(offset))
            target.write(source.read(int(length)))
            return str(begin)

        for tensor in tensors_outside(model):
            entries = {each.key: each for each in tensor.external_data}
            lengths = entries["length"].value.decode()
            entries["offset"].value = move(entries["offset"].value.decode(), lengths).encode()
            for key in (key for key in entries if key.startswith("prepacked_")):
                name, *parts = entries[key].value.decode().split("|")
                split = (part.split(";") for part in parts)
                moved = (";".join([move(at, size), size, *rest]) for at, size, *rest in split)
                entries[key].value = "|".join([name, *moved]).encode()
    aligned.replace(place)


def drop_lost_inputs(model: Message, session: Any) -> bool:
    """Remove inputs of a saved model whose default values ONNX Runtime has removed.

    If an input without its default value were not removed, the saved model would require a value
    for this input.

    Returns:
        Whether any input was removed.
    """
    graph, before = model.graph, len(model.graph.input)
    needed = {each.name for each in (*session.get_inputs(), *graph.initializer)}
    needed |= {each.values.name for each in graph.sparse_initializer}
    graph.input = [each for each in graph.input if each.name in needed]
    return len(graph.input) < before


def save_to_work_folder(driver: SessionDriver) -> SavedModel:
    """Save the driver's optimised model in the work folder, which the parent process removes."""
    # Each model has a new folder, as another session may have mapped the weights of an earlier one.
    folder = Path(tempfile.mkdtemp(dir=driver.context.work_folder or None))
    save_optimized(driver, folder / "optimized.onnx", "optimized.data")
    release_memory()
    return SavedModel((folder / "optimized.onnx").read_bytes(), folder)


def release_memory() -> None:
    """Return freed memory to the system, since the C library would otherwise keep it for later.

    Loading a session frees temporary memory, about as much as the session itself keeps.
    """
    with contextlib.suppress(AttributeError):  # not the GNU C library
        ctypes.CDLL(None).malloc_trim(0)


def drop_repeated_constants(model: Message, folder: Path) -> None:
    """Remove the repeated constants inside control flow from a saved model.

    If the weights are in a separate file, ONNX Runtime (1.23) writes constants inside control flow
    twice, and cannot load the saved model. The first copy of a constant is removed. The first copy
    is a tensor or a Constant operator, as in the loaded graph. The last copy of the constant is
    stored like a weight, and is not removed. Sparse constants are converted to dense tensors, since
    ONNX Runtime writes the indices of a sparse constant with a type that ONNX Runtime cannot read.
    """
    from lar.engines.onnx_file.tensors import dense_of  # imports NumPy

    graphs = [*graphs_in(model.graph)]
    for graph in graphs if len(graphs) > 1 else ():
        sparse = (dense_of(tensor, folder) for tensor in graph.sparse_initializer)
        tensors = {tensor.name: tensor for tensor in (*graph.initializer, *sparse)}
        graph.initializer, graph.sparse_initializer = [*tensors.values()], []
        graph.node = [
            node
            for node in graph.node
            if node.op_type != "Constant" or node.output[0] not in tensors
        ]


def open_saved(driver: SessionDriver, model: SavedModel) -> Any:
    """Return a session of a saved model, with the driver's options but without optimisation."""
    driver.options.add_session_config_entry(FOLDER, str(model.folder))
    with options_changed(driver, "disable"):
        return driver.open_session(model.content)


def start_model_dump(driver: SessionDriver, _: object) -> None:
    """Have the driver's session save its optimised model for `--model-dump`."""
    driver.options.optimized_model_filepath = driver.context.written[MODEL_DUMP.key]


def finish_model_dump(driver: SessionDriver, _: object) -> None:
    """Move the weights from separate files into the model that `--model-dump` wrote.

    Raises:
        UsageError: the model would be larger than the 2 GiB that a protobuf message can have.
    """
    from lar.engines.onnx_file.tensors import move_inside  # imports NumPy

    driver.options.optimized_model_filepath = ""
    path = Path(driver.context.written[MODEL_DUMP.key])
    model = Message("Model", b"" if begins_like_ort(read_head(path)) else path.read_bytes())
    outside = [*tensors_outside(model)]
    folder = driver.saved.folder if driver.saved else Path(driver.spec.model).parent
    if sum(place_of(tensor).length for tensor in outside) > MOST_BYTES:
        problem = "the weights of the model do not fit into one file"
        raise UsageError(problem, "an ONNX file holds 2 GiB at most", flag=MODEL_DUMP.flag)
    for tensor in outside:
        move_inside(tensor, folder)
    if drop_lost_inputs(model, driver.session) or outside:
        path.write_bytes(model.encode())


# Testcases, written as a folder in the format of ONNX's own test data.
#
# `lar.datasets.testcases` describes the format. The allowed error, such as `max_error=0.0001`, is
# in the doc_string of each expected tensor, a field that other programs ignore.


def write_testcases(
    driver: SessionDriver,
    cases: Sequence[tuple[Mapping[str, Array], Mapping[str, Array]]],
    path: str,
) -> None:
    """Write the model of a loaded driver, together with the inputs and outputs of each testcase.

    Raises:
        UsageError: the model cannot be written to a folder of testcases.
    """
    from lar.engines.onnx_file.tensors import tensor_of  # imports NumPy

    packing = driver.context.packing
    assert packing is not None
    os.mkdir(path)
    write_model(driver, Path(path) / "model.onnx", packing.optimize)
    note = f"max_error={packing.max_error!r}{'' if packing.verbose else ' silent'}"
    for number, (inputs, outputs) in enumerate(cases):
        folder = Path(path) / f"test_data_set_{number}"
        folder.mkdir()
        for kind, arrays, text in (("input", inputs, ""), ("output", outputs, note)):
            for position, (name, array) in enumerate(arrays.items()):
                content = tensor_of(array, name, text).encode()
                (folder / f"{kind}_{position}.pb").write_bytes(content)


def write_model(driver: SessionDriver, place: Path, optimize: bool) -> None:
    """Copy the model, or write it with the optimisations that do not depend on the processor.

    Raises:
        UsageError: the model is in the ORT format, or its weights are outside its folder.
    """
    source = Path(driver.spec.model)
    if begins_like_ort(read_head(source)):
        problem = "a folder of testcases cannot contain a model in the ORT format"
        hint = "give the .onnx file from which the model was made"
        raise UsageError(problem, hint, subject=source)
    if optimize:
        with options_changed(driver, "basic", optimized_model_filepath=str(place)):
            driver.open_session(str(source))
    else:
        shutil.copyfile(source, place)
    for name in files_beside(place):
        if os.path.isabs(name) or ".." in Path(name).parts:
            problem = f"the weights are in {name}, outside the model's folder"
            hint = "export the model and the weights into the same folder"
            raise UsageError(problem, hint, subject=source)
        target = place.parent / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source.parent / name, target)
