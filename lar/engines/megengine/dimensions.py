"""What a search for the fastest settings tries with MegEngine: a table of choices by dimension.

Each option that says how a model is run, and that can vary, stands here, in `dimensions.json` or,
with the reason, in `not_tried.json`. Notes on that table:

- nchw88 is the layout of MKL-DNN's kernels. On a CPU nchw4 and nchw32 are for quantised tensors,
  and nhwcd4 is for other devices: other tensors stay as they are.
- Winograd is tried where a search of its own has found it; weights are transformed in any case.
  But for ARM, kernels without winograd are as fast, or faster.
- The engine's cache of algorithms does not record what the searches depend on.
- Processors without float16 compute it number by number.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from lar.engines.choices import dimensions_in, set_to, thread_choices
from lar.engines.engine import Clue, Defect, Sign, Site, computing_ns_of, read_clues, share_of
from lar.engines.megengine.graph_operators import KINDS, OUTPUTS, open_graph
from lar.engines.megengine.packed_model import graph_in
from lar.errors import LarError
from lar.measurement.machine import read_instruction_sets
from lar.options import table
from lar.options.command_line import format_flags
from lar.records.tuning import Choice, Dimension

if TYPE_CHECKING:
    from lar.records.profile import Profile, ProfiledOperator
    from lar.records.run import RunResult
    from lar.records.tuning import OptionValue


# The known defects of MegEngine on a processor: how each is detected, and the way round.
#
# All of them were seen on the CPU with MegEngine 1.13.0; nothing is known of CUDA devices. Here
# stand the defects ("quirks", in defects.json), the traits of models that meet one, and the hints
# that a finished run gives about those that it met.
#
# The model's operators are read from its file, without the engine. These places of fields in tables
# are used besides those of `graph_operators`:
#
#     Convolution 7 sparse, 8 format; ConvBias 2, 3; Pooling and AdaptivePooling 0 mode
#
# Read from MegEngine 1.13: src/serialization/impl/schema_v2.fbs and dtype.fbs beside it,
# dnn/scripts/opr_param_defs.py.


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


# What a search for the fastest settings tries with MegEngine: a table of choices by dimension


CPU_ALONE = ("threads", "spinning", "environment")

ALL_TRAITS = frozenset(quirk.trait for quirk in QUIRKS)


def dimensions_of(site: Site, model: Path) -> tuple[Dimension, ...]:
    """Return what can matter for a model file at a site, in the order in which candidates name it;
    the first choice of a dimension is the most promising, and a search begins with it."""
    known = traits_of(str(model))
    # A file that cannot be read may have any operators.
    traits = ALL_TRAITS if known is None else known
    if site.device != "cpu":
        return dimensions_in(Path(__file__).parent, site, **dict.fromkeys(CPU_ALONE, ()))
    special = {"threads": threads_for(site), "environment": variables_for(site, traits)}
    found = dimensions_in(Path(__file__).parent, site, traits, **special)
    return tuple(
        replace(it, choices=tuple(mend(each, site) for each in it.choices)) for it in found
    )


def threads_for(site: Site) -> Iterator[Choice]:
    options = ((table.MULTITHREAD, ""), (table.MULTITHREAD_DEFAULT, " with caller"))
    yield from thread_choices(site.cores, options)
    yield set_to(table.CPU_DEFAULT, True, "1 thread with caller")


def mend(choice: Choice, site: Site) -> Choice:
    """Return a choice with the options that are the way round the defects it meets at a site."""
    for quirk in quirks_at(choice.options, site.processor, site.environment):
        if quirk.fix and quirk.settings:
            options = {**choice.options, **quirk.options}
            return replace(choice, options=options, allow="engine-fixes")
    return choice


def variables_for(site: Site, traits: frozenset[str]) -> Iterator[Choice]:
    """Yield the ways round defects that cost time in all runs of a model."""
    for quirk in quirks_at({}, site.processor, site.environment):
        if quirk.variable and quirk.trait in traits:
            yield Choice(name=quirk.variable, options=quirk.options, allow="engine-env")


# The signs of a profile

UNFUSED_NORMS = frozenset({"batchnorm", "batchnormforward"})
# Algorithms that leave the computing to MKL have these words in their names.
OF_MKL = re.compile("BLAS|MKL(?!DNN)")
# One thread more does this part of the first one's work; shorter operators are not worth dividing.
MORE_THREADS = 0.7
LEAST_DIVIDED_NS = 30_000
CALLER_TOO = 0.6  # where the calling thread is one of them
# What handing an iteration to the engine's thread costs, and dispatching an operator, both of which
# a recorded sequence spares; computing in the calling thread spares a part of the first.
HANDING_OVER_NS = 6_000
DISPATCHING_NS = 150
IN_CALLER = 0.4


def signs_of(profile: Profile, site: Site) -> Iterator[Sign]:
    """Yield what a profile shows that speaks for choices, in any order, whether or not the site
    has them."""
    left_out = set()
    if "asimd" not in site.instruction_sets:
        left_out = {"nchw44", "nchw44-dot"}  # five times as slow on x86
    if any(each.type.lower() in UNFUSED_NORMS for each in profile.operators):
        left_out |= {"nchw88", "nchw44", "nchw44-dot"}  # the quirk unfused-batch-norm
    yield from read_clues((each for each in CLUES if each.choice not in left_out), profile)
    facts = profile.facts
    if site.device == "cpu" and not table.THREAD.is_given(facts.options):
        yield from thread_signs(profile, facts.threads or 1, len(site.cores))
        if (facts.threads or 1) == 1:
            yield from signs_of_handing_over(profile)


def thread_signs(profile: Profile, now: int, cores: int) -> Iterator[Sign]:
    """Yield more threads where cores have none."""
    long = share_of(profile, lambda operator: True, LEAST_DIVIDED_NS)
    which = f"operators of {LEAST_DIVIDED_NS / 1e3:.0f} us and more"
    figure = f"{which} take {long:.0%} of the operators' time on {now} of {cores} cores"
    for count in {cores, cores // 2}:
        if count > now:
            saves = long * (1 - 1 / (1 + MORE_THREADS * (count / now - 1)))
            yield Sign(f"{count} threads", "threads", saves, figure)
            yield Sign(f"{count} threads with caller", "threads", CALLER_TOO * saves, figure)


def signs_of_handing_over(profile: Profile) -> Iterator[Sign]:
    """Yield choices that save time between operators, if iterations are short."""
    computing_ns = computing_ns_of(profile)
    calls = len(profile.timed_executions) / max(1, len(profile.timed_steps()))
    between_ns = HANDING_OVER_NS + DISPATCHING_NS * calls
    whole_ns = computing_ns + between_ns
    computed = f"{calls:.0f} operators compute for {computing_ns / 1e3:.0f} us in an iteration"
    figure = f"{computed}, and handing them over takes about {between_ns / 1e3:.0f} us"
    yield Sign("record-comp-seq", "handing over", between_ns / whole_ns, figure)
    in_caller = IN_CALLER * HANDING_OVER_NS / whole_ns
    yield Sign("1 thread with caller", "handing over", in_caller, figure)


def is_plain_convolution(operator: ProfiledOperator) -> bool:
    """Return whether an operator is a convolution of float32 in the layout nchw."""
    layout = operator.parameters.get("format", "NCHW")
    is_plain = KINDS.kind_of(operator.type) == "conv" and layout == "NCHW"
    return is_plain and is_of_floats(operator)


def is_of_floats(operator: ProfiledOperator) -> bool:
    return any(each.dtype in ("", "float32") for each in operator.inputs)


def is_heavy(operator: ProfiledOperator) -> bool:
    return KINDS.kind_of(operator.type) in ("conv", "matmul")


def is_quantised(operator: ProfiledOperator) -> bool:
    facts = (*operator.inputs, *operator.outputs)
    return any(each.dtype.startswith("Quantized") for each in facts)


def is_of_mkl(operator: ProfiledOperator) -> bool:
    """Return whether MKL computes an operator: by the name of its algorithm or, where that is not
    known, as it usually does."""
    if operator.algorithm:
        return OF_MKL.search(operator.algorithm) is not None
    if KINDS.kind_of(operator.type) == "matmul" and is_of_floats(operator):
        return any(each.shape[-2:-1] >= (MANY_ROWS,) for each in operator.outputs)
    return is_plain_convolution(operator) and operator.parameters.get("sparse") != "GROUP"


def is_winograd(operator: ProfiledOperator) -> bool:
    return "WINOGRAD" in (operator.algorithm or "")


# What each saved was measured with ResNet50, ResNet18, MobileNetV2 and a small CNN on AMD (Zen 5);
# on Intel with AVX-512 other kernels saved less or nothing. On ARM nothing was measured.
CLUES = (
    Clue("nchw88", "kernels", 0.64, "convolutions in the plain layout", is_plain_convolution),
    Clue("nchw44", "kernels", 0.3, "convolutions in the plain layout", is_plain_convolution),
    Clue("nchw44-dot", "kernels", 0.4, "quantised operators", is_quantised),
    Clue(f"{MKL_VARIABLE}=5", "kernels", 0.62, "products in MKL's generic code", is_of_mkl),
    Clue("fast-run", "kernels", 0.3, "convolutions and matrix products", is_heavy),
    Clue("weight-preprocess", "kernels", 0.1, "winograd algorithms", is_winograd),
)
