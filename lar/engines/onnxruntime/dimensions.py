"""Lists the choices that a search for the fastest settings tries with ONNX Runtime.

The module also finds signs in a profile: facts which suggest that a choice saves time. Each option
that changes how a model runs is in this module or in `dimensions.json`, if a search tries the
option. The options that a search does not try are in `not_tried.json`, with the reason. By default
the engine uses one thread for each core, and binds each thread to a core.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from lar.engines.choices import Site, dimensions_in, set_to
from lar.engines.onnx_file.operators import KINDS
from lar.engines.onnxruntime.providers import library_of
from lar.engines.signs import Clue, Sign, computing_ns_of, read_clues, share_of
from lar.options import table
from lar.records.goals import Allowed
from lar.records.tuning import Choice, Dimension

if TYPE_CHECKING:
    from lar.records.profile import Profile, ProfiledOperator

OF_CPU = ("provider", "threads", "spinning", "arena")  # dimensions of the CPU alone
# The providers that the package `onnxruntime` lacks; other packages have them.
ON_NVIDIA = ("cuda", "tensorrt")
OTHERS = ("openvino", "dnnl", "migraphx", "rocm", "qnn", "vitisai", "cann")
NVIDIA_DRIVER = "/dev/nvidiactl"


def dimensions_of(site: Site, _: Path) -> tuple[Dimension, ...]:
    """Return the dimensions that can matter on a machine.

    The name of a candidate (a set of choices) lists the choices in the order of these dimensions.
    """
    special = {"provider": providers_here()} if site.device == "cpu" else dict.fromkeys(OF_CPU, ())
    return dimensions_in(Path(__file__).parent, site, **special)


def providers_here() -> Iterator[Choice]:
    """Yield a choice for each provider whose library is installed, except for the CPU."""
    for name in filter(library_of, (*ON_NVIDIA, *OTHERS)):
        if name not in ON_NVIDIA:
            yield set_to(table.PROVIDER, name, name)
        elif os.path.exists(NVIDIA_DRIVER):
            rounded: Allowed = "reduced-precision"
            if name == "tensorrt":
                yield set_to(table.TENSORRT, True, name, for_full=True, allow=rounded)
            else:
                yield Choice(name=name, options={table.CUDA.key: 0, table.NO_TF32.key: True})
                yield set_to(table.CUDA, 0, "cuda with TF32", allow=rounded)


# The signs of a profile. The engine's defaults fit most models, so most profiles have no sign.

# In short iterations, operators that are shorter than this are not worth dividing among threads.
LEAST_DIVIDED_NS = 20_000
SHORT_ITERATION_NS = 100_000


def signs_of(profile: Profile, site: Site) -> Iterator[Sign]:
    """Yield, in any order, the facts in a profile (signs) which suggest that choices save time.

    Some signs may be for choices that the machine does not offer.
    """
    yield from read_clues(CLUES, profile)
    facts = profile.facts
    now = facts.threads or len(site.cores)
    if site.device != "cpu" or now <= 1 or table.THREAD.is_given(facts.options):
        return
    # One thread is better for short operators, and fewer threads if they wait for each other.
    short = 1 - share_of(profile, lambda operator: True, LEAST_DIVIDED_NS)
    if computing_ns_of(profile) < SHORT_ITERATION_NS:
        figure = f"operators that are too short to be divided among {now} threads take {short:.0%}"
        yield Sign("1 thread", "threads", 0.15 * short, f"{figure} of the operators' time")
    from lar.profiles.times import use_of

    use = use_of(profile.operators)
    waiting = (use and use.share_of("waiting")) or 0.0
    figure = f"in divided operators one thread waits {waiting:.0%} of the time for the others"
    yield Sign(f"{now // 2} threads" if now > 3 else "1 thread", "threads", 0.2 * waiting, figure)


def is_heavy(operator: ProfiledOperator) -> bool:
    return KINDS.kind_of(operator.type) in ("conv", "deconv", "matmul")


CLUES = (
    Clue(
        *("no-blocked-layout", "kernels", 0.7, "conversions to the blocked layout and back"),
        lambda operator: operator.type.lower() in ("reorderinput", "reorderoutput"),
    ),
    # These choices exist only if the installed package has the device or provider.
    *(
        Clue(name, "kernels", saves, "convolutions and matrix products", is_heavy)
        for name, saves in {"cuda": 0.9, **dict.fromkeys(OTHERS, 0.3)}.items()
    ),
)
