"""What a search for the fastest settings tries with MNN: a table of choices by dimension.

Each option that says how a model is run, and that can vary, stands here or, with the reason, in
`not_tried.json`.
"""

from __future__ import annotations

from pathlib import Path

from lar.engines import choices
from lar.engines.choices import set_to
from lar.engines.engine import Site
from lar.options.table import ENGINE_OPTION
from lar.records.choices import Dimension

# On other processors MNN takes float32 for it.
COARSER = {"float16": {"asimdhp"}}

LOW_MEMORY = set_to(ENGINE_OPTION, ("memory=low",), "low memory", allow="reduced-precision")
HIGH_POWER = set_to(ENGINE_OPTION, ("power=high",), "high power", for_full=True)


def dimensions_of(site: Site, _: Path) -> tuple[Dimension, ...]:
    """Return what may be tried at a site."""
    return (
        choices.threads_dimension(site.cores),
        choices.precision_dimension(site, COARSER),
        Dimension(name="memory", choices=(LOW_MEMORY,)),
        Dimension(name="power", choices=(HIGH_POWER,)),
        choices.copies_dimension(site.cores),
    )
