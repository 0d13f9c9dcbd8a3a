"""What settings of MegEngine may save in the run of a profile, by what the profile shows.

The settings are those that a search for the fastest settings tries at the site (`dimensions`), with
the ways round defects that they meet there. How much each saves of the time that it concerns was
measured on models; the table says where. What a profile shows decides how much time that is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property

from lar.engines.engine import Site
from lar.engines.megengine.defects import (
    AMD,
    FLOAT_PRODUCTS,
    GROUPED,
    INTEL,
    MANY_ROWS,
    MAX_POOLING,
    MKL_VARIABLE,
    QUANTISED,
    QUIRKS,
    Quirk,
)
from lar.engines.megengine.dimensions import dimensions_with
from lar.options.table import (
    CPU_DEFAULT,
    ENABLE_IOC16,
    ENABLE_NCHW44,
    ENABLE_NCHW44_DOT,
    ENABLE_NHWCD4,
    ENGINE_ENV,
    LAYOUT_CHOICES,
    MULTI_THREAD_CORE_IDS,
    MULTITHREAD,
    MULTITHREAD_DEFAULT,
    THREAD,
    one_of,
)
from lar.profiles.recommendations import Figure, Prospect, Shown, figure_of_threads
from lar.records.choices import Choice
from lar.records.profile import ProfiledOperator

CONVOLUTIONS = frozenset({"convolution", "convolutionforward", "convbias", "convbiasforward"})
PRODUCTS = frozenset({"matrixmul", "batchedmatrixmul"})
POOLING = frozenset({"poolingforward", "adaptivepoolingforward"})
UNFUSED = frozenset({"batchnorm", "batchnormforward"})
# Algorithms that leave the computing to MKL have these words in their names.
OF_MKL = re.compile("BLAS|MKL(?!DNN)")

# The parts of the time concerned that settings save, where they were measured: ResNet50, ResNet18,
# MobileNetV2 and a small CNN on AMD (Zen 5), and ResNet50 on Intel with AVX-512.
MENDED_MKL = 0.62  # on AMD; on Intel nothing, since MKL takes its own code there
BLOCKED_DENSE = {AMD: 0.64, INTEL: 0.0}
BLOCKED_DENSE_AVX512 = {INTEL: -0.35}  # MKL has code for AVX-512, the layout has none
BLOCKED_GROUPED = 0.7
BLOCKING_NS = 80_000  # what changing the layout of tensors costs a small model
SEARCHED_FROM_MKL = 0.55
SEARCHED = 0.05
SEARCHED_FROM_AVX512 = -0.1  # on Intel, where MKL has code for AVX-512: ResNet50 was slower by that
PREPROCESSED = 0.1  # of winograd's, which transform their weights; of others nothing
# Of ARM nothing was measured: these are made for its vectors, and are to be tried.
ON_ARM = {"nchw44": 0.3, "nchw44-dot": 0.4, "ioc16": 0.25}
LAYOUTS_OF_ARM = (ENABLE_NCHW44, ENABLE_NCHW44_DOT)
LEFT_OUT = 0.25  # of convolutions in a layout that is slow here

# A thread more does so much of what the first one does.
MORE_THREADS = 0.7
# Operators that are shorter are not worth being divided; dividing one costs so much, on processors
# of others as on AMD. On Intel MobileNetV2 with two threads took 1.4 times as long.
LEAST_DIVIDED_NS = 30_000
DIVIDING_NS = {AMD: 4_000, INTEL: 20_000}
# What handing an iteration to another thread and waiting for it costs, and what dispatching an
# operator costs that a recorded sequence does not need.
HANDING_OVER_NS = 6_000
DISPATCHING_NS = 150
# Iterations that compute for a longer time are seldom handed over.
SHORT_NS = 300_000
# Computing in the calling thread spares a part of the handing over; a recorded sequence all of it.
IN_CALLER = 0.4
# Fewer threads than stand idle lose nothing, and wait for each other less.
FEWER_THREADS = 0.04


def prospects_of(shown: Shown, site: Site) -> Iterator[Prospect]:
    """Yield the settings that a profile speaks for, in any order; those that the run has set, and
    those that save too little, are among them."""
    work = Work(shown, site)
    found = (
        *work.threads(),
        *work.mended_mkl(),
        *work.blocked_layout(),
        *work.layouts_of_arm(),
        *work.searches(),
        *work.slow_layouts(),
        *work.short_iterations(),
        *work.on_device(),
    )
    for prospect in found:
        choice = prospect.choice
        if choice is None or not any(work.meets(quirk, choice) for quirk in QUIRKS):
            yield prospect


class Work:
    """What MegEngine computes in a profile, and what can be chosen for it at the site."""

    def __init__(self, shown: Shown, site: Site) -> None:
        self.shown, self.site = shown, site
        self.facts = shown.profile.facts
        self.given = self.facts.options
        self.vendor = site.processor.partition(" ")[0]

    @cached_property
    def traits(self) -> frozenset[str]:
        """What the operators have that defects and choices depend on."""
        return frozenset(
            trait for each in self.shown.profile.operators for trait in traits_of_operator(each)
        )

    @cached_property
    def choices(self) -> Mapping[str, Choice]:
        """What a search would try, by name."""
        found = dimensions_with(self.traits, self.site)
        return {choice.name: choice for each in found for choice in each.choices}

    def meets(self, quirk: Quirk, choice: Choice) -> bool:
        """Return whether a choice meets a defect here that no option mends."""
        if quirk.options or not quirk.settings & choice.options.keys():
            return False
        is_here = quirk.applies(self.site.processor, self.site.environment)
        if not quirk.trait:  # of those that only the operators show, this one is seen
            types = {each.type.lower() for each in self.shown.profile.operators}
            return is_here and quirk.name == "unfused-batch-norm" and bool(types & UNFUSED)
        return is_here and quirk.trait in self.traits

    # Where the time goes

    @cached_property
    def dense(self) -> float:
        return self.shown.share(is_dense)

    @cached_property
    def grouped(self) -> float:
        return self.shown.share(is_grouped)

    @cached_property
    def products(self) -> float:
        return self.shown.share(is_product)

    @cached_property
    def in_mkl(self) -> float:
        """The part of an iteration that MKL takes: by the names of algorithms, or by what usually
        takes them."""
        known = any(each.algorithm for each in self.shown.profile.operators)
        return self.shown.share(is_of_mkl if known else is_float_product)

    def figure_of_convolutions(self) -> Figure:
        share = self.dense + self.grouped
        return Figure(share, f"convolutions in the plain layout take {self.shown.part(share)}")

    # Settings

    def threads(self) -> Iterator[Prospect]:
        """Yield more threads where cores stand idle, and fewer where threads do."""
        now, cores = self.facts.threads or 1, len(self.site.cores)
        # Two threads of one core share what computes.
        cores //= self.facts.machine.get("threads_per_core") or 1
        if self.site.device != "cpu" or THREAD.is_given(self.given):
            return
        taken = (MULTITHREAD, MULTITHREAD_DEFAULT, MULTI_THREAD_CORE_IDS, CPU_DEFAULT)
        without = tuple(each.key for each in taken if each.is_given(self.given))
        idle = self.shown.idle_cpus
        free = cores - now if idle is None else min(cores - now, round(idle))
        count = max((n for n in self.counts() if now < n <= now + free), default=0)
        if count:
            long = self.shown.share(lambda _: True, LEAST_DIVIDED_NS)
            saved = long * (1 - 1 / (1 + MORE_THREADS * (count / now - 1)))
            dividing_ns = DIVIDING_NS.get(self.vendor, DIVIDING_NS[AMD])
            saved -= dividing_ns * self.shown.calls / (self.shown.whole_ns or 1)
            text = (
                f"operators of {LEAST_DIVIDED_NS / 1e3:.0f} us and more take {long:.1%} of an "
                f"iteration on {now} of {cores} cores"
            )
            if idle is not None:
                text += f", while {idle:.1f} stood idle"
            ways = {"": "", " with caller": ", of which one is the calling thread"}
            for way, word in ways.items():
                yield Prospect(
                    "idle cores",
                    self.choices[f"{count} threads{way}"],
                    saved,
                    Figure(long, text),
                    0.0,
                    f"divide each among {count} threads{word}",
                    without,
                )
        figure = figure_of_threads(self.shown.profile)
        if figure is not None and figure.share < 0.5:
            fewer = max((n for n in self.counts() if n < now), default=0)
            name = f"{fewer} threads" if fewer else "1 thread with caller"
            if name in self.choices:
                yield Prospect(
                    "threads",
                    self.choices[name],
                    FEWER_THREADS,
                    figure,
                    0.5,
                    "run on fewer threads",
                    without,
                )

    def counts(self) -> Iterator[int]:
        """Yield the numbers of threads that a quick search tries."""
        for name, choice in self.choices.items():
            found = re.fullmatch(r"(\d+) threads", name)
            if found and not choice.for_full:
                yield int(found[1])

    def mended_mkl(self) -> Iterator[Prospect]:
        """Yield the ways round MKL's generic code, where the table of defects has it."""
        for quirk in self.generic_paths():
            figure = Figure(
                self.in_mkl,
                f"products in MKL take {self.shown.part(self.in_mkl)}, and it runs generic code "
                "on this processor",
            )
            for variable in quirk.options.get(ENGINE_ENV.key, ()):  # type: ignore[union-attr]
                yield Prospect(
                    "MKL's generic code",
                    self.choices[str(variable)],
                    MENDED_MKL * self.in_mkl,
                    figure,
                    0.0,
                    "have it take its own",
                )
        value = self.site.environment.get(MKL_VARIABLE, "")
        if value and self.vendor == INTEL and self.site.device == "cpu" and self.in_mkl:
            # ResNet50 took 1.8 times as long on Intel with AVX-512.
            yield Prospect(
                "MKL's variable",
                None,
                0.0,
                Figure(
                    self.in_mkl,
                    f"{MKL_VARIABLE}={value} is set, which is for processors other than Intel's, "
                    f"and products in MKL take {self.shown.part(self.in_mkl)}",
                ),
                0.0,
                "it keeps MKL from the newest code of this processor: run without it",
            )

    def generic_paths(self) -> list[Quirk]:
        """Return the defects of all runs here that cost time, and that this one meets."""
        if self.site.device != "cpu":
            return []
        return [
            quirk
            for quirk in QUIRKS
            if quirk.slow
            and quirk.trait in self.traits
            and not quirk.spared & {key for key, value in self.given.items() if value}
            and quirk.applies(self.site.processor, self.site.environment)
        ]

    def blocked_layout(self) -> Iterator[Prospect]:
        """Yield the layout of the processor's vectors, where it has them."""
        choice = self.choices.get("nchw88")
        if choice is None:
            return
        of_dense = BLOCKED_DENSE.get(self.vendor, 0.0)
        if "avx512f" in self.site.instruction_sets:
            of_dense = BLOCKED_DENSE_AVX512.get(self.vendor, of_dense)
        if self.vendor == AMD and not self.generic_paths():
            of_dense = 0.0  # MKL takes its own code, which is as fast
        saved = of_dense * self.dense + BLOCKED_GROUPED * self.grouped
        yield Prospect(
            "layout",
            choice,
            saved - BLOCKING_NS / (self.shown.whole_ns or 1),
            self.figure_of_convolutions(),
            0.0,
            "compute them in blocks of 8 channels, for which this processor has AVX2",
        )

    def layouts_of_arm(self) -> Iterator[Prospect]:
        """Yield the layouts and the type that are made for ARM's vectors."""
        if "asimd" not in self.site.instruction_sets:
            return
        figure = self.figure_of_convolutions()
        quantised = self.shown.share(is_quantised)
        said = {
            "nchw44": (figure, "compute them in blocks of 4 channels, as NEON does"),
            "nchw44-dot": (
                Figure(quantised, f"quantised operators take {self.shown.part(quantised)}"),
                "compute them with the processor's dot products",
            ),
            "ioc16": (
                figure,
                "compute them in float16, which this processor has and which rounds more",
            ),
        }
        for name, (its, advice) in said.items():
            if name in self.choices and (
                "asimdhp" in self.site.instruction_sets or name != "ioc16"
            ):
                gain = ON_ARM[name] * its.share
                yield Prospect("layout", self.choices[name], gain, its, 0.0, advice)

    def searches(self) -> Iterator[Prospect]:
        """Yield the search for algorithms, and weights that are transformed ahead."""
        share = self.dense + self.grouped + self.products
        figure = Figure(share, f"convolutions and matrix products take {self.shown.part(share)}")
        gain = SEARCHED * share
        if self.site.device == "cpu" and not one_of(LAYOUT_CHOICES, self.given):
            if self.generic_paths():
                gain = max(gain, SEARCHED_FROM_MKL * self.in_mkl)
            elif self.vendor == INTEL and "avx512f" in self.site.instruction_sets:
                gain += (SEARCHED_FROM_AVX512 - SEARCHED) * self.in_mkl
        if "fast-run" in self.choices:
            yield Prospect(
                "algorithms",
                self.choices["fast-run"],
                gain,
                figure,
                0.0,
                "have the engine measure its algorithms for them, once",
            )
        if "weight-preprocess" in self.choices and self.site.device == "cpu":
            winograd = self.shown.share(lambda it: "WINOGRAD" in (it.algorithm or ""))
            yield Prospect(
                "weights",
                self.choices["weight-preprocess"],
                PREPROCESSED * winograd,
                Figure(winograd, f"winograd algorithms take {self.shown.part(winograd)}"),
                0.0,
                "transform their weights ahead",
            )

    def slow_layouts(self) -> Iterator[Prospect]:
        """Yield what the run had better leave out: layouts and types that are made for another
        architecture."""
        is_x86 = bool({"sse2", "avx2"} & self.site.instruction_sets)
        of_arm = [each for each in LAYOUTS_OF_ARM if QUANTISED not in self.traits]
        for option in (*of_arm, ENABLE_IOC16, ENABLE_NHWCD4):
            if is_x86 and option.is_given(self.given):
                share = self.shown.share(lambda it: it.type.lower() in CONVOLUTIONS)
                yield Prospect(
                    "slow here",
                    Choice(name=f"without {option.flag}"),
                    LEFT_OUT * max(share, 0.2),
                    Figure(share, f"convolutions take {self.shown.part(share)}"),
                    0.0,
                    "leave out what is made for other processors",
                    (option.key,),
                )

    def short_iterations(self) -> Iterator[Prospect]:
        """Yield what spares the handing over of short iterations and operators."""
        whole = min(self.shown.whole_ns, self.shown.unprofiled_ns)
        if self.site.device != "cpu" or not whole or (self.facts.threads or 1) > 1:
            return
        handing_ns, spared_ns = HANDING_OVER_NS, HANDING_OVER_NS / 2
        # Where other processes compute, the other thread waits for a CPU, again and again.
        if self.shown.is_disturbed and self.shown.computing_ns < SHORT_NS:
            whole = max(whole, self.shown.unprofiled_ns)
            handing_ns = max(handing_ns, round(whole - self.shown.computing_ns))
            spared_ns = handing_ns
        waiting = min(1.0, handing_ns / whole)
        if "1 thread with caller" in self.choices and not THREAD.is_given(self.given):
            yield Prospect(
                "short iterations",
                self.choices["1 thread with caller"],
                IN_CALLER * waiting,
                Figure(
                    waiting,
                    f"an iteration takes {whole / 1e3:.0f} us, of which handing it to another "
                    f"thread may take {waiting:.1%}",
                ),
                0.0,
                "compute in the calling thread",
            )
        dispatching = min(1.0, (spared_ns + DISPATCHING_NS * self.shown.calls) / whole)
        yield Prospect(
            "short operators",
            self.choices["record-comp-seq"],
            dispatching,
            Figure(
                dispatching,
                f"an iteration of {self.shown.calls:.0f} operators takes {whole / 1e3:.0f} us, of "
                f"which handing them to another thread may take {dispatching:.1%}",
            ),
            0.0,
            "record the sequence of operators once",
        )

    def on_device(self) -> Iterator[Prospect]:
        """Yield the layouts of quantised operators on CUDA."""
        if self.site.device == "cpu":
            return
        share = self.shown.share(is_quantised)
        for name in ("nchw32", "nchw4"):
            if name in self.choices:
                yield Prospect(
                    "layout",
                    self.choices[name],
                    0.2 * share,
                    Figure(share, f"quantised operators take {self.shown.part(share)}"),
                    0.0,
                    "compute them in the blocks of the device's tensor cores",
                )


def traits_of_operator(operator: ProfiledOperator) -> Iterator[str]:
    """Yield the traits that an operator shows."""
    if is_quantised(operator):
        yield QUANTISED
    if operator.type.lower() in CONVOLUTIONS and is_in_groups(operator):
        yield GROUPED
    if is_float_product(operator):
        yield FLOAT_PRODUCTS
    if operator.type.lower() in POOLING and operator.parameters.get("mode", "MAX") == "MAX":
        yield MAX_POOLING


def is_quantised(operator: ProfiledOperator) -> bool:
    facts = (*operator.inputs, *operator.outputs)
    return any(each.dtype.startswith("Quantized") for each in facts)


def is_in_groups(operator: ProfiledOperator) -> bool:
    return operator.parameters.get("sparse") == "GROUP"


def is_plain_convolution(operator: ProfiledOperator) -> bool:
    """Return whether an operator is a convolution of float32 in the layout nchw."""
    return (
        operator.type.lower() in CONVOLUTIONS
        and str(operator.parameters.get("format", "NCHW")) == "NCHW"
        and any(each.dtype in ("", "float32") for each in operator.inputs)
    )


def is_dense(operator: ProfiledOperator) -> bool:
    return is_plain_convolution(operator) and not is_in_groups(operator)


def is_grouped(operator: ProfiledOperator) -> bool:
    return is_plain_convolution(operator) and is_in_groups(operator)


def is_product(operator: ProfiledOperator) -> bool:
    return operator.type.lower() in PRODUCTS and any(
        each.dtype in ("", "float32") for each in operator.inputs
    )


def is_float_product(operator: ProfiledOperator) -> bool:
    """Return whether MKL usually computes an operator."""
    if is_product(operator):
        rows = [each.shape[-2] for each in operator.outputs if len(each.shape) > 1]
        return any(each >= MANY_ROWS for each in rows)
    return is_dense(operator)


def is_of_mkl(operator: ProfiledOperator) -> bool:
    """Return whether an algorithm of MKL was chosen for an operator."""
    if operator.algorithm:
        return OF_MKL.search(operator.algorithm) is not None
    return is_product(operator) and is_float_product(operator)
