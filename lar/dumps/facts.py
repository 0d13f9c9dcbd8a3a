"""The facts that an engine knows of a dump, besides what the names of its tensors say.

The worker that makes a dump imports this and no more of dumps: their formats cost time to import.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from lar.records.quantization import Quantization


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
    put others in their place when it optimised the graph. `outputs` are the names of what the model
    gives, in its order; `left_out` says why the dump lacks something, by name."""

    operators: Sequence[OperatorFact] = ()
    iteration: int | None = None
    algorithms: Mapping[Kernel, str] = MappingProxyType({})
    quantizations: Mapping[str, Quantization] = MappingProxyType({})
    operands: Mapping[str, Sequence[str]] = MappingProxyType({})
    outputs: Sequence[str] = ()
    left_out: Mapping[str, str] = MappingProxyType({})


NO_FACTS = DumpFacts()
