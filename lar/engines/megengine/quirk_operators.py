"""What a MegEngine model file holds that its quirks depend on, read without the engine.

Beside the places of `graph_operators`, these are those of fields in tables:

    root        of the newer format, the variables: 3
    Operator    of the newer format, the numbers of its outputs: 8
    MiddleTensor, a variable    1 shape: [uint]
    DType       0 its number
    Convolution 7 sparse, 8 format; ConvBias 2, 3; Pooling and AdaptivePooling 0 mode

Read from MegEngine 1.13: src/serialization/impl/schema_v2.fbs and dtype.fbs beside it,
dnn/scripts/opr_param_defs.py.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from lar.engines.megengine.graph_operators import (
    graph_in,
    number_in,
    open_graph,
    table_at,
    vector,
)
from lar.engines.megengine.quirks import FLOAT_PRODUCTS, GROUPED, MAX_POOLING, QUANTISED
from lar.errors import LarError

VARIABLES, OUTPUTS, SHAPE = 3, 8, 1

CONVOLUTIONS = {3: (7, 8), 6: (2, 3)}  # the fields sparse and format of each kind
POOLINGS = (9, 70)
MATRIX_PRODUCT = 20
QUANTISED_DTYPES = range(11, 17)
FLOAT32 = 0
# A product of fewer rows is bound by memory: MKL's code makes no difference.
MANY_ROWS = 8


def traits_of(path: str) -> frozenset[str]:
    """Return what a model has, nothing of a file whose operators cannot be told."""
    try:
        return frozenset(traits_in(graph_in(path)))
    except (ValueError, LookupError, OSError, LarError, struct.error):
        return frozenset()


def traits_in(graph: memoryview) -> Iterator[str]:
    """Yield what the operators of a graph tell.

    Raises:
        ValueError, LookupError, struct.error: it is damaged, or of another format.
    """
    opened = open_graph(graph)
    if opened is None:
        raise ValueError("an unknown format")
    root, places, is_new = opened
    for operator in opened.operators():
        kind, dtype = number_in(operator, places.kind, "<B"), operator.table(places.dtype)
        parameters = operator.table(places.parameters)
        number = number_in(dtype, 0, "<B")
        if number in QUANTISED_DTYPES:
            yield QUANTISED
        if kind in CONVOLUTIONS:
            sparse, layout = (number_in(parameters, field) for field in CONVOLUTIONS[kind])
            if sparse:
                yield GROUPED
            elif not layout and number == FLOAT32:
                yield FLOAT_PRODUCTS
        elif kind in POOLINGS and not number_in(parameters, 0):
            yield MAX_POOLING
        elif kind == MATRIX_PRODUCT and number == FLOAT32 and is_new:
            first = vector(operator, OUTPUTS)[0]
            output = table_at(root, vector(root, VARIABLES)[root.number("<I", first)])
            rows = vector(output, SHAPE)[-2:-1]
            if any(root.number("<I", position) >= MANY_ROWS for position in rows):
                yield FLOAT_PRODUCTS
