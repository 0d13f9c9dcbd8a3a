"""The scripted engine, for the tests; it plays what a JSON file says."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar.engines.engine import DriverEntry, Engine
from lar.engines.formats import Format
from lar.options.table import SEARCHES

if TYPE_CHECKING:
    from lar.engines.driver import Driver
    from lar.engines.engine import Isolation, Site
    from lar.engines.option_rows import OptionRow
    from lar.engines.signs import Sign
    from lar.records.choices import Dimension
    from lar.records.profile import Profile
    from lar.records.run import ModelInfo, RunContext, RunSpec


SCRIPT = Format("fake script", (".fake",), lambda head: False)


def script_driver() -> type[Driver]:
    from lar_scripted.script import FakeDriver

    return FakeDriver


class FakeEngine(Engine):
    """The engine of scripts."""

    name = "fake"
    own_variables = ("A=1", "B=2", "TURBO=1")
    title = "the scripted engine"
    formats = (SCRIPT,)
    drivers = (DriverEntry("script", "plays a JSON script", script_driver),)
    version = "1"
    isolating_driver = "script"
    searches = SEARCHES

    def option_rows(self) -> tuple[OptionRow[Any, Any], ...]:
        from lar_scripted.script import ROWS

        return ROWS

    def read_model(self, path: Path) -> ModelInfo:
        from lar_scripted.script import read_model

        return read_model(path)

    def check_model(self, path: Path, settings: Mapping[str, Any]) -> None:
        from lar_scripted.script import refuse_together

        refuse_together(path, settings)

    def dimensions(self, site: Site, model: Path) -> tuple[Dimension, ...]:
        from lar_scripted.script import read_script

        return read_script(model).dimensions

    def signs(self, profile: Profile, site: Site) -> Iterable[Sign]:
        from lar_scripted.script import signs_of

        return signs_of(Path(profile.facts.model.path))

    def find_devices(self) -> tuple[str, ...]:
        return ("cpu",)

    def isolation(self, driver: Driver) -> Isolation:
        from lar_scripted.script import FakeDriver, FakeIsolation

        assert isinstance(driver, FakeDriver)
        return FakeIsolation(driver)

    def describe_progress(self, spec: RunSpec, context: RunContext) -> str:
        from lar_scripted.script import describe_progress

        return describe_progress(spec)


ENGINE = FakeEngine()
