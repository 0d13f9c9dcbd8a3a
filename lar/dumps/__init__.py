"""Dumps: the tensors of a run, each in a file, and the graph between them.

A dump as all of lar sees it: an index of tensors and operators, and values read on demand; and the
facts that an engine knows of a dump, besides what the names of its tensors say.

The worker that makes a dump imports only this part of dumps: their formats take time to import.
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
    # Without msgspec: its import would take a worker as long as it takes to read a model's file.
    content = json.dumps(
        facts, default=lambda it: dict(it if isinstance(it, Mapping) else vars(it))
    )
    Path(f"{folder}{SUFFIX}").write_text(content)


def read_facts(folder: Path) -> DumpFacts:
    """Return what a worker has written beside a folder, empty if it died before."""
    import msgspec

    try:
        content = Path(f"{folder}{SUFFIX}").read_bytes()
        return msgspec.convert(msgspec.json.decode(content), DumpFacts)
    except (OSError, ValueError):
        return NO_FACTS


def keep_freed() -> None:
    """Have the C library keep memory that is freed: one tensor of a dump is read or written after
    the other, and the system clears the memory that it gives anew."""
    from ctypes import CDLL

    with suppress(AttributeError):  # not the GNU C library
        mallopt = CDLL(None).mallopt
        # malloc.h: M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_TOP_PAD
        for parameter, kept_bytes in ((-1, 1 << 30), (-3, 1 << 30), (-2, 1 << 24)):
            mallopt(parameter, kept_bytes)


Array: TypeAlias = "np.ndarray[Any, Any]"


class DumpedTensor(GraphTensor):
    """One tensor of a dump.

    `key` is unique in the dump: the name of its file. `name` is the engine's name of the variable.
    `dtype` is the name of a NumPy dtype, or MegEngine's name of a quantised type, as `QuantizedS8`,
    or of one that NumPy lacks; `string` is text, stored as its bytes (uint8) in UTF-8 along the
    last axis, padded with zeros. `shape` is that of the stored array. `layout` names a blocked one
    (`nchw44`, `nchw88`, `nchw16c`, ..., `OIhw4i4o` of weights: see `layouts`) and is empty if the
    axes are plain or unknown. `operator` is the key of the operator that made it, empty if unknown;
    `slot` counts that operator's outputs. `run` counts the iterations, including the warm-up's, if
    a dump keeps the outputs of each. `quantization` says which real numbers the stored integers
    stand for, None if that is unknown or they are plain numbers. `origin` is the model file's name
    of the tensor, empty if it is `name` or unknown.
    """

    slot: int = 0
    run: int = 0
    origin: str = ""


class DumpedOperator(GraphOperator):
    """One operator: `inputs` and `outputs` are keys of tensors, in the operator's order.

    An input that is not in the dump has a key all the same. `constant` marks weights and other
    values that were not computed.
    """

    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    constant: bool = False


class DumpIndex(Origin, Encodable):
    """The content and the origin of a dump, in the order of execution.

    `iteration` counts the dumped iteration, including the warm-up's. `items` are those of a data
    set, each run for `iterations` iterations. `outputs` are the names of the model's outputs, in
    its order; the tensors of a sequence or map `s` are named `s[0]`, `s[KEY]`. `left_out` says by
    name why the dump lacks something that the engine computed. `inputs` are the values of
    `--input`, `feeding` the options that say how they were used; `files` has the size in bytes and
    the time of each file of the items. `products` is the type to which the factors of float32
    products were rounded.
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
    """The elements of a tensor as its file stores them, axes included.

    `convert` makes the values of a part of them, which may take twice the memory; None if the
    elements are the values.
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
    """An index and its values, each read when it is asked for and not kept.

    `missing` are the keys of tensors whose files are gone; the index does not have them. With
    `excerpts` each tensor has only a few numbers: see `lar.dumps.excerpts`.
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
        """Return this dump with an array in place of one of its tensors."""
        read = self.reader
        other = copy.copy(self)  # with the tables that have been made
        other.__dict__["reader"] = lambda tensor: array if tensor.key == key else read(tensor)
        return other

    def __iter__(self) -> Iterator[DumpedTensor]:
        return iter(self.index.tensors)

    def __len__(self) -> int:
        return len(self.index.tensors)

    def __contains__(self, key: str) -> bool:
        return key in self._tensors

    def tensor(self, key: str) -> DumpedTensor:
        """Return the entry of a tensor.

        Raises:
            KeyError: the dump has no tensor with that key.
        """
        return self._tensors[key]

    def read(self, key: str) -> Array:
        """Read the values of a tensor, in its stored axes.

        Raises:
            DumpError: its file is missing or damaged.
        """
        return self.read_stored(key).values

    def read_stored(self, key: str) -> Stored:
        """Read a tensor in its stored form.

        Raises:
            DumpError: its file is missing or damaged.
        """
        found = self.reader(self._tensors[key])
        return found if isinstance(found, Stored) else Stored(found)
