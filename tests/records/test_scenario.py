"""The record of a scenario."""

from __future__ import annotations

import re

from lar.cli.parser import parser_of
from lar.cli.scenario import SETTINGS
from lar.records.run import Scenario


def test_the_defaults_are_those_that_the_help_names() -> None:
    named = {
        each.dest: float(found[1])
        for each in parser_of("bench")._actions
        if each.dest in SETTINGS and (found := re.search(r"\(default (\d+)\)", each.help or ""))
    }
    scenario = Scenario(name="server")
    assert named == {
        "target_latency": 1e3 * scenario.target_latency_seconds,
        "samples_per_query": scenario.samples_per_query,
        "min_queries": scenario.min_queries,
        "min_duration": scenario.min_seconds,
    }
