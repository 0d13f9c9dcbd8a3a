"""What all records are: frozen, plain data, JSON without loss."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: object) -> Any:
        return lambda kind: kind


R = TypeVar("R")
E = TypeVar("E", bound="Encodable")


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Record:
    """A dataclass that nobody changes, whose fields are given by name; `how` are other arguments of
    `dataclass`."""

    def __init_subclass__(cls, **how: bool) -> None:
        dataclass(frozen=True, kw_only=True, **how)(cls)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class ShortRecord:
    """A dataclass that nobody changes, whose few fields may be given by their places."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True)(cls)


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


def record_to_json(record: Any) -> bytes:
    """Encode a record as UTF-8 JSON."""
    import msgspec

    return msgspec.json.encode(record)


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
    found, wanted = record_from_json(data, Encodable).format, record_type.format
    if found and found != wanted:
        raise ValueError(f"format {found!r} is not {wanted!r}")
    return record_from_json(data, record_type)
