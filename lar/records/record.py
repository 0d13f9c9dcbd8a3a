"""What all records are: frozen, plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: object) -> Any:
        return lambda kind: kind


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
