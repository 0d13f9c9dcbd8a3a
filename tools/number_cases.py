"""The pairs that `bench_numbers` compares: networks with planted faults, and correct networks.

A case says which networks are compared, with which faults, and how each side is run. `number_dumps`
makes the models and the dumps. The file `number_cases.json` has four tables: the forms by name; the
models of the repository with their inputs; the folders that were dumped on another processor, each
with its model; and the pairs of forms for networks without a fault.

Three networks have no form `half`. On a CPU, MegEngine's pooling in float16 with a small kernel
gives numbers with the wrong sign. In the third network, a cast in the middle would end the float16.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from planted_faults import FAULTS, read_pairs, truth_of

TABLE = json.loads(Path(__file__).with_suffix(".json").read_text())


class Form(NamedTuple):
    """How a network is written and run: its format, its conversion and the options of the run."""

    suffix: str
    recipe: str = ""
    options: dict[str, Any] = {}


FORMS = {name: Form(*row) for name, row in TABLE["forms"].items()}
MODELS: dict[str, list[str]] = TABLE["models"]


class Side(NamedTuple):
    """One side of a case: a network in one of the `FORMS`, with the fault named `fault`.

    A side without a form is a folder that was dumped elsewhere.
    """

    network: str
    fault: str = "clean"
    form: str = ""

    @property
    def key(self) -> str:
        """The name of the folder with the side's dump."""
        return f"{self.network}.{self.fault}.{self.form}".replace(" ", "_")

    @property
    def model(self) -> str:
        """The name of the side's model file."""
        form = FORMS[self.form]
        recipe = f".{form.recipe}" if form.recipe else ""
        return f"{self.network}.{self.fault}{recipe}.{form.suffix}".replace(" ", "_")


class Case(NamedTuple):
    """A pair to compare. `faults` has the possible names of each operator with a fault."""

    group: str
    what: str
    actual: Side
    expected: Side
    faults: tuple[frozenset[str], ...] = ()

    @property
    def name(self) -> str:
        fault = f"{self.what}: " if self.what else ""
        return f"{self.group}: {fault}{self.actual.key} against {self.expected.key}"


def faulty_cases() -> Iterator[Case]:
    """Yield the cases with one altered operator, then the cases with other faults."""
    for word, fault in FAULTS.items():
        group = "fault" if word.startswith("old") else "new fault"
        right = f"prepared-{word}" if fault.prepare else "clean"
        truth = truth_of(fault)
        for one, other in fault.pairs:
            sides = Side(fault.network, word, one), Side(fault.network, right, other)
            yield Case(group, fault.kind, *sides, truth)


def healthy_cases() -> Iterator[Case]:
    """Yield the pairs in which nothing is wrong."""
    for group, networks, forms in TABLE["healthy"]:
        for name, (one, other) in itertools.product(networks.split(), read_pairs(forms)):
            yield Case(group, "", Side(name, form=one), Side(name, form=other))
    yield from cpp_cases()
    for dump, name in TABLE["other_cpu"].items():
        for form in ("disabled", "basic", "all"):
            yield from both_ways("another CPU", Side(dump), Side(name, form=form))


def both_ways(group: str, one: Side, other: Side) -> Iterator[Case]:
    yield Case(group, "", one, other)
    yield Case(group, "", other, one)


def cpp_cases() -> Iterator[Case]:
    """Yield pairs of two dumps of C++ `load_and_run`, or of such a dump and a run with lar.

    The dumps of `load_and_run` have no index.
    """
    for name in ("digits_cnn", "int8"):
        dumps = [Side(f"{name}_{layout}") for layout in ("nchw", "nchw44", "nchw88")]
        runs = [Side(f"models/{name}", form=form) for form in ("plain", "nchw44", "basic")]
        for number, dump in enumerate(dumps):
            for other in (*dumps[number + 1 :], *runs):
                yield from both_ways("C++ dumps", dump, other)
    sides = Side("models/int8", form="plain"), Side("models/digits_cnn", form="plain")
    yield from both_ways("int8", *sides)
