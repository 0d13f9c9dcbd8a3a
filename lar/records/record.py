"""What all records are: frozen, plain data, JSON without loss."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: object) -> Any:
        return lambda kind: kind


R = TypeVar("R")
E = TypeVar("E", bound="Encodable")

PART = 4096  # of many numbers, as many as are Python's own at once


class Values:
    """A dataclass that nobody changes. Its methods are here, once for all: `dataclass` compiles
    them anew for each class, which for all records takes as long as loading an engine."""

    _given = dict[str, Any]()  # the names of the fields, with their defaults or their `Field`s

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        kind: Any = dataclass(init=False, repr=False, eq=False)(cls)
        cls._given = {f.name: f if f.default is MISSING else f.default for f in fields(kind)}

    def __init__(self, *placed: Any, **named: Any) -> None:
        values = {**self._given, **dict(zip(self._given, placed, strict=False)), **named}
        for name, value in values.items():
            if isinstance(value, Field) and value.default_factory is not MISSING:
                values[name] = value.default_factory()
            elif isinstance(value, Field) or name not in self._given:
                raise TypeError(f"{type(self).__name__}: {name} is missing or unknown")
        vars(self).update(values)
        self.__post_init__()

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"a record is not changed: {name}")

    def __post_init__(self) -> None:
        """Do what is left to do when the fields are there."""

    def _values(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in self._given)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(zip(self._given, self._values(), strict=True))})"


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Record(Values):
    """A dataclass that nobody changes, whose fields are given by name."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class ShortRecord(Values):
    """A dataclass that nobody changes, whose few fields may be given by their places."""


class Encodable(Record):
    """A record that is written as JSON, and names its format."""

    format: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return what `to_json` writes, as dictionaries, lists, texts and numbers."""
        return record_from_json(record_to_json(self), dict)

    def to_json(self) -> str:
        """Return the text that `--json` writes; `lar.read_result`, `lar.read_bench` or
        `lar.read_tune` reads it, by the kind of the record."""
        return record_to_json(self).decode()


class Numbers(Sequence[float | None]):
    """Many numbers that nobody changes, any of which may be None: at most 8 bytes each, not 32.

    A slice shares them. They are equal to any sequence of the same numbers.
    """

    def __init__(self, values: Iterable[float | None]) -> None:
        """Doubles where NaN stands for None are not copied: an array's, or those of what is used as
        a memoryview is."""
        doubles: Any = values
        if not hasattr(values, "tobytes") or hasattr(values, "dtype"):  # NumPy's are of many kinds
            listed = values if isinstance(values, (list, tuple)) else [*values]
            known = [math.nan if it is None else it for it in listed] if None in listed else listed
            doubles = array("d", known)
        self._values: Any = memoryview(doubles) if isinstance(doubles, array) else doubles

    def tobytes(self) -> bytes:
        """Return them as doubles, as an array or a memoryview does."""
        return bytes(self._values.tobytes())

    def parts(self) -> Iterator[Sequence[float | None]]:
        """Yield them in lists of some."""
        for start in range(0, len(self._values), PART):
            part = self._values[start : start + PART].tolist()
            whole = sum(part)  # NaN if one is, and only NaN differs from itself
            yield part if whole == whole else [it if it == it else None for it in part]

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[float | None]:
        return chain.from_iterable(self.parts())

    def __getitem__(self, place: int | slice) -> Any:
        found = self._values[place]
        if isinstance(place, slice):
            return Numbers(found)
        return found if found == found else None

    def __add__(self, other: Iterable[float | None]) -> Numbers:
        return Numbers([*self, *other])

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, Sequence) else NotImplemented

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __reduce__(self) -> tuple[type[Numbers], tuple[array[float]]]:
        return Numbers, (array("d", self.tobytes()),)


NO_NUMBERS = Numbers(())  # of a column that was never measured


def record_to_json(record: Any) -> bytes:
    """Encode a record as UTF-8 JSON."""
    return b"".join(pieces_of_json(record))


def pieces_of_json(record: Any) -> Iterator[bytes]:
    """Yield a record as UTF-8 JSON, some numbers at a time: a long run has very many."""
    import msgspec

    held_back = list[Iterator[Sequence[float | None]]]()

    def hold_back(numbers: Numbers) -> object:
        if len(numbers) <= PART:
            return () if numbers is NO_NUMBERS else next(numbers.parts(), ())
        held_back.append(numbers.parts())
        return msgspec.Raw(b"[\0]")  # no text has the character in JSON

    pieces = msgspec.json.encode(record, enc_hook=hold_back).split(b"\0")
    for piece, parts in zip(pieces, [*held_back, ()], strict=True):
        yield piece
        yield from elements_as_json(parts)


def elements_as_json(parts: Iterable[Sequence[Any]]) -> Iterator[bytes]:
    """Yield the JSON of a list that comes in parts, without its brackets."""
    import msgspec

    for number, part in enumerate(parts):
        yield (b"," if number else b"") + msgspec.json.encode(part)[1:-1]


def record_from_json(data: bytes | str, record_type: type[R]) -> R:
    """Decode JSON into a record.

    Raises:
        ValueError: the text is not JSON, or does not fit this record.
    """
    import msgspec

    try:
        return msgspec.json.decode(data, type=record_type)
    except msgspec.MsgspecError as error:
        raise ValueError(str(error)) from None
    except RecursionError:
        raise ValueError("JSON is malformed: it is nested too deeply") from None


def record_of_format(data: bytes | str, record_type: type[E]) -> E:
    """Decode JSON into a record that names its format.

    Raises:
        ValueError: the text is not JSON, of another format, or does not fit this record.
    """
    record: E | None = None
    with suppress(ValueError):
        record = record_from_json(data, record_type)
    found, wanted = (record or record_from_json(data, Encodable)).format, record_type.format
    if found and found != wanted:
        raise ValueError(f"format {found!r} is not {wanted!r}")
    return record or record_from_json(data, record_type)  # which says what does not fit
