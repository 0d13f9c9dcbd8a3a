"""The facts that an engine knows of a dump, besides what the names of its tensors say.

The worker that makes a dump imports this and no more of dumps: their formats cost time to import.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec

from lar.records.quantization import Quantization

SUFFIX = ".facts.json"


class OperatorFact(NamedTuple):
    """What an engine knows of an operator besides its name, by its number
    (`Variable.operator_id`)."""

    number: int
    parameters: dict[str, Any]


class Kernel(NamedTuple):
    """What an engine chooses an algorithm for: an operator's type, and the shapes of its inputs
    and of its first output, as they are stored."""

    type: str
    shapes: tuple[tuple[int, ...], ...]


class DumpFacts(NamedTuple):
    """What an engine knows of a dump: its operators in their order, the iteration that was dumped
    (None: the last one), the algorithms that were chosen, and by the names of tensors the real
    numbers that their integers stand for. A negative axis counts from the last one. `operands` are
    the names in the model of what is taken by the operator that gives a tensor; the engine may have
    put others in their place when it optimised the graph. `outputs` and `left_out` are those of
    `DumpIndex`."""

    operators: Sequence[OperatorFact] = ()
    iteration: int | None = None
    algorithms: Mapping[Kernel, str] = MappingProxyType({})
    quantizations: Mapping[str, Quantization] = MappingProxyType({})
    operands: Mapping[str, Sequence[str]] = MappingProxyType({})
    outputs: Sequence[str] = ()
    left_out: Mapping[str, str] = MappingProxyType({})


NO_FACTS = DumpFacts()


def write_facts(folder: Path, facts: DumpFacts) -> None:
    """Write beside a folder what a worker knows of the dump in it, but for algorithms.

    Raises:
        OSError: it cannot be written.
    """
    kept = facts._replace(algorithms={})
    Path(f"{folder}{SUFFIX}").write_bytes(msgspec.json.encode(kept, enc_hook=dict))


def read_facts(folder: Path) -> DumpFacts:
    """Return what a worker has written beside a folder, nothing if it did not live to do so."""
    try:
        kept = msgspec.json.decode(Path(f"{folder}{SUFFIX}").read_bytes())
        return msgspec.convert(kept, DumpFacts)
    except (OSError, ValueError):
        return NO_FACTS
