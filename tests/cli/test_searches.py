"""Searches for several models at the same time; `tests/farm/test_dask.py` makes real ones."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import pytest

from lar.cli.searches import Ended, able_to_begin, search_at_once
from lar.errors import LarError, UsageError
from lar.records.tuning import ModelSpace, TuneRequest
from lar.tuning.session import Planned

pytestmark = pytest.mark.usefixtures("nothing_left")

Show = Callable[[str], None]


def planned(model: str) -> Planned:
    space = ModelSpace(model=model, engine="fake", dimensions=())
    return Planned(TuneRequest(spaces=(space,)))


def end_as_named(arguments: argparse.Namespace, asked: Planned, show: Show) -> Ended:
    """Do what the model's name says."""
    name = asked.request.spaces[0].model
    show("trial 1")
    print(f"found of {name}", flush=True)
    if "slow" in name:
        time.sleep(1.0)
    if "refused" in name:
        error = UsageError("is refused", "give another", subject=name)
        return Ended(error.message, error)
    if "defect" in name:
        raise ValueError("broken")
    return Ended(f"fastest: {name}")


def test_each_has_what_came_of_it_in_the_order_of_the_models(
    capfd: pytest.CaptureFixture[str],
) -> None:
    names = ["slow.fake", "quick.fake", "refused.fake", "defect.fake"]
    arguments = argparse.Namespace(debug=False)
    ended = search_at_once(end_as_named, arguments, [*map(planned, names)], 4)
    assert [each.said for each in ended[:3]] == [
        "fastest: slow.fake",
        "fastest: quick.fake",
        "refused.fake: is refused",
    ]
    assert [type(each.error) for each in ended] == [type(None), type(None), UsageError, LarError]
    assert "the process of its search has ended: exit code 4" in ended[3].said
    printed = capfd.readouterr()
    assert sorted(printed.out.splitlines()) == sorted(f"found of {name}" for name in names)
    assert printed.out.splitlines()[-1] == "found of slow.fake"
    assert "ValueError: broken" in printed.err


def test_models_of_one_name_are_searched_one_after_the_other() -> None:
    waiting = dict(enumerate(map(planned, ["a/m.mge", "b/m.onnx", "c/n.onnx"])))
    assert able_to_begin(waiting, []) == [0, 2]
    assert able_to_begin({1: waiting[1]}, []) == [1]
