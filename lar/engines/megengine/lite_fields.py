"""The fields of lite's options, and arguments of `optimize_for_inference`, that lar's options set.

options.py uses them to honour the options. A packed model holds the fields too (packing.py): lite
then takes the model's fields in place of the fields that options have set.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from lar.options.option import Option
from lar.options.table import BY_KEY

with open(os.path.join(os.path.dirname(__file__), "lite_fields.txt")) as file:
    ROWS = [line.split() for line in file]
LITE_FIELDS: Mapping[Option[Any], Mapping[str, int]] = {
    BY_KEY[key]: {name: int(value) for name, _, value in (it.partition("=") for it in fields)}
    for where, key, *fields in ROWS
    if where == "lite"
}
GRAPH_ARGUMENTS: Mapping[Option[Any], Sequence[str]] = {
    BY_KEY[key]: names for where, key, *names in ROWS if where == "graph"
}
