"""The settings that a search has found, as a file keeps them, and what they were found for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lar.records.run import EngineFacts, MachineFacts, ModelFile
from lar.records.summary import Difference

# History of the format of settings files (`TunedSettings.format`):
#   lar.settings/1  first version
SETTINGS_FORMAT = "lar.settings/1"

OptionValue = bool | int | float | str | tuple[str, ...]

Objective = Literal["latency", "throughput", "memory", "p99"]
"""What is made small:

latency     the median time of an iteration
throughput  the time of all copies of the model together, divided by the iterations that they made
memory      the most memory that a process held
p99         the 99th percentile of the times of iterations
"""


@dataclass(frozen=True, kw_only=True)
class TunedSettings:
    """The settings that won, for `lar MODEL --settings FILE`, and what they were found for.

    Attributes:
        options: by key, as `lar.run` takes them; the name of a cache is relative to the file.
        engine: the engine and its version, on which they were measured.
        value: the objective with them, and without them (`baseline_value`).
    """

    options: dict[str, OptionValue]
    engine: EngineFacts
    model: ModelFile
    machine: MachineFacts
    objective: Objective = "latency"
    value: float | None = None
    baseline_value: float | None = None
    difference: Difference | None = None
    command: str = ""
    format: str = SETTINGS_FORMAT
    lar_version: str = ""
    made_at: str = ""
