"""The configuration entries of ONNX Runtime, which `--engine-option` sets.

The names in `config_entries.json` are those of onnxruntime_session_options_config_keys.h and
onnxruntime_run_options_config_keys.h as of version 1.23: the library itself takes any name, and
ignores those that it does not know.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from lar.engines.engine import unknown_property
from lar.errors import UsageError
from lar.options.table import ENGINE_OPTION

if TYPE_CHECKING:
    from lar.engines.onnxruntime.session import SessionDriver

NAMES = json.loads(Path(__file__).with_suffix(".json").read_text())
OF_RUNS, OF_SESSIONS = frozenset(NAMES["runs"]), frozenset(NAMES["sessions"])
# Names of execution providers, each of which has entries of its own, begin so.
PROVIDERS_OWN = ("ep.", "ep_factory.", "qnn.", "trt_", "nv_", "cuda_")
# More than these, the library refuses.
MOST_NAME, MOST_VALUE = 1024, 8192


def check_entry(key: str, value: str) -> None:
    """Refuse an entry that the library would ignore, or not take.

    Raises:
        UsageError: naming the entry that was probably meant.
    """
    if key not in OF_SESSIONS | OF_RUNS and not key.startswith(PROVIDERS_OWN):
        known, hint = sorted(OF_SESSIONS | OF_RUNS), "names are as session.disable_prepacking"
        raise unknown_property("ONNX Runtime", key, known, hint, "configuration entry")
    if len(key) > MOST_NAME or len(value) > MOST_VALUE:
        raise UsageError(
            "is longer than ONNX Runtime takes",
            f"a value has at most {MOST_VALUE} letters",
            flag=f"{ENGINE_OPTION.flag} {key[:40]}",
        )


def set_entries(driver: SessionDriver, _: str) -> None:
    """Set the entries of the session, and keep those of its runs."""
    for key, value in driver.properties.items():
        if key in OF_RUNS:
            driver.run_entries[key] = value
        else:
            driver.options.add_session_config_entry(key, value)
