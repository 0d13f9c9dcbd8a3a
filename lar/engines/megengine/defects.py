"""The known defects of MegEngine on a processor: how each is detected, and the way round.

All of them were seen on the CPU with MegEngine 1.13.0; nothing is known of CUDA devices. Here stand
the defects ("quirks", in defects.json), the traits of models that meet one, and the hints that a
finished run gives about those that it met.

The model's operators are read from its file, without the engine. These places of fields in tables
are used besides those of `graph_operators`:

    Convolution 7 sparse, 8 format; ConvBias 2, 3; Pooling and AdaptivePooling 0 mode

Read from MegEngine 1.13: src/serialization/impl/schema_v2.fbs and dtype.fbs beside it,
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
    """A defect of the engine, `where` it has it.

    The quirk concerns runs with one of `settings` (all runs if that is empty), but no run with one
    of `spared`. A quirk that has a `trait` is reported only if the run's model has that trait. A
    `slow` quirk costs nothing but time.

    A `fix` of `--engine-fix`, or an environment `variable`, is the way round. For a defect that
    has neither, `advice` says what to do. `note` is for those who read the table.
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
        """Detect it from the processor, as `read_instruction_sets` returns it, and the environment
        that the engine will run in.

        MKL takes its generic code on an AMD processor, whose AVX2 code would run; a value that the
        user gave for its variable is a choice, whatever it is.
        """
        vendor, *instruction_sets = processor.split()
        if self.where == "generic MKL":
            could_run = vendor == "AuthenticAMD" and "avx2" in instruction_sets
            return could_run and MKL_VARIABLE not in environment
        return self.where == "everywhere" or vendor not in ("GenuineIntel", "unknown")

    @property
    def options(self) -> dict[str, OptionValue]:
        """The options that are the way round, by key."""
        fix = {table.ENGINE_FIX.key: self.fix} if self.fix else {}
        return {**fix, **({table.ENGINE_ENV.key: (self.variable,)} if self.variable else {})}

    @property
    def way_round(self) -> str:
        """What to do about it, in words."""
        return self.advice or format_flags(self.options)


FACTS = json.loads(Path(__file__).with_name("defects.json").read_bytes())
QUIRKS = tuple(Quirk(**row) for row in FACTS["quirks"])
HINTS: Mapping[str, str] = FACTS["hints"]


def quirks_here(settings: Mapping[str, Any], environment: Mapping[str, str]) -> list[Quirk]:
    """Return the quirks that a run with these settings meets on this processor.

    `environment` is that of the process that runs the engine.
    """
    on_cuda = table.CUDA.is_given(settings)
    return [] if on_cuda else quirks_at(settings, read_instruction_sets(), environment)


def quirks_at(
    settings: Mapping[str, Any], processor: str, environment: Mapping[str, str]
) -> list[Quirk]:
    """Return the quirks that a run with these settings meets on a processor."""
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
    """Return all quirks, each with whether it applies on this processor."""
    processor = read_instruction_sets()
    return tuple(
        Defect(it.name, it.effect, it.detection, it.way_round, it.applies(processor, environment))
        for it in QUIRKS
    )


# The fields of the parameters that matter: of convolutions sparse and format, of poolings the mode.
CONVOLUTIONS = {3: (7, 8), 6: (2, 3)}
POOLINGS = (9, 70)
SHAPE = 1
MATRIX_PRODUCT = 20
QUANTISED_DTYPES = range(11, 17)
FLOAT32 = 0
# A product of fewer rows is bound by memory: MKL's code makes no difference.
MANY_ROWS = 8


def traits_of(path: str) -> frozenset[str] | None:
    """Return the traits that a model has, None if the operators of its file are not known."""
    try:
        return frozenset(traits_in(graph_in(path)))
    except (ValueError, LookupError, OSError, LarError, struct.error):
        return None


def traits_in(graph: memoryview) -> Iterator[str]:
    """Yield the traits that the operators of a graph show.

    Raises:
        ValueError, LookupError, struct.error: it is damaged, or of another format.
    """
    opened = open_graph(graph)
    if not opened.operators:
        raise ValueError("an unknown format")
    for operator in opened.operators:
        kind, parameters = opened.kind_of(operator), opened.parameters_of(operator)
        number = operator.table(opened.places.dtype).integer(0, "<B")
        sparse, layout = map(parameters.integer, CONVOLUTIONS.get(kind, (0, 0)))
        if number in QUANTISED_DTYPES:
            yield QUANTISED
        if kind in CONVOLUTIONS and sparse:
            yield GROUPED
        elif kind in CONVOLUTIONS and not layout and number == FLOAT32:
            yield FLOAT_PRODUCTS
        elif kind in POOLINGS and not parameters.integer(0):
            yield MAX_POOLING
        elif kind == MATRIX_PRODUCT and number == FLOAT32 and opened.is_new:
            output = opened.variables[operator.numbers(OUTPUTS)[0]]
            if output.numbers(SHAPE)[-2:-1] >= [MANY_ROWS]:
                yield FLOAT_PRODUCTS


def hints_for(result: RunResult, environment: Mapping[str, str]) -> str:
    """Return what a finished run should know, on one line: the quirks that it met for certain,
    wrong numbers first, and what it left undone."""
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
    """Return the quirks that a run has met for certain."""
    settings = dict(result.spec.settings)
    if table.FAST_RUN_ALGO_POLICY.is_given(settings) and result.uncached_operators:
        del settings[table.FAST_RUN_ALGO_POLICY.key]
    possible = [quirk for quirk in quirks_here(settings, environment) if quirk.trait]
    traits = traits_of(result.spec.model) if possible else None
    return [quirk for quirk in possible if quirk.trait in (traits or ())]
