"""Checks of what every engine must do, for people who add an engine, in pytest or a script.

    from lar.testing import check_engine

    check_engine(ENGINE, "small.onnx")

The model is a small model in the engine's own format. Each check runs the engine as `lar` does, in
worker processes, with each of the engine's drivers. A check of an option is skipped if the engine
has no such option. The checks take some seconds for each driver, with two seconds for a run that
ends at its deadline.
"""

from __future__ import annotations

from lar.engines.contract import CHECKS, Check, ContractError, Subject, check_engine

__all__ = ["CHECKS", "Check", "ContractError", "Subject", "check_engine"]
