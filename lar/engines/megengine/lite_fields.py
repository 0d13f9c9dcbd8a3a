"""The fields of lite's options, and the arguments of the graph's `optimize_for_inference`, that an
option of lar sets.

options.py uses them to honour the options. A packed model holds the fields (packing.py): lite takes
those in the model in place of the ones that options have set.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lar.options.option import Option
from lar.options.table import BY_KEY

FACTS = json.loads(Path(__file__).with_suffix(".json").read_text())
LITE_FIELDS: Mapping[Option[Any], Mapping[str, int]] = {
    BY_KEY[key]: fields for key, fields in FACTS["lite"].items()
}
GRAPH_ARGUMENTS: Mapping[Option[Any], Sequence[str]] = {
    BY_KEY[key]: names for key, names in FACTS["graph"].items()
}
