"""The settings that a search has found, as a file keeps them, and what they were found for."""

from __future__ import annotations

from lar.records.choices import Objective, OptionValue
from lar.records.facts import EngineFacts, MachineFacts, ModelFile
from lar.records.record import Record
from lar.records.summary import Difference

# History of the format of settings files (`TunedSettings.format`):
#   lar.settings/1  first version
SETTINGS_FORMAT = "lar.settings/1"


class TunedSettings(Record):
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
