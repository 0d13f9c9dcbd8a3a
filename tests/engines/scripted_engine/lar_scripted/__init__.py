"""The scripted engine, for the tests; it plays what a JSON file says."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lar.engines.engine import DriverEntry, Engine, imported, late
from lar.engines.formats import Format
from lar.options.table import SEARCHES

if TYPE_CHECKING:
    from lar.engines.driver import Driver
    from lar.engines.engine import Isolation

SCRIPT = Format("fake script", (".fake",), lambda head: False)
DRIVER = partial(imported, ".script.FakeDriver", __name__)


class FakeEngine(Engine):
    """The engine of scripts."""

    name = "fake"
    own_variables = ("A=1", "B=2", "TURBO=1")
    title = "the scripted engine"
    formats = (SCRIPT,)
    drivers = (DriverEntry("script", "plays a JSON script", DRIVER),)
    version = "1"
    isolating_driver = "script"
    searches = SEARCHES
    option_rows = late(Engine.option_rows, ".script.ROWS")
    read_model = late(Engine.read_model, ".script.read_model")
    check_model = late(Engine.check_model, ".script.refuse_together")
    dimensions = late(Engine.dimensions, ".script.dimensions_of")
    signs = late(Engine.signs, ".script.signs_of")
    find_devices = late(Engine.find_devices, ".script.DEVICES")
    describe_progress = late(Engine.describe_progress, ".script.describe_progress")

    def isolation(self, driver: Driver) -> Isolation:
        from lar_scripted.script import FakeDriver, FakeIsolation

        assert isinstance(driver, FakeDriver)
        return FakeIsolation(driver)


ENGINE = FakeEngine()
