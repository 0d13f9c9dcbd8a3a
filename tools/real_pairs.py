"""Pairs of correct `real_networks`, which differ in level, conversion, names or exporter.

A side is a command line with a model, its level of optimisation and its inputs.
"""

from __future__ import annotations

import itertools
import json
import shlex
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import onnx
from planted_faults import read_pairs
from processes import map_in_processes
from real_networks import NETWORKS, RealNetwork, make_network

# Each row has the group, the networks (or two exporters' networks), and pairs of a form and a
# level. Two networks have no float16 form: for the parts of a LayerNormalization, ONNX Runtime 1.23
# makes a float16 model that it fails to load.
TABLE = json.loads(Path(__file__).with_suffix(".json").read_text())


class RealSide(NamedTuple):
    """A network in a form of `real_networks`, with the level of optimisation of its run."""

    network: str
    form: str = "float"
    level: str = "all"

    @property
    def key(self) -> str:
        return f"{self.network} {self.form} {self.level}"

    def command(self, folder: Path) -> str:
        """Return the side as a command line; make the model if it does not exist yet."""
        path = folder / f"{self.network}.{self.form.replace(' ', '_')}.onnx"
        if not path.exists():
            write_network(path, make_network(self.network, self.form))
        return side_of_model(path, self.level)


class RealPair(NamedTuple):
    """Two sides whose outputs must be equal within the tolerance."""

    group: str
    actual: RealSide
    expected: RealSide

    @property
    def name(self) -> str:
        return f"{self.group}: {self.actual.key} against {self.expected.key}"


def write_network(path: Path, network: RealNetwork) -> None:
    """Write a model, and write its inputs into a folder beside the model."""
    feeds = path.with_suffix(".inputs")
    feeds.mkdir(exist_ok=True)
    for name, array in network.feeds.items():
        np.save(feeds / f"{name}.npy", array)
    onnx.save(network.model, path)


def side_of_model(path: Path, level: str = "all") -> str:
    """Return the command line of a model that `write_network` wrote, with its inputs."""
    feeds = sorted(path.with_suffix(".inputs").iterdir())
    items = ";".join(f"{each.stem}:{each}" for each in feeds)
    return shlex.join([str(path), "--graph-optimization-level", level, "--input", items])


def real_pairs() -> Iterator[RealPair]:
    """Yield the pairs of real networks without a fault."""
    for group, names, forms in TABLE:
        each_name = NETWORKS if names == "*" else names.split()
        for name, forms_of_sides in itertools.product(each_name, read_pairs(forms)):
            networks = name.split("/") * 2
            sides = (
                RealSide(network, *form.rsplit(" ", 1))
                for network, form in zip(networks, forms_of_sides, strict=False)
            )
            yield RealPair(group, *sides)


def write_sides(folder: Path, pairs: Sequence[RealPair], processes: int) -> list[tuple[str, str]]:
    """Write the missing models of some pairs; return both command lines of each pair."""
    sides = list(dict.fromkeys(each for pair in pairs for each in (pair.actual, pair.expected)))
    files = list({(side.network, side.form): side for side in sides}.values())
    map_in_processes(partial(RealSide.command, folder=folder), files, processes)
    return [(pair.actual.command(folder), pair.expected.command(folder)) for pair in pairs]
