"""The face of an engine: all that the rest of lar asks it.

An engine's package exports one `Engine`. Making one imports nothing: each method imports what it
needs when it is called, so that a usage error or `--help` stays cheap.

What a profile shows that speaks for a choice of an engine's dimensions.
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

# What a choice makes faster: operators, by other kernels, or by more or fewer threads; or what
# passes between operators. Choices of one way save the same time, those of two ways add up.
Way = Literal["kernels", "threads", "handing over"]


class Sign(NamedTuple):
    """What speaks for a choice, by its name in `Engine.dimensions`.

    `saves` is the part of the time that it is expected to save. It decides what is tried first
    and nothing else. `figure` is what the profile shows, for a person.
    """

    choice: str
    way: Way
    saves: float
    figure: str


class Clue(NamedTuple):
    """Operators whose time speaks for a choice: `saves` is the part of it that the choice has saved
    where it was measured, `what` is their name."""

    choice: str
    way: Way
    saves: float
    what: str
    accepts: Callable[[ProfiledOperator], bool]


def read_clues(clues: Iterable[Clue], profile: Profile) -> Iterator[Sign]:
    """Yield the sign of each clue, with the part of the time that its operators take."""
    for clue in clues:
        share = share_of(profile, clue.accepts)
        figure = f"{clue.what} take {share:.0%} of the operators' time"
        yield Sign(clue.choice, clue.way, clue.saves * share, figure)


def share_of(
    profile: Profile, accepts: Callable[[ProfiledOperator], bool], least_ns: float = 0.0
) -> float:
    """Return the part of the operators' time that some of them take, without those that take less
    than `least_ns` each."""
    from lar.profiles.rows import known_operators  # a search for settings reads no profile

    return sum(
        row.share
        for row in known_operators(profile)
        if (row.times.median_ns or 0) >= least_ns and accepts(profile.operators[row.operators[0]])
    )


def computing_ns_of(profile: Profile) -> float:
    """Return how long the operators of an iteration compute, all together."""
    from lar.profiles.rows import known_operators  # a search for settings reads no profile

    return sum(row.iteration_ns for row in known_operators(profile))


Method = TypeVar("Method", bound=Callable[..., Any])

# For an engine that does not compute with NumPy: the threads of NumPy's BLAS keep the CPUs busy
# when they start, while the engine's own library loads.
ONE_BLAS_THREAD: Mapping[str, str] = {"OPENBLAS_NUM_THREADS": "1"}


def imported(place: str, package: str = "") -> Any:
    """Import what a place names, a module and something in it; a place that begins with a dot is
    below the package."""
    module, _, name = place.rpartition(".")
    return getattr(import_module(module, package), name)


@contextlib.contextmanager
def importing(engine: str, hint: str = "") -> Iterator[None]:
    """Import the package of an engine inside.

    Raises:
        EngineMissing: it is not installed, or does not load on this machine.
    """
    try:
        yield
    except ImportError as error:
        raise EngineMissing(f"{engine} cannot be imported: {error}", hint) from error


def late(face: Method, place: str) -> Method:
    """Return a method that calls a function of the engine's package, imported when it is called.

    `face` is the method of a class here that it replaces. `place` names the function, which takes
    the same without `self`, or a constant that the method returns.
    """

    def method(self: object, *values: Any) -> Any:
        found = imported(place, type(self).__module__)
        return found(*values) if callable(found) else found

    vars(method)["place"] = place  # to import it sooner
    return cast(Method, method)


def import_late(engine: object, method: str) -> bool:
    """Import what a method of an engine calls, before it is called; return whether it has a
    `late` function."""
    place = vars(getattr(type(engine), method)).get("place")
    return bool(place and imported(place, type(engine).__module__))


def late_function(package: str, place: str) -> Callable[..., Any]:
    """Return a function of a package that is imported when it is called."""
    return lambda *values: imported(place, package)(*values)


def late_value(place: str) -> Any:
    """Return a property that has a constant of the engine's package, imported when it is read."""
    return property(late(lambda self: None, place))


def unknown_property(
    engine: str,
    key: str,
    known: Iterable[str],
    otherwise: str = "",
    what: str = "property",
    flag: str = ENGINE_OPTION.flag,
) -> UsageError:
    """Return the error of a property, or of `what` else `flag` names, that the engine does not
    have; `otherwise` is the hint where no known one is near."""
    by_lower = {each.lower(): each for each in known}
    near = by_lower.get(nearest_spelling(key.lower(), by_lower))
    hint = f"did you mean {near}?" if near else otherwise
    return UsageError(f"{engine} has no {what} {key!r}", hint, flag=flag)


class DriverEntry(NamedTuple):
    """One way into an engine; `load` imports its class. An engine's first one is the default.

    `shared_library` may name a large one of the engine's package, loaded while `load` imports.
    """

    name: str
    what: str
    load: Callable[[], type[Driver]]
    shared_library: str = ""


class CasePacker(NamedTuple):
    """Writes models with testcases, for `lar pack`.

    `driver` computes the expected outputs. `write` takes a driver that has loaded the model, the
    testcases, each with what is fed and what came out, and the path; it raises a UsageError for a
    model that cannot be written so.
    """

    driver: str
    writes: Literal["file", "folder"]
    write: Callable[[Driver, Sequence[tuple[Arrays, Arrays]], str], None]


class StagedRun(NamedTuple):
    """Makes runs with certain `options` in several worker processes.

    One process cannot make such a run beside options of `apart_with`. Without them it can, and has
    to if runs take turns; then only the report on the other processes is missing. `run` makes the
    run: it takes a step, which executes a spec in a worker of its own, and the run that was asked
    for.
    """

    options: tuple[Option[Any], ...]
    apart_with: tuple[Option[Any], ...]
    run: Callable[[Step, Step, RunSpec, RunContext, Listener], RunResult]


class Isolation(abc.ABC):
    """A loaded model in a worker; each of its tensors can be computed from others."""

    @abc.abstractmethod
    def find_missing(self, names: Collection[str]) -> set[str]:
        """Return the names of tensors that a dump of the same run has and this graph lacks: those
        between operators that the engine fuses or reorders later."""

    @abc.abstractmethod
    def compute(self, output: str, values: Arrays) -> np.ndarray[Any, Any]:
        """Compute a tensor of the graph that the engine runs, from the values of tensors before it.

        Tensors have the names and the axes that they have in a dump of the same run; weights are
        those of the model.

        Raises:
            LarError: no tensor certainly has that name, or it needs others than the given ones.
        """


class Defect(NamedTuple):
    """A known defect of an engine's library, and the way round it."""

    name: str
    effect: str
    detection: str
    way_round: str
    is_here: bool


class Site(NamedTuple):
    """Where a search for the fastest settings runs.

    `cores` are those that may be used; `processor` is its vendor and, after it, its instruction
    sets. `environment` is the worker's.
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
    """A run that writes a model file: its options, and that of them which names the file."""

    options: Mapping[str, Any]
    writes: Option[str]


class Deployment(NamedTuple):
    """How a model is written together with settings, to be run without flags.

    Attributes:
        runs: one after another, each of the model that the one before has written.
        held: the keys of the options that the file holds then.
        left_out: the keys of those that it cannot hold.
        note: what a person who loads it has to know, empty if nothing.
    """

    runs: tuple[WritingRun, ...]
    held: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()
    note: str = ""


class Engine(abc.ABC):
    """An engine as the parent process knows it, and what it can do.

    A method that has a body here is for an ability that an engine may lack.
    """

    # The name that --engine takes.
    name: str

    # The name that messages give it.
    title: str

    formats: tuple[Format, ...]
    drivers: tuple[DriverEntry, ...]

    # The package that must be installed besides lar, as pip names it; its module has that name with
    # `_` for `-`. Empty if lar alone is enough.
    distribution: str = ""

    # Options that have the engine search for algorithms in the first iteration.
    searches: tuple[Option[Any], ...] = ()

    # Options of runs that `settle` is called for.
    settles: tuple[Option[Any], ...] = ()

    # Variables that are set for its workers if the user has not set them.
    environment: Mapping[str, str] = {}

    # Beginnings of the variables that its libraries heed; results hold those that are set.
    variable_prefixes: tuple[str, ...] = ()

    # What it offers to set in its environment, as `KEY=VALUE`: a file of settings may hold it too.
    own_variables: Collection[str] = ()

    # Computes what a model should give, without the rounding of its types, and may be slow.
    is_exact: bool = False

    # The driver that computes parts of a graph alone; empty if the engine cannot do it.
    isolating_driver: str = ""

    packing: CasePacker | None = None
    staged: StagedRun | None = None

    @abc.abstractmethod
    def option_rows(self) -> tuple[OptionRow[Any, Any], ...]:
        """Return how the engine honours each option that it knows."""

    @abc.abstractmethod
    def read_model(self, path: Path) -> ModelInfo:
        """Read what a model file holds, in a worker.

        Raises:
            UsageError: the file is not a model, or is damaged.
            EngineMissing: the library that reads it is not installed.
        """

    def read_model_at(self, path: Path, shapes: Mapping[str, tuple[int, ...]]) -> ModelInfo:
        """Read what a model file holds, with FLOPs and bytes where inputs have these shapes.

        Raises:
            UsageError: as `read_model`, or the engine knows them for the shapes of the file alone.
        """
        problem = f"{self.title} counts FLOPs for the shapes in the file alone"
        raise UsageError(problem, "leave --input, --shape and --batch-size out")

    @abc.abstractmethod
    def find_devices(self) -> tuple[str, ...]:
        """Return the devices that the engine can run on here, the CPU first; in a worker."""

    @property
    def install_hint(self) -> str:
        """Advice for installing it on this machine."""
        return f"pip install {self.distribution}"

    @property
    def suffixes(self) -> tuple[str, ...]:
        """The suffixes of the model files that it reads."""
        return tuple(suffix for each in self.formats for suffix in each.suffixes)

    @property
    def is_installed(self) -> bool:
        """True if its library is installed for this Python."""
        import importlib.util

        module = self.distribution.replace("-", "_")
        return not module or importlib.util.find_spec(module) is not None

    @property
    def version(self) -> str:
        """The version of its library that is installed for this Python, as results name it; empty
        if that is not known without importing it."""
        from lar.measurement.machine import installed_version  # slow to import, as what it asks is

        return installed_version(self.distribution) if self.distribution else ""

    @property
    def cache(self) -> AnyCacheFiles | None:
        """The files in which it keeps what it has found, None if it keeps nothing."""
        return None

    def signs(self, profile: Profile, site: Site) -> Iterable[Sign]:
        """Return what a profile shows that speaks for choices of `dimensions`, in any order; those
        that the site lacks, or that save too little, may be among them."""
        return ()

    @property
    def operator_kinds(self) -> OperatorKinds:
        """The kinds of its operators, in words that are the same for all engines."""
        from lar.graphs import OperatorKinds

        return OperatorKinds()

    @functools.cached_property
    def rows(self) -> Mapping[str, OptionRow[Any, Any]]:
        """The rows of the options that it honours, by key."""
        return {row.key: row for row in self.option_rows()}

    def driver_class(self, name: str) -> type[Driver]:
        """Import a driver."""
        return next(each for each in self.drivers if each.name == name).load()

    def shared_library_of(self, driver: str) -> str:
        """Return the library that a driver needs, empty if it names none."""
        return next((each.shared_library for each in self.drivers if each.name == driver), "")

    def make_driver(self, spec: RunSpec, context: RunContext | None = None) -> Driver:
        """Return a driver for a spec; nothing is loaded by it yet."""
        return self.driver_class(spec.driver)(spec, self.rows, context)

    def option_rules(self) -> tuple[Rule, ...]:
        """Return which options need or exclude which others on this engine, besides the rules
        for every engine."""
        return ()

    def check_property(self, key: str, value: str) -> None:
        """Refuse a property that `--engine-option` may not set. An engine that has some overrides
        this, and has a row for `ENGINE_OPTION`; its driver finds them in `properties`.

        Raises:
            UsageError: there is no such property, or it does not take the value.
        """
        raise unknown_property(self.title, key, ())

    def check_model(self, path: Path, settings: Mapping[str, Any]) -> None:
        """Refuse a model file that must not be loaded with these settings.

        Raises:
            UsageError: saying why.
        """
        return

    def deploy(self, settings: Mapping[str, Any], model: Path, folder: Path) -> Deployment | None:
        """Return how a model is written together with settings; None if the engine has no file
        that holds both.

        Options of the runs may name files that this writes into the folder.
        """
        return None

    def files_beside(self, path: Path) -> tuple[str, ...]:
        """Return the files that a model file names, as it names them: weights of its own.

        Raises:
            ValueError, OSError: the model cannot be read.
        """
        return ()

    def hints_for(self, result: RunResult, environment: Mapping[str, str]) -> str:
        """Return one line that the user should know about a result; the environment is the
        worker's."""
        return ""

    def defects(self, environment: Mapping[str, str]) -> tuple[Defect, ...]:
        """Return the known defects of its libraries; the environment is the worker's."""
        return ()

    def dimensions(self, site: Site, model: Path) -> tuple[Dimension, ...]:
        """Return what a search for the fastest settings may try with a model: all that can matter
        at a site, allowed or not."""
        return ()

    def writes_profile(self, data: bytes) -> bool:
        """Return whether a file has the keys of a profile that the engine itself writes; it may
        have been cut short."""
        return False

    def read_profile(self, data: bytes, name: str) -> Profile:
        """Return the profile in a file that the engine itself has written; `name` is for messages.

        Raises:
            LarError, ValueError, msgspec.MsgspecError: it is cut short or damaged.
        """
        raise NotImplementedError(f"{self.title} writes no profile")

    def prints_log(self, data: bytes) -> bool:
        """Return whether a file looks like what a benchmark program of the engine prints."""
        return False

    def read_log(self, data: bytes, name: str) -> tuple[RunResult, ...]:
        """Return the runs in what a benchmark program of the engine printed; `name` is for
        messages.

        Raises:
            UsageError: it was cut short or is damaged.
        """
        raise NotImplementedError(f"{self.title} has no program whose log is read")

    def leaves_files(self, spec: RunSpec) -> bool:
        """Return whether a worker may leave files behind: then the run has a work folder, which is
        removed when the run has ended, and `settle` is called."""
        return any(option.is_given(spec.settings) for option in self.settles)

    def settle(self, spec: RunSpec, context: RunContext) -> None:
        """Do what is left to do after the worker of a run has ended, even if it failed.

        Raises:
            LarError: it cannot be done.
        """
        return

    def keep_progress(self, spec: RunSpec, context: RunContext) -> None:
        """Put what the preparation of a run has found until now where it belongs: the run may be
        killed. It never raises."""
        return

    def describe_progress(self, spec: RunSpec, context: RunContext) -> str:
        """Return how far the preparation of a run is, in a few words; it never raises."""
        return ""

    def explain_log(self, log: bytes) -> LarError | None:
        """Return the error for an engine that printed this and then crashed or hung."""
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
            LarError: it does not load.
        """
        raise NotImplementedError(f"{self.title} computes no part of a graph alone")

    def read_operators(self, path: Path) -> tuple[ModelOperator, ...]:
        """Read the operators of a model file with the names of their tensors, in their order; in
        any process. None if the file's format does not say them.

        Raises:
            ValueError, OSError, LarError: the file cannot be read, or is damaged.
        """
        return ()

    def read_quantizations(self, path: Path) -> DumpFacts:
        """Read which real numbers the integers of a model's tensors stand for; in any process.

        Raises:
            ValueError, OSError, LarError: the file cannot be read, or is damaged.
        """
        from lar.dumps import NO_FACTS

        return NO_FACTS

    def describe_dump(self, folder: Path) -> DumpFacts:
        """Return the facts about a dump in a folder, besides the names of its tensors."""
        from lar.dumps import read_facts

        return read_facts(folder)._replace(iteration=0)
