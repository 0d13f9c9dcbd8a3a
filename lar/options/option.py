"""An option: one flag of `lar run`, with its value, its help and its purpose."""

from __future__ import annotations

from collections.abc import Callable, Mapping

TYPE_CHECKING = False  # as in `typing`, which is slow to import
if TYPE_CHECKING:
    from typing import Any, Generic, Literal, TypeVar

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
    """The purpose of an option. It decides how lar treats the option:

    run       how often, how long and on which engine the model runs, and what a run may overwrite
    setting   how the engine loads and computes the model
    input     the input data of the model
    dataset   how lar treats the items of a data set
    dump      tensors for a comparison; if the run fails, a dump keeps the tensors written so far
    profile   times of operators; the plain run before a profiled run leaves these options out
    check     a condition that makes a run fail although the engine did not fail
    cache     a file that a run reads, and also writes when it has found something new
    report    what lar prints and writes about the result; for the command line only
    farm      the machine that makes the run; for the command line only
    debug     help to find faults of lar; for the command line only
    """

    Writes = Literal["", "file", "folder", "stdout", "stderr"]
else:
    T = None

    class Generic:
        """Stands for `typing.Generic` while lar runs, when no type is checked."""

        def __class_getitem__(cls, kind):
            return cls


class Group:
    """A heading in the help of `lar run`, with a group of options below the heading.

    `lar run --help NAME` prints one heading and the options below this heading. `purpose` is the
    purpose of each option in the group that has no `own_purpose`.
    """

    def __init__(self, name: str, title: str, purpose: Purpose = "setting") -> None:
        self.name, self.title, self.purpose = name, title, purpose


class Value(Generic[T]):
    """The kind of value that an option accepts; a switch accepts no value.

    Attributes:
        parse: the function that makes the value from a text, or None for a switch.
        metavar: the value's name in the help.
        choices: the allowed values, or empty if the allowed values cannot be listed.
        writes: file or folder if lar writes to the path that the value names, stdout or stderr if
            lar prints on this stream at the end of the run, else empty.
        reads: whether the value names a file that lar reads.
    """

    def __init__(
        self,
        parse: Callable[[str], T | None] | None,
        metavar: str = "",
        choices: tuple[str, ...] = (),
        writes: Writes = "",
        reads: bool = False,
    ) -> None:
        self.parse, self.metavar, self.choices = parse, metavar, choices
        self.writes, self.reads = writes, reads


class Word(Value[str]):
    """The kind of value that must be one of a few words."""

    def __init__(self, *choices: str, metavar: str = "") -> None:
        super().__init__(str, metavar, choices)


class Option(Generic[T]):
    """A flag with a value, such as `--fast-run-algo-policy FILE`.

    Attributes:
        key: the name in Python, in settings and in results, such as `fast_run_algo_policy`.
        parse, metavar, choices, writes, reads: see `Value`.
        help: one line of help, which is understood alone.
        group: the heading in the help, which is the last `Group` above the option in the table of
            options.
        own_purpose: what the option is for, if this differs from the purpose of the group.
        default: the value of an option that is not given.
        repeatable: whether the flag may be given several times; the value is then a list.
        joined_by: the text that separates the values of a repeatable option in the settings.
        alias: a second key, whose flag may be given instead.
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
        self.parse, self.metavar, self.choices = takes.parse, takes.metavar, takes.choices
        self.writes, self.reads = takes.writes, takes.reads
        self.help = help
        self.own_purpose = purpose
        self.default = default
        self.repeatable, self.joined_by, self.alias = repeatable, joined_by, alias

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
        """The flag, and the flag of the alias if the option has an alias."""
        return (self.flag, flag_of(self.alias)) if self.alias else (self.flag,)

    @property
    def usage(self) -> str:
        """The flag and the name of its value, such as `--fast-run-algo-policy FILE`."""
        value = self.metavar or "|".join(self.choices)
        return f"{self.flag}{'' if value.startswith(':') else ' '}{value}" if value else self.flag

    @property
    def by_engine(self) -> bool:
        """Whether engines honour the option; otherwise, lar itself honours it.

        Each engine has a table of the options that it honours, and refuses an option that is not in
        its table. The options that lar itself honours work with every engine.
        """
        return self.purpose not in ("run", "input", "dataset", "report", "farm", "debug")

    @property
    def is_for_command_line(self) -> bool:
        """Whether only the command line accepts the option, and `lar.run` in Python refuses it."""
        return self.purpose in ("report", "farm", "debug")

    def of(self, values: Mapping[str, Any]) -> T | None:
        """Return the option's value in `values`, or its default if no value is given."""
        value: T | None = values.get(self.key, self.default)
        return value

    def is_given(self, values: Mapping[str, Any]) -> bool:
        """Return whether the user has given the option.

        An option counts as not given if it is a switch that is off, or if its value is the default.
        """
        value = values.get(self.key)
        return is_set(value) and value != self.default


class Switch(Option[bool]):
    """A flag without a value, such as `--fast-run`."""

    def __init__(
        self, key: str, help: str, *, purpose: Purpose | None = None, writes: Writes = ""
    ) -> None:
        super().__init__(key, Value(None, writes=writes), help, purpose=purpose)

    def of(self, values: Mapping[str, Any]) -> bool:
        """Return whether the switch is on."""
        return bool(values.get(self.key))


def flag_of(key: str) -> str:
    """Return the flag of a key, such as `--fast-run` for `fast_run`."""
    return "--" + key.replace("_", "-")


def is_set(value: object) -> bool:
    """Return whether a value is given.

    None stands for a missing value, and False for a switch that is off.
    """
    return value is not None and value is not False  # not `bool(value)`: the device 0 is a value
