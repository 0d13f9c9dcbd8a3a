"""The rules about options: each is broken by something, says why and what to do, and is checked
by the parent before anything is started."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lar.engines import ENGINES
from lar.engines.megengine import defects
from lar.errors import UsageError
from lar.options import rules, table
from lar.options.option import Option, Switch
from lar.options.rules import RULES, Asked, Condition, Exclusion, Pairs, Rule, check_rules
from tests.options.ruling import check
from tests.tables import each_row

TABLES: Mapping[str, tuple[Rule, ...]] = {
    "every engine": RULES,
    **{engine.name: engine.option_rules() for engine in ENGINES},
}
ALL = [(name, rule) for name, known in TABLES.items() for rule in known]
each_rule = pytest.mark.parametrize(
    "rule",
    [rule for _, rule in ALL],
    ids=[f"{name} {number}" for number, (name, _) in enumerate(ALL)],
)

# Values to try of options that take one, besides "x" for text and 2 for numbers.
SAMPLES: Mapping[str, list[Any]] = json.loads(Path(__file__).with_name("samples.json").read_text())
FACTS: Mapping[str, tuple[Any, ...]] = {
    "warmup_iterations": (1, 0),
    "iterations": (3, 0),
    "has_dataset": (False, True),
    "testcases": ("", "some/model.onnx"),
    "input_is_testcase": (False, True),
}


def samples_of(option: Option[Any]) -> tuple[Any, ...]:
    """Values of an option that count as given."""
    if isinstance(option, Switch):
        return (True,)
    if option.key in SAMPLES:
        return tuple(SAMPLES[option.key])
    if option.choices:
        return tuple(choice for choice in option.choices if choice != option.default)
    if option.metavar == "FILE":
        return ("x", "-")
    return (2,) if option.metavar == "N" else ("x",)


class Noted(dict[str, Any]):
    """Values of options, which note what is looked at."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.seen: dict[str, None] = {}

    def get(self, key: str, default: Any = None) -> Any:
        self.seen[key] = None
        return super().get(key, default)


def find_asked(
    does: Callable[[Asked], bool], known: Mapping[str, Any] | None = None, depth: int = 3
) -> Asked | None:
    """Something asked for that does it: no option, or samples of those that are looked at."""
    seen: dict[str, None] = {}
    for facts in product(*FACTS.values()):
        values = Noted(known or {})
        asked = Asked(values, **dict(zip(FACTS, facts, strict=True)))
        if does(asked):
            return asked
        seen |= values.seen
    for key in seen if depth else ():
        if key not in (known or {}):
            for value in samples_of(table.BY_KEY[key]):
                found = find_asked(does, {**(known or {}), key: value}, depth - 1)
                if found is not None:
                    return found
    return None


def refusal_by(rule: Rule, asked: Asked) -> UsageError | None:
    """The error of what breaks a rule."""
    try:
        rule(asked)
    except UsageError as error:
        return error
    return None


def all_hold(conditions: Iterable[Condition], asked: Asked) -> bool:
    return all(each.holds(asked) for each in conditions)


def breaches_of(rule: Rule) -> Iterator[tuple[Asked, tuple[str, ...]]]:
    """For each way to break a rule: what is asked for, and the words that the message has."""
    if isinstance(rule, Pairs):
        for pair in rule.pairs:
            asked = find_asked(partial(all_hold, pair))
            assert asked is not None
            yield asked, (*(each.name(asked) for each in pair), rule.why)
    else:
        asked = find_asked(lambda asked: refusal_by(rule, asked) is not None)
        assert asked is not None, rule
        yield asked, ("--",)


@pytest.fixture(autouse=True)
def another_vendors_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where every rule can be broken."""
    monkeypatch.setattr(defects, "read_instruction_sets", lambda: "AuthenticAMD avx2")


# The tables


@each_rule
def test_each_way_to_break_a_rule_is_refused_with_its_reason_and_a_hint(rule: Rule) -> None:
    for asked, words in breaches_of(rule):
        error = refusal_by(rule, asked)
        assert error is not None, asked
        assert error.exit_code == 2
        assert all(word in error.message for word in words), error.message
        assert error.hint
        assert "{" not in error.message + error.hint
        assert not error.message.endswith(".")


@pytest.mark.parametrize("name", [engine.name for engine in ENGINES])
def test_what_nobody_asked_for_breaks_no_rule(name: str) -> None:
    check(name, {})
    check(name, {option.key: option.default for option in table.OPTIONS})
    check(name, {option.key: False for option in table.OPTIONS if isinstance(option, Switch)})


def test_one_option_alone_is_refused_only_where_it_needs_another() -> None:
    refused = set()
    for option in table.OPTIONS:
        if option.reads or option in (table.JSON, table.DISABLE_OPTIMIZER):
            continue
        try:
            check_rules(RULES, Asked({option.key: samples_of(option)[0]}))
        except UsageError as error:
            refused.add(error.message.partition(" needs ")[0])
    assert refused == {
        *("--arrivals", "--max-time", "--min-time", "--tag", "--store", "--force", "--on"),
        *("--profile-memory", "--profile-syscalls", "--range-by"),
        *("--dump-filter", "--overwrite", "--resume"),
        *("--input-layout", "--resize", "--mean", "--scale", "--bgr", "--rgb"),
    }


values_of_options = st.fixed_dictionaries(
    {},
    optional={
        option.key: st.sampled_from([*samples_of(option), option.default])
        for option in table.OPTIONS
    },
)
facts = st.fixed_dictionaries({name: st.sampled_from(known) for name, known in FACTS.items()})


@settings(deadline=None)
@given(values_of_options, facts, st.sampled_from([*TABLES]), st.randoms(use_true_random=False))
def test_the_order_of_options_and_of_rules_changes_nothing(
    values: dict[str, Any], facts: dict[str, Any], name: str, order: random.Random
) -> None:
    def message(known: Iterable[Rule], values: Mapping[str, Any]) -> str:
        try:
            check_rules(known, Asked(values, **facts))
        except UsageError as error:
            return f"{error.message} {error.hint}"
        return ""

    pairs, known = list(values.items()), list(TABLES[name])
    order.shuffle(pairs)
    expected = message(known, values)
    assert message(known, dict(pairs)) == expected
    order.shuffle(known)
    assert bool(message(known, values)) == bool(expected)


# The kinds of rules


def refusal_of(rule: Rule, **values: Any) -> tuple[str, str] | None:
    error = refusal_by(rule, Asked(values))
    return (error.message, error.hint) if error else None


def test_conditions_look_at_values_and_facts() -> None:
    rule = rules.excludes(
        rules.having(table.THREAD, lambda count: count > 1), rules.fact("noon", lambda _: True)
    ).because("x")
    assert not rules.FED_BESIDES.holds(Asked({}))
    fed = [Asked({"input": ["a"]}, input_is_testcase=it) for it in (False, True)]
    assert [*map(rules.FED_BESIDES.holds, fed)] == [True, False]
    assert refusal_of(rule, thread=1) is None
    assert refusal_of(rule, thread=2) == (
        "--thread 2 and noon exclude each other: x",
        "leave one of them out",
    )


@each_row("options/cases/times of a run")
def test_the_times_of_a_run_fit_each_other(
    options: dict[str, float], message: str, hint: str
) -> None:
    assert refusal_of(rules.check_times, **options) == ((message, hint) if message else None)


@each_row("options/cases/cores for threads")
def test_each_thread_has_a_core(options: dict[str, Any], threads: int | None, message: str) -> None:
    found = refusal_of(rules.needs_cores("give others", threads), **options)
    assert found == ((message, "give others") if message else None)


def test_a_rule_is_declared_once() -> None:
    """No two rules of an engine speak of the same pair."""
    for engine in ENGINES:
        known = (*RULES, *engine.option_rules())
        exclusions = [rule for rule in known if isinstance(rule, Exclusion)]
        pairs = [frozenset(words[:2]) for rule in exclusions for _, words in breaches_of(rule)]
        assert [pair for pair, count in Counter(pairs).items() if count > 1] == []


def test_the_samples_are_of_options() -> None:
    assert set(SAMPLES) <= set(table.BY_KEY)


def test_a_flag_of_a_command_is_typed_unless_it_has_its_default() -> None:
    for value, default in ((None, None), (False, None), (7, 7)):
        assert not rules.typed("--max-err", default).holds(Asked(values={"max_err": value}))
    for value, default in ((0, None), (8, 7)):
        condition, asked = rules.typed("--max-err", default), Asked(values={"max_err": value})
        assert (condition.holds(asked), condition.name(asked)) == (True, "--max-err")
