"""The configuration entries of ONNX Runtime, which `--engine-option` sets.

The names are those of onnxruntime_session_options_config_keys.h and
onnxruntime_run_options_config_keys.h as of version 1.23: the library itself takes any name, and
ignores those that it does not know.
"""

from __future__ import annotations

import functools
import os
from typing import TYPE_CHECKING

from lar.errors import UsageError, nearest
from lar.options.table import ENGINE_OPTION

if TYPE_CHECKING:
    from lar.engines.onnxruntime.session import SessionDriver

# Names of execution providers, each of which has entries of its own, begin so.
PROVIDERS_OWN = ("ep.", "ep_factory.", "qnn.", "trt_", "nv_", "cuda_")
# More than these, the library refuses.
MOST_NAME, MOST_VALUE = 1024, 8192


@functools.cache
def known_entries() -> tuple[frozenset[str], frozenset[str]]:
    """Return the entries of sessions, and those of runs."""
    with open(os.path.join(os.path.dirname(__file__), "config_entries.txt")) as file:
        of_sessions, of_runs = file.read().split("# Of runs\n")
    return frozenset(of_sessions.splitlines()[1:]), frozenset(of_runs.splitlines())


def check_entry(key: str, value: str) -> None:
    """Refuse an entry that the library would ignore, or not take.

    Raises:
        UsageError: naming the entry that was probably meant.
    """
    known = frozenset.union(*known_entries())
    if key not in known and not key.startswith(PROVIDERS_OWN):
        near = nearest(key, sorted(known))
        raise UsageError(
            f"ONNX Runtime has no configuration entry {key!r}",
            f"did you mean {near}?" if near else "names are as session.disable_prepacking",
            flag=ENGINE_OPTION.flag,
        )
    if len(key) > MOST_NAME or len(value) > MOST_VALUE:
        raise UsageError(
            "is longer than ONNX Runtime takes",
            f"a value has at most {MOST_VALUE} letters",
            flag=f"{ENGINE_OPTION.flag} {key[:40]}",
        )


def set_entries(driver: SessionDriver, _: str) -> None:
    """Set the entries of the session, and keep those of its runs."""
    for key, value in driver.properties.items():
        if key in known_entries()[1]:
            driver.run_entries[key] = value
        else:
            driver.options.add_session_config_entry(key, value)
