"""How MegEngine honours each option: one row an option, its functions side by side."""

from __future__ import annotations

from typing import Any

from lar.engines.table import OptionRow

BOTH = ("lite", "graph")
LITE = ("lite",)


def choose_cuda(driver: Any, device_id: int) -> None:
    driver.choose_cuda(device_id)


def show_engine_log(driver: Any, _: bool) -> None:
    driver.set_log_level_verbose()


ROWS = (
    OptionRow("cpu", BOTH, "the default device"),
    OptionRow("cuda", LITE, "LiteConfig.device_type and device_id", before_load=choose_cuda),
    OptionRow("verbose", BOTH, "the engine's log level is DEBUG", before_load=show_engine_log),
)
