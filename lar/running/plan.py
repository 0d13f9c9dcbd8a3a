"""From a model and options, typed or given from Python, to a `RunSpec` and the driver for it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from lar.engines import driver_for, engine_for
from lar.engines.engine import DriverEntry, Engine
from lar.errors import EngineMissing, UsageError
from lar.files.input_file import check_input
from lar.files.path_conflicts import paths_in, refuse_clashes
from lar.options.option import Option, is_set
from lar.options.rules import RULES, Asked, check_rules
from lar.options.suggestions import suggest_flag
from lar.options.table import BY_KEY, CUDA, OPTIONS, collect_settings, one_of
from lar.options.values import MOST_ITERATIONS
from lar.running.places import places_of
from lar.testcases.paths import Source, add_test_set, cases_of, source_of

if TYPE_CHECKING:
    from lar.records.run import Channels, RunSpec


class Plan(NamedTuple):
    """The facts of a run that a worker needs to start, known before any record is made."""

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
        """True if the items are slices of a `.npz` that the model does not take whole."""
        return bool(self.items) and not self.items[0][1]

    @property
    def sample_count(self) -> int:
        """The number of samples that each runner takes."""
        feeds = max(1, self.source.case_count, len(self.items))
        return self.warmup_iterations + self.iterations * feeds

    @property
    def runners(self) -> int:
        """The number of copies of the model that run at once."""
        return int(self.settings.get("thread", 1))

    def asked(self, *, has_dataset: bool) -> Asked:
        """Return the facts that the rules about options look at."""
        source = self.source
        testcases = source.folders[0] if source.is_input else self.model
        return Asked(
            values=self.values,
            warmup_iterations=self.warmup_iterations,
            iterations=self.iterations,
            has_dataset=has_dataset,
            testcases=testcases if source.case_count else "",
            input_is_testcase=source.is_input,
            environment={**os.environ, **self.environment},
        )

    def files_fed(self) -> Iterator[str]:
        """Yield what the model is fed with: files, and folders of them."""
        yield from paths_in(self.values["input"] or ())
        for _, inputs in self.items:
            yield from (path for _, path in inputs)
        yield from self.source.folders

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
    source = add_test_set(source_of(model), values["input"] or ())
    engine = engine_for(Path(source.model), values["engine"])
    settings = collect_settings(values)
    driver = driver_for(engine, settings, values["driver"])
    check_caches(settings)
    items = find_items(values["input"])
    warmups, iterations = count_iterations(values, items or (), engine)
    plan = Plan(
        source.model, values, settings, engine, driver, warmups, iterations, source, items or ()
    )
    check_rules((*RULES, *engine.option_rules()), plan.asked(has_dataset=items is not None))
    refuse_clashes(places_of(plan.model, values), plan.files_fed())
    engine.check_model(Path(plan.model), settings)
    require_engine(engine, plan.model)
    if plan.sample_count > 2 * MOST_ITERATIONS:
        what = f"{len(plan.items)} items" if items else f"{source.case_count} testcases"
        raise UsageError(
            f"too many for {what}; at most {MOST_ITERATIONS} in all",
            "give a smaller --iter",
            flag=f"--iter {iterations}",
        )
    return plan


def count_iterations(
    values: Mapping[str, Any], items: Sequence[object], engine: Engine
) -> tuple[int, int]:
    """Return how many iterations warm up and how many are timed, of each item of a data set."""
    iterations, warmups = values["iter"], values["warmup_iter"]
    if iterations is None:
        iterations = 1 if items else 10
    if warmups is None:
        searches = one_of(engine.searches, values)
        warmups = 1 if iterations or searches else 0
    return warmups, iterations


def as_one_run(plan: Plan) -> Plan:
    """Return the plan of one run on the whole of what looked like a data set.

    Raises:
        UsageError: an option needs a data set.
    """
    warmups, iterations = count_iterations(plan.values, (), plan.engine)
    plan = plan._replace(items=(), warmup_iterations=warmups, iterations=iterations)
    check_rules((*RULES, *plan.engine.option_rules()), plan.asked(has_dataset=False))
    return plan


def find_items(
    texts: Sequence[str] | None,
) -> Sequence[tuple[str, Sequence[tuple[str, str]]]] | None:
    """Return the items of a data set that `--input` names, None for the data of one run.

    Raises:
        UsageError: it is not whole.
    """
    if not texts:
        return None
    from lar.datasets.items import items_in  # few runs need these
    from lar.inputs.grammar import check_texts as check_input_texts

    check_input_texts(texts)
    return items_in(texts)


def check_caches(settings: Mapping[str, Any]) -> None:
    """Refuse a cache that an option names and that exists but is not a readable file.

    Raises:
        UsageError: naming the flag.
    """
    for key, path in settings.items():
        if BY_KEY[key].purpose == "cache" and os.path.lexists(path):
            check_input(path, BY_KEY[key].flag)


def spec_of(plan: Plan) -> RunSpec:
    """Return the spec of a planned run."""
    # Not before: an error in the command line should cost no more than it must.
    from lar.datasets.classes import read_labels
    from lar.records.dataset import Item
    from lar.records.run import ImageSettings, RunSpec

    values, settings = plan.values, plan.settings
    labels = read_labels(values["labels"], [name for name, _ in plan.items])
    channels: Channels | None = "bgr" if values["bgr"] else "rgb" if values["rgb"] else None
    return RunSpec(
        model=plan.model,
        engine=plan.engine.name,
        driver=plan.driver.name,
        device=f"cuda:{settings['cuda']}" if CUDA.is_given(settings) else "cpu",
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
        UsageError: it is empty, or not UTF-8.
    """
    if not model:
        raise UsageError("the model's name is empty", "give the path of a model file")
    try:
        model.encode()
    except UnicodeEncodeError:
        raise UsageError(
            "the model's name is not UTF-8", "rename it", subject=repr(model)
        ) from None


def check_texts(values: Mapping[str, Any]) -> None:
    """Refuse values that cannot be written into a result.

    Raises:
        UsageError: one is not UTF-8; the flag is named.
    """
    for option in OPTIONS:
        value = values[option.key]
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str) and any("\ud800" <= each <= "\udfff" for each in text):
                raise UsageError(
                    "is not UTF-8", "rename the file", flag=option.flag, subject=repr(text)
                )


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
        option = BY_KEY.get(key)
        if option is None:
            hint = suggest_flag(key, BY_KEY)
            raise UsageError(
                f"unknown option {key!r}" + (f"; {hint}" if hint else ""),
                "options are the flags of `lar run --help all`: --warmup-iter N is warmup_iter=N",
            )
        if option.is_for_command_line and is_set(value):
            raise UsageError("is for the command line alone", "leave it out", flag=option.flag)
        values[key] = parse_value(option, value)
    return values


def parse_value(option: Option[Any], value: Any) -> Any:
    """Parse one value; None stays the option's default.

    Raises:
        UsageError: the option does not take it.
    """
    if value is None:
        return False if option.parse is None else option.default
    if not option.repeatable:
        return parse_once(option, value)
    several = isinstance(value, Iterable) and not isinstance(value, str)
    return [parse_once(option, each) for each in (value if several else [value])]


def parse_once(option: Option[Any], value: Any) -> Any:
    """Parse one value of an option that takes one, or one of those of a repeatable option."""
    if option.parse is None:
        if not isinstance(value, bool):
            raise UsageError(
                f"is a switch: it takes True or False, not {value!r}",
                f"give {option.key}=True",
                flag=option.flag,
            )
        return value
    text = ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
    try:
        parsed = option.parse(text)
    except argparse.ArgumentTypeError as error:
        raise UsageError(str(error), flag=option.flag) from None
    if option.choices and parsed not in option.choices:
        raise UsageError(
            f"{parsed!r} is not one of its values",
            f"it takes {', '.join(option.choices)}",
            flag=option.flag,
        )
    return parsed
