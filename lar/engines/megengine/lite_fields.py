"""Lists the fields of lite and the arguments of `optimize_for_inference` that lar's options set.

The module `options` sets the fields and arguments for the options of a run. A packed model also
contains values of lite's fields. When lite loads a packed model, the model's fields replace the
fields that a run's options have set. Therefore the module `packing` refuses an option if
a packed model would replace the field that the option sets.
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
