"""What an `.mnn` file holds."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path

from lar.engines.mnn.net import read_net
from lar.graphs.origins import ModelOperator
from lar.records.run import ModelInfo, TensorInfo


def files_beside(path: Path) -> tuple[str, ...]:
    """Return the file with the weights, where the converter puts them when it is asked to."""
    weights = path.name + ".weight"
    return (weights,) if path.with_name(weights).exists() else ()


def read_operators(path: Path) -> tuple[ModelOperator, ...]:
    """Return the operators, read without MNN.

    Raises:
        LarError: it is damaged.
    """
    operators = read_net(path).operators
    return tuple(ModelOperator(it.type, it.name, it.inputs, it.outputs) for it in operators)


def read_model(model: Path) -> ModelInfo:
    """Read what a model holds, by a session that does not run; the FLOPs are those of its own
    shapes.

    Raises:
        LarError: it is damaged, or MNN's sessions cannot run it.
    """
    import numpy as np

    from lar.engines.driver import Misfit
    from lar.engines.mnn.session import Session, describe, import_mnn, infos_of

    net = read_net(model)
    session = Session(import_mnn(), model, str(model), {"numThread": 1}, {})
    infos = infos_of(session, net)
    described = []
    with suppress(Misfit):  # sizes of 1 do not fit
        session.feed({it.name: np.zeros([n or 1 for n in it.shape], it.dtype) for it in infos})
        described = describe(session)
    unknown = sorted({each.type for each in described if each.flops is None})
    operators = Counter(it.type for it in net.operators if it.type not in ("Input", "Const"))
    count = sum(each.elements for each in net.operators)
    outputs = {name: session.fact_of(session.outputs[name]) for name in net.outputs}
    return ModelInfo(
        engine="mnn",
        inputs=infos,
        outputs=tuple(
            TensorInfo(name=name, dtype=it.dtype, shape=it.shape, any_rank=not described)
            for name, it in outputs.items()
        ),
        operators=dict(operators.most_common()),
        parameter_count=count,
        weight_bytes=min(4 * count, model.stat().st_size),  # they may be quantised
        flops=None if unknown or not described else sum(each.flops or 0 for each in described),
        flops_unknown=tuple(unknown),
    )
