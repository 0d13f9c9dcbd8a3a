"""Checks of what every engine must do, for people who add an engine to lar.

    from lar.testing import check_engine

    check_engine(ENGINE, "small.onnx")

Call `check_engine` in a test of pytest or in a script, with a small model in the engine's own
format. Each check runs the engine as `lar` does, in worker processes, with each of the engine's
drivers. A check of an option is skipped if the engine has no such option. The checks of one driver
take some seconds in all. The check that a run ends at its deadline takes two seconds.
"""

from __future__ import annotations

from lar.engines.contract import CHECKS, Check, ContractError, Subject, check_engine

__all__ = ["CHECKS", "Check", "ContractError", "Subject", "check_engine"]
