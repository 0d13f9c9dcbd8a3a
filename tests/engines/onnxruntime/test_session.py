"""The provider that a session is opened with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lar.engines.onnxruntime.session import choose_provider
from lar.errors import UsageError

CPU, OPENVINO = "CPUExecutionProvider", "OpenVINOExecutionProvider"


def driver_for(provider: str, *installed: str) -> Any:
    """A driver for which that provider is asked."""
    entries: dict[str, str] = {}
    return SimpleNamespace(
        asked_provider=lambda: provider,
        onnxruntime=SimpleNamespace(get_available_providers=lambda: [*installed, CPU]),
        options=SimpleNamespace(add_session_config_entry=entries.__setitem__),
        spec=SimpleNamespace(settings={"provider": provider}),
        entries=entries,
        providers=[CPU],
        device=("cpu", 0),
    )


def test_an_installed_provider_runs_all_or_nothing() -> None:
    driver = driver_for(OPENVINO, OPENVINO)
    choose_provider(driver, "openvino")
    assert (driver.providers, driver.device) == ([OPENVINO], ("cpu", 0))
    assert driver.entries == {"session.disable_cpu_ep_fallback": "1"}


def test_the_cpu_needs_nothing_else() -> None:
    driver = driver_for(CPU, OPENVINO)
    choose_provider(driver, "cpu")
    assert (driver.providers, driver.entries) == ([CPU], {})


def test_a_provider_that_is_not_installed_is_refused_and_the_others_are_named() -> None:
    with pytest.raises(UsageError) as caught:
        choose_provider(driver_for("CUDAExecutionProvider", OPENVINO), "cuda")
    assert "no provider 'cuda'" in str(caught.value)
    assert caught.value.hint.startswith("installed: openvino, cpu; pip install onnxruntime-gpu")
