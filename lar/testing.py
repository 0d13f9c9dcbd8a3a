"""What every engine must do: checks for people who add one, run from pytest or from a script.

    from lar.testing import check_engine

    check_engine(ENGINE, "small.onnx")

The model is a small one of the engine's own format. Every check runs the engine as `lar` does, in
workers, through each of its drivers; a check is skipped if the engine has no option for it. They
take some seconds for each driver, two of them for a run that its deadline ends.
"""

from __future__ import annotations

from lar.engines.contract import CHECKS, Check, ContractError, Subject, check_engine

__all__ = ["CHECKS", "Check", "ContractError", "Subject", "check_engine"]
