"""An option: one flag of `lar run`, with its value, its help and what it is for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, NamedTuple, TypeVar

T = TypeVar("T")

Purpose = Literal[
    "run",
    "setting",
    "input",
    "dataset",
    "dump",
    "profile",
    "check",
    "cache",
    "report",
    "farm",
    "debug",
]
"""What an option is for, by which lar treats it:

run       how often, how long and by which engine the model is run, and what the run may replace
setting   how the engine loads and computes the model
input     what the model is fed with
dataset   what is made of the items of a data set
dump      tensors for a comparison: a dump keeps what it has when the run fails
profile   times of operators: the plain run before a profiled one leaves these options out
check     what makes a run fail although the engine did not
cache     a file that a run reads, and that it writes too when it has found something new
report    what lar prints and writes of the result; of the command line alone
farm      the machine that makes the run; of the command line alone
debug     for finding faults of lar; of the command line alone
"""

Writes = Literal["", "file", "folder", "stdout", "stderr"]


class Group(NamedTuple):
    """A heading in the help: `lar run --help NAME` prints the options below it.

    `purpose` is that of its options that have no purpose of their own.
    """

    name: str
    title: str
    purpose: Purpose = "setting"


class Value(Generic[T]):
    """The value that an option takes; a switch takes none.

    Attributes:
        parse: makes the value from a text; a switch has none.
        metavar: the value's name in the help.
        choices: the only values it takes.
        writes: what is written there, or the stream on which it is printed at the end.
        reads: the value names a file that is read.
    """

    def __init__(
        self,
        parse: Callable[[str], T | None] | None,
        metavar: str = "",
        choices: tuple[str, ...] = (),
        writes: Writes = "",
        reads: bool = False,
    ) -> None:
        self.parse = parse
        self.metavar = metavar
        self.choices = choices
        self.writes = writes
        self.reads = reads


class Word(Value[str]):
    """One of some words."""

    def __init__(self, *choices: str, metavar: str = "") -> None:
        super().__init__(str, metavar, choices)


class Option(Generic[T]):
    """A flag that takes a value: `--fast-run-algo-policy FILE` has the key `fast_run_algo_policy`.

    Attributes:
        key: the name in Python, in settings and in results.
        parse, metavar, choices, writes, reads: those of the value, see `Value`.
        help: one line that can be read alone.
        group: the heading in the help; in the table of options, the one above it.
        own_purpose: what the option is for, if that differs from the purpose of its group.
        default: the value of an option that is not given.
        repeatable: it may be given several times; the value is a list.
        joined_by: what stands between the values of a repeatable option in the settings.
        alias: a second key, for a flag that means the same.
    """

    group = Group("", "")

    def __init__(
        self,
        key: str,
        takes: Value[T],
        help: str,
        *,
        purpose: Purpose | None = None,
        default: T | None = None,
        repeatable: bool = False,
        joined_by: str = "\n",
        alias: str = "",
    ) -> None:
        self.key = key
        self.parse = takes.parse
        self.metavar = takes.metavar
        self.choices = takes.choices
        self.writes = takes.writes
        self.reads = takes.reads
        self.help = help
        self.own_purpose = purpose
        self.default = default
        self.repeatable = repeatable
        self.joined_by = joined_by
        self.alias = alias

    def __repr__(self) -> str:
        return self.flag

    @property
    def purpose(self) -> Purpose:
        """What the option is for, see `Purpose`."""
        return self.own_purpose or self.group.purpose

    @property
    def flag(self) -> str:
        """The flag on the command line."""
        return flag_of(self.key)

    @property
    def flags(self) -> tuple[str, ...]:
        """The flag, and the one of the alias if there is one."""
        return (self.flag, flag_of(self.alias)) if self.alias else (self.flag,)

    @property
    def usage(self) -> str:
        """The flag and what it takes: `--fast-run-algo-policy FILE`."""
        value = self.metavar or "|".join(self.choices)
        separator = "" if value.startswith(":") else " "
        return f"{self.flag}{separator}{value}" if value else self.flag

    @property
    def by_engine(self) -> bool:
        """Whether an engine honours it.

        Then it is a row in the engine's own table, and engines without such a row refuse it. lar
        itself honours other options, for every engine.
        """
        return self.purpose not in ("run", "input", "dataset", "report", "farm", "debug")

    @property
    def is_for_command_line(self) -> bool:
        """Whether `lar.run` in Python does not take it."""
        return self.purpose in ("report", "farm", "debug")

    def of(self, values: Mapping[str, Any]) -> T | None:
        """Return the option's value among others, None if it is not given."""
        value: T | None = values.get(self.key, self.default)
        return value

    def is_given(self, values: Mapping[str, Any]) -> bool:
        """Whether the user has given it; a switch that is off and a default do not count."""
        value = values.get(self.key)
        return is_set(value) and value != self.default


class Switch(Option[bool]):
    """A flag that takes no value: `--fast-run`."""

    def __init__(
        self, key: str, help: str, *, purpose: Purpose | None = None, writes: Writes = ""
    ) -> None:
        super().__init__(key, Value(None, writes=writes), help, purpose=purpose)

    def of(self, values: Mapping[str, Any]) -> bool:
        """Return whether the switch is on."""
        return bool(values.get(self.key))


def flag_of(key: str) -> str:
    """Return the flag of a key: `fast_run` is `--fast-run`."""
    return "--" + key.replace("_", "-")


def is_set(value: object) -> bool:
    """Whether a value is given: None stands for a missing one, False for a switch that is off."""
    return value is not None and value is not False  # not its truth: the device 0 is a value
