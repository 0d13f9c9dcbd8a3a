"""What a file of OpenVINO's own format holds: an `.xml`, with its weights beside it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from lar.engines.operator_facts import count_flops
from lar.errors import UsageError
from lar.graphs.origins import ModelOperator
from lar.records.run import ModelInfo


def files_beside(path: Path) -> tuple[str, ...]:
    """Return the name of the file with the weights of a model, if it has any.

    Raises:
        UsageError: it has weights, and the file is missing.
    """
    weights = path.with_suffix(".bin")
    if weights.is_file():
        return (weights.name,)
    if b'type="Const"' in path.read_bytes():
        raise UsageError(
            f"its weights {weights.name} are missing", "keep them beside the model", subject=path
        )
    return ()


def read_operators(path: Path) -> tuple[ModelOperator, ...]:
    """Return no operators: OpenVINO alone reads them."""
    return ()


def read_model(path: Path) -> ModelInfo:
    """Return what a model holds; FLOPs are those of one item where the batch is open.

    Raises:
        UsageError: it is damaged, or its weights are missing.
    """
    from lar.engines.openvino import graph
    from lar.engines.openvino.driver import (
        MEANINGS,
        describe,
        import_openvino,
        shape_of,
        tensor_name,
    )

    files_beside(path)
    try:
        model = import_openvino().Core().read_model(path)
    except RuntimeError as error:
        raise MEANINGS.explain(str(error), str(path)) or error from None
    inputs, outputs = (tuple(map(describe, ports)) for ports in (model.inputs, model.outputs))
    batches = [it for it in model.inputs if (shape_of(it) or (1,))[0] is None]
    for port in batches:
        shape = port.get_partial_shape()
        shape[0] = 1
        model.reshape({port: shape})
    operators = model.get_ordered_ops()
    constants = graph.constants_in(operators)
    fixed = [it for it in operators if it.get_type_name() == "Constant"]
    weights = [it for it in fixed if it.get_element_type().get_type_name() in graph.OF_WEIGHTS]
    computing = [
        it for it in operators if it not in constants and it.get_type_name() not in graph.ENDS
    ]
    flops, unknown = count_flops(map(graph.operation_of, computing))
    flops_at = ", ".join(f"{tensor_name(it)}[0]=1" for it in batches)
    return ModelInfo(
        engine="openvino",
        inputs=inputs,
        outputs=outputs,
        operators=dict(Counter(it.get_type_name() for it in computing).most_common()),
        parameter_count=sum(it.data.size for it in weights),
        weight_bytes=sum(it.get_byte_size() for it in weights),
        flops=flops,
        flops_unknown=unknown,
        metadata={"flops_at": flops_at} if flops_at else {},
    )
