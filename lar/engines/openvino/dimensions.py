"""What a search for the fastest settings tries with OpenVINO: a table of choices by dimension.

Each option that says how a model is run, and that can vary, stands here or, with the reason, in
`not_tried.json`.
"""

from __future__ import annotations

from pathlib import Path

from lar.engines import choices
from lar.engines.engine import Site
from lar.options import table
from lar.records.choices import Dimension

# The types that a CPU may compute float32 in, and the instruction sets that this needs.
COARSER = {
    "bfloat16": {"avx512_bf16", "amx_bf16"},
    "float16": {"avx512_fp16", "amx_fp16", "asimdhp"},
}

THROUGHPUT = choices.set_to(table.HINT, "throughput", "throughput-hint", for_full=True)


def dimensions_of(site: Site, _: Path) -> tuple[Dimension, ...]:
    """Return what can matter at a site, in the order in which candidates name it."""
    return (
        choices.precision_dimension(site, COARSER),
        Dimension(name="shapes", choices=(choices.turn_on(table.CONST_SHAPE),)),
        choices.threads_dimension(site.cores),
        Dimension(name="hint", choices=(THROUGHPUT,)),
        choices.prepared_model("compiled-model", "precision", "threads", "hint", "copies"),
        choices.copies_dimension(site.cores),
    )
