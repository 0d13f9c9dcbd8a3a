"""How ONNX Runtime honours each option: one row an option, its functions side by side."""

from __future__ import annotations

from typing import Any

from lar.engines.table import OptionRow

SESSION = ("session",)


def choose_cuda(driver: Any, device_id: int) -> None:
    driver.choose_cuda(device_id)


def show_engine_log(driver: Any, _: bool) -> None:
    driver.set_log_level_verbose()


ROWS = (
    OptionRow("cpu", SESSION, "CPUExecutionProvider, the default"),
    OptionRow(
        "cuda",
        SESSION,
        "CUDAExecutionProvider, without falling back to the CPU",
        before_load=choose_cuda,
    ),
    OptionRow("verbose", SESSION, "log severity 0", before_load=show_engine_log),
)
