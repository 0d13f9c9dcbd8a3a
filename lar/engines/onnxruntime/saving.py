"""The model as a session runs it, saved by ONNX Runtime and loaded again.

A saved model is optimised already: it is loaded without optimisation, and then computes the same
bits. Its weights stand in a file beside it, which the engine maps into memory.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar.engines.onnx_file.fields import (
    ATTRIBUTE_GRAPHS,
    GRAPH_NODE,
    MODEL_GRAPH,
    NODE_ATTRIBUTE,
    SavedModel,
    fields_in,
    is_ort_format,
    mapped,
    messages_in,
    weights_files,
)
from lar.errors import UsageError
from lar.files.work_folders import error_of_full_disk
from lar.options.table import MODEL_DUMP

if TYPE_CHECKING:
    from lar.engines.onnxruntime.session import SessionDriver

WEIGHTS = "session.optimized_model_external_initializers_file_name"
PREPACKED = "session.save_external_prepacked_constant_initializers"
FOLDER = "session.model_external_initializers_file_folder_path"


def save_optimized(
    driver: SessionDriver, path: Path, weights: str, *, prepacked: bool = False
) -> None:
    """Save the driver's model as its options have it optimised.

    `weights` names the file beside `path` that takes the larger constants; without any, none is
    made. Of models that have such files themselves, ONNX Runtime would otherwise save references.
    `prepacked` adds the weights as operators rearrange them when they load.
    """
    options = driver.options
    dump_path, options.optimized_model_filepath = options.optimized_model_filepath, str(path)
    profiling, options.enable_profiling = options.enable_profiling, False
    options.add_session_config_entry(WEIGHTS, weights)
    if prepacked:
        options.add_session_config_entry(PREPACKED, "1")
    try:
        driver.open_session(driver.spec.model)
    except Exception as error:
        if full := error_of_full_disk(str(path.parent)):
            raise full from error
        raise
    finally:
        options.optimized_model_filepath = dump_path
        options.enable_profiling = profiling
        options.add_session_config_entry(WEIGHTS, "")
        if prepacked:
            options.add_session_config_entry(PREPACKED, "0")
    drop_repeated_constants(path)


def drop_repeated_constants(path: Path) -> None:
    """Leave each constant inside control flow once in a saved model.

    With a file for the weights ONNX Runtime (1.23) writes such twice, and loads no model that has
    them so. The first is as in the graph that was loaded, a tensor or a Constant; the last as the
    weights outside are, and stays. The indices of sparse ones it writes in a type that it refuses.
    """
    with mapped(path) as data:
        if not has_control_flow(data):
            return
    import onnx

    model = onnx.load(path, load_external_data=False)
    drop_repeated_in(model.graph)
    onnx.save(model, path)


def drop_repeated_in(graph: Any) -> None:
    """Leave each constant of a graph once, and of the graphs inside its control flow; none is
    sparse then."""
    from lar.engines.onnx_file.contents import dense_of

    for node in graph.node:
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                drop_repeated_in(inner)
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    constants = [
        node for node in graph.node if node.op_type == "Constant" and node.output[0] in tensors
    ]
    for node in constants:
        graph.node.remove(node)
    sparse = {tensor.values.name: dense_of(tensor) for tensor in graph.sparse_initializer}
    if sparse or len(tensors) < len(graph.initializer):
        kept = type(graph)(initializer=(tensors | sparse).values())
        graph.ClearField("initializer")
        graph.ClearField("sparse_initializer")
        graph.MergeFrom(kept)


def has_control_flow(data: bytes | memoryview) -> bool:
    """Return whether a node of a model holds graphs of its own, as If and Loop do."""
    return any(
        field.number in ATTRIBUTE_GRAPHS
        for graph in messages_in(data, MODEL_GRAPH)
        for node in messages_in(data, GRAPH_NODE, *graph)
        for attribute in messages_in(data, NODE_ATTRIBUTE, *node)
        for field in fields_in(data, *attribute)
    )


def open_saved(driver: SessionDriver, model: SavedModel) -> Any:
    """Return a session of a saved model with the driver's other options."""
    options = driver.options
    level = options.graph_optimization_level
    options.graph_optimization_level = driver.onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.add_session_config_entry(FOLDER, str(model.folder))
    try:
        return driver.open_session(model.content)
    finally:
        options.graph_optimization_level = level


def start_model_dump(driver: SessionDriver) -> None:
    """Have the driver's session save its model."""
    driver.options.optimized_model_filepath = driver.context.written[MODEL_DUMP.key]


def finish_model_dump(driver: SessionDriver) -> None:
    """Put weights that stand in files of their own into the dumped model.

    Raises:
        UsageError: the model would be larger than a protobuf message can be.
    """
    driver.options.optimized_model_filepath = ""
    path = Path(driver.context.written[MODEL_DUMP.key])
    with mapped(path) as data:
        if is_ort_format(data) or not weights_files(data):
            return
    weights = driver.saved.folder if driver.saved else Path(driver.spec.model).parent
    import onnx
    from google.protobuf.message import EncodeError  # type: ignore[import-untyped]
    from onnx.external_data_helper import load_external_data_for_model

    try:
        model = onnx.load(path, load_external_data=False)
        for tensor in model.graph.initializer:
            # Where rearranged weights are, which this library does not know.
            for entry in [each for each in tensor.external_data if "prepacked" in each.key]:
                tensor.external_data.remove(entry)
        load_external_data_for_model(model, str(weights))
        onnx.save(model, path)
    except (ValueError, EncodeError) as error:
        raise UsageError(
            f"the model cannot stand in one file: {error}",
            "an ONNX file holds 2 GiB at most",
            flag="--model-dump",
        ) from error
