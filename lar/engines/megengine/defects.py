"""Describes each known defect of MegEngine: how lar detects it, and how a user avoids it.

All defects in this module were seen on CPUs with MegEngine 1.13.0. CUDA devices were not tested for
defects. The module reads the defects ("quirks") from defects.json, finds those traits of a model
that a defect depends on, and writes the hints about defects that a finished run prints.

The module reads the operators of a model from the model file, without the engine. The module reads
the fields that `graph_operators` describes, and some fields of the operators' parameters. In
Convolution, field 7 is `sparse` and field 8 is `format`. In ConvBias, field 2 is `sparse` and field
3 is `format`. In Pooling and AdaptivePooling, field 0 is `mode`.

In MegEngine 1.13, the fields of the file and of the parameters are defined in
src/serialization/impl/schema_v2.fbs, in dtype.fbs beside that file, and in
dnn/scripts/opr_param_defs.py.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from lar.engines.engine import Defect
from lar.engines.megengine.graph_operators import OUTPUTS, open_graph
from lar.engines.megengine.packed_model import graph_in
from lar.errors import LarError
from lar.measurement.machine import read_instruction_sets
from lar.options import table
from lar.options.command_line import format_flags

if TYPE_CHECKING:
    from lar.records.run import RunResult
    from lar.records.tuning import OptionValue

MKL_VARIABLE = "MKL_DEBUG_CPU_TYPE"

# What a model may have that a quirk depends on.
FLOAT_PRODUCTS = "dense float32 convolutions in nchw, or large float32 matrix products"
MAX_POOLING = "max-pooling"
QUANTISED = "quantised tensors"
GROUPED = "grouped convolutions"


class Quirk(NamedTuple):
    """A defect that the engine has on the processors that `where` names.

    A quirk affects runs with an option in `settings`, or all runs if `settings` is empty. Runs with
    an option in `spared` are not affected. A quirk with a `trait` is reported only if the run's
    model has that trait. A `slow` quirk makes runs slower, but does not make their numbers wrong.

    A defect is avoided with `fix` (a value of `--engine-fix`) or with `variable` (an environment
    variable). If a quirk has neither a `fix` nor a `variable`, its `advice` says what to do. `note`
    is for people who read defects.json.
    """

    name: str
    effect: str
    detection: str
    where: Literal["everywhere", "generic MKL", "not Intel"] = "everywhere"
    settings: Sequence[str] = ()
    spared: Sequence[str] = ()
    trait: str = ""
    slow: bool = False
    fix: str = ""
    variable: str = ""
    advice: str = ""
    note: str = ""

    def applies(self, processor: str, environment: Mapping[str, str]) -> bool:
        """Return whether a processor has the defect.

        `processor` has the form that `read_instruction_sets` returns. `environment` has the
        environment variables of the engine's process. On AMD processors, MKL uses its generic code,
        although the processor could execute MKL's AVX2 code. If the user has set the variable
        MKL_DEBUG_CPU_TYPE to any value, the defect of MKL is not reported.
        """
        vendor, *instruction_sets = processor.split()
        if self.where == "generic MKL":
            could_run = vendor == "AuthenticAMD" and "avx2" in instruction_sets
            return could_run and MKL_VARIABLE not in environment
        return self.where == "everywhere" or vendor not in ("GenuineIntel", "unknown")

    @property
    def options(self) -> dict[str, OptionValue]:
        """The options that avoid the defect, by key."""
        fix = {table.ENGINE_FIX.key: self.fix} if self.fix else {}
        return {**fix, **({table.ENGINE_ENV.key: (self.variable,)} if self.variable else {})}

    @property
    def way_round(self) -> str:
        """The advice to the user on how to avoid the defect: a text, or the flags to add."""
        return self.advice or format_flags(self.options)


FACTS = json.loads(Path(__file__).with_name("defects.json").read_bytes())
QUIRKS = tuple(Quirk(**row) for row in FACTS["quirks"])
HINTS: Mapping[str, str] = FACTS["hints"]


def quirks_here(settings: Mapping[str, Any], environment: Mapping[str, str]) -> list[Quirk]:
    """Return the quirks that affect a run with these settings on this machine's processor.

    `environment` has the environment variables of the engine's process.
    """
    on_cuda = table.CUDA.is_given(settings)
    return [] if on_cuda else quirks_at(settings, read_instruction_sets(), environment)


def quirks_at(
    settings: Mapping[str, Any], processor: str, environment: Mapping[str, str]
) -> list[Quirk]:
    """Return the quirks that affect a run with these settings on a given processor."""
    return [
        quirk
        for quirk in QUIRKS
        if (not quirk.settings or settings.keys() & quirk.settings)
        and not settings.keys() & quirk.spared
        and quirk.applies(processor, environment)
    ]


def hangs_here(environment: Mapping[str, str]) -> bool:
    """Return whether convolutions in nchw88 hang on this processor."""
    met = quirks_here({table.ENABLE_NCHW88.key: True}, environment)
    return any(quirk.where == "not Intel" for quirk in met)


def defects_here(environment: Mapping[str, str]) -> tuple[Defect, ...]:
    """Return a `Defect` for each quirk, which says whether this machine's processor is affected."""
    processor = read_instruction_sets()
    return tuple(
        Defect(it.name, it.effect, it.detection, it.way_round, it.applies(processor, environment))
        for it in QUIRKS
    )


# By kind of operator, the numbers of the parameters' fields: of convolutions sparse and format.
CONVOLUTIONS = {3: (7, 8), 6: (2, 3)}
POOLINGS = (9, 70)
SHAPE = 1
MATRIX_PRODUCT = 20
QUANTISED_DTYPES = range(11, 17)
FLOAT32 = 0
# A product of fewer rows is limited by memory speed, so MKL's generic code is as fast.
MANY_ROWS = 8


def traits_of(path: str) -> frozenset[str] | None:
    """Return the traits of a model, None if the operators of its file cannot be read."""
    try:
        return frozenset(traits_in(graph_in(path)))
    except (ValueError, LookupError, OSError, LarError, struct.error):
        return None


def traits_in(graph: memoryview) -> Iterator[str]:
    """Yield the traits that a model has according to the operators of its graph.

    Raises:
        ValueError, LookupError, struct.error: the graph is damaged, or has an unknown format.
    """
    opened = open_graph(graph)
    if not opened.operators:
        raise ValueError("an unknown format")
    for operator in opened.operators:
        kind, parameters = opened.kind_of(operator), opened.parameters_of(operator)
        number = operator.table(opened.places.dtype).integer(0, "<B")
        if number in QUANTISED_DTYPES:
            yield QUANTISED
        if kind in CONVOLUTIONS:
            sparse, layout = map(parameters.integer, CONVOLUTIONS[kind])
            if sparse:
                yield GROUPED
            elif not layout and number == FLOAT32:
                yield FLOAT_PRODUCTS
        elif kind in POOLINGS and not parameters.integer(0):
            yield MAX_POOLING
        elif kind == MATRIX_PRODUCT and number == FLOAT32 and opened.is_new:
            output = opened.variables[operator.numbers(OUTPUTS)[0]]
            if output.numbers(SHAPE)[-2:-1] >= [MANY_ROWS]:
                yield FLOAT_PRODUCTS


def hints_for(result: RunResult, environment: Mapping[str, str]) -> str:
    """Return one line of hints for the user about a finished run, empty if no hint applies.

    The first hints are about quirks that certainly made the numbers of the run wrong. Hints about
    quirks that certainly made the run slow come second. The last hints are about options that had
    no effect or had a side effect.
    """
    settings = result.spec.settings
    timed = bool(result.samples.end_to_end)
    if not timed and not result.warmup.end_to_end:
        return ""
    dumped = table.one_of(table.OPERATOR_DUMPS, settings)
    search = table.one_of(table.SEARCHES, settings)
    searched = search or table.FAST_RUN_ALGO_POLICY.is_given(settings)
    winograd = table.WINOGRAD_TRANSFORM.is_given(settings) and not searched
    hints = [
        f"{quirk.effect}; way round: {quirk.way_round}"
        for quirk in sorted(quirks_met(result, environment), key=lambda each: each.slow)
        if timed or not quirk.slow
    ]
    hints += [HINTS["dumped"].format(flag=dumped.flag)] if dumped and timed else []
    hints += [HINTS["searched"].format(flag=search.flag)] if search and not timed else []
    hints += [HINTS["winograd"]] if winograd else []
    hints += [HINTS["looked"]] if table.CHECK_VAR_VALUE.is_given(settings) else []
    return "; also: ".join(hints)


def quirks_met(result: RunResult, environment: Mapping[str, str]) -> list[Quirk]:
    """Return the quirks that certainly affected a run."""
    settings = dict(result.spec.settings)
    if table.FAST_RUN_ALGO_POLICY.is_given(settings) and result.uncached_operators:
        del settings[table.FAST_RUN_ALGO_POLICY.key]
    possible = [quirk for quirk in quirks_here(settings, environment) if quirk.trait]
    traits = traits_of(result.spec.model) if possible else None
    return [quirk for quirk in possible if quirk.trait in (traits or ())]
