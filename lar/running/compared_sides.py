"""`lar.compare`: opens or runs two or more sides, and compares their tensors.

A side is a dump, tensors from elsewhere, or a model that is run for the comparison. Each model runs
once, and all models get the same inputs. With `--truth`, an exact engine also runs a model once, to
compute reference values.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, fields, replace
from functools import partial
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, TypeAlias, get_args, overload

from lar.comparison.compare import (
    CollectedItems,
    Progress,
    Request,
    compare_dumps,
    has_coarse_tensors,
    judge_by_truth,
)
from lar.datasets.testcases import source_of
from lar.dumps import Dump, DumpedTensor, Stored
from lar.dumps.binary import ELEMENT
from lar.dumps.index import open_dump
from lar.engines import all_engines, engine_for, formats_of, operator_kinds_of, readers_of
from lar.engines.engine import Engine
from lar.engines.formats import format_named, read_head
from lar.engines.model_names import inputs_of
from lar.errors import LarError, UsageError, count_of, join_first
from lar.files.input_file import cannot_read, check_input
from lar.inputs import Array
from lar.options.command_line import format_flags, join_options, parse_values, split_command
from lar.options.option import flag_of, is_set
from lar.options.paths import INDEX_SUFFIX
from lar.options.table import BIN_IO_DUMP, ON, OVERWRITE, SCHEDULER
from lar.records.comparison import Comparison, ComparisonOfSides, Only, Tolerance
from lar.records.record import ShortRecord
from lar.records.run import RunContext, RunResult, RunSpec, TensorInfo, format_shape

if TYPE_CHECKING:
    from lar.comparison.culprits import Operators
    from lar.running.single_operators import IsolatedOperators

# The file of a dumped tensor has this number, the most axes, after the name's length and the type.
TENSOR_HEAD = (7).to_bytes(4, "little")

TRUTH = "--truth"

# A tensor of at most this many bytes is kept in memory.
SMALL_BYTES = 1 << 12

MakeOn: TypeAlias = Callable[[RunSpec, RunContext, str], RunResult]
"""Makes a run on another machine that has the given label."""


class ModelRun(ShortRecord):
    """A side that is a model, with the options of its run, by option key.

    A model with testcases brings its own inputs. If the model has several testcases, only one
    testcase is compared. `label` names the scheduler's worker that runs the model.
    """

    source: str
    model: str
    options: Mapping[str, Any]
    case_count: int = 0
    label: str = ""


Side: TypeAlias = Dump | ModelRun
GivenSide: TypeAlias = "str | os.PathLike[str] | Array | Mapping[str, Any] | Side"


def open_sides(given: Sequence[GivenSide]) -> list[Side]:
    """Return the opened sides of a comparison.

    Raises:
        UsageError: a side cannot be compared, or there are too many sides.
    """
    if len(given) > len(ascii_uppercase):
        raise UsageError(f"{len(given)} sides", f"give {len(ascii_uppercase)} at most")
    return [open_side(*each) for each in zip(given, ascii_uppercase, strict=False)]


def open_side(side: GivenSide, letter: str) -> Side:
    """Return an opened side of a comparison.

    Raises:
        UsageError: the side cannot be compared.
    """
    if isinstance(side, (Dump, ModelRun)):
        return side
    if isinstance(side, (str, os.PathLike)):
        return side_of(os.fspath(side))
    from lar.dumps.index import dump_of_arrays  # few sides are arrays

    arrays = side if isinstance(side, Mapping) else {"array": side}
    return dump_of_arrays(arrays, f"arrays of {letter}")


def side_of(text: str) -> Side:
    """Detect whether a string names a dump or a model; open the dump, or return the model's run.

    Raises:
        UsageError: the side cannot be compared, or an option is not allowed for a side.
    """
    if not text.strip():
        raise UsageError("the name of a side is empty", "give a folder, a file or a model")
    path = Path(text)
    if text.endswith(INDEX_SUFFIX):
        return open_dump(path)
    try:
        os.stat(path)
    except PermissionError as failure:
        raise cannot_read(text, failure) from None
    except (OSError, ValueError):
        model, options = split_command(text)
        if not options and model != text:  # spaces around the name
            return side_of(model)
        if not options:
            hint = 'give a folder, a file, or a model with its options: "model.mge --cpu"'
            raise UsageError("no such dump, tensor file or model", hint, subject=text) from None
        return model_run(text, model, options)
    if os.path.isdir(path):
        is_run = source_of(text).case_count > 0
    else:
        check_input(path)
        is_run = is_model(path)
    return model_run(text, text, {}) if is_run else open_dump(path)


def model_run(text: str, model: str, options: dict[str, Any]) -> ModelRun:
    """Return a model as a side of a comparison.

    A testcase that fails does not stop the model's run.

    Raises:
        UsageError: an option is not allowed for a single side.
    """
    count = source_of(model).case_count
    judged = {"disable_assert_throw": True} if count else {}
    if SCHEDULER.key in options:
        raise UsageError("is for all sides", "put this flag after the sides", flag=SCHEDULER.flag)
    label = options.pop(ON.key, "")
    return ModelRun(text, model, {**judged, **options}, count, label=label)


def is_model(path: Path) -> bool:
    """Return whether a file is a model, and not the file of a tensor."""
    if format_named(path):
        return True
    head = read_head(path) if os.path.getsize(path) else b""
    is_tensors = head[8:12] == TENSOR_HEAD or path.suffix.lower() in (".npy", ".npz")
    return not is_tensors and any(formats_of(path, head))


def check_case(sides: Sequence[Side], case: int | None) -> None:
    """Refuse the number of a testcase that a side does not have.

    Raises:
        UsageError: a side has no testcase of this number, or no side has testcases.
    """
    if case is None:
        return
    runs = [side for side in sides if isinstance(side, ModelRun) and side.case_count]
    if not runs:
        raise UsageError("no side has testcases", "leave it out", flag=f"--case {case}")
    for side in runs:
        if not 0 <= case < side.case_count:
            problem = f"{side.model} has {count_of(side.case_count, 'testcase')}"
            raise UsageError(problem, "testcases are counted from 0", flag=f"--case {case}")


def describe_cases(sides: Iterable[Side], case: int) -> Iterator[str]:
    """For each side with several testcases, yield a note that says what testcase was compared."""
    for letter, side in zip(ascii_uppercase, sides, strict=False):
        if isinstance(side, ModelRun) and side.case_count > 1:
            one = f"{side.case_count} testcases; number {case} was compared"
            yield f"{letter} has {one}; --case N compares another"


def check_any_model(sides: Iterable[Side], flag: str) -> None:
    """Refuse a flag for models if no side is a model.

    Raises:
        UsageError: no side is a model; the message names the flag.
    """
    if not any(isinstance(side, ModelRun) for side in sides):
        problem = "no side is a model, and only a model is run"
        raise UsageError(problem, f"leave {flag} out, or give a model as a side", flag=flag)


class Asked(Request):
    """The options of a comparison, without its sides: see `compare`.

    `options` maps the keys of `lar run` flags to values, which are used for all models.
    """

    case: int | None = None
    truth: bool | str | os.PathLike[str] = False
    models: Mapping[str, str | os.PathLike[str]] | str | os.PathLike[str] | None = None
    make_on: MakeOn | None = None
    options: Mapping[str, Any] = field(default_factory=dict)


def check_sides(sides: Sequence[Side], asked: Asked) -> None:
    """Refuse options that do not fit the sides, before anything is run.

    Raises:
        UsageError: an option does not fit the sides; the message names the flag of the option.
    """
    check_case(sides, asked.case)
    label = next((it.label for it in sides if isinstance(it, ModelRun) and it.label), "")
    if asked.make_on is None and label:
        problem = f"needs {SCHEDULER.flag}: only a scheduler's workers have labels"
        raise UsageError(problem, f"add {SCHEDULER.usage}", flag=f"{ON.flag} {label}")
    if asked.make_on is not None and asked.isolate:
        problem = "runs operators on this machine, but the models run on other machines"
        raise UsageError(problem, f"leave out this flag or {SCHEDULER.flag}", flag="--isolate")
    for key in asked.options:
        check_any_model(sides, flag_of(key))
    flag = "--isolate" if asked.isolate else "--truth" if asked.truth else ""
    if len(sides) > 2 and flag:
        raise UsageError("compares exactly two sides", "give two", flag=flag)


def with_kept_tensors(dump: Dump) -> Dump:
    """Return a dump that keeps its small tensors in memory after they are read.

    A deep network has thousands of small tensors, and each is read many times.
    """
    kept = dict[str, Stored]()

    def read(tensor: DumpedTensor) -> Stored:
        stored = kept.get(tensor.key) or dump.read_stored(tensor.key)
        if stored.raw.nbytes <= SMALL_BYTES:
            stored.raw.setflags(write=False)  # all readers share this array
            kept[tensor.key] = stored
        return stored

    return replace(dump, reader=read)


class SideRuns:
    """The runs of a comparison: runs of whole models, and runs of single operators.

    All runs are planned before the first run starts. A worker for single operators starts when it
    is first needed. When `stack` is closed, the temporary files of the runs are removed, and their
    workers are killed.

    `specs` maps the number of a side to the spec of the side's model.
    """

    def __init__(self, sides: Sequence[Side], asked: Asked, stack: contextlib.ExitStack) -> None:
        """
        Raises:
            UsageError: an option cannot be used.
        """
        self.sides, self.asked, self.stack = sides, asked, stack
        self.alone: dict[int, IsolatedOperators | LarError] = {}
        self.notes: dict[str, None] = {}  # the options that runs of single operators leave out
        self.models = {number: it for number, it in enumerate(sides) if isinstance(it, ModelRun)}
        self.folder = Path()
        if self.models or asked.truth:
            from lar.files.work_folders import work_folder  # two dumps need none

            self.folder = Path(stack.enter_context(work_folder()))
        self.specs = {number: self.plan(number) for number in self.models}

    def plan(self, number: int) -> RunSpec:
        """Return the spec of a model's run.

        By default the run has one iteration. A run has at most one testcase.

        An option of the side replaces the same option that is given for all sides.

        Raises:
            UsageError: an option cannot be used.
        """
        from lar.running.plan import plan_run  # two dumps need none

        side, case = self.models[number], self.asked.case or 0
        place = {BIN_IO_DUMP.key: str(self.folder / f"side{number}")}
        shared = {"iter": 1, "warmup_iter": 0, **place, **self.asked.options}
        with self.naming(side):
            values = parse_values(join_options(shared, side.options))
            spec = plan_run(side.model, values, elsewhere=self.asked.make_on is not None)
        # Expected outputs of an `--input` are not checked: the two sides are compared instead.
        return replace(spec, cases=spec.cases[case : case + 1] if side.case_count else ())

    @contextlib.contextmanager
    def naming(self, side: ModelRun) -> Iterator[None]:
        """Add the name of the side to usage errors that are raised in the block.

        If a flag that is given for all sides causes the error, also add a hint that says how to
        give the flag for one side.

        Raises:
            UsageError: the error that was raised in the block, with the name of the side.
        """
        try:
            yield
        except UsageError as error:
            options = self.asked.options
            shared = {flag_of(key): key for key in options.keys() - side.options.keys()}
            others = [it.model for it in self.models.values() if it.model != side.model]
            if error.flag in shared and others:
                key = shared[error.flag]
                words = format_flags({key: options[key]})
                error.hint = f'for one side alone, quote it with its model: "{others[0]} {words}"'
            error.subject = error.subject or side.source
            raise

    def items(self) -> tuple[str, ...]:
        """Return the names of the items in the sides' data set; empty if no side has a data set.

        Raises:
            UsageError: only one side has a data set, or the data sets differ in length.
        """
        counts = [len(spec.items) for spec in self.specs.values()]
        if not any(counts):
            return ()
        if len(self.sides) == len(counts) == 2 and counts[0] == counts[1]:
            return self.specs[1].item_names
        number, spec = next(each for each in self.specs.items() if each[1].items)
        others = "only two sides can use a" if len(self.sides) > 2 else "no other side has an equal"
        raise UsageError(
            f"--input {';'.join(spec.inputs)} is a data set of "
            f"{count_of(len(spec.items), 'item')}, but {others} data set",
            "give the data set to both sides, or run each side with --bin-out-dump DIR and "
            "compare the folders",
            subject=self.models[number].source,
        )

    def run_all(
        self, progress: Progress, item: int | None = None
    ) -> tuple[list[Dump], tuple[str, ...]]:
        """Run the models on the same inputs; return the dumps of all sides, and notes on inputs.

        If `item` is given, the models get this item of a data set.

        Raises:
            UsageError: it is not clear which inputs to use.
            LarError: a run failed.
        """
        dumps = {number: it for number, it in enumerate(self.sides) if isinstance(it, Dump)}
        fed: dict[int, tuple[str, ...]] = {}
        # A model that brings its own inputs runs first: the other models get the same inputs.
        for number in sorted(self.models, key=lambda each: not self.brings_inputs(each)):
            side = self.models[number]
            spec, generated = self.fed_alike(number, dumps)
            if item is not None:
                spec = replace(spec, items=spec.items[item : item + 1])
            progress(f"running {side.source}")
            with self.naming(side):
                dumps[number], result = self.run(side, spec)
            fed[number] = tuple(describe_fed(result, generated))
        return [dumps[number] for number in sorted(dumps)], tuple(join_notes(fed))

    def run(self, side: ModelRun, spec: RunSpec) -> tuple[Dump, RunResult]:
        """Run a model once, and return its opened dump and its result.

        Raises:
            LarError: the run failed.
        """
        # Imported here, since comparing two dumps does not need these modules.
        from lar.running.isolation import require_ok
        from lar.running.steps import make_run

        place, make_on = Path(str(spec.settings[BIN_IO_DUMP.key])), self.asked.make_on
        is_own = place.parent == self.folder  # it may hold the dump of another item
        overwrite = is_own or OVERWRITE.is_given({**self.asked.options, **side.options})
        context = RunContext(overwrite=overwrite)
        result = make_on(spec, context, side.label) if make_on else make_run(spec, context)
        # `within` already names the model, so that messages need not.
        require_ok(result, within=side.source, names={side.model: ""})
        return with_kept_tensors(open_dump(place)), result

    def brings_inputs(self, number: int) -> bool:
        """Return whether a side has its own inputs: a dump, or a model with testcases."""
        return number not in self.models or self.models[number].case_count > 0

    def fed_alike(self, number: int, dumps: Mapping[int, Dump]) -> tuple[RunSpec, str]:
        """Return a model's spec with the inputs to run it on, and how these inputs were generated.

        Without `--input`, the model gets the inputs of a side that brings its own inputs. If no
        side brings inputs, models whose inputs have different names get the same generated data.
        The second returned value is a text such as `uniform, seed 0`; it is empty if lar generated
        no data for several models.

        Raises:
            UsageError: the models have different inputs, or no dump holds the inputs.
        """
        from lar.inputs.dtypes import describe_source
        from lar.running.api import GivenInputs, inputs_like
        from lar.running.isolation import info_of

        spec, folder = self.specs[number], self.folder / f"inputs{number}"
        if self.brings_inputs(number) or any(each.inputs for each in self.specs.values()):
            return spec, ""
        if settled := [dumps[it] for it in range(len(self.sides)) if self.brings_inputs(it)]:
            infos = info_of(spec).inputs
            held = (inputs_of(dump, infos) for dump in settled if not dump.excerpts)
            fed = next(filter(None, held), {})
            if not fed and not all(info.optional for info in infos):
                problem, hint = "does not hold the inputs of its run", "give them with --input"
                raise UsageError(problem, hint, subject=settled[0].source)
            given = GivenInputs(rename_inputs(fed, infos, spec.model), folder)
            return replace(spec, inputs=given.items), ""
        last = self.specs[max(self.specs)]
        inputs = inputs_like(last, spec, folder) if last.model != spec.model else ()
        return replace(spec, inputs=inputs), describe_source(last.fill, last.seed) if inputs else ""

    def operators_of(self, number: int) -> Operators | str:
        """Return an object that runs single operators of a side, or why this is impossible.

        With two sides, the workers of both sides start at the same time, so that they load in
        parallel.
        """
        if number >= len(self.sides):
            return "the truth is not run alone"
        for each in range(2) if len(self.sides) == 2 else [number]:
            operators = self.find_operators(each)
            if not isinstance(operators, LarError):
                operators.begin()
        found = self.find_operators(number)
        if isinstance(found, LarError):
            return f"{ascii_uppercase[number]} {found.problem}"
        self.notes |= dict.fromkeys(found.notes)
        return found

    def require_operators(self) -> None:
        """Refuse `--isolate` if operators of the first side cannot be run alone.

        Raises:
            UsageError: operators of the first side cannot be run.
        """
        found = self.find_operators(0)
        if isinstance(found, LarError):
            hint = found.hint or "give a model with its options as A"
            raise UsageError(found.problem, hint, flag="--isolate", subject=self.sides[0].source)

    def find_operators(self, number: int) -> IsolatedOperators | LarError:
        """Return an object that runs single operators of a side, or the error that prevents this.

        The returned object starts its worker only when the worker is needed. The error's message
        does not name the side: the caller adds the name.
        """
        from lar.running.single_operators import IsolatedOperators, spec_of_dump

        side = self.sides[number]
        if number not in self.alone:
            try:
                spec = spec_of_dump(side.index) if isinstance(side, Dump) else self.specs[number]
                if isinstance(side, ModelRun) and self.asked.make_on is not None:
                    raise UsageError("ran on another machine")
                self.alone[number] = IsolatedOperators(spec, self.stack)
            except LarError as error:
                self.alone[number] = error
        return self.alone[number]


def describe_fed(result: RunResult, generated: str) -> Iterator[str]:
    """Yield notes on inputs that lar chose: generated data, and sizes of axes.

    The size of an axis is chosen by lar if the model accepts any size.

    `generated` is a text that says how lar generated the data that several models share. The text
    is empty if the models share no generated data.
    """
    infos = {info.name: info for info in result.inputs}
    made, open_axes = dict[str, list[str]](), list[str]()
    for each in result.fed:
        shape = format_shape(each.shape)
        if generated or each.generated:
            made.setdefault(generated or each.source, []).append(f"{each.name} {shape}")
        if (info := infos.get(each.name)) and None in info.shape:
            open_axes.append(f"{each.name} {info.shape_text} was run as {shape}")
    for source, names in made.items():
        yield f"the data of {join_first(names)} was generated: {source}"
    if open_axes:
        yield f"axes of any size: {join_first(open_axes)}"


def join_notes(fed: Mapping[int, Sequence[str]]) -> Iterator[str]:
    """Yield the notes of all sides.

    A note that only some sides have begins with the letters of these sides.
    """
    for note in dict.fromkeys(note for number in sorted(fed) for note in fed[number]):
        sides = [ascii_uppercase[number] for number in sorted(fed) if note in fed[number]]
        yield note if len(sides) == len(fed) else f"{', '.join(sides)}: {note}"


def find_truth_model(asked: bool | str | os.PathLike[str], models: Iterable[str]) -> ModelRun:
    """Return the model that computes the reference values, as a run on an exact engine.

    If the user names no model, the first model of `models` that an exact engine can read is
    returned. If no exact engine reads a model, lar also looks for a file beside the model that has
    the name of the model and the suffix of an exact engine. Empty names in `models` are skipped.

    Raises:
        UsageError: no exact engine can read any of the models, or the named model does not exist.
    """
    engines = [engine for engine in all_engines() if engine.is_exact]
    if asked and not isinstance(asked, bool):
        path = Path(asked)
        return truth_of(path, exact_engine_of(path) or engine_for(path, engines[0].name))
    suffixes = [suffix for engine in engines for suffix in engine.suffixes]
    paths = [Path(source_of(model).model) for model in models if model]
    for path in paths:
        for twin in (path, *map(path.with_suffix, suffixes)):
            if found := exact_engine_of(twin):
                return truth_of(twin, found)
    beside = " or ".join(map(str, paths)) or "them"
    problem = f"no {' '.join(suffixes)} is among the sides, or stands beside {beside}"
    hint = f"name the model that both sides should compute: {TRUTH} MODEL{suffixes[0]}"
    raise UsageError(problem, hint, flag=TRUTH)


def truth_of(model: Path, engine: Engine) -> ModelRun:
    return ModelRun(str(model), str(model), {"engine": engine.name})


def exact_engine_of(path: Path) -> Engine | None:
    """Return the exact engine that reads a model, or None if no exact engine can read it."""
    return next((it for it in readers_of(path) if it.is_exact), None) if path.is_file() else None


def rename_inputs(
    fed: Mapping[str, Array], infos: Sequence[TensorInfo], model: str
) -> dict[str, Array]:
    """Return inputs that another model got, renamed to the input names of this model.

    Inputs are paired by name, or by order if the names differ.

    Raises:
        UsageError: the model takes a different number of inputs.
    """
    names = [info.name for info in infos if not info.optional]
    own = {name: ELEMENT.sub("", name) if name not in names else name for name in fed}
    if set(names) <= {*own.values()}:
        return {name: fed[name] for name in fed if own[name] in {info.name for info in infos}}
    if len(names) != len(fed):
        takes = f"takes {count_of(len(names), 'input')} ({', '.join(names)})"
        problem = f"{takes}, and the sides have {len(fed)} ({', '.join(fed)})"
        raise UsageError(problem, "give a model that takes the sides' inputs", subject=model)
    return dict(zip(names, fed.values(), strict=True))


def check_unchanged(model: str, sides: Sequence[Side]) -> None:
    """Refuse the model of a dump if the model file has changed since the dump was made.

    Raises:
        UsageError: the model file has changed; the message names the dump.
    """
    from lar.measurement.machine import read_model_file  # slow to import

    for dump in (side for side in sides if isinstance(side, Dump) and side.index.model == model):
        known = dump.index.model_sha256
        if known and read_model_file(Path(model)).sha256 != known:
            problem = f"its model {model} has changed since the dump was made"
            hint = f"name the model that made the dump: {TRUTH} MODEL"
            raise UsageError(problem, hint, flag=TRUTH, subject=dump.source)


def model_of(side: Side) -> str:
    """Return the path of a side's model; empty if the path is unknown."""
    return side.index.model if isinstance(side, Dump) else side.model


@overload
def compare(actual: GivenSide, expected: GivenSide, **asked: Any) -> Comparison: ...


@overload
def compare(
    actual: GivenSide, expected: GivenSide, third: GivenSide, *others: GivenSide, **asked: Any
) -> ComparisonOfSides: ...


def compare(
    actual: GivenSide, expected: GivenSide, *others: GivenSide, **asked: Any
) -> Comparison | ComparisonOfSides:
    """Compare two or more dumps, tensors from elsewhere, or models with their options.

    Args:
        actual: a dump's folder, a tensor's file, a folder of .npy, a .npz, a .npy, the text of
            --io-dump, an array, arrays by name, or a model with its options, such as "r.mge --cpu".
        expected: a side of any of these kinds, with the values that `actual` should have.
        others: further sides. All sides are compared with the first side, and the result names the
            side that differs from all other sides.
        asked: the keywords below, and flags of `lar run` by key for the models of all sides, such
            as `input="cat.npy"` or `graph_optimization_level="disable"`:

            rtol: the relative tolerance of an element, as a fraction of its expected value.
            atol: the absolute tolerance of an element, which is added to the relative tolerance.
            max_error: in place of rtol and atol, the largest |a - e| / max(|a|, |e|, 1) that is
                allowed.
            raw: compare the integers of quantised tensors, not the real numbers that they stand
                for.
            case: the number of the testcase to compare; the default is the first testcase.
            isolate: also run each operator of `actual` alone, on the expected values of its inputs.
                If the user interrupts the runs of single operators, the results so far are
                returned, and the field `interrupted` of the results is true.
            only: with "outputs" (the default), the sides must match in the models' outputs. With
                "common", the sides must match in all tensors that both sides have.
            truth: also compute reference values with an exact engine, and the error of each side
                against these values. Give the file of a model that computes the reference values,
                or True. If `truth` is True, lar uses the .onnx file of a side, or an .onnx file
                beside the model of a side.
            progress: a function that is called repeatedly with a few words on what is being done.
            models: the model file of sides that are dumps or arrays; lar reads names and the graph
                from this file. If the sides have different model files, give a mapping from the
                letters of sides to files, such as `dict(A="model.onnx")`.
            make_on: a function that makes the runs of models on other machines.

    Raises:
        UsageError: a side is of no known kind, or an option cannot be used.
        LarError: a model's run failed.
    """
    given = read_keywords(asked)
    sides = open_sides((actual, expected, *others))
    check_sides(sides, given)
    notes: tuple[str, ...] = ()
    if given.models:
        from lar.engines.model_names import give_models

        models = given.models if isinstance(given.models, Mapping) else {"": given.models}
        sides, notes = give_models(sides, models)
    with contextlib.ExitStack() as stack:
        runs = SideRuns(sides, given, stack)
        found = compare_several(runs) if others else compare_two(runs)
        cases = describe_cases(sides, given.case or 0)
        return replace(found, notes=(*notes, *cases, *found.notes, *runs.notes))


def read_keywords(given: Mapping[str, Any]) -> Asked:
    """Return the options of a comparison that are given as keyword arguments.

    Raises:
        UsageError: a keyword is unknown, or has a wrong value.
    """
    own = {it.name for it in fields(Asked)} - {"tolerance", "options"}
    limits = {it.name for it in fields(Tolerance)}
    options = {key: value for key, value in given.items() if key not in own}
    parsed = parse_values(options, (*own, *limits))
    asked = Asked(
        tolerance=Tolerance(**{key: parsed[key] for key in limits & parsed.keys()}),
        options={key: it for key, it in options.items() if is_set(it) and key not in limits},
        **{key: given[key] for key in own & given.keys()},
    )
    if asked.only not in get_args(Only):
        raise UsageError(f"{asked.only!r} is neither outputs nor common", flag="--only")
    return asked


def compare_two(runs: SideRuns) -> Comparison:
    """Compare two sides; with a data set, compare both sides on each item of the data set.

    Raises:
        UsageError: an option cannot be used, or it is not clear which inputs to use.
        LarError: a model's run failed.
    """
    asked = runs.asked
    if asked.truth:
        # A missing model for the truth is reported before anything is run.
        check_unchanged(find_truth_model(asked.truth, map(model_of, runs.sides)).model, runs.sides)
    if asked.isolate:
        runs.require_operators()
    if items := runs.items():
        return compare_items(items, partial(compare_once, runs), asked.progress)
    return compare_once(runs, None, asked.progress)


def compare_once(runs: SideRuns, item: int | None, progress: Progress) -> Comparison:
    """Run the models of two sides once, and compare the tensors of both sides.

    If the user asked for reference values, also compute the error of each side against these
    values.

    Raises:
        UsageError: it is not clear which inputs to use.
        LarError: a model's run failed.
    """
    asked = replace(runs.asked, progress=progress)
    dumps, notes = runs.run_all(progress, item)
    found = compare_pair(runs, dumps, (0, 1), asked)
    if asked.truth and not found.interrupted:
        found = judge(runs, found, dumps, asked)
    return replace(found, notes=(*notes, *found.notes))


def compare_several(runs: SideRuns) -> ComparisonOfSides:
    """Compare the first of three or more sides with each of the other sides.

    Raises:
        UsageError: the sides have a data set, or it is not clear which inputs to use.
        LarError: a model's run failed.
    """
    from lar.comparison.compare import compare_sides  # two sides do not need it

    runs.items()  # refuses a data set
    dumps, notes = runs.run_all(runs.asked.progress)
    found = compare_sides(len(dumps), lambda *pair: compare_pair(runs, dumps, pair, runs.asked))
    return replace(found, notes=(*notes, *found.notes))


def compare_pair(
    runs: SideRuns, dumps: Sequence[Dump], numbers: tuple[int, int], asked: Asked
) -> Comparison:
    """Compare two dumps; `numbers` has their indexes in `dumps`.

    The dump with the reference values comes after the dumps of the sides.
    """
    one, other = numbers
    names = [*ascii_uppercase[: len(runs.sides)], "the truth"]
    return compare_dumps(
        *(dumps[one], dumps[other], asked, operator_kinds_of),
        lambda side: runs.operators_of(numbers[side]),
        (names[one], names[other]),
    )


def judge(runs: SideRuns, found: Comparison, dumps: Sequence[Dump], asked: Asked) -> Comparison:
    """Compute reference values with an exact engine; add the error of each side to a comparison.

    Raises:
        UsageError: neither side holds inputs for the exact model, or the exact model takes other
            inputs.
        LarError: the reference values cannot be computed.
    """
    # The side with finer tensors comes first. If both are equal, the expected side comes first.
    order = sorted((1, 0), key=lambda number: has_coarse_tensors(dumps[number]))
    models = [model_of(runs.sides[number]) for number in order]
    exact = find_truth_model(asked.truth, models)
    nearest = order[models.index(exact.model)] if exact.model in models else order[0]
    plainly = replace(asked, isolate=False, case=None, options={}, make_on=None)
    with contextlib.ExitStack() as stack:
        sides: list[Side] = [*(dumps[number] for number in order), exact]
        (*_, truth), _ = SideRuns(sides, plainly, stack).run_all(asked.progress)
        against = [compare_pair(runs, [*dumps, truth], (it, 2), plainly) for it in (0, 1)]
        return judge_by_truth(found, against, truth, nearest=nearest)


def compare_items(
    items: Sequence[str], compare_once: Callable[[int, Progress], Comparison], progress: Progress
) -> Comparison:
    """Compare two models on each item of a data set, and return one comparison for all items.

    After an interrupt, return the results of the finished items.

    Raises:
        LarError: a run failed.
    """
    collected = CollectedItems()
    for number, name in enumerate(items):

        def say(text: str, start: str = f"item {number + 1} of {len(items)}: ") -> None:
            progress(start + text)

        try:
            found = compare_once(number, say)
        except KeyboardInterrupt:
            if not collected.items:
                raise
            note = f"interrupted: {number} of {count_of(len(items), 'item')} were compared"
            found = collected.sum_up()
            return replace(found, interrupted=True, notes=(*found.notes, note))
        collected.add(name, found)
        if found.interrupted:
            break
    return collected.sum_up()
