"""A dump as every part of lar sees it: an index of tensors and operators, and lazy values."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from lar.records.quantization import Quantization
from lar.records.record import Record

if TYPE_CHECKING:
    import numpy as np

Array: TypeAlias = "np.ndarray[Any, Any]"

# History of the index format (`DumpIndex.format`):
#   lar.dump/1  first version
DUMP_FORMAT = "lar.dump/1"


class DumpedTensor(Record):
    """One tensor of a dump.

    `key` is unique in the dump: the name of its file. `name` is what the engine calls the
    variable. `dtype` is a NumPy dtype's name, or MegEngine's name of a quantised type, as
    `QuantizedS8`, or of one that NumPy lacks; `string` is text, stored as its bytes (uint8) in
    UTF-8 along the last axis, padded with zeros. `shape` is that of the stored array; `layout`
    names a blocked one (`nchw44`, `nchw88`, `nchw16c`, ..., `OIhw4i4o` of weights: see
    `layouts`) and is empty where the axes are plain or unknown. `operator` is the key of the
    operator that made it, empty where unknown; `slot` counts that operator's outputs. `run`
    counts the iterations, the warm-up's included, where a dump keeps the outputs of each.
    `quantization` says which real numbers the stored integers stand for; None where they are
    the numbers themselves, or nothing says it. `origin` is what the model file calls the tensor,
    empty where that is its `name` or unknown.
    """

    key: str
    name: str
    dtype: str
    shape: tuple[int, ...]
    layout: str = ""
    operator: str = ""
    slot: int = 0
    run: int = 0
    quantization: Quantization | None = None
    origin: str = ""


class DumpedOperator(Record):
    """One operator: `inputs` and `outputs` are keys of tensors, in the operator's order.

    An input whose tensor is not in the dump has a key all the same. `constant` marks weights and
    other values that were not computed. `origin` has what the model file calls the results of its
    own operators that this one stands for, empty where it is one of them or that is unknown.
    """

    key: str
    name: str
    type: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    parameters: dict[str, Any] = field(default_factory=dict)
    algorithm: str = ""
    constant: bool = False
    origin: tuple[str, ...] = ()


class DumpIndex(Record):
    """What a dump holds, in the order of execution, and where it comes from.

    `complete` is false for a dump whose run did not end well; `iteration` counts the iteration
    that was dumped, the warm-up's included. `items` are those of a data set, each of which was
    run for `iterations` iterations. `outputs` are the names of what the model gives, in its order;
    the tensors of a sequence or map `s` among them are named `s[0]`, `s[KEY]`. `left_out` says by
    name why the dump lacks something that the engine computed. `inputs` are what `--input` was
    given, and `feeding` the options that say what was made of it; `files` has for each file of the
    items the size in bytes and the time of its content. `system`, `architecture` and `processor`
    are those of the machine that ran it, `provider` what computed there for an engine with several,
    and `products` the type that it rounded the factors of float32 products to.
    Unknown facts are empty.
    """

    tensors: tuple[DumpedTensor, ...]
    operators: tuple[DumpedOperator, ...]
    format: str = DUMP_FORMAT
    complete: bool = True
    engine: str = ""
    engine_version: str = ""
    driver: str = ""
    device: str = ""
    provider: str = ""
    products: str = ""
    system: str = ""
    architecture: str = ""
    processor: str = ""
    model: str = ""
    model_sha256: str = ""
    settings: dict[str, bool | int | float | str] = field(default_factory=dict)
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

    `convert` makes the values of any part of them, where they are not the values themselves: they
    may take twice the memory.
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
    """An index and the values behind it, each read when it is asked for and not kept.

    `missing` are the keys of tensors whose files are gone; the index is without them. Of
    `excerpts` each tensor has a few numbers alone: see `lar.dumps.excerpts`.
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
        """Return this dump with an array in the place of one of its tensors."""
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
            KeyError: the dump has none of that key.
        """
        return self._tensors[key]

    def read(self, key: str) -> Array:
        """Read the values of a tensor, in the axes in which they are stored.

        Raises:
            DumpError: its file is missing or damaged.
        """
        return self.read_stored(key).values

    def read_stored(self, key: str) -> Stored:
        """Read a tensor as its file holds it.

        Raises:
            DumpError: its file is missing or damaged.
        """
        found = self.reader(self._tensors[key])
        return found if isinstance(found, Stored) else Stored(found)
