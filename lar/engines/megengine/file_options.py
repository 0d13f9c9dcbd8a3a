"""How MegEngine honours the options of model files: how one is loaded, and what is written."""

from __future__ import annotations

from lar.engines.table import OptionRow, calling

LITE = ("lite",)
GRAPH = ("graph",)

FILE_ROWS = (
    OptionRow(
        "share_param_mem",
        LITE,
        "LITE_load_model_from_mem on the mapped file; share_weights_with",
        before_load=calling("lar.engines.megengine.shared_weights:share_weights"),
    ),
    OptionRow(
        "model_dump",
        GRAPH,
        "dump_graph()",
        after_run=calling("lar.engines.megengine.model_dump:dump_model"),
    ),
    OptionRow(
        "packed_model_dump",
        LITE,
        "lite's packed model, of the file as it is",
        after_run=calling("lar.engines.megengine.packing:dump_packed"),
    ),
    OptionRow(
        "pack_info_json",
        LITE,
        "lite's settings of a packed model",
        before_load=calling("lar.engines.megengine.packing:check_info_file"),
    ),
    OptionRow(
        "pack_cache",
        LITE,
        "lite's cache in a packed model",
        before_load=calling("lar.engines.megengine.packing:check_cache_file"),
    ),
)
