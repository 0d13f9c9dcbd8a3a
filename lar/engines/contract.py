"""The contract of engines: checks of everything that every engine must do.

Other packages use the checks in this module through `lar.testing`.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import lar
from lar.engines import engine_for, engine_named
from lar.engines.caches import ModelCacheFiles
from lar.engines.choices import Site
from lar.engines.engine import Engine
from lar.engines.formats import format_in, format_named, read_head
from lar.engines.operator_times import writer_of
from lar.errors import LarError, UsageError
from lar.options import table
from lar.options.option import Option
from lar.records.run import RunResult

Array = np.ndarray[Any, Any]
T = TypeVar("T")

ITERATIONS = 3
DEADLINE_SECONDS = 2.0
# A run must end within this time after its deadline, even on a busy machine.
PATIENCE_SECONDS = 20.0
NO_SUCH_NAME = "an input that no model has"


class ContractError(AssertionError):
    """An engine fails one or more checks; the message has one line for each failure."""


@dataclass(frozen=True)
class Subject:
    """The engine and driver to check, with a model, and with a folder in which checks write files.

    `inputs` are the model's inputs; lar generates them if they are not given. `expected` are the
    model's outputs for these inputs, if they are known. `max_error` is the largest difference
    allowed between an output and its expected value.
    """

    engine: Engine
    driver: str
    model: Path
    folder: Path
    inputs: Mapping[str, Array] | None = None
    expected: Mapping[str, Array] | None = None
    max_error: float = 1e-5

    def run(self, **options: Any) -> RunResult:
        """Run the model with this driver; the options may name another model or other inputs."""
        own: dict[str, Any] = {"model": self.model, "inputs": self.inputs, "iter": ITERATIONS}
        return lar.run(**{**own, "engine": self.engine.name, "driver": self.driver, **options})

    def run_well(self, **options: Any) -> RunResult:
        """Run the model and check that the run succeeds."""
        result = self.run(**options)
        said = result.failure.message if result.failure else ""
        require(result.status == "ok", f"a run with {options or 'no options'} ends: {said}")
        return result

    def require_refusal(self, name: str, **options: Any) -> UsageError | None:
        """Check that a run is refused by a usage error of one line, which contains `name`.

        Returns:
            The error, if the run was refused before its worker was started; else None.
        """
        found: Any
        try:
            found = self.run(**options).failure
        except UsageError as error:
            found = error
        failure = require(found, f"a run with {options} is not refused")
        require(failure.exit_code == 2, f"a run with {options} fails: {failure.message}")
        said = f"{failure.message} {failure.hint}"
        require(name in said and "\n" not in said, f"a run with {options} is refused by: {said}")
        return failure if isinstance(failure, UsageError) else None

    def has(self, *options: Option[Any]) -> bool:
        """Return whether the driver supports all of these options."""
        rows = self.engine.rows
        return all(it.key in rows and self.driver in rows[it.key].drivers for it in options)


Check = Callable[[Subject], None]


def require(holds: T | None, what: str) -> T:
    """Return `holds` if it is true, else raise a ContractError with the text `what`."""
    if not holds:
        raise ContractError(what)
    return holds


def is_declared_well(it: Subject) -> None:
    """Check that the engine's name, formats, drivers, options and dimensions are consistent."""
    engine = it.engine
    require(engine_named(engine.name) is engine, f"lar finds another engine named {engine.name}")
    require(engine.is_installed, f"it is not installed; its hint is {engine.install_hint}")
    require(engine.version, "its version is not known: set `distribution` or `version`")
    require(engine.formats and engine.drivers, "it has no format or no driver")
    names = {each.name for each in engine.drivers}
    require(engine.driver_class(it.driver).name == it.driver, "a driver's class has another name")
    of_lar = {option.key for option in table.OPTIONS if not option.by_engine}
    for key, row in engine.rows.items():
        require(row.how and set(row.drivers) <= names, f"the row of {key} has no text or driver")
        require(key not in of_lar, f"lar itself honours {key} for all")
    dimensions = engine.dimensions(Site(cores=(0, 1), processor="unknown"), it.model)
    choices = [choice for dimension in dimensions for choice in dimension.choices]
    require(len({each.name for each in choices}) == len(choices), "two choices have one name")
    for choice in choices:
        unknown = {*choice.options, *choice.search, choice.cache} - {"", *engine.rows, *of_lar}
        require(not unknown, f"the choice {choice.name} sets {unknown}, without a row")


def recognises_its_models(it: Subject) -> None:
    """Check that the engine recognises the model's format by its first bytes or its file name."""
    head = read_head(it.model)
    found = format_in(head, it.engine.formats) or format_named(it.model, it.engine.formats)
    require(found is not None, "no format of the engine is the model's")
    require(engine_for(it.model, it.engine.name) is it.engine, "another engine reads the model")
    others = [each for each in it.engine.formats if each.begins(b"what nobody read")]
    require(not others, f"any bytes are taken for a model: {others}")


def describes_its_models(it: Subject) -> None:
    """Check that the engine lists its devices, and describes a model without running the model."""
    device = lar.find_devices(it.engine.name)[0]
    require(device.startswith("cpu"), "the CPU is not the first device")
    info = lar.read_info(it.model, it.engine.name)
    require(info.engine == it.engine.name, f"the model is described for {info.engine}")
    fed = {each.name for each in it.run_well().fed}
    require(fed == {each.name for each in info.inputs}, "a run is fed with other inputs")


def measures_each_iteration(it: Subject) -> None:
    """Check that each iteration has times, and that the result names the engine and driver."""
    result = it.run_well(verbose=it.has(table.VERBOSE))
    facts = require(result.engine, "the result has no facts about the engine")
    require((facts.name, facts.driver) == (it.engine.name, it.driver), "its facts have wrong names")
    own = it.engine.version
    require(facts.version == own, f"its facts name the version {facts.version}, lar {own}")
    require(facts.device, "its facts lack the device")
    for samples, count in ((result.warmup, 1), (result.samples, ITERATIONS)):
        require(len(samples.end_to_end) == count, f"{len(samples.end_to_end)} times of {count}")
        for whole, host in zip(samples.end_to_end, samples.host, strict=True):
            require(0 < host <= whole, f"{host} s on the host of {whole} s")


def computes_the_same_again(it: Subject) -> None:
    """Check that the outputs have the same bits in each run and in each iteration."""
    results = [it.run_well(), it.run_well(), it.run_well(warmup_iter=0, iter=1)]
    hashes = [[(each.name, each.sha256) for each in result.outputs] for result in results]
    require(hashes[0], "the model has no outputs")
    require(hashes[0] == hashes[1] == hashes[2], f"outputs differ from run to run: {hashes}")


def computes_what_is_expected(it: Subject) -> None:
    """Check that the outputs are near the expected outputs, if these are known."""
    if not it.expected:
        return
    arrays = it.run_well(keep_outputs=True).arrays
    require(set(arrays) == set(it.expected), f"the outputs are {', '.join(arrays)}")
    for name, expected in it.expected.items():
        require(arrays[name].shape == expected.shape, f"{name} has the shape {arrays[name].shape}")
        error = float(abs(arrays[name].astype("float64") - expected).max(initial=0))
        require(error <= it.max_error, f"{name} is wrong by {error:g}")


def refuses_wrong_inputs(it: Subject) -> None:
    """Check that the error for an unknown input or too many axes contains the input's name."""
    it.require_refusal(NO_SUCH_NAME, inputs=f"{NO_SUCH_NAME}:{{1}}")
    fed = {each.name: [*each.shape] for each in it.run_well().fed}
    for wrong, shape in fed.items():
        shapes = {**fed, wrong: [1, *shape]}
        texts = [f"{name}:{{{','.join(map(str, axes))}}}" for name, axes in shapes.items()]
        it.require_refusal(wrong, inputs=";".join(texts))


def refuses_damaged_models(it: Subject) -> None:
    """Check that a truncated or empty model file causes a one-line error with the file's name."""
    content = it.model.read_bytes()
    for size in (len(content) // 2, min(40, len(content) // 2), 0):
        path = it.folder / f"cut{size}{it.model.suffix}"
        path.write_bytes(content[:size])
        it.require_refusal(str(path), model=path)


def refuses_what_it_cannot_do(it: Subject) -> None:
    """Check that unsupported options and unknown properties are refused before the run starts."""
    switches = [each for each in table.OPTIONS if each.by_engine and not each.parse]
    lacking = [each.key for each in switches if each.key not in it.engine.rows]
    wrong = dict[str, Any].fromkeys(lacking[:1], True) | {"engine_option": "no.such.property=1"}
    for key, value in wrong.items():
        refusal = it.require_refusal(it.engine.title, **{key: value})
        require(refusal, f"{key} is refused after a worker was started")


def runs_several_copies(it: Subject) -> None:
    """Check that two copies of the model can run at once, with the same outputs as one copy."""
    if not it.has(table.THREAD):
        return
    one, two = it.run_well(), it.run_well(thread=2)
    count = len(two.samples.end_to_end)
    require(count == 2 * ITERATIONS, f"two copies make {count} iterations of {2 * ITERATIONS}")
    require([o.name for o in one.outputs] == [o.name for o in two.outputs], "outputs are missing")


def is_ended_by_its_deadline(it: Subject) -> None:
    """Check that a long run ends soon after its deadline, and that the result reports this."""
    began = time.monotonic()
    status = it.run(iter=9_000_000, timeout=DEADLINE_SECONDS).status
    seconds = time.monotonic() - began
    require(status == "timed_out", f"a run without end ends with {status}")
    require(seconds < DEADLINE_SECONDS + PATIENCE_SECONDS, f"it ends after {seconds:.0f} s")


def dumps_its_tensors(it: Subject) -> None:
    """Check that a dump of all tensors is complete and has the run's outputs.

    The operators must be in the order of computation. Each operator must depend on inputs or
    constants in the dump.
    """
    if not it.has(table.BIN_IO_DUMP):
        return
    place = it.folder / "dump"
    result = it.run_well(bin_io_dump=str(place), overwrite=True, keep_outputs=True)
    dump = lar.open_dump(place)
    given = {key for each in dump.index.operators for key in each.outputs}
    require(given, "the dump has no operators")
    unknown = [each.name for each in dump if each.key not in given]
    require(not unknown, f"no operator of the dump gives {', '.join(unknown)}")
    before, reached = set[str](), set[str]()  # those reached from the inputs
    for operator in dump.index.operators:
        late = given.intersection(operator.inputs) - before
        require(not late, f"{operator.name} takes {late}, which later operators give")
        before.update(operator.outputs)
        if not (operator.inputs or operator.constant) or reached.intersection(operator.inputs):
            reached.update(operator.outputs)
    tensors = {each.origin: each for each in dump} | {each.name: each for each in dump}
    for name, value in result.arrays.items():
        tensor = require(tensors.get(name), f"the dump lacks the output {name}")
        require(tensor.key in reached or not result.fed, f"no input reaches {name} in the dump")
        if not (tensor.layout or tensor.quantization):
            dumped = dump.read(tensor.key)
            require(dumped.shape == value.shape, f"{name} is dumped with shape {dumped.shape}")
            close = np.allclose(dumped, value, rtol=1e-3, atol=it.max_error, equal_nan=True)
            require(close, f"the dump has other values of {name} than the run")


def dumps_its_outputs(it: Subject) -> None:
    """Check that a dump of the outputs has the outputs of each iteration."""
    if not it.has(table.BIN_OUT_DUMP):
        return
    place = it.folder / "outputs"
    result = it.run_well(bin_out_dump=str(place), overwrite=True, warmup_iter=1)
    runs = {(each.name, each.run) for each in lar.open_dump(place)}
    count = len(result.outputs) * (1 + ITERATIONS)
    require(len(runs) == count, f"{len(runs)} tensors are dumped of {count}")


def profiles_each_iteration(it: Subject) -> None:
    """Check that a profile has times of operators, which lie within the operators' iterations."""
    if not it.has(table.PROFILE):
        return
    place = it.folder / "profile.json"
    it.run_well(profile=str(place))
    profile = lar.read_profile(place)
    steps = {step.number: step for step in profile.timed_steps()}
    require(len(steps) == ITERATIONS, f"the profile has {len(steps)} iterations")
    require(profile.operators, "the profile has no operators")
    ids = {each.id for each in profile.operators}
    require(len(ids) == len(profile.operators), "two operators of the profile have one id")
    require({each.step for each in profile.timed_executions} == {*steps}, "iterations lack times")
    for each in profile.timed_executions:
        begin, end = steps[each.step].interval
        name = profile.operators[each.operator].name
        require(begin <= each.start_ns <= each.end_ns <= end, f"{name} is not within its iteration")


def recognises_its_profiles(it: Subject) -> None:
    """Check that lar recognises a file that the engine's own profiler wrote, and reads the file."""
    if not it.has(table.PROFILE_RAW):
        return
    place = it.folder / "raw"
    it.run_well(profile_raw=str(place))
    writer = writer_of(place.read_bytes())
    require(writer is it.engine, f"its own profile is taken for one of {writer and writer.name}")
    require(lar.read_profile(place).operators, "its own profile has no operators")
    require(not it.engine.writes_profile(b"[{}]"), "any JSON is taken for its profile")


def keeps_a_cache(it: Subject) -> None:
    """Check that a search writes a cache that `lar cache` and a run without a search can read."""
    files = it.engine.cache
    if files is None or not it.has(table.FAST_RUN, table.FAST_RUN_ALGO_POLICY):
        return
    place = str(it.folder / "found.cache")
    it.run_well(fast_run=True, fast_run_algo_policy=place, iter=0)
    require(files.begins(read_head(Path(place))), "its own cache is not recognised")
    if isinstance(files, ModelCacheFiles):
        found = files.read(place)
        require(found.key, "its cache does not say what it was made for")
        json.dumps({**found.record})
    else:
        files.read([place])
    it.run_well(fast_run_algo_policy=place)


CHECKS: tuple[Check, ...] = (
    *(is_declared_well, recognises_its_models, describes_its_models),
    *(measures_each_iteration, computes_the_same_again, computes_what_is_expected),
    *(refuses_wrong_inputs, refuses_damaged_models, refuses_what_it_cannot_do),
    *(runs_several_copies, is_ended_by_its_deadline, dumps_its_tensors, dumps_its_outputs),
    *(profiles_each_iteration, recognises_its_profiles, keeps_a_cache),
)


def check_engine(
    engine: Engine | str,
    model: str | os.PathLike[str],
    *,
    inputs: Mapping[str, Array] | None = None,
    expected: Mapping[str, Array] | None = None,
    max_error: float = Subject.max_error,
    without: Collection[str] = (),
) -> None:
    """Check that an engine fulfils the contract of engines, with each of the engine's drivers.

    Args:
        engine: the engine, or its name; lar must find it by its entry point.
        model: a small model that the engine reads.
        inputs: the model's inputs; lar generates them if they are not given.
        expected: the model's outputs for these inputs.
        max_error: the largest difference allowed between an output and its expected value.
        without: the names of the checks to leave out.

    Raises:
        ContractError: checks fail; the message has one line for each failure.
    """
    found = engine_named(engine) if isinstance(engine, str) else engine
    failures = []
    checks = [check for check in CHECKS if check.__name__ not in without]
    for driver, check in product((entry.name for entry in found.drivers), checks):
        with tempfile.TemporaryDirectory() as place:
            try:
                check(Subject(found, driver, Path(model), Path(place), inputs, expected, max_error))
            except (ContractError, LarError) as error:
                failures.append(f"{driver}: {check.__name__}: {error}")
    if failures:
        raise ContractError("\n".join(failures))
