"""The facts that an engine knows of a dump, besides what the names of its tensors say.

The worker that makes a dump imports only this part of dumps: their formats take time to import.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from lar.records.run import Quantization

SUFFIX = ".facts.json"


class OperatorFact(NamedTuple):
    """The facts of an operator besides its name, by its number (`Variable.operator_id`)."""

    number: int
    parameters: dict[str, Any]


class Kernel(NamedTuple):
    """The operators for which an engine chooses one algorithm.

    It has their type, and the stored shapes of the inputs and of the first output.
    """

    type: str
    shapes: tuple[tuple[int, ...], ...]


class DumpFacts(NamedTuple):
    """The facts that an engine knows of a dump.

    These are its operators in order, the dumped iteration (None: the last one), the chosen
    algorithms, and by the names of tensors the real numbers that their integers stand for. A
    negative axis counts from the last one. `operands` are the model's names for the inputs of the
    operator that gives a tensor; an optimising engine may have replaced them. `outputs` and
    `left_out` are those of `DumpIndex`.
    """

    operators: Sequence[OperatorFact] = ()
    iteration: int | None = None
    algorithms: Mapping[Kernel, str] = MappingProxyType({})
    quantizations: Mapping[str, Quantization] = MappingProxyType({})
    operands: Mapping[str, Sequence[str]] = MappingProxyType({})
    outputs: Sequence[str] = ()
    left_out: Mapping[str, str] = MappingProxyType({})


NO_FACTS = DumpFacts()


def write_facts(folder: Path, facts: DumpFacts) -> None:
    """Write beside a folder what a worker knows of the dump in it, except algorithms.

    Raises:
        OSError: it cannot be written.
    """
    kept = facts._replace(algorithms={})
    Path(f"{folder}{SUFFIX}").write_bytes(msgspec.json.encode(kept, enc_hook=dict))


def read_facts(folder: Path) -> DumpFacts:
    """Return what a worker has written beside a folder, empty if it died before."""
    try:
        kept = msgspec.json.decode(Path(f"{folder}{SUFFIX}").read_bytes())
        return msgspec.convert(kept, DumpFacts)
    except (OSError, ValueError):
        return NO_FACTS
