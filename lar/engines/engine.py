"""The interface of an engine: all methods that the rest of lar calls.

An engine's package exports one `Engine`. To make it, nothing has to be imported: each method
imports its modules when it is called, so that `--help` and usage errors stay fast.

The module also defines signs: facts in a profile that speak for a choice of settings.
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
    from lar.engines.driver import Driver
    from lar.engines.formats import Format
    from lar.engines.listener import Listener
    from lar.engines.option_rows import OptionRow
    from lar.graphs import OperatorKinds
    from lar.graphs.origins import ModelOperator
    from lar.options.option import Option
    from lar.options.rules import Rule
    from lar.records.profile import Profile
    from lar.records.run import Case, ModelInfo, RunContext, RunResult, RunSpec
    from lar.records.tuning import Dimension

    Arrays = Mapping[str, np.ndarray[Any, Any]]
    Step = Callable[[RunSpec, RunContext, Listener], RunResult]
    from lar.records.profile import ProfiledOperator

# How a choice saves time: by other kernels, by more or fewer threads, or between operators.
# Choices of one way save the same time; the savings of two ways add up.
Way = Literal["kernels", "threads", "handing over"]


class Sign(NamedTuple):
    """A fact in a profile that speaks for a choice; `choice` is its name in `Engine.dimensions`.

    `saves` is the part of an iteration that the choice is expected to save; it only decides which
    choice is tried first. `figure` is the fact in words, for a person.
    """

    choice: str
    way: Way
    saves: float
    figure: str


class Clue(NamedTuple):
    """Operators whose time speaks for a choice of settings.

    `saves` is the part of their time that the choice has saved in measurements. `what` names these
    operators in words, and `accepts` returns whether an operator is one of them.
    """

    choice: str
    way: Way
    saves: float
    what: str
    accepts: Callable[[ProfiledOperator], bool]


def read_clues(clues: Iterable[Clue], profile: Profile) -> Iterator[Sign]:
    """Yield a sign for each clue, from the part of the time that its operators take."""
    for clue in clues:
        share = share_of(profile, clue.accepts)
        figure = f"{clue.what} take {share:.0%} of the operators' time"
        yield Sign(clue.choice, clue.way, clue.saves * share, figure)


def share_of(
    profile: Profile, accepts: Callable[[ProfiledOperator], bool], least_ns: float = 0.0
) -> float:
    """Return the part of all operators' time that the accepted operators take.

    Accepted operators that take less than `least_ns` each are left out.
    """
    from lar.profiles.rows import known_operators  # a search for settings reads no profile

    return sum(
        row.share
        for row in known_operators(profile)
        if (row.times.median_ns or 0) >= least_ns and accepts(profile.operators[row.operators[0]])
    )


def computing_ns_of(profile: Profile) -> float:
    """Return the sum of the computing times of all operators in an iteration."""
    from lar.profiles.rows import known_operators  # a search for settings reads no profile

    return sum(row.iteration_ns for row in known_operators(profile))


Method = TypeVar("Method", bound=Callable[..., Any])

# For an engine that does not compute with NumPy. NumPy's BLAS would start threads that keep the
# CPUs busy while the engine's own library loads.
ONE_BLAS_THREAD: Mapping[str, str] = {"OPENBLAS_NUM_THREADS": "1"}


def imported(place: str, package: str = "") -> Any:
    """Import a module, and return the object in it that a place names, such as `.lite.LiteDriver`.

    A place that begins with a dot is relative to the package.
    """
    module, _, name = place.rpartition(".")
    return getattr(import_module(module, package), name)


@contextlib.contextmanager
def importing(engine: str, hint: str = "") -> Iterator[None]:
    """Turn a failed import of an engine's package, in the `with` block, into an EngineMissing.

    Raises:
        EngineMissing: the package is not installed, or does not load on this machine.
    """
    try:
        yield
    except ImportError as error:
        raise EngineMissing(f"{engine} cannot be imported: {error}", hint) from error


def late(face: Method, place: str) -> Method:
    """Return a method that imports a function of the engine's package and calls it.

    `face` is the method of `Engine` that it replaces. `place` names the function, which has the
    same parameters without `self`, or a constant, which the method returns.
    """

    def method(self: object, *values: Any) -> Any:
        found = imported(place, type(self).__module__)
        return found(*values) if callable(found) else found

    vars(method)["place"] = place  # to import it sooner
    return cast(Method, method)


def import_late(engine: object, method: str) -> bool:
    """Import the function behind an engine's `late` method before the method is called.

    Returns:
        Whether the method is a `late` method.
    """
    place = vars(getattr(type(engine), method)).get("place")
    return bool(place and imported(place, type(engine).__module__))


def late_function(package: str, place: str) -> Callable[..., Any]:
    """Return a function that imports a function of a package and calls it."""
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

    `what` is the word for such a property, and `flag` the option that sets it. The hint names the
    most similar property, or is `otherwise` if no known property is similar.
    """
    by_lower = {each.lower(): each for each in known}
    near = by_lower.get(nearest_spelling(key.lower(), by_lower))
    hint = f"did you mean {near}?" if near else otherwise
    return UsageError(f"{engine} has no {what} {key!r}", hint, flag=flag)


class DriverEntry(NamedTuple):
    """A driver of an engine; the first entry of an engine is its default driver.

    `load` imports the driver's class. `shared_library` may name a large library of the engine's
    package, which lar loads while `load` imports.
    """

    name: str
    what: str
    load: Callable[[], type[Driver]]
    shared_library: str = ""


class CasePacker(NamedTuple):
    """The function of an engine that writes a model with testcases, for `lar pack`.

    `driver` names the driver that computes the expected outputs. `write` takes a driver that has
    loaded the model, the inputs and outputs of each testcase, and the path. `write` raises a
    UsageError if the model cannot be written with testcases.
    """

    driver: str
    writes: Literal["file", "folder"]
    write: Callable[[Driver, Sequence[tuple[Arrays, Arrays]], str], None]


class StagedRun(NamedTuple):
    """A way to make a run with certain `options` in several worker processes.

    A run that also has options of `apart_with` needs several processes. Any other run can be made
    in one process, and has to be if runs take turns; only the report on the steps is missing then.
    `run` makes the run. Its first two arguments are functions: one executes a spec in a worker of
    its own, the other makes the run that the user asked for.
    """

    options: tuple[Option[Any], ...]
    apart_with: tuple[Option[Any], ...]
    run: Callable[[Step, Step, RunSpec, RunContext, Listener], RunResult]


class Isolation(abc.ABC):
    """A loaded model in a worker; it can compute a single tensor from given tensors."""

    @abc.abstractmethod
    def find_missing(self, names: Collection[str]) -> set[str]:
        """Return which of some tensors, named as in a dump of the same run, this graph lacks.

        The missing tensors are those between operators that the engine fuses or reorders later.
        """

    @abc.abstractmethod
    def compute(self, output: str, values: Arrays) -> np.ndarray[Any, Any]:
        """Compute a tensor of the graph that the engine runs, from values of earlier tensors.

        Tensors have the names and axes that they have in a dump of the same run. The weights are
        the model's own.

        Raises:
            LarError: no tensor has this name for certain, or it depends on tensors without values.
        """


class Defect(NamedTuple):
    """A known defect of an engine's library, and the way to avoid it."""

    name: str
    effect: str
    detection: str
    way_round: str
    is_here: bool


class Site(NamedTuple):
    """The machine on which a search for the fastest settings runs.

    `cores` are the cores that may be used. `processor` is the processor's vendor, followed by its
    instruction sets. `environment` has the environment variables of the worker.
    """

    cores: tuple[int, ...]
    processor: str
    device: str = "cpu"
    environment: Mapping[str, str] = {}

    @property
    def instruction_sets(self) -> frozenset[str]:
        """The processor's instruction sets, as Linux names them."""
        return frozenset(self.processor.split()[1:])


class WritingRun(NamedTuple):
    """A run that writes a model file: its options, and `writes`, the option that names the file."""

    options: Mapping[str, Any]
    writes: Option[str]


class Deployment(NamedTuple):
    """How to write a model together with settings, so that it runs without flags.

    Attributes:
        runs: the runs that write it; each run takes the model file of the run before.
        held: the keys of the options that the last model file holds.
        left_out: the keys of the options that the file cannot hold.
        note: a note for a person who loads the file; it may be empty.
    """

    runs: tuple[WritingRun, ...]
    held: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    note: str = ""


class Engine(abc.ABC):
    """An engine: its names, its options, and all that it can do.

    An engine overrides the methods of its abilities. A method that is not abstract here belongs to
    an ability that an engine may lack.
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

    # Prefixes of the environment variables that its libraries read; results record those variables.
    variable_prefixes: tuple[str, ...] = ()

    # Environment variables that a file of settings may set, as `KEY=VALUE`.
    own_variables: Collection[str] = ()

    # Whether it computes a model's outputs without the rounding of the model's types.
    is_exact: bool = False

    # The driver that can compute a part of a graph; empty if the engine has no such driver.
    isolating_driver: str = ""

    packing: CasePacker | None = None
    staged: StagedRun | None = None

    @abc.abstractmethod
    def option_rows(self) -> tuple[OptionRow[Any, Any], ...]:
        """Return the rows of all options that the engine honours."""

    @abc.abstractmethod
    def read_model(self, path: Path) -> ModelInfo:
        """Read a description of a model file, in a worker.

        Raises:
            UsageError: the file is not a model, or is damaged.
            EngineMissing: the library that reads it is not installed.
        """

    def read_model_at(self, path: Path, shapes: Mapping[str, tuple[int, ...]]) -> ModelInfo:
        """Read a description of a model file, with FLOPs and bytes for other input shapes.

        Raises:
            UsageError: as `read_model`, or the engine counts only for the shapes in the file.
        """
        problem = f"{self.title} counts FLOPs for the shapes in the file alone"
        raise UsageError(problem, "leave --input, --shape and --batch-size out")

    @abc.abstractmethod
    def find_devices(self) -> tuple[str, ...]:
        """Return this machine's devices that the engine can run on, the CPU first; in a worker."""

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
        """Whether the engine's library is installed for this Python."""
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
        """Return the signs in a profile that speak for choices of `dimensions`, in any order.

        The signs may be for choices that the site lacks, or that save too little.
        """
        return ()

    @property
    def operator_kinds(self) -> OperatorKinds:
        """The kinds of the engine's operators, in words that are the same for all engines."""
        from lar.graphs import OperatorKinds

        return OperatorKinds()

    @functools.cached_property
    def rows(self) -> Mapping[str, OptionRow[Any, Any]]:
        """The rows of the options that the engine honours, by the option's key."""
        return {row.key: row for row in self.option_rows()}

    def driver_class(self, name: str) -> type[Driver]:
        """Import and return the class of a driver."""
        return next(each for each in self.drivers if each.name == name).load()

    def shared_library_of(self, driver: str) -> str:
        """Return the shared library to load while a driver is imported, empty if not declared."""
        return next((each.shared_library for each in self.drivers if each.name == driver), "")

    def make_driver(self, spec: RunSpec, context: RunContext | None = None) -> Driver:
        """Return a driver for a spec; it has not loaded the model yet."""
        return self.driver_class(spec.driver)(spec, self.rows, context)

    def option_rules(self) -> tuple[Rule, ...]:
        """Return this engine's own rules about options that need or exclude each other."""
        return ()

    def check_property(self, key: str, value: str) -> None:
        """Refuse a property or value that `--engine-option` may not set.

        An engine with such properties overrides this method and has a row for `ENGINE_OPTION`. Its
        driver reads the values from `properties`.

        Raises:
            UsageError: the engine has no such property, or the property does not take the value.
        """
        raise unknown_property(self.title, key, ())

    def check_model(self, path: Path, settings: Mapping[str, Any]) -> None:
        """Refuse a model file that must not be loaded with these settings.

        Raises:
            UsageError: the file must not be loaded; the error says why.
        """
        return

    def deploy(self, settings: Mapping[str, Any], model: Path, folder: Path) -> Deployment | None:
        """Return how to write a model together with settings.

        The result is None if the engine has no file format that holds both. Options of the runs may
        name files that this method writes into `folder`.
        """
        return None

    def files_beside(self, path: Path) -> tuple[str, ...]:
        """Return the names of the weight files that a model file refers to, as written in it.

        Raises:
            ValueError, OSError: the model cannot be read.
        """
        return ()

    def hints_for(self, result: RunResult, environment: Mapping[str, str]) -> str:
        """Return one line of hints for the user about a result, empty if there is nothing to say.

        `environment` is that of the worker.
        """
        return ""

    def defects(self, environment: Mapping[str, str]) -> tuple[Defect, ...]:
        """Return the known defects of the engine's libraries in the environment of a worker."""
        return ()

    def dimensions(self, site: Site, model: Path) -> tuple[Dimension, ...]:
        """Return the choices that a search for the fastest settings may try with a model.

        The result has all choices that can matter on the machine, even if the user forbids some.
        """
        return ()

    def writes_profile(self, data: bytes) -> bool:
        """Return whether a file has the keys of the engine's own profiles, even if cut short."""
        return False

    def read_profile(self, data: bytes, name: str) -> Profile:
        """Return the profile in a file of the engine's own; error messages name the file by `name`.

        Raises:
            LarError, ValueError, msgspec.MsgspecError: the file is cut short or damaged.
        """
        raise NotImplementedError(f"{self.title} writes no profile")

    def prints_log(self, data: bytes) -> bool:
        """Return whether a file looks like the output of the engine's own benchmark program."""
        return False

    def read_log(self, data: bytes, name: str) -> tuple[RunResult, ...]:
        """Return the runs in the printed output of the engine's own benchmark program.

        Error messages name the file by `name`.

        Raises:
            UsageError: the output was cut short or is damaged.
        """
        raise NotImplementedError(f"{self.title} has no program whose log is read")

    def leaves_files(self, spec: RunSpec) -> bool:
        """Return whether the worker of a run may leave files behind.

        If so, the run gets a work folder, which is removed after the run, and `settle` is called.
        """
        return any(option.is_given(spec.settings) for option in self.settles)

    def settle(self, spec: RunSpec, context: RunContext) -> None:
        """Finish a run after its worker has ended or failed: keep results, remove leftovers.

        Raises:
            LarError: a result cannot be kept, or a leftover cannot be removed.
        """
        return

    def keep_progress(self, spec: RunSpec, context: RunContext) -> None:
        """Save what a run's preparation has found so far, as the run may be killed; never raise."""
        return

    def describe_progress(self, spec: RunSpec, context: RunContext) -> str:
        """Return the progress of a run's preparation in a few words; it never raises."""
        return ""

    def explain_log(self, log: bytes) -> LarError | None:
        """Return the error that the log of a crashed or hanging engine means, None if unknown."""
        return None

    def unpack_testcases(self, spec: RunSpec, context: RunContext) -> tuple[str, tuple[Case, ...]]:
        """Write the model and the testcases in a spec's file into the work folder, in a worker.

        Returns:
            The model's path, and the testcases.

        Raises:
            UsageError: the file is damaged.
        """
        raise NotImplementedError(f"{self.title} reads no file with testcases")

    def isolation(self, driver: Driver) -> Isolation:
        """Load the model of a driver, in a worker, and optimise it as a run does.

        Raises:
            LarError: the model does not load.
        """
        raise NotImplementedError(f"{self.title} computes no part of a graph alone")

    def read_operators(self, path: Path) -> tuple[ModelOperator, ...]:
        """Read the operators of a model file, in their order, with the names of their tensors.

        This method may be called in any process. The result is empty if the file has no operators.

        Raises:
            ValueError, OSError, LarError: the file cannot be read, or is damaged.
        """
        return ()

    def read_quantizations(self, path: Path) -> DumpFacts:
        """Read the scales and zero points of a model's quantised tensors, in any process.

        Raises:
            ValueError, OSError, LarError: the file cannot be read, or is damaged.
        """
        from lar.dumps import NO_FACTS

        return NO_FACTS

    def describe_dump(self, folder: Path) -> DumpFacts:
        """Return the facts about a dump in a folder, besides the names of its tensors."""
        from lar.dumps import read_facts

        return read_facts(folder)._replace(iteration=0)
