"""The way of a value from the command line to the clock: few functions of few modules."""

from __future__ import annotations

import sys
from types import FrameType

import pytest

from lar.cli.main import main
from lar.options.rules import Asked
from lar.records.run import RunSpec
from tests.conftest import WriteScript

MOST_FUNCTIONS, MOST_MODULES = 12, 8
COUNT = 7919  # a number that nothing else has
Function = tuple[str, str]


def function_of(frame: FrameType) -> Function:
    return str(frame.f_globals.get("__name__", "")), frame.f_code.co_name


def test_from_the_flag_to_the_clock(
    write_script: WriteScript, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counted are the functions that are running when the clock is first read, and those that
    handed the number to them."""
    way: list[Function] = []
    handed: list[Function] = []

    def look(frame: FrameType, event: str, argument: object) -> None:
        module, name = function_of(frame)
        if way or not module.startswith("lar."):
            return
        if event == "call" and name == "take_samples" and frame.f_locals["count"] == COUNT:
            each: FrameType | None = frame
            while each is not None:
                found = function_of(each)
                if found[0].startswith("lar."):
                    way.append(found)
                each = each.f_back
        elif event == "return" and carries(argument):
            handed.append((module, name))

    sys.setprofile(look)
    try:
        code = main([write_script(), "--iter", str(COUNT), "--in-process"])
    finally:
        sys.setprofile(None)
    assert code == 0, capsys.readouterr().err
    capsys.readouterr()
    functions = list(dict.fromkeys([*way, *handed]))
    assert way[0] == ("lar.measurement.loop", "take_samples")
    assert way[-1] == ("lar.cli.main", "main")
    assert len(functions) <= MOST_FUNCTIONS, "\n".join(map(".".join, functions))
    assert len({module for module, _ in functions}) <= MOST_MODULES, functions


def carries(value: object) -> bool:
    """Whether what a function returns is the number or the request that has it."""
    if isinstance(value, (Asked, RunSpec)):
        return value.iterations == COUNT
    return COUNT in value if type(value) is tuple else value == COUNT
