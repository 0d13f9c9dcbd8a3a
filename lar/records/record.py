"""The base classes of all records, which are frozen, plain data that become JSON without loss."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from lar.errors import WrongContent

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: object) -> Any:
        return lambda kind: kind


R = TypeVar("R")
E = TypeVar("E", bound="Encodable")

HINT = "give the content of a file that lar wrote as JSON, not the path of the file"
PART = 4096  # the most numbers of a column that become Python objects at once


class Values:
    """An immutable dataclass.

    All records share the methods of this class. The methods that the decorator `dataclass` makes
    are not used: to compile such methods for all record classes would take as long as loading an
    engine.
    """

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
        raise FrozenInstanceError(f"a record cannot be changed: {name}")

    def __post_init__(self) -> None:
        """Complete a new record; the method is called after the fields are set."""

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
    """An immutable dataclass, whose fields are given by name."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class ShortRecord(Values):
    """An immutable dataclass with few fields, which may be given by position."""


class Encodable(Record):
    """A record that is written as JSON with the name of its format."""

    format: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the content of `to_json` as dictionaries, lists, strings and numbers."""
        return record_from_json(record_to_json(self), dict)

    def to_json(self) -> str:
        """Return the JSON that `--json` writes.

        The function that reads this JSON is `lar.read_result`, `lar.read_bench` or `lar.read_tune`,
        depending on the kind of the record.
        """
        return record_to_json(self).decode()


class Numbers(Sequence[float | None]):
    """An immutable sequence of many numbers, any of which may be None.

    A number takes at most 8 bytes of memory; a Python object takes 32. A slice shares the memory of
    the whole sequence. The sequence is equal to any sequence of the same numbers.
    """

    def __init__(self, values: Iterable[float | None]) -> None:
        """Store the numbers as doubles, in which NaN stands for None.

        An array of doubles, or an object with the methods of a memoryview, is not copied.
        """
        doubles: Any = values
        if not hasattr(values, "tobytes") or hasattr(values, "dtype"):  # NumPy has many dtypes
            listed = values if isinstance(values, (list, tuple)) else [*values]
            known = [math.nan if it is None else it for it in listed] if None in listed else listed
            doubles = array("d", known)
        self._values: Any = memoryview(doubles) if isinstance(doubles, array) else doubles

    def tobytes(self) -> bytes:
        """Return the numbers as the bytes of doubles, as `tobytes` of an array does."""
        return bytes(self._values.tobytes())

    def parts(self) -> Iterator[Sequence[float | None]]:
        """Yield the numbers in lists of at most `PART` numbers."""
        for start in range(0, len(self._values), PART):
            part = self._values[start : start + PART].tolist()
            whole = sum(part)  # NaN if a number is NaN, and only NaN differs from itself
            yield part if whole == whole else [it if it == it else None for it in part]

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[float | None]:
        return chain.from_iterable(self.parts())

    def __getitem__(self, place: int | slice) -> Any:
        found = self._values[place]
        return Numbers(found) if isinstance(place, slice) else found if found == found else None

    def __add__(self, other: Iterable[float | None]) -> Numbers:
        return Numbers([*self, *other])

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, Sequence) else NotImplemented

    def __repr__(self) -> str:
        return repr(tuple(self))

    def __reduce__(self) -> tuple[type[Numbers], tuple[array[float]]]:
        return Numbers, (array("d", self.tobytes()),)


NO_NUMBERS = Numbers(())  # for a column that was never measured


def record_to_json(record: Any) -> bytes:
    """Encode a record as UTF-8 JSON."""
    return b"".join(pieces_of_json(record))


def pieces_of_json(record: Any) -> Iterator[bytes]:
    """Yield a record as UTF-8 JSON in pieces, since a long run has very many numbers."""
    import msgspec

    held_back = list[Iterator[Sequence[float | None]]]()

    def hold_back(numbers: Numbers) -> object:
        if len(numbers) <= PART:
            return () if numbers is NO_NUMBERS else next(numbers.parts(), ())
        held_back.append(numbers.parts())
        return msgspec.Raw(b"[\0]")  # JSON never contains this character

    pieces = msgspec.json.encode(record, enc_hook=hold_back).split(b"\0")
    for piece, parts in zip(pieces, [*held_back, ()], strict=True):
        yield piece
        yield from elements_as_json(parts)


def elements_as_json(parts: Iterable[Sequence[Any]]) -> Iterator[bytes]:
    """Yield the JSON of a list that is given in parts, without the brackets of the list."""
    import msgspec

    for number, part in enumerate(parts):
        yield (b"," if number else b"") + msgspec.json.encode(part)[1:-1]


def record_from_json(data: bytes | str, record_type: type[R]) -> R:
    """Decode JSON into a record.

    Raises:
        WrongContent: the text is not JSON, or does not fit this record.
    """
    import msgspec

    try:
        return msgspec.json.decode(data, type=record_type)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        is_deep = isinstance(error, RecursionError)
        problem = "JSON is malformed: it is nested too deeply" if is_deep else str(error)
        raise WrongContent(problem, HINT) from None


def record_of_format(data: bytes | str, record_type: type[E]) -> E:
    """Decode JSON that contains the name of a record's format.

    Raises:
        WrongContent: the text is not JSON, has another format, or does not fit this record.
    """
    record: E | None = None
    with suppress(WrongContent):
        record = record_from_json(data, record_type)
    found, wanted = (record or record_from_json(data, Encodable)).format, record_type.format
    if found and found != wanted:
        raise WrongContent(f"format {found!r} is not {wanted!r}", HINT)
    return record or record_from_json(data, record_type)  # its error says what does not fit
