"""What both drivers of MegEngine have in common."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from lar.engines.driver import Driver
from lar.engines.megengine.messages import explain_megengine, resized_inputs
from lar.engines.megengine.spinning import find_spin_seconds
from lar.engines.megengine.symbols import read_libraries
from lar.errors import LarError
from lar.records.facts import EngineFacts


class MegEngineDriver(Driver):
    """A driver of MegEngine; `package` is what it has imported, with its version."""

    name: Literal["lite", "graph"]
    package: Any
    fed_shapes: dict[str, tuple[int, ...]]

    def default_threads(self) -> int | None:
        return 1

    def facts(self) -> EngineFacts:
        return EngineFacts(
            name="megengine",
            version=self.package.__version__,
            driver=self.name,
            device=self.spec.device,
            libraries={"numpy": np.__version__, **read_libraries()},
            threads=self.thread_count(),
            spin_seconds=find_spin_seconds(self.spec.settings),
        )

    def explain(self, error: BaseException, *, loading: bool) -> LarError | None:
        return explain_megengine(
            str(error),
            self.spec.model,
            loading=loading,
            settings=self.spec.settings,
            resized=resized_inputs(self.inputs(), self.fed_shapes),
        )
