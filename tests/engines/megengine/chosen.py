"""Algorithms that MegEngine says it has chosen, and those in a cache file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from lar.engines.caches import Operator
from lar.engines.megengine.cache import read_cache
from lar.engines.megengine.cache_operators import operators_of


@dataclass(frozen=True)
class Chosen:
    """An algorithm that the engine says it has chosen."""

    operator: str
    input_shape: str
    name: str
    workspace_mib: float
    attribute: int


def chosen_in(log: str) -> list[Chosen]:
    """Return the choices in the engine's log."""
    pattern = r"\] (\w+): tensor layouts\({(\S*) .*algo=(\S+) workspace=([\d.]+)MiB attribute=(\d+)"
    return [
        Chosen(name, re.sub(r"\(\d+\)", "", layout), algorithm, float(workspace), int(attribute))
        for name, layout, algorithm, workspace, attribute in re.findall(pattern, log)
    ]


def names_in(log: str) -> set[tuple[str, str]]:
    return {(chosen.operator, chosen.name) for chosen in chosen_in(log)}


def names_of(operators: list[Operator]) -> set[tuple[str, str]]:
    return {(operator.name, operator.chosen.name) for operator in operators}


def operators_in(path: Path) -> list[Operator]:
    return operators_of(read_cache(path))
