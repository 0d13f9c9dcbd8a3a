"""Makes a `RunSpec` from a command line or a Python call, and refuses invalid options early."""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lar.datasets.testcases import Source, add_test_set, cases_of, source_of
from lar.engines import check_options, driver_for, engine_for
from lar.engines.engine import DriverEntry, Engine
from lar.errors import EngineMissing, LarError, UsageError, check_text, count_of, limit_of
from lar.files.input_file import check_input
from lar.options import table
from lar.options.paths import Place, paths_in, places_of_dump, refuse_clashes
from lar.options.rules import RULES, Asked, Exclusion, check_rules
from lar.options.values import MOST_ITERATIONS, pairs_in, sizes_of_axes

if TYPE_CHECKING:
    from lar.records.run import ImageSettings, RunSpec, Stopping


Items = Sequence[tuple[str, Sequence[tuple[str, str]]]]
"""The names of the items of a data set, each with the files of its inputs."""

# How long a run with --target-ci measures by default, at least and at most.
MIN_SECONDS, MAX_SECONDS = 0.5, 60.0
# No run makes more iterations per second: lar's own loop takes 2 us per iteration, and the calls of
# an engine take as long again.
MOST_IN_A_SECOND = 200_000

STREAMS = ("stdout", "stderr")
TENSORS = (table.BIN_IO_DUMP, table.BIN_OUT_DUMP)  # options whose folder gets an index beside it


def plan_run(
    model: str, values: Mapping[str, Any], *, began: float | None = None, elsewhere: bool = False
) -> RunSpec:
    """Return the spec of a run: choose the engine and the driver that honour all options.

    `values` maps option keys to values; missing options have their defaults. The time limit starts
    at the time `began` on the monotonic clock, or now if `began` is None. A run that is made
    `elsewhere`, for example with --scheduler, needs no engine on this machine.

    Raises:
        UsageError: the model cannot be read or the options cannot be honoured.
        EngineMissing: the engine is not installed.
    """
    check_name(model)
    values = {option.key: option.default for option in table.OPTIONS} | dict(values)
    for option in table.OPTIONS:
        value = values[option.key]
        for text in value if isinstance(value, list) else [value]:
            check_text(text, option.flag)
    source = add_test_set(source_of(model), values["input"] or ())
    with contextlib.ExitStack() as stack:
        if table.SETTINGS.is_given(values):
            from lar.running.settings_file import with_settings  # few runs have such a file

            values = stack.enter_context(with_settings(source, values))
        engine = engine_for(Path(source.model), values["engine"])
        settings = table.collect_settings(values)
        check_options(engine, settings)
        for name, text in pairs_in(values[table.ENGINE_OPTION.key] or ()).items():
            engine.check_property(name, text)
        check_caches(settings)
        items = find_items(values["input"], with_arrays=table.LABELS.is_given(values))
        rules, asked = (*RULES, *engine.option_rules()), ask(engine, values, source, items)
        # Options that cannot be combined are reported first: then no other error matters.
        check_rules((rule for rule in rules if isinstance(rule, Exclusion)), asked)
        driver = driver_for(engine, settings, values["driver"])
        check_rules((rule for rule in rules if not isinstance(rule, Exclusion)), asked)
        fed = (path for _, inputs in items for _, path in inputs)
        read = (*paths_in(values["input"] or ()), *fed, *source.folders)
        refuse_clashes(places_of(source.model, values), read)
        engine.check_model(Path(source.model), settings)
        # Other machines and other Python environments may have other engines.
        elsewhere = elsewhere or table.SCHEDULER.is_given(values) or values["python"] is not None
        if not (elsewhere or engine.is_installed):
            problem = f"{source.model} needs {engine.title}, which is not installed"
            raise EngineMissing(problem, engine.install_hint)
        check_count(asked, source, items)
        if slices := stack_in(values, items):
            spec = make_spec(asked, source, items, engine, driver)
            items = () if is_of_one_run(spec, began) else slices
            asked = ask(engine, values, source, items)
            check_rules(rules, asked)
        return make_spec(asked, source, items, engine, driver)


def ask(engine: Engine, values: Mapping[str, Any], source: Source, items: Items) -> Asked:
    """Return the facts about a request by which rules decide which options may be combined."""
    iterations, warmups = values["iter"], values["warmup_iter"]
    if table.one_of((table.DURATION, table.TARGET_CI), values):
        seconds = table.DURATION.of(values) or longest(values)
        iterations = room_for(seconds, table.THREAD.of(values) or 1)
    elif iterations is None:
        iterations = 1 if items else 10
    if warmups is None:
        warmups = 1 if iterations or table.one_of(engine.searches, values) else 0
    if table.WARMUP.is_given(values):
        warmups = max(1, warmups)
    testcases = source.folders[0] if source.is_input else source.model
    return Asked(
        values=values,
        warmup_iterations=warmups,
        iterations=iterations,
        has_dataset=bool(items),
        testcases=testcases if source.case_count else "",
        input_is_testcase=source.is_input,
        environment={**os.environ, **environment_of(values)},
    )


def stopping_of(values: Mapping[str, Any]) -> Stopping:
    """Return the conditions that end the measuring, as the options set them."""
    from lar.records.run import Stopping  # few runs need it

    target, warmup = table.TARGET_CI.of(values), table.WARMUP.of(values)
    if target is None:
        room = 0 if warmup is None else room_for(warmup, table.THREAD.of(values) or 1)
        return Stopping(
            duration_seconds=table.DURATION.of(values), warmup_seconds=warmup, warmup_room=room
        )
    least, most = table.MIN_TIME.of(values), longest(values)
    return Stopping(
        target_interval=target,
        min_seconds=min(MIN_SECONDS, most) if least is None else least,
        max_seconds=most,
        settle=values["warmup_iter"] is None,
    )


def longest(values: Mapping[str, Any]) -> float:
    """Return how many seconds a run with --target-ci measures at most."""
    most = table.MAX_TIME.of(values)
    return max(MAX_SECONDS, table.MIN_TIME.of(values) or 0.0) if most is None else most


def room_for(seconds: float, runners: int) -> int:
    """Return for how many iterations a runner needs memory if it runs for `seconds`."""
    room = min(MOST_ITERATIONS // runners, math.ceil(seconds * MOST_IN_A_SECOND))
    if limit := limit_of("address space"):
        from lar.measurement.rows import size_of_rows  # slow to import

        # The unused part of a table takes no memory, but counts as address space.
        room = min(room, limit // 16 // runners // size_of_rows(1))
    return max(1, room)


def environment_of(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the environment variables that are set for the worker."""
    return pairs_in(values[table.ENGINE_ENV.key] or ())


def python_of(values: Mapping[str, Any]) -> str:
    """Return the worker's Python interpreter; an empty string means this process's interpreter.

    Raises:
        UsageError: the given path has no program.
    """
    given = values["python"]
    if given is None:
        return ""
    path = os.path.join(given, "bin", "python") if os.path.isdir(given) else given
    if os.path.isfile(path) and os.access(path, os.X_OK):
        return os.path.abspath(path)
    missing = "has no bin/python" if path != given else "does not exist"
    problem = "is no program" if os.path.isfile(path) else missing
    hint = "give an interpreter, or the folder of a virtual environment"
    raise UsageError(problem, hint, flag="--python", subject=given)


def check_count(asked: Asked, source: Source, items: Items) -> None:
    """Refuse a run with more iterations than lar can record.

    Raises:
        UsageError: --iter is too large.
    """
    feeds = max(1, source.case_count, len(items))
    if asked.iterations * feeds > MOST_ITERATIONS:
        what = count_of(len(items), "item") if items else count_of(source.case_count, "testcase")
        problem = f"too many for {what}; at most {MOST_ITERATIONS} in all"
        raise UsageError(problem, "give a smaller --iter", flag=f"--iter {asked.iterations}")


def stack_in(values: Mapping[str, Any], items: Items) -> Items:
    """Return the items of an `--input` if it may be either a data set or the data of one run.

    A stack is one array with several items along its first axis. If the input is a stack, lar must
    find out whether it is a data set or the data of one run. If the input is certainly a data set,
    the result is empty.
    """
    if not items and not table.BATCH_SIZE.is_given(values):
        items = find_items(values["input"], with_arrays=True)
    return () if any(files for _, files in items) or table.LABELS.is_given(values) else items


def is_of_one_run(spec: RunSpec, began: float | None) -> bool:
    """Return whether a stack has the shape of the model's input, and so is one run's data.

    A worker reads the model to find the shape of the input. If the model cannot be read, and the
    spec has no data set, an array is treated as the data of one run.

    Raises:
        UsageError: the model cannot be read, and the spec has a data set.
    """
    from lar.datasets.items import is_one_run  # few runs have a stack
    from lar.records.run import RunContext
    from lar.running.isolation import info_of

    try:
        infos = info_of(spec, RunContext() if began is None else RunContext(began=began)).inputs
    except LarError:
        if spec.items:
            raise
        return True  # the run will report the error
    return is_one_run(spec.inputs, infos)


def find_items(texts: Sequence[str] | None, *, with_arrays: bool = False) -> Items:
    """Return the items of the data set that `--input` names; empty if it names no data set.

    With `with_arrays`, a `.npy` file is read as a stack of items.

    Raises:
        UsageError: the data set is incomplete.
    """
    if not texts:
        return ()
    from lar.datasets.items import items_in  # few runs need it

    return items_in(texts, with_arrays=with_arrays) or ()


def places_of(model: str, values: Mapping[str, Any]) -> list[Place]:
    """Return the paths that a run writes, and the paths of the files that its options read."""
    places = [Place(model, what="the model")]
    for option in table.OPTIONS:
        value = values.get(option.key)
        is_stdout = option.purpose == "report" and value == "-"
        if not option.is_given(values) or option.writes in STREAMS or is_stdout:
            continue
        path = os.path.normpath(str(value))
        if option in TENSORS:
            places += places_of_dump(path, option.flag)
        elif option.writes:
            places.append(Place(path, option.flag))
        elif option.reads:
            flag = option.flag if option.purpose == "cache" else ""
            places.append(Place(path, flag, f"the file of {option.flag}"))
    return places


def check_caches(settings: Mapping[str, Any]) -> None:
    """Refuse a cache that exists but is not a readable file.

    Raises:
        UsageError: a cache cannot be read; the message names the flag of the cache.
    """
    for key, path in settings.items():
        if table.BY_KEY[key].purpose == "cache" and os.path.lexists(path):
            check_input(path, table.BY_KEY[key].flag)


def make_spec(
    asked: Asked, source: Source, items: Items, engine: Engine, driver: DriverEntry
) -> RunSpec:
    """Return the spec of a checked request.

    Raises:
        UsageError: the labels of a data set's items cannot be used.
    """
    # Imported late, so that an error in the command line is reported quickly.
    from lar.datasets.classes import read_labels
    from lar.records.run import Item, Pacing, RunSpec

    values, settings = asked.values, table.collect_settings(asked.values)
    idle_ms = table.IDLE_MS.of(values)
    labels = read_labels(values["labels"], [name for name, _ in items])
    return RunSpec(
        model=source.model,
        engine=engine.name,
        driver=driver.name,
        device=f"cuda:{settings['cuda']}" if table.CUDA.is_given(settings) else "cpu",
        inputs=tuple(values["input"] or ()),
        image=image_settings(values),
        fill=values["fill"],
        seed=values["seed"],
        batch_size=values["batch_size"],
        shape=sizes_given(values),
        copy_outputs=bool(values["copy_to_host"]),
        settings=settings,
        warmup_iterations=asked.warmup_iterations,
        iterations=asked.iterations,
        timeout_seconds=values["timeout"],
        stall_seconds=values["stall_timeout"],
        environment=environment_of(values),
        python=python_of(values),
        items=tuple(
            Item(number=number, name=name, inputs=tuple(inputs), label=label)
            for number, ((name, inputs), label) in enumerate(
                zip(items, labels.truths or [None] * len(items), strict=True)
            )
        ),
        item_names=tuple(name for name, _ in items),
        percentiles=table.PERCENTILE.of(values) or (),
        tell_classes=values["labels"] is not None,
        class_names=labels.names,
        cases=tuple(cases_of(source)),
        stopping=stopping_of(values),
        pacing=Pacing(
            idle_seconds=None if idle_ms is None else idle_ms * 1e-3,
            rate=values["rate"],
            arrivals=values["arrivals"],
        ),
    )


def image_settings(values: Mapping[str, Any]) -> ImageSettings:
    """Return the settings for the conversion of images, from the values of options."""
    from lar.records.run import ImageSettings

    return ImageSettings(
        layout=values["input_layout"],
        size=values["resize"],
        mean=values["mean"],
        scale=values["scale"],
        channels="bgr" if values["bgr"] else "rgb" if values["rgb"] else None,
    )


def sizes_given(values: Mapping[str, Any]) -> dict[str, int]:
    """Return the sizes that `--shape` gives to axes, by the name of the axis."""
    text = table.SHAPE.of(values)
    return {} if text is None else sizes_of_axes(text)


def check_name(model: str) -> None:
    """Refuse a model name that is empty or not UTF-8, since results cannot store such a name.

    Raises:
        UsageError: the name is empty or not UTF-8.
    """
    if not model:
        raise UsageError("the model's name is empty", "give the path of a model file")
    check_text(model, problem="the model's name is not UTF-8", hint="rename it")
