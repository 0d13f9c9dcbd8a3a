"""The known defects of MegEngine on a processor: how each is detected, and the way round.

All of them were seen on the CPU with MegEngine 1.13.0; nothing is known of CUDA devices. Here stand
the table of defects ("quirks"), the traits of models that meet one, and the hints that a finished
run gives about those that it met.

The model's operators are read from its file, without the engine. These places of fields in tables
are used besides those of `graph_operators`:

    Convolution 7 sparse, 8 format; ConvBias 2, 3; Pooling and AdaptivePooling 0 mode

Read from MegEngine 1.13: src/serialization/impl/schema_v2.fbs and dtype.fbs beside it,
dnn/scripts/opr_param_defs.py.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from lar.engines.engine import Defect
from lar.engines.megengine.graph_operators import OUTPUTS, open_graph
from lar.engines.megengine.packed_model import graph_in
from lar.errors import LarError
from lar.measurement.machine import read_instruction_sets
from lar.options import table
from lar.options.command_line import format_flags
from lar.options.option import Option

if TYPE_CHECKING:
    from lar.records.choices import OptionValue
    from lar.records.run import RunResult

MKL_VARIABLE = "MKL_DEBUG_CPU_TYPE"
INTEL = "GenuineIntel"
AMD = "AuthenticAMD"

# The fix of `nchw88-x2apic`, as --engine-fix names it; x2apic.py applies it.
X2APIC_FIX = "x2apic"

# What the engine prints when it is lost, what that means, and what to do.
LAST_WORDS = (
    # MKL-DNN's, before it leaves the process and hangs in doing so: ERR_X2APIC_IS_NOT_SUPPORTED.
    (
        b"bad err=45 in Xbyak::Error",
        "the model has convolutions in nchw88, which hang on processors other than Intel's: "
        "MKL-DNN cannot read the number of cores",
        f"--engine-fix {X2APIC_FIX} mends it in the loaded library, for this run",
    ),
    (
        b"unexpected destruction of dnn opr",
        "--record-comp-seq2: MegEngine crashes in recording this model with these options",
        "take --record-comp-seq, or leave the layout out",
    ),
)


# What a model may have that a quirk depends on; quirk_operators.py reads it from the file.
FLOAT_PRODUCTS = "dense float32 convolutions in nchw, or large float32 matrix products"
MAX_POOLING = "max-pooling"
QUANTISED = "quantised tensors"
GROUPED = "grouped convolutions"


def always(processor: str, environment: Mapping[str, str]) -> bool:
    return True


def takes_generic_path(processor: str, environment: Mapping[str, str]) -> bool:
    """Return whether MKL takes its generic code on an AMD processor, whose AVX2 code would run; a
    value that the user gave is a choice, whatever it is."""
    vendor, *instruction_sets = processor.split()
    return vendor == AMD and "avx2" in instruction_sets and MKL_VARIABLE not in environment


def hangs_on_nchw88(processor: str, environment: Mapping[str, str]) -> bool:
    """Return whether the processor is known to be from another vendor than Intel."""
    return not processor.startswith((INTEL, "unknown"))


class Quirk(NamedTuple):
    """A defect of the engine.

    `applies` detects it from the processor, as `read_instruction_sets` returns it, and the
    environment that the engine will run in. The quirk concerns runs with one of `settings` (all
    runs if that is empty), but no run with one of `spared`. A quirk that has a `trait` is reported
    only if the run's model has that trait. A `slow` quirk costs nothing but time.

    `options` are the way round, by key; where no option is, `advice` says what to do.
    """

    name: str
    effect: str
    detection: str
    applies: Callable[[str, Mapping[str, str]], bool] = always
    settings: frozenset[str] = frozenset()
    spared: frozenset[str] = frozenset()
    trait: str = ""
    slow: bool = False
    options: Mapping[str, OptionValue] = {}
    advice: str = ""

    @property
    def way_round(self) -> str:
        """What to do about it, in words."""
        return self.advice or format_flags(self.options)


def keys_of(*options: Option[Any]) -> frozenset[str]:
    return frozenset(option.key for option in options)


QUIRKS: tuple[Quirk, ...] = (
    Quirk(
        "mkl-generic-path",
        "MKL runs generic code on AMD, which takes 1.5 to 3 times as long",
        f"{AMD} with AVX2, no {MKL_VARIABLE}; float32 products in nchw",
        options={table.ENGINE_ENV.key: (f"{MKL_VARIABLE}=5",)},
        applies=takes_generic_path,
        # These take other algorithms than MKL's: the variable changes nothing measurable.
        spared=keys_of(
            *(
                table.BINARY_EQUAL_BETWEEN_BATCH,
                table.ENABLE_IOC16,
                table.ENABLE_NCHW44,
                table.ENABLE_NCHW44_DOT,
            ),
            *(table.ENABLE_NCHW88, table.ENABLE_NHWCD4, table.FAST_RUN, table.FAST_RUN_ALGO_POLICY),
            *(table.FULL_RUN, table.LAYOUT_TRANSFORM),
        ),
        trait=FLOAT_PRODUCTS,
        slow=True,
    ),
    Quirk(
        "nchw88-x2apic",
        "nchw88 and --layout-transform hang: MKL-DNN knows the cores of Intel alone",
        f"a vendor other than {INTEL}",
        options={table.ENGINE_FIX.key: X2APIC_FIX},
        applies=hangs_on_nchw88,
        settings=keys_of(table.ENABLE_NCHW88, table.LAYOUT_TRANSFORM),
    ),
    Quirk(
        "ioc16-max-pool",
        "--enable-ioc16 gives wrong numbers in max-pooling (NaN) and is much slower",
        "always, on the CPU; the model has max-pooling",
        advice="leave --enable-ioc16 out",
        settings=keys_of(table.ENABLE_IOC16),
        trait=MAX_POOLING,
    ),
    Quirk(
        "int8-nchw4",
        "--enable-nchw4 and --enable-nchw32 give wrong numbers on int8 models",
        "always, on the CPU; the model has quantised tensors",
        advice="--enable-nchw44, or no layout",
        # What goes wrong: a tensor is flattened with its channels still in blocks
        settings=keys_of(table.ENABLE_NCHW4, table.ENABLE_NCHW32),
        trait=QUANTISED,
    ),
    Quirk(
        "nhwcd4-depthwise",
        "--enable-nhwcd4 gives wrong numbers on depthwise convolutions, and is slow",
        "always, on the CPU; the model has grouped convolutions",
        advice="leave --enable-nhwcd4 out",
        # Seen on mobilenet_v2; models without depthwise convolutions come out right
        settings=keys_of(table.ENABLE_NHWCD4),
        trait=GROUPED,
    ),
    Quirk(
        "unfused-batch-norm",
        "nchw44, nchw44_dot, nchw88, nhwcd4 cannot load unfused batch normalisation",
        "always, on the CPU; the engine's error names it",
        advice="dump the model with optimize_for_inference, which fuses it",
        settings=keys_of(
            table.ENABLE_NCHW44, table.ENABLE_NCHW44_DOT, table.ENABLE_NCHW88, table.ENABLE_NHWCD4
        ),
    ),
    Quirk(
        "layout-8-channels",
        "--layout-transform may give wrong numbers in convolutions of 8 channels",
        "always, on the CPU; a run reads the layouts that were found, and warns",
        advice="--enable-nchw88",
        # The search takes plain inputs there, which the kernel reads as blocks of 8
        settings=keys_of(table.LAYOUT_TRANSFORM),
    ),
    Quirk(
        "dumped-in-blocks",
        "models that MegEngine itself dumps in nchw44 crash lite: unaligned weights",
        "always, on the CPU",
        advice="--driver graph; its --model-dump writes a file that lite can run",
        settings=keys_of(table.DRIVER),  # some models have it; no engine option shows which
    ),
)


def quirks_here(settings: Mapping[str, Any], environment: Mapping[str, str]) -> list[Quirk]:
    """Return the quirks that a run with these settings meets on this processor.

    `environment` is that of the process that runs the engine.
    """
    if table.CUDA.is_given(settings):
        return []
    processor = read_instruction_sets()
    return [
        quirk
        for quirk in QUIRKS
        if (not quirk.settings or quirk.settings & settings.keys())
        and not quirk.spared & settings.keys()
        and quirk.applies(processor, environment)
    ]


def hangs_here(environment: Mapping[str, str]) -> bool:
    """Return whether convolutions in nchw88 hang on this processor."""
    return hangs_on_nchw88(read_instruction_sets(), environment)


def explain_log(log: bytes) -> LarError | None:
    """Return the error of an engine that has printed this and is lost, None where it is not."""
    for words, message, hint in LAST_WORDS:
        if words in log:
            return LarError(message, hint)
    return None


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


def traits_of(path: str) -> frozenset[str]:
    """Return what a model has, nothing of a file whose operators are not known."""
    return known_traits_of(path) or frozenset()


def known_traits_of(path: str) -> frozenset[str] | None:
    """Return what a model has, None of a file whose operators are not known."""
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
    if opened is None:
        raise ValueError("an unknown format")
    for operator in opened.operators:
        kind = operator.integer(opened.places.kind, "<B")
        dtype = operator.table(opened.places.dtype)
        number = dtype.integer(0, "<B") if dtype else 0
        parameters = operator.table(opened.places.parameters)
        fields = CONVOLUTIONS.get(kind, (0, 0))
        sparse, layout = (parameters.integer(it) if parameters else 0 for it in fields)
        if number in QUANTISED_DTYPES:
            yield QUANTISED
        if kind in CONVOLUTIONS and sparse:
            yield GROUPED
        elif kind in CONVOLUTIONS and not layout and number == FLOAT32:
            yield FLOAT_PRODUCTS
        elif kind in POOLINGS and not (parameters and parameters.integer(0)):
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
    hints = [
        f"{quirk.effect}; way round: {quirk.way_round}"
        for quirk in sorted(quirks_met(result, environment), key=lambda each: each.slow)
        if timed or not quirk.slow
    ]
    dumped = table.one_of(table.OPERATOR_DUMPS, settings)
    if dumped and timed:
        hints.append(
            f"the times are those of a run with {dumped.flag}: MegEngine dumps in every "
            "iteration; --warmup-iter 0 --iter 1 dumps once"
        )
    search = table.one_of(table.SEARCHES, settings)
    if search and not timed:
        hints.append(f"{search.flag}: the warm-up alone was run, which makes the search")
    searched = table.one_of((*table.SEARCHES, table.FAST_RUN_ALGO_POLICY), settings)
    if table.WINOGRAD_TRANSFORM.is_given(settings) and not searched:
        hints.append(
            "without a search or its cache --winograd-transform prefers no algorithm; "
            "add --fast-run, or --fast-run-algo-policy FILE"
        )
    if table.CHECK_VAR_VALUE.is_given(settings):
        hints.append(
            "--check-var-value I has looked at one variable in I runs, then at the next; a larger "
            "--iter reaches more"
        )
    return "; also: ".join(hints)


def quirks_met(result: RunResult, environment: Mapping[str, str]) -> list[Quirk]:
    """Return the quirks that a run has met for certain."""
    settings = dict(result.spec.settings)
    if table.FAST_RUN_ALGO_POLICY.is_given(settings) and result.uncached_operators:
        del settings[table.FAST_RUN_ALGO_POLICY.key]
    possible = [quirk for quirk in quirks_here(settings, environment) if quirk.trait]
    traits = traits_of(result.spec.model) if possible else frozenset()
    return [quirk for quirk in possible if quirk.trait in traits]
