"""The fields of lite's options, and the arguments of the graph's `optimize_for_inference`, that an
option of lar sets.

The options are honoured so (options.py); a packed model holds the fields (deployment.py), and lite
puts those that stand in a packed model over the ones that options have set (packed_model.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lar.options import table
from lar.options.option import Option

LITE_FIELDS: Mapping[Option[Any], Mapping[str, int]] = {
    **{it: {it.key: 1} for it in table.LAYOUTS if it is not table.ENABLE_CHWN4},
    table.WEIGHT_PREPROCESS: {"weight_preprocess": 1},
    table.WINOGRAD_TRANSFORM: {"weight_preprocess": 1},
    table.ENABLE_FUSE_PREPROCESS: {"fuse_preprocess": 1},
    table.ENABLE_JIT: {"jit_level": 1},
    table.CONST_SHAPE: {"const_shape": 1},
    table.FAKE_FIRST: {"fake_next_exec": 1},
    table.NO_SANITY_CHECK: {"var_sanity_check_first_run": 0},
    table.RECORD_COMP_SEQ: {"comp_node_seq_record_level": 1},
    table.RECORD_COMP_SEQ2: {
        "comp_node_seq_record_level": 2,
        "var_sanity_check_first_run": 0,
        "const_shape": 1,
    },
}
GRAPH_ARGUMENTS: Mapping[Option[Any], tuple[str, ...]] = {
    **{it: (it.key,) for it in table.LAYOUTS if it is not table.ENABLE_NHWCD4},
    table.OPTIMIZE_FOR_INFERENCE: (),
    table.ENABLE_FUSE_CONV_BIAS_NONLINEARITY: ("enable_fuse_conv_bias_nonlinearity",),
    table.ENABLE_FUSE_CONV_BIAS_WITH_Z: (
        "enable_fuse_conv_bias_nonlinearity",
        "enable_fuse_conv_bias_with_z",
    ),
    table.ENABLE_FUSE_PREPROCESS: ("enable_fuse_preprocess",),
    table.ENABLE_IOC16: ("enable_ioc16",),
}
