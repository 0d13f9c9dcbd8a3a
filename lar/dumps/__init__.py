"""Dumps: the tensors of a run, each in a file, and the graph between them.

The rest of lar sees a dump as an index of tensors and operators, and as values that are read on
demand. An engine adds facts that the names of the tensors do not show.

A worker whose engine itself writes the files of a dump imports only this module, because the
modules for file formats are slow to import.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from lar.records.record import Encodable
from lar.records.run import GraphOperator, GraphTensor, Origin, Quantization

if TYPE_CHECKING:
    import numpy as np


SUFFIX = ".facts.json"


class OperatorFact(NamedTuple):
    """The parameters of an operator.

    `number` is the number of the operator in the engine's graph (`Variable.operator_id`).
    """

    number: int
    parameters: dict[str, Any]


class Kernel(NamedTuple):
    """A group of operators for which an engine chooses one algorithm.

    `type` is the type of all operators in the group. `shapes` are the stored shapes of each
    operator's inputs and first output.
    """

    type: str
    shapes: tuple[tuple[int, ...], ...]


class DumpFacts(NamedTuple):
    """The facts about a dump that only the engine knows.

    `operators` are in the order of execution. `iteration` is the dumped iteration, or None for the
    last iteration. `algorithms` are the chosen algorithms. `quantizations` say, by the name of a
    tensor, which real numbers the integers of the tensor stand for. A negative `axis` of a
    quantization counts from the last axis of the tensor. `operands` has, by the name of a tensor,
    the model's names for the inputs of the operator that computes the tensor; an optimising engine
    may have replaced these inputs. `outputs` and `left_out` are as in `DumpIndex`.
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
    """Write a worker's facts about a dump, without the algorithms, beside the dump's folder.

    Raises:
        OSError: the file cannot be written.
    """
    # Without msgspec: to import it would take a worker as long as to read a model file.
    content = json.dumps(
        facts, default=lambda it: dict(it if isinstance(it, Mapping) else vars(it))
    )
    Path(f"{folder}{SUFFIX}").write_text(content)


def read_facts(folder: Path) -> DumpFacts:
    """Return the facts that a worker wrote beside a folder.

    The result has no facts if the worker died before it wrote the facts.
    """
    import msgspec

    try:
        content = Path(f"{folder}{SUFFIX}").read_bytes()
        return msgspec.convert(msgspec.json.decode(content), DumpFacts)
    except (OSError, ValueError):
        return NO_FACTS


def keep_freed() -> None:
    """Make the C library keep freed memory for the next tensor of a dump.

    If the C library returned freed memory to the system, the system would clear new memory for each
    tensor, which takes time.
    """
    from ctypes import CDLL

    with suppress(AttributeError):  # not the GNU C library
        mallopt = CDLL(None).mallopt
        # malloc.h: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_TOP_PAD
        for parameter, kept_bytes in ((-1, 1 << 30), (-3, 1 << 30), (-2, 1 << 24)):
            mallopt(parameter, kept_bytes)


Array: TypeAlias = "np.ndarray[Any, Any]"


class DumpedTensor(GraphTensor):
    """One tensor of a dump.

    `key` is the name of the tensor's file, and unique in the dump. `name` is the engine's name of
    the variable. `dtype` is the name of a NumPy dtype. For a quantised type such as `QuantizedS8`,
    or a type that NumPy lacks, `dtype` is MegEngine's name of the type. The dtype `string` is for
    strings: their UTF-8 bytes (uint8) lie along the last axis, padded with zeros.

    `shape` is the shape of the stored array. `layout` is the name of a blocked layout, such as
    `nchw44`, `nchw16c`, or `OIhw4i4o` for weights (see `layouts`). The layout is empty if the axes
    are plain or unknown. `operator` is the key of the operator that computed the tensor, or empty
    if this operator is unknown. `slot` is the number of the tensor among the operator's outputs.
    `run` is the number of the iteration, warm-up included, if a dump keeps the outputs of each
    iteration. `quantization` says which real numbers the stored integers stand for. `quantization`
    is None if the real numbers are unknown, or if the stored numbers are plain. `origin` is the
    model file's name of the tensor, empty if it is unknown or equal to `name`.
    """

    slot: int = 0
    run: int = 0
    origin: str = ""


class DumpedOperator(GraphOperator):
    """One operator: `inputs` and `outputs` are keys of tensors, in the operator's order.

    `inputs` also has the keys of inputs whose tensors are not in the dump. `constant` marks weights
    and other values that were not computed.
    """

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    constant: bool = False


class DumpIndex(Origin, Encodable):
    """The content and the origin of a dump; tensors and operators are in the order of execution.

    `iteration` is the number of the dumped iteration, warm-up included. `items` are the items of a
    data set; each was run for `iterations` iterations. `outputs` are the names of the model's
    outputs, in the model's order; the tensors of a sequence or a map `s` are named `s[0]` or
    `s[KEY]`. `left_out` says why the dump lacks a computed tensor, by the name of the tensor.
    `inputs` are the values of `--input`, and `feeding` has the options that say how inputs were
    used. `files` has the size in bytes and the modification time of each file from which items are
    read. `products` is the type to which the factors of float32 products were rounded.
    """

    tensors: tuple[DumpedTensor, ...]
    operators: tuple[DumpedOperator, ...]
    # History: lar.dump/1  first version
    format: str = "lar.dump/1"
    products: str = ""
    iteration: int = 0
    outputs: tuple[str, ...] = ()
    left_out: dict[str, str] = field(default_factory=dict)
    items: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    feeding: dict[str, str] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    warmup_iterations: int = 0
    iterations: int = 0


class Stored(NamedTuple):
    """The elements of a tensor as its file stores them, in the stored axes.

    `convert` computes the values of a part of the elements. The computed values have the dtype
    `wider`, and may take twice as much memory as the stored elements. `convert` is None if the
    stored elements are the values.
    """

    raw: Array
    wider: np.dtype[Any] | None = None
    convert: Callable[[Array], Array] | None = None

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values."""
        return self.wider or self.raw.dtype

    def decode(self, part: Array) -> Array:
        """Return the values of a part of the elements."""
        return self.convert(part) if self.convert else part

    @property
    def values(self) -> Array:
        """The values of all elements."""
        return self.decode(self.raw)


@dataclass(frozen=True, eq=False, repr=False)
class Dump:
    """An index and the values of its tensors; values are read on demand, and not stored in memory.

    `missing` are the keys of tensors whose files are missing; these tensors are not in the index.
    With `excerpts` each tensor has only a few numbers: see `lar.dumps.excerpts`.
    """

    source: str
    index: DumpIndex
    reader: Callable[[DumpedTensor], Array | Stored]
    missing: tuple[str, ...] = ()
    excerpts: bool = False

    @cached_property
    def _tensors(self) -> dict[str, DumpedTensor]:
        return {tensor.key: tensor for tensor in self.index.tensors}

    def of_array(self, key: str, array: Array) -> Dump:
        """Return a copy of this dump in which an array replaces one tensor."""
        read = self.reader
        other = copy.copy(self)  # which keeps the tables that were computed before
        other.__dict__["reader"] = lambda tensor: array if tensor.key == key else read(tensor)
        return other

    def __iter__(self) -> Iterator[DumpedTensor]:
        return iter(self.index.tensors)

    def __len__(self) -> int:
        return len(self.index.tensors)

    def __contains__(self, key: str) -> bool:
        return key in self._tensors

    def tensor(self, key: str) -> DumpedTensor:
        """Return the entry of a tensor in the index.

        Raises:
            KeyError: the dump has no tensor with that key.
        """
        return self._tensors[key]

    def read(self, key: str) -> Array:
        """Read the values of a tensor; the axes are as in the file.

        Raises:
            DumpError: the tensor's file is missing or damaged.
        """
        return self.read_stored(key).values

    def read_stored(self, key: str) -> Stored:
        """Read a tensor in its stored form.

        Raises:
            DumpError: the tensor's file is missing or damaged.
        """
        found = self.reader(self._tensors[key])
        return found if isinstance(found, Stored) else Stored(found)
