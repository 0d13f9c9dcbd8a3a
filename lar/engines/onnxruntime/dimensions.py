"""What a search for the fastest settings tries with ONNX Runtime: a table of choices by dimension.

Each option that says how a model is run, and that can vary, stands here or in `NOT_TRIED`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from lar.engines.choices import copies_dimension, set_to, thread_choices, turn_on
from lar.engines.engine import Site
from lar.engines.onnxruntime.options import BLOCKED_LAYOUT
from lar.engines.onnxruntime.providers import library_of
from lar.options.option import Option
from lar.options.table import (
    ALLOW_EXTERNAL_DATA,
    C_OPR_LIB,
    CPU,
    CPU_DEFAULT,
    CUDA,
    DISABLE_MEM_OPT,
    DISABLE_OPTIMIZER,
    ENABLE_NCHW88,
    FAST_RUN,
    FAST_RUN_ALGO_POLICY,
    GRAPH_OPTIMIZATION_LEVEL,
    MULTITHREAD,
    MULTITHREAD_DEFAULT,
    NO_ARENA,
    NO_SPINNING,
    NO_TF32,
    PROVIDER,
    REPRODUCIBLE,
    TENSORRT,
    TENSORRT_CACHE,
    WEIGHT_PREPROCESS,
)
from lar.records.choices import Allowed, Choice, Dimension

# What no search tries, and why.
NOT_TRIED: Mapping[Option[Any], str] = {
    CPU: "it is the default",
    MULTITHREAD_DEFAULT: "it is the same as --multithread here",
    ENABLE_NCHW88: "it is the default",
    WEIGHT_PREPROCESS: "it is the default",
    REPRODUCIBLE: "it can only slow down",
    DISABLE_MEM_OPT: "it takes more memory and no less time",
    TENSORRT_CACHE: "it shortens the load alone",
    ALLOW_EXTERNAL_DATA: "it changes nothing of a run",
    C_OPR_LIB: "a model needs its library or does not",
}

# The providers that another package than `onnxruntime` brings.
ON_NVIDIA = ("cuda", "tensorrt")
OTHERS = ("openvino", "dnnl", "migraphx", "rocm", "qnn", "vitisai", "cann")
NVIDIA_DRIVER = "/dev/nvidiactl"


def dimensions_of(site: Site) -> tuple[Dimension, ...]:
    """Return what can matter at a site, in the order in which candidates name it."""
    on_cpu = site.device == "cpu"
    table: dict[str, tuple[Choice, ...]] = {
        "provider": tuple(providers_here()) if on_cpu else (),
        "graph": (
            *([set_to(DISABLE_OPTIMIZER, (BLOCKED_LAYOUT,), "no-blocked-layout")] * on_cpu),
            set_to(GRAPH_OPTIMIZATION_LEVEL, "extended", "extended", for_full=True),
            set_to(GRAPH_OPTIMIZATION_LEVEL, "basic", "basic"),
            set_to(GRAPH_OPTIMIZATION_LEVEL, "disable", "no-optimisation", for_full=True),
        ),
        "threads": tuple(threads_for(site)) if on_cpu else (),
        "spinning": (turn_on(NO_SPINNING),) if on_cpu else (),
        "arena": (turn_on(NO_ARENA),) if on_cpu else (),
        "model": (
            Choice(
                name="optimised-model",
                search={FAST_RUN.key: True},
                cache=FAST_RUN_ALGO_POLICY.key,
                cache_depends=("graph", "threads"),
                # The same session comes of it, sooner and with less memory.
                objectives=("memory",),
            ),
        ),
        "copies": copies_dimension(site.cores).choices,
    }
    return tuple(Dimension(name=name, choices=choices) for name, choices in table.items())


def threads_for(site: Site) -> Iterator[Choice]:
    # The engine's own number is that of the cores, but for it the engine also binds the threads.
    yield set_to(CPU_DEFAULT, True, "1 thread")
    yield from thread_choices(site.cores, ((MULTITHREAD, ""),))


def providers_here() -> Iterator[Choice]:
    """Yield the providers besides the CPU's that the installed package has a library of."""
    for name in filter(library_of, (*ON_NVIDIA, *OTHERS)):
        if name not in ON_NVIDIA:
            yield set_to(PROVIDER, name, name)
        elif os.path.exists(NVIDIA_DRIVER):
            rounded: Allowed = "reduced-precision"
            if name == "tensorrt":
                yield set_to(TENSORRT, True, name, for_full=True, allow=rounded)
            else:
                yield Choice(name=name, options={CUDA.key: 0, NO_TF32.key: True})
                yield set_to(CUDA, 0, "cuda with TF32", allow=rounded)
