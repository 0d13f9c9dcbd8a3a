"""From a model and options, typed or given from Python, to a `RunSpec` and the driver for it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lar.engines import driver_for, engine_for
from lar.engines.engine import DriverEntry, Engine
from lar.errors import EngineMissing, UsageError
from lar.options.suggestions import suggest_flag
from lar.options.table import (
    BY_KEY,
    OPTIONS,
    Option,
    check_conflicts,
    collect_settings,
    flag_of,
    is_set,
)
from lar.options.values import MOST_ITERATIONS
from lar.testcases.paths import Source, add_test_set, cases_of, check_options, source_of

if TYPE_CHECKING:
    from lar.records.run import Channels, RunSpec


class Plan(NamedTuple):
    """What a run will be, known before any record is made: it is what a worker needs to start."""

    model: str
    values: Mapping[str, Any]
    settings: dict[str, Any]
    engine: Engine
    driver: DriverEntry
    warmup_iterations: int
    iterations: int
    source: Source
    items: Sequence[tuple[str, Sequence[tuple[str, str]]]] = ()

    @property
    def is_stack(self) -> bool:
        """Whether the items are slices of a `.npz`, if the model does not take it whole."""
        return bool(self.items) and not self.items[0][1]

    @property
    def sample_count(self) -> int:
        """How many samples each runner takes."""
        feeds = max(1, self.source.case_count, len(self.items))
        return self.warmup_iterations + self.iterations * feeds

    @property
    def runners(self) -> int:
        """How many copies of the model run at once."""
        return int(self.settings.get("thread", 1))

    @property
    def environment(self) -> dict[str, str]:
        """The variables that are set for the worker."""
        pairs = (text.partition("=") for text in self.values["engine_env"] or ())
        return {key: value for key, _, value in pairs}


def plan_run(model: str, values: Mapping[str, Any]) -> Plan:
    """Choose the engine and the driver that honour all options.

    `values` holds option values by key; those left out have their defaults.

    Raises:
        UsageError: the model cannot be read or the options cannot be honoured.
        EngineMissing: the engine is not installed.
    """
    check_name(model)
    values = {option.key: option.default for option in OPTIONS} | dict(values)
    check_texts(values)
    check_conflicts(values)
    source = add_test_set(source_of(model), values["input"] or ())
    model = source.model
    engine = engine_for(Path(model), values["engine"])
    settings = collect_settings(values)
    check_options(source, values, settings)
    driver = driver_for(engine, settings, values["driver"])
    require_engine(engine, model)
    items = find_items(values)
    warmups, iterations = count_iterations(values, items, engine)
    plan = Plan(model, values, settings, engine, driver, warmups, iterations, source, items)
    if plan.sample_count > 2 * MOST_ITERATIONS:
        what = f"{len(items)} items" if items else f"{source.case_count} testcases"
        raise UsageError(
            f"--iter {iterations}: too many for {what}", f"all together at most {MOST_ITERATIONS}"
        )
    check_profiling(settings, warmups + iterations, is_resumed=values["resume"])
    if settings:
        engine.check_settings(settings, {**os.environ, **plan.environment})
    return plan


def check_profiling(settings: Mapping[str, Any], iterations: int, *, is_resumed: bool) -> None:
    """Refuse options of a profile where none is made, and a profile of what cannot be profiled.

    Raises:
        UsageError: naming the flag.
    """
    asked = [key for key in ("profile", "profile_host") if key in settings]
    for key in ("profile_memory", "profile_syscalls", "range_by"):
        if key in settings and not asked:
            raise UsageError(f"{flag_of(key)}: no profile is made", "add --profile FILE")
    for key in (*asked, *(["profile_raw"] if "profile_raw" in settings else [])):
        if settings[key] == "-":
            raise UsageError(f"{flag_of(key)} -: a profile goes to a file", "give a file name")
        if settings.get("thread", 1) > 1:
            raise UsageError(
                f"{flag_of(key)}: the engine profiles one copy of a model", "leave --thread out"
            )
        if not iterations:
            raise UsageError(f"{flag_of(key)}: nothing is run", "give --iter 1 or more")
        if is_resumed:
            raise UsageError(
                f"{flag_of(key)}: a resumed run has no profile of what was done before it",
                f"leave --resume or {flag_of(key)} out",
            )


def count_iterations(
    values: Mapping[str, Any], items: Sequence[object], engine: Engine
) -> tuple[int, int]:
    """Return how many iterations warm up and how many are timed, of each item of a data set."""
    iterations, warmups = values["iter"], values["warmup_iter"]
    if iterations is None:
        iterations = 1 if items else 10
    if warmups is None:
        searches = any(is_set(values[key]) for key in engine.searches)
        warmups = 1 if iterations or searches else 0
    return warmups, iterations


def as_one_run(plan: Plan) -> Plan:
    """Return the plan of a run that takes for one item's data what looked like a data set.

    Raises:
        UsageError: an option needs a data set.
    """
    check_set_options(plan.values, None)
    warmups, iterations = count_iterations(plan.values, (), plan.engine)
    return plan._replace(items=(), warmup_iterations=warmups, iterations=iterations)


def find_items(values: Mapping[str, Any]) -> Sequence[tuple[str, Sequence[tuple[str, str]]]]:
    """Return the items of a data set that `--input` names, none for the data of one run.

    Raises:
        UsageError: it is not whole, or an option cannot go with it, or needs it.
    """
    items = None
    if values["input"]:
        from lar.datasets.items import items_in  # few runs need it

        items = items_in(values["input"])
    check_set_options(values, items)
    return items or ()


def check_set_options(values: Mapping[str, Any], items: Sequence[object] | None) -> None:
    """Refuse options that need a data set where there is none, or cannot go with one.

    Raises:
        UsageError: naming the flag.
    """
    if items is None:
        for key in ("labels", "resume"):
            if values[key]:
                raise UsageError(
                    f"{flag_of(key)}: there is no data set", "give --input a folder or a list"
                )
    elif (values["thread"] or 1) > 1:
        raise UsageError(
            "--thread: the items of a data set are run one after the other", "leave --thread out"
        )
    if values["resume"] and not values["bin_out_dump"]:
        raise UsageError(
            "--resume: what is done is known by the outputs dumped", "add --bin-out-dump DIR"
        )


def spec_of(plan: Plan) -> RunSpec:
    """Return the spec of a planned run."""
    # Not before: an error in the command line should cost no more than it must.
    from lar.datasets.labels import read_labels
    from lar.records.dataset import Item
    from lar.records.run import ImageSettings, RunSpec

    values, settings = plan.values, plan.settings
    labels = read_labels(values["labels"], [name for name, _ in plan.items])
    channels: Channels | None = "bgr" if values["bgr"] else "rgb" if values["rgb"] else None
    return RunSpec(
        model=plan.model,
        engine=plan.engine.name,
        driver=plan.driver.name,
        device=f"cuda:{settings['cuda']}" if "cuda" in settings else "cpu",
        inputs=tuple(values["input"] or ()),
        image=ImageSettings(
            layout=values["input_layout"],
            size=values["resize"],
            mean=values["mean"],
            scale=values["scale"],
            channels=channels,
        ),
        fill=values["fill"],
        seed=values["seed"],
        batch_size=values["batch_size"],
        copy_outputs=bool(values["copy_to_host"]),
        settings=settings,
        warmup_iterations=plan.warmup_iterations,
        iterations=plan.iterations,
        timeout_seconds=values["timeout"],
        stall_seconds=values["stall_timeout"],
        environment=plan.environment,
        items=tuple(
            Item(number=number, name=name, inputs=tuple(inputs), label=label)
            for number, ((name, inputs), label) in enumerate(
                zip(plan.items, labels.truths or [None] * len(plan.items), strict=True)
            )
        ),
        item_names=tuple(name for name, _ in plan.items),
        tell_classes=values["labels"] is not None,
        class_names=labels.names,
        cases=tuple(cases_of(plan.source)),
    )


def check_name(model: str) -> None:
    """Refuse a name that no file has, or that cannot be written into a result.

    Raises:
        UsageError: it is empty, or no UTF-8.
    """
    if not model:
        raise UsageError("the model's name is empty", "give the path of a model file")
    try:
        model.encode()
    except UnicodeEncodeError:
        raise UsageError(f"{model!r}: the model's name is not UTF-8", "rename it") from None


def check_texts(values: Mapping[str, Any]) -> None:
    """Refuse values that cannot be written into a result.

    Raises:
        UsageError: one is no UTF-8; the flag is named.
    """
    for option in OPTIONS:
        value = values[option.key]
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and any("\ud800" <= each <= "\udfff" for each in text):
                raise UsageError(f"{option.flag}: {text!r}: is not UTF-8", "rename the file")


def require_engine(engine: Engine, model: str) -> None:
    """Refuse an engine that is not installed for this Python.

    Raises:
        EngineMissing: saying how to get it.
    """
    if not engine.is_installed:
        raise EngineMissing(
            f"{model} needs {engine.title}, which is not installed", engine.install_hint
        )


def parse_values(given: Mapping[str, Any]) -> dict[str, Any]:
    """Parse option values that Python code gives by key, as text or as what the text means.

    Raises:
        UsageError: an unknown option, naming the nearest, or a value that it does not take.
    """
    values: dict[str, Any] = {}
    for key, value in given.items():
        if key not in BY_KEY:
            raise UsageError(f"unknown option {key!r}", suggest_flag(key, BY_KEY))
        if BY_KEY[key].scope in ("report", "debug") and is_set(value):
            raise UsageError(f"{flag_of(key)} is for the command line alone")
        values[key] = parse_value(BY_KEY[key], value)
    return values


def parse_value(option: Option, value: Any) -> Any:
    """Parse one value; None stays the option's default."""
    if option.parse is None:
        return bool(value)
    if value is None:
        return option.default
    if option.repeatable:
        once = option._replace(repeatable=False)
        texts = value if isinstance(value, Iterable) and not isinstance(value, str) else [value]
        return [parse_value(once, text) for text in texts]
    text = ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
    try:
        parsed = option.parse(text)
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"{option.flag}: {error}") from None
    if option.choices and parsed not in option.choices:
        raise UsageError(f"{option.flag}: {parsed!r} is none of {', '.join(option.choices)}")
    return parsed
