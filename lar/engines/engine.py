"""The interface of an engine: all methods that the rest of lar calls.

The package of each engine exports one object of the class `Engine`. Creating an `Engine` imports
nothing, so that `--help` and usage errors stay fast. Each method imports the modules that it needs
when it is called.
"""

from __future__ import annotations

import abc
import contextlib
import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, cast

from lar.errors import EngineMissing, LarError, UsageError
from lar.options.suggestions import nearest_spelling
from lar.options.table import ENGINE_OPTION

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

    from lar.dumps import DumpFacts
    from lar.engines.caches import AnyCacheFiles
    from lar.engines.choices import Site
    from lar.engines.driver import Driver
    from lar.engines.formats import Format
    from lar.engines.listener import Listener
    from lar.engines.option_rows import OptionRow
    from lar.engines.signs import Sign
    from lar.graphs import OperatorKinds
    from lar.graphs.origins import ModelOperator
    from lar.options.option import Option
    from lar.options.rules import Rule
    from lar.records.profile import Profile
    from lar.records.run import Case, ModelInfo, RunContext, RunResult, RunSpec
    from lar.records.tuning import Dimension

    Arrays = Mapping[str, np.ndarray[Any, Any]]
    Step = Callable[[RunSpec, RunContext, Listener], RunResult]

Method = TypeVar("Method", bound=Callable[..., Any])

# For an engine that does not compute with NumPy. NumPy's BLAS would start threads that keep the
# CPUs busy while the engine's own library loads.
ONE_BLAS_THREAD: Mapping[str, str] = {"OPENBLAS_NUM_THREADS": "1"}


def imported(place: str, package: str = "") -> Any:
    """Import an object by its full name, such as `.lite.LiteDriver`, where `.lite` is a module.

    A name that begins with a dot is relative to `package`.
    """
    module, _, name = place.rpartition(".")
    return getattr(import_module(module, package), name)


@contextlib.contextmanager
def importing(engine: str, hint: str = "") -> Iterator[None]:
    """If the `with` block fails to import an engine's package, raise an EngineMissing.

    Raises:
        EngineMissing: the package is not installed, or does not load on this machine.
    """
    try:
        yield
    except ImportError as error:
        raise EngineMissing(f"{engine} cannot be imported: {error}", hint) from error


def late(face: Method, place: str) -> Method:
    """Return a method that imports a function of the engine's package only when it is called.

    The returned method replaces the method `face` of `Engine`. `place` is the full name of the
    function. The function `place` has the parameters of the method, but not `self`. If `place` is
    the name of a constant, the method returns this constant.
    """

    def method(self: object, *values: Any) -> Any:
        found = imported(place, type(self).__module__)
        return found(*values) if callable(found) else found

    vars(method)["place"] = place  # to import it sooner
    return cast(Method, method)


def import_late(engine: object, method: str) -> bool:
    """Import now what a method of an engine would otherwise import when it is first called.

    Returns:
        True if the function was imported. False if the method needs no import, since the method was
        not made by `late`.
    """
    place = vars(getattr(type(engine), method)).get("place")
    return bool(place and imported(place, type(engine).__module__))


def late_function(package: str, place: str) -> Callable[..., Any]:
    """Return a function which, when it is called, imports the function `place` and calls it."""
    return lambda *values: imported(place, package)(*values)


def late_value(place: str) -> Any:
    """Return a property that imports a constant of the engine's package when it is read."""
    return property(late(lambda self: None, place))


def unknown_property(
    engine: str,
    key: str,
    known: Iterable[str],
    otherwise: str = "",
    what: str = "property",
    flag: str = ENGINE_OPTION.flag,
) -> UsageError:
    """Return the error for a property that the engine does not have.

    `what` is the message's word for a property, such as "configuration entry". `flag` is the option
    by which the user sets properties. The hint names the known property with the most similar name.
    If no known property has a similar name, the hint is `otherwise`.
    """
    by_lower = {each.lower(): each for each in known}
    near = by_lower.get(nearest_spelling(key.lower(), by_lower))
    hint = f"did you mean {near}?" if near else otherwise
    return UsageError(f"{engine} has no {what} {key!r}", hint, flag=flag)


class DriverEntry(NamedTuple):
    """A driver of an engine; the first driver in an engine's list is the default driver.

    `load` imports the driver's class. `shared_library` may name a large library of the engine's
    package. A thread of lar loads the `shared_library` while `load` imports the driver's class.
    """

    name: str
    what: str
    load: Callable[[], type[Driver]]
    shared_library: str = ""


class CasePacker(NamedTuple):
    """The function of an engine by which `lar pack` writes a model with testcases.

    `driver` names the driver that computes the expected outputs. The arguments of `write` are a
    driver that has loaded the model, the inputs and outputs of each testcase, and the path of the
    result. `write` raises a UsageError if the model cannot be written with testcases.
    """

    driver: str
    writes: Literal["file", "folder"]
    write: Callable[[Driver, Sequence[tuple[Arrays, Arrays]], str], None]


class StagedRun(NamedTuple):
    """A way to divide a run with certain `options` into several worker processes.

    Each process makes one step of the run. A run that has one of `options` and one of `apart_with`
    needs several processes. A run that has only one of `options` can also be made in one process,
    but then lar reports nothing about the steps. In `lar bench`, where the iterations of several
    runs alternate, each run must be made in one process. The function `run` makes the run in
    several processes. The first two arguments of `run` are functions: the first function executes a
    spec in a new worker process, and the second makes the run that the user asked for.
    """

    options: tuple[Option[Any], ...]
    apart_with: tuple[Option[Any], ...]
    run: Callable[[Step, Step, RunSpec, RunContext, Listener], RunResult]


class Isolation(abc.ABC):
    """A model that is loaded in a worker process, to compute a single tensor from given tensors."""

    @abc.abstractmethod
    def find_missing(self, names: Collection[str]) -> set[str]:
        """Return those of the tensors `names` that this graph does not compute.

        The names have the form that they have in a dump of the same run. A tensor is missing if it
        lies between operators that the engine fuses or reorders later.
        """

    @abc.abstractmethod
    def compute(self, output: str, values: Arrays) -> np.ndarray[Any, Any]:
        """Compute a tensor of the graph that the engine runs, from values of earlier tensors.

        Names and axes of all tensors are as in a dump of the same run. The weights of the loaded
        model are used.

        Raises:
            LarError: lar cannot find the tensor for certain, or the tensor depends on tensors whose
                values are not given.
        """


class Defect(NamedTuple):
    """A known defect of an engine's library, and the way to avoid it."""

    name: str
    effect: str
    detection: str
    way_round: str
    is_here: bool


class WritingRun(NamedTuple):
    """A run that writes a model file.

    `options` are the options of the run, and `writes` is the option that names the file.
    """

    options: Mapping[str, Any]
    writes: Option[str]


class Deployment(NamedTuple):
    """How to write a model together with settings into a file, so that the file runs without flags.

    Attributes:
        runs: the runs that write the file; each run loads the model file that the run before has
            written.
        held: the keys of the options whose settings are in the last model file.
        left_out: the keys of the options whose settings cannot be in the file.
        note: a note for a person who loads the file; it may be empty.
    """

    runs: tuple[WritingRun, ...]
    held: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    note: str = ""


class Engine(abc.ABC):
    """An engine, with its names, its options, and the features that lar uses.

    The package of an engine defines a subclass, which overrides the methods of the features that
    the engine has. Only abstract methods must be overridden, since every other method belongs to a
    feature that an engine may lack.
    """

    # The engine's name as a value of --engine.
    name: str

    # The engine's name in messages.
    title: str

    formats: tuple[Format, ...]
    drivers: tuple[DriverEntry, ...]

    # The package that must be installed besides lar, as pip names it; empty if lar alone is enough.
    # The package's module has the same name, with `_` for `-`.
    distribution: str = ""

    # Options that make the engine search for algorithms in the first iteration.
    searches: tuple[Option[Any], ...] = ()

    # Options that need `settle` after the worker of a run has ended.
    settles: tuple[Option[Any], ...] = ()

    # Environment variables that lar sets for its workers, unless the user has set them.
    environment: Mapping[str, str] = {}

    # Prefixes of environment variables that the engine's libraries read, and that results record.
    variable_prefixes: tuple[str, ...] = ()

    # Environment variables that a file of settings may set, as `KEY=VALUE`.
    own_variables: Collection[str] = ()

    # Whether the engine computes a model's outputs without the rounding of the model's types.
    is_exact: bool = False

    # The driver that can compute a part of a graph; empty if the engine has no such driver.
    isolating_driver: str = ""

    packing: CasePacker | None = None
    staged: StagedRun | None = None

    @abc.abstractmethod
    def option_rows(self) -> tuple[OptionRow[Any, Any], ...]:
        """Return the rows of all options that the engine supports."""

    @abc.abstractmethod
    def read_model(self, path: Path) -> ModelInfo:
        """Read a description of a model file; this method is called in a worker process.

        Raises:
            UsageError: the file is not a model, or is damaged.
            EngineMissing: the library that reads model files is not installed.
        """

    def read_model_at(self, path: Path, shapes: Mapping[str, tuple[int, ...]]) -> ModelInfo:
        """Read a description of a model file, with FLOPs and bytes for given shapes of the inputs.

        Raises:
            UsageError: the file is not a model, or is damaged, or the engine can count FLOPs only
                for the shapes in the file.
        """
        problem = f"{self.title} counts FLOPs only for the shapes in the model file"
        raise UsageError(problem, "remove --input, --shape and --batch-size")

    @abc.abstractmethod
    def find_devices(self) -> tuple[str, ...]:
        """Return the devices of this machine that the engine can use, the CPU first."""

    @property
    def install_hint(self) -> str:
        """A hint that says how to install the engine on this machine."""
        return f"pip install {self.distribution}"

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The suffixes of the model files that the engine reads."""
        return tuple(suffix for each in self.formats for suffix in each.suffixes)

    @property
    def is_installed(self) -> bool:
        """Whether the engine's library is installed for the Python that runs lar."""
        import importlib.util

        module = self.distribution.replace("-", "_")
        return not module or importlib.util.find_spec(module) is not None

    @property
    def version(self) -> str:
        """The installed version of the engine's library, in the form that results record.

        The version is empty if it cannot be found without importing the library.
        """
        from lar.measurement.machine import installed_version  # slow to import

        return installed_version(self.distribution) if self.distribution else ""

    @property
    def cache(self) -> AnyCacheFiles | None:
        """The engine's kind of cache files, None if it has no cache files."""
        return None

    def signs(self, profile: Profile, site: Site) -> Iterable[Sign]:
        """Return the signs in a profile that suggest choices in `dimensions`, in any order.

        Some signs may be for choices that the machine does not offer, or for choices that save too
        little time.
        """
        return ()

    @property
    def operator_kinds(self) -> OperatorKinds:
        """The kinds of the engine's operators, in words that are the same for all engines."""
        from lar.graphs import OperatorKinds

        return OperatorKinds()

    @functools.cached_property
    def rows(self) -> Mapping[str, OptionRow[Any, Any]]:
        """The rows of the options that the engine supports, by the option's key."""
        return {row.key: row for row in self.option_rows()}

    def driver_class(self, name: str) -> type[Driver]:
        """Import the class of the driver with this name, and return the class."""
        return next(each for each in self.drivers if each.name == name).load()

    def shared_library_of(self, driver: str) -> str:
        """Return the shared library to load while a driver is imported, or an empty text."""
        return next((each.shared_library for each in self.drivers if each.name == driver), "")

    def make_driver(self, spec: RunSpec, context: RunContext | None = None) -> Driver:
        """Return a driver for a spec; the driver has not loaded the model yet."""
        return self.driver_class(spec.driver)(spec, self.rows, context)

    def option_rules(self) -> tuple[Rule, ...]:
        """Return this engine's own rules about options that need or exclude each other."""
        return ()

    def check_property(self, key: str, value: str) -> None:
        """Refuse a property of `--engine-option` that is unknown or has a wrong value.

        An engine with properties that users can set must override this method, and must have a row
        for `ENGINE_OPTION`. The engine's driver reads the values of the properties from
        `Driver.properties`.

        Raises:
            UsageError: the engine does not have the property, or the value is not valid for the
                property.
        """
        raise unknown_property(self.title, key, ())

    def check_model(self, path: Path, settings: Mapping[str, Any]) -> None:
        """Refuse a model file that must not be loaded with the `settings` of the run.

        Raises:
            UsageError: the file must not be loaded; the error says why.
        """
        return

    def deploy(self, settings: Mapping[str, Any], model: Path, folder: Path) -> Deployment | None:
        """Return how to write a model and settings into one file.

        The result is None if the engine has no file format for both a model and its settings. The
        options of the returned runs may name files that this method writes into `folder`.
        """
        return None

    def files_beside(self, path: Path) -> tuple[str, ...]:
        """Return the names that a model file gives to its separate weight files.

        Raises:
            ValueError, OSError: the model cannot be read.
        """
        return ()

    def hints_for(self, result: RunResult, environment: Mapping[str, str]) -> str:
        """Return one line of hints for the user about a result, or an empty line.

        `environment` has the environment variables of the worker process.
        """
        return ""

    def defects(self, environment: Mapping[str, str]) -> tuple[Defect, ...]:
        """Return the known defects of the libraries that the engine uses in a worker process.

        `environment` has the environment variables of the worker process.
        """
        return ()

    def dimensions(self, site: Site, model: Path) -> tuple[Dimension, ...]:
        """Return the choices that a search for the fastest settings may try with a model.

        The result has all choices that can matter on the machine, even choices that the user
        excludes later.
        """
        return ()

    def writes_profile(self, data: bytes) -> bool:
        """Return whether a file has the keys that the engine's own profiler writes.

        The end of the file may be missing.
        """
        return False

    def read_profile(self, data: bytes, name: str) -> Profile:
        """Return the profile in a file that the engine's own profiler wrote.

        Error messages use `name` as the name of the file.

        Raises:
            LarError, ValueError, msgspec.MsgspecError: the file is cut short or damaged.
        """
        raise NotImplementedError(f"{self.title} writes no profile")

    def prints_log(self, data: bytes) -> bool:
        """Return whether a file looks like the output of the engine's own benchmark program."""
        return False

    def read_log(self, data: bytes, name: str) -> tuple[RunResult, ...]:
        """Return the runs in the printed output of the engine's own benchmark program.

        Error messages use `name` as the name of the file that contains the output.

        Raises:
            UsageError: the output was cut short or is damaged.
        """
        raise NotImplementedError(f"lar reads no log of {self.title}")

    def leaves_files(self, spec: RunSpec) -> bool:
        """Return whether the worker of a run may leave files behind.

        If the worker may leave files, lar gives the run a work folder, removes this folder after
        the run, and calls `settle`.
        """
        return any(option.is_given(spec.settings) for option in self.settles)

    def settle(self, spec: RunSpec, context: RunContext) -> None:
        """Save the results of a run whose worker has ended or failed, and remove leftover files.

        Raises:
            LarError: a result cannot be saved, or a file that the worker left cannot be removed.
        """
        return

    def keep_progress(self, spec: RunSpec, context: RunContext) -> None:
        """Save what the preparation of a run has found so far, as the run may be killed.

        This method must not raise an error.
        """
        return

    def describe_progress(self, spec: RunSpec, context: RunContext) -> str:
        """Return a few words that say how far the preparation of a run is.

        This method must not raise an error.
        """
        return ""

    def explain_log(self, log: bytes) -> LarError | None:
        """Return the error that explains the log of an engine that crashed or hangs.

        The result is None if lar does not know the messages in the log.
        """
        return None

    def unpack_testcases(self, spec: RunSpec, context: RunContext) -> tuple[str, tuple[Case, ...]]:
        """Unpack a spec's model file: write its model and its testcases into the work folder.

        This method is called in a worker process.

        Returns:
            The path of the model, and the testcases.

        Raises:
            UsageError: the file is damaged.
        """
        raise NotImplementedError(f"{self.title} reads no file with testcases")

    def isolation(self, driver: Driver) -> Isolation:
        """Load a driver's model, optimised as in a run, to compute single tensors of the graph.

        Raises:
            LarError: the model cannot be loaded.
        """
        raise NotImplementedError(f"{self.title} computes no part of a graph alone")

    def read_operators(self, path: Path) -> tuple[ModelOperator, ...]:
        """Read the operators of a model file, in their order, with the names of their tensors.

        This method may be called in the main process or in a worker. The result is empty if the
        file has no operators.

        Raises:
            ValueError, OSError, LarError: the file cannot be read, or is damaged.
        """
        return ()

    def read_quantizations(self, path: Path) -> DumpFacts:
        """Read the scales and zero points of a model's quantised tensors.

        This method may be called in the main process or in a worker.

        Raises:
            ValueError, OSError, LarError: the file cannot be read, or is damaged.
        """
        from lar.dumps import NO_FACTS

        return NO_FACTS

    def describe_dump(self, folder: Path) -> DumpFacts:
        """Return the facts about a dump in a folder, except the names of its tensors."""
        from lar.dumps import read_facts

        return read_facts(folder)._replace(iteration=0)
