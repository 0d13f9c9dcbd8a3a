"""Makes the variants of a bench from command lines; a variant has a spec or a failure."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from lar.datasets.testcases import source_of
from lar.engines import engine_for, engine_named
from lar.engines.formats import read_head
from lar.errors import LarError, UsageError, count_of
from lar.options.command_line import join_options, parse_values, split_command, text_of
from lar.options.option import Option, flag_of, is_set
from lar.options.suggestions import suggest_flag
from lar.options.table import BENCH_KEYS, BY_KEY, ON, SCHEDULER, one_of, option_of
from lar.records.run import Failure, RunSpec
from lar.running.plan import plan_run

# A range of numbers: first, last, and the step; a step with an x is a factor.
RANGE = re.compile(r"([1-9][0-9]{0,8}):([1-9][0-9]{0,8})(?::(x?)([0-9]{1,6}))?")
MOST_VALUES = 64

SWITCHES = {"on": True, "off": False, "true": True, "false": False, "1": True, "0": False}


Value = Any
"""The value of an option as `lar.run` takes it; None leaves the option out."""


class Axis(NamedTuple):
    """An option that varies, and its values in their order."""

    key: str
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Variant:
    """A run that is compared with other runs.

    `values` has the values of the options in which variants differ, as strings.

    If the variant cannot be run, `spec` is None and `failure` says why.
    """

    name: str
    model: str
    options: Mapping[str, Any]
    values: Mapping[str, str] = field(default_factory=dict)
    spec: RunSpec | None = None
    failure: Failure | None = None

    def require(self) -> Variant:
        """Return the variant itself, or raise its failure if it cannot be run.

        Raises:
            LarError: the variant cannot be run.
        """
        if self.failure is not None:
            raise self.failure.to_error()
        return self


def list_models(models: str | Path | Sequence[str | Path]) -> list[str]:
    """Return the models that Python code gives, as a list of strings.

    Raises:
        UsageError: the list of models is empty.
    """
    found = [models] if isinstance(models, (str, os.PathLike)) else [*models]
    if not found:
        raise UsageError("no model is given", "give a model file, or several")
    return [os.fspath(each) for each in found]


def parse_vary(text: str) -> Axis:
    """Parse a value of `--vary`: a switch, or a flag with values separated by commas.

    Raises:
        UsageError: the flag is unknown, cannot vary, or lacks values.
    """
    name, equals, listed = text.partition("=")
    named = f"--vary {name}"
    option = known_option(name.lstrip("-").replace("-", "_"), named)
    if not equals and option.parse is not None:
        value = option.metavar or "|".join(option.choices)
        problem = f"takes values: {name}={value},{value}"
        raise UsageError(problem, "an empty value means a run without the flag", flag="--vary")
    words = split_values(listed if equals else "off,on")
    texts = [text for word in words for text in values_in(word, option)]
    if option.parse is not None:
        return Axis(option.key, tuple(each or None for each in texts))
    if wrong := [each for each in texts if each.lower() not in SWITCHES]:
        raise UsageError(f"{wrong[0]!r} is neither on nor off", "it is a switch", flag=named)
    return Axis(option.key, tuple(SWITCHES[each.lower()] for each in texts))


def values_in(text: str, option: Option[Any]) -> list[str]:
    """Return the numbers of a range such as `1:16` or `1:16:x2`; any other text is returned as is.

    Raises:
        UsageError: a range is empty, or has too many numbers.
    """
    found = RANGE.fullmatch(text)
    if found is None or option.parse is None or not isinstance(option.parse("1"), int):
        return [text]
    first, last, factor, step = int(found[1]), int(found[2]), found[3], int(found[4] or 1)
    values: list[str] = []
    while first <= last and len(values) <= MOST_VALUES and step > (factor == "x"):
        values.append(str(first))
        first = first * step if factor else first + step
    if not 0 < len(values) <= MOST_VALUES:
        many = f"has more than {MOST_VALUES} numbers" if values else "has no number"
        hint = "1:16 counts up, 1:16:4 by 4, 1:16:x2 doubles"
        raise UsageError(many, hint, flag="--vary", subject=text)
    return values


def axis_of(key: str, values: object) -> Axis:
    """Return an option with the values that it takes; `key` names the option in Python code.

    Raises:
        UsageError: the option is unknown or cannot vary.
    """
    option = known_option(key.replace("-", "_"), repr(key))
    given: tuple[Value, ...] = (values,)
    if values is None:
        given = (False, True) if option.parse is None else ()
    elif isinstance(values, Iterable) and not isinstance(values, (str, bytes, os.PathLike)):
        given = tuple(values)
    if not given:
        raise UsageError("has no values to vary", f"{key}=[1, 2]", flag="vary", subject=key)
    return Axis(option.key, given)


def axes_of(vary: Mapping[str, object] | Sequence[str] | str) -> list[Axis]:
    """Return the options that the Python argument `vary` names, with their values.

    Raises:
        UsageError: an option is unknown, cannot vary or has no values.
    """
    if isinstance(vary, Mapping):
        return [axis_of(key, values) for key, values in vary.items()]
    return [parse_vary(each) for each in ([vary] if isinstance(vary, str) else vary)]


def split_values(text: str) -> list[str]:
    """Split a string such as `x:{1,3},x:{2,3}` at those commas that are not within brackets."""
    parts, depth = [""], 0
    for letter in text:
        depth += (letter in "[{(") - (letter in "]})")
        if letter == "," and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def make_variants(
    specs: Sequence[str],
    axes: Sequence[Axis],
    options: Mapping[str, Any],
    *,
    elsewhere: bool = False,
) -> tuple[Variant, ...]:
    """Return a variant for every combination of a model and values of the varied options.

    Each variant has a spec, or a failure if it cannot be run. The values in `options` apply to all
    variants.
    An option after a model's name has priority over the same option in `options`, and a value from
    `axes` has priority over both. Variants that are measured `elsewhere` need no engine on this
    machine.

    Raises:
        UsageError: a flag, a value or a model file is wrong, or no variant can be run.
        EngineMissing: all variants need engines that are not installed.
    """
    shared = {key: value for key, value in options.items() if is_set(value)}
    parse_values(shared)
    given = [
        (model, {**own, **dict(varied)})
        for model, own in map(split_spec, specs)
        for varied in itertools.product(*([(it.key, value) for value in it.values] for it in axes))
    ]
    for model, own in given:
        parse_values(own)
        check_file(model, {**shared, **own})
    texts = [{"model": model, **texts_of(own)} for model, own in given]
    values = [{key: each.get(key, "") for key in varying_keys(texts, axes)} for each in texts]
    variants = [
        plan_variant(Variant(name, model, join_options(shared, own), each), elsewhere=elsewhere)
        for name, (model, own), each in zip(name_variants(values), given, values, strict=True)
    ]
    if all(variant.failure for variant in variants):
        variants[0].require()
    return tuple(variants)


def split_spec(text: str) -> tuple[str, dict[str, Any]]:
    """Return the model and the options of a string such as "model.mge --cpu".

    Raises:
        UsageError: the name of the model is empty, or an argument is not a flag that may vary.
    """
    model, options = text, dict[str, Any]()
    if re.search(r"\s", text) and not os.path.exists(text):
        model, options = split_command(text)
    if not model:
        raise UsageError("the model's name is empty", "give the path of a model file")
    for key in options:
        known_option(key, flag_of(key))
    return model, options


def check_file(model: str, options: Mapping[str, Any]) -> None:
    """Refuse a model that is missing or is not a model file, before anything is measured.

    If an option names an engine, or a settings file that may name an engine, the file may have any
    suffix.

    Raises:
        UsageError: the file is missing, empty, unreadable, or not a model that lar knows.
    """
    path = Path(source_of(model).model)
    read_head(path)
    if not (options.get("engine") or options.get("settings")):
        engine_for(path, None)


def texts_of(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of options as strings, without unset options."""
    given = {key: value for key, value in options.items() if is_set(value)}
    return {key: "on" if value is True else text_of(value) for key, value in given.items()}


def varying_keys(texts: Sequence[Mapping[str, str]], axes: Sequence[Axis]) -> list[str]:
    """Return the keys whose value differs between variants, with "model" first."""
    keys = dict.fromkeys(["model", *itertools.chain(*texts), *(axis.key for axis in axes)])
    return [key for key in keys if len({each.get(key, "") for each in texts}) > 1]


def name_variants(values: Sequence[Mapping[str, str]]) -> list[str]:
    """Return a name for each variant, made of its option values; equal names get numbers."""
    names = [" ".join(words_of(each)) or "default" for each in values]
    numbers = {name: itertools.count(1) for name in names}
    return [f"{it} #{next(numbers[it])}" if names.count(it) > 1 else it for it in names]


def words_of(values: Mapping[str, str]) -> Iterator[str]:
    for key, text in values.items():
        name = key.replace("_", "-")
        if key == "model":
            yield text
        elif text:
            yield name if BY_KEY[key].parse is None else f"{name}={text}"


def plan_variant(variant: Variant, *, elsewhere: bool = False, takes_turns: bool = True) -> Variant:
    """Return a variant with its spec, or with the failure that says why it cannot be run.

    With `takes_turns`, a run that needs several processes is refused. Without `takes_turns`, a run
    may need several processes, for example for a search.
    """
    try:
        spec = plan_run(variant.model, parse_values(variant.options), elsewhere=elsewhere)
        if spec.items:
            problem = f"is a data set of {count_of(len(spec.items), 'item')}, and a bench feeds one"
            hint = "give one item"
            raise UsageError(problem, hint, flag="--input", subject=";".join(spec.inputs))
        if takes_turns:
            check_stages(spec)
    except LarError as error:
        return replace(variant, failure=Failure.of(error))
    # If there are several testcases, the first is fed.
    return replace(variant, spec=replace(spec, cases=spec.cases[:1]))


def check_stages(spec: RunSpec) -> None:
    """Refuse a run that needs several processes.

    Raises:
        UsageError: an option needs several processes; the message names this option.
    """
    staged = engine_named(spec.engine).staged
    option = one_of(staged.options, spec.settings) if staged else None
    other = one_of(staged.apart_with, spec.settings) if staged else None
    if option is not None and other is not None:
        problem = f"with {other.flag} takes several processes, which cannot take turns"
        hint = f"make the run once with `lar run`, then give its cache without {other.flag}"
        raise UsageError(problem, hint, flag=option.flag)


def find_baseline(variants: Sequence[Variant], name: str | None) -> int:
    """Return the index of the variant with this name or number; without a name, return 0.

    Raises:
        UsageError: no variant has that name or number.
    """
    names = [variant.name for variant in variants]
    places = {str(place + 1): place for place in range(len(names))}
    places |= {each: place for place, each in enumerate(names)}
    if name is not None and name not in places:
        hint = f"give a number or a name: {', '.join(repr(each) for each in names[:8])}"
        raise UsageError(f"there is no variant {name!r}", hint, flag="--baseline")
    return 0 if name is None else places[name]


def known_option(key: str, named: str) -> Option[Any]:
    """Return the option with this key, if the option may differ between variants.

    Raises:
        UsageError: the option does not exist, or does not change how a model is run.
    """
    option = option_of(key)
    if option is not None and option.key in BENCH_KEYS:
        return option
    if option is None:
        problem = "unknown flag"
        hint = suggest_flag(flag_of(key), map(flag_of, BENCH_KEYS))
    elif option in (SCHEDULER, ON):
        problem = "is for all variants: results of different machines are never mixed"
        hint = "make a bench on each machine, and put them side by side with `lar results`"
    else:
        prefix = "" if named == option.flag else f"{option.flag} "
        problem = f"{prefix}cannot differ between variants"
        hint = "variants may differ in inputs, engine options and flags of `lar run --help run`"
    raise UsageError(problem, hint or "`lar run --help all` lists the flags", flag=named)
