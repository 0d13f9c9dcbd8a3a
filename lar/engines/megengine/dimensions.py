"""Lists the choices that a search for the fastest settings tries with MegEngine.

The module also finds signs in a profile: facts which suggest that a choice saves time. Each option
that changes how a model runs is in this module or in `dimensions.json`. The options that a search
does not try are in `not_tried.json`, with the reason for each option.

The layout nchw88 is the layout of MKL-DNN's kernels. On a CPU, the layouts nchw4 and nchw32 change
only quantised tensors. The layout nhwcd4 is not meant for CPUs.

The choice `winograd` makes its own search, and then prefers the winograd algorithms that the search
has found. The choice `winograd` also transforms the weights before the run. On processors other
than ARM, kernels without winograd are at least as fast as kernels with winograd.

The engine's cache of algorithms does not record the settings on which the search depends.

A processor without float16 arithmetic computes float16 one number at a time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lar.engines.choices import Site, dimensions_in, set_to, thread_choices
from lar.engines.megengine import defects
from lar.engines.megengine.operator_kinds import KINDS
from lar.engines.signs import Clue, Sign, computing_ns_of, read_clues, share_of
from lar.options import table
from lar.records.tuning import Choice, Dimension

if TYPE_CHECKING:
    from lar.records.profile import Profile, ProfiledOperator

CPU_ALONE = ("threads", "spinning", "environment")

ALL_TRAITS = frozenset(quirk.trait for quirk in defects.QUIRKS)


def dimensions_of(site: Site, model: Path) -> tuple[Dimension, ...]:
    """Return the dimensions (groups of alternative choices) that can matter for a model file.

    Some dimensions matter only on certain machines. The name of a candidate lists its choices in
    the order of the dimensions. The first choice of a dimension is the most promising, and a search
    begins with it.
    """
    known = defects.traits_of(str(model))
    # A file that cannot be read may have any operators.
    traits = ALL_TRAITS if known is None else known
    if site.device != "cpu":
        return dimensions_in(Path(__file__).parent, site, **dict.fromkeys(CPU_ALONE, ()))
    special = {"threads": threads_for(site), "environment": variables_for(site, traits)}
    found = dimensions_in(Path(__file__).parent, site, traits, **special)
    return tuple(replace(it, choices=tuple(mend(one, site) for one in it.choices)) for it in found)


def threads_for(site: Site) -> Iterator[Choice]:
    options = ((table.MULTITHREAD, ""), (table.MULTITHREAD_DEFAULT, " with caller"))
    yield from thread_choices(site.cores, options)
    yield set_to(table.CPU_DEFAULT, True, "1 thread with caller")


def mend(choice: Choice, site: Site) -> Choice:
    """Return a choice; if it would cause a defect on a machine, add options that avoid this."""
    for quirk in defects.quirks_at(choice.options, site.processor, site.environment):
        if quirk.fix and quirk.settings:
            options = {**choice.options, **quirk.options}
            return replace(choice, options=options, allow="engine-fixes")
    return choice


def variables_for(site: Site, traits: frozenset[str]) -> Iterator[Choice]:
    """Yield environment variables that avoid defects which slow down all runs of a model."""
    for quirk in defects.quirks_at({}, site.processor, site.environment):
        if quirk.variable and quirk.trait in traits:
            yield Choice(name=quirk.variable, options=quirk.options, allow="engine-env")


# The signs of a profile

UNFUSED_NORMS = frozenset({"batchnorm", "batchnormforward"})
# The names of algorithms that compute with MKL have one of these words.
OF_MKL = re.compile("BLAS|MKL(?!DNN)")
# Each further thread does this part of the work that the first thread does. Operators that are
# shorter than LEAST_DIVIDED_NS are not worth dividing.
MORE_THREADS = 0.7
LEAST_DIVIDED_NS = 30_000
CALLER_TOO = 0.6  # the part of that saving if the calling thread computes too
# The time to hand an iteration to the engine's thread, and the time to dispatch an operator. A
# recorded sequence saves both. Computing in the calling thread saves a part of the first time.
HANDING_OVER_NS = 6_000
DISPATCHING_NS = 150
IN_CALLER = 0.4


def signs_of(profile: Profile, site: Site) -> Iterator[Sign]:
    """Yield, in any order, the facts in a profile (signs) which suggest that choices save time.

    Some signs may be for choices that are impossible on the machine.
    """
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
    """Yield signs that suggest more threads, if the run left usable cores unused."""
    long = share_of(profile, lambda operator: True, LEAST_DIVIDED_NS)
    which = f"operators of {LEAST_DIVIDED_NS / 1e3:.0f} us and more"
    figure = f"{which} take {long:.0%} of the operators' time on {now} of {cores} cores"
    for count in {cores, cores // 2}:
        if count > now:
            saves = long * (1 - 1 / (1 + MORE_THREADS * (count / now - 1)))
            yield Sign(f"{count} threads", "threads", saves, figure)
            yield Sign(f"{count} threads with caller", "threads", CALLER_TOO * saves, figure)


def signs_of_handing_over(profile: Profile) -> Iterator[Sign]:
    """Yield signs for choices that save time between operators.

    The time between operators is a large part of short iterations.
    """
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
    """Return whether an operator is a float32 convolution in the layout nchw."""
    layout = operator.parameters.get("format", "NCHW")
    return KINDS.kind_of(operator.type) == "conv" and layout == "NCHW" and is_of_floats(operator)


def is_of_floats(operator: ProfiledOperator) -> bool:
    return any(each.dtype in ("", "float32") for each in operator.inputs)


def is_heavy(operator: ProfiledOperator) -> bool:
    return KINDS.kind_of(operator.type) in ("conv", "matmul")


def is_quantised(operator: ProfiledOperator) -> bool:
    return any(each.dtype.startswith("Quantized") for each in (*operator.inputs, *operator.outputs))


def is_of_mkl(operator: ProfiledOperator) -> bool:
    """Return whether MKL computes an operator.

    The name of the operator's algorithm shows whether MKL computes the operator. If the algorithm
    is unknown, the function assumes MegEngine's usual algorithm.
    """
    if operator.algorithm:
        return OF_MKL.search(operator.algorithm) is not None
    if KINDS.kind_of(operator.type) == "matmul" and is_of_floats(operator):
        return any(each.shape[-2:-1] >= (defects.MANY_ROWS,) for each in operator.outputs)
    return is_plain_convolution(operator) and operator.parameters.get("sparse") != "GROUP"


def is_winograd(operator: ProfiledOperator) -> bool:
    return "WINOGRAD" in (operator.algorithm or "")


# The savings were measured with ResNet50, ResNet18, MobileNetV2 and a small CNN on AMD (Zen 5).
# On Intel with AVX-512, other kernels saved less time or none. ARM was not measured.
CLUES = (
    Clue("nchw88", "kernels", 0.64, "convolutions in the plain layout", is_plain_convolution),
    Clue("nchw44", "kernels", 0.3, "convolutions in the plain layout", is_plain_convolution),
    Clue("nchw44-dot", "kernels", 0.4, "quantised operators", is_quantised),
    Clue(f"{defects.MKL_VARIABLE}=5", "kernels", 0.62, "products in MKL's generic code", is_of_mkl),
    Clue("fast-run", "kernels", 0.3, "convolutions and matrix products", is_heavy),
    Clue("weight-preprocess", "kernels", 0.1, "winograd algorithms", is_winograd),
)
