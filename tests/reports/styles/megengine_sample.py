"""A profile of which MegEngine's tool would have printed the table in its manual."""

from __future__ import annotations

import numpy as np

from lar.records.profile import (
    Execution,
    Profile,
    ProfiledOperator,
    ProfileFacts,
    Step,
    TensorFact,
)

SAMPLE = """\
-----------------  ---------
total device time  0.0118007
total host time    0.012106
-----------------  ---------

╒════════════════════╤══════════════╤════════════════════════════════╤═══════════════╤═════════╤══════════╤═════════════╤═════════════════╤═══════════════╕
│ device self time   │ cumulative   │ operator info                  │ computation   │ FLOPS   │ memory   │ bandwidth   │ in_shapes       │ out_shapes    │
╞════════════════════╪══════════════╪════════════════════════════════╪═══════════════╪═════════╪══════════╪═════════════╪═════════════════╪═══════════════╡
│ #0                 │ 0.000383     │ conv(FUSE_ADD_RELU[351],multi_ │ 231.21        │ 604.00  │ 9.48     │ 24.18       │ {1,512,14,14}   │ {1,512,7,7}   │
│ 0.000383           │ 3.2%         │ -  dv[0]:o89)[353]             │ MFLO          │ GFLOPS  │ MiB      │ GiB/s       │ {512,512,3,3}   │               │
│ 3.2%               │              │ ConvolutionForward             │               │         │          │             │                 │               │
│                    │              │ 353                            │               │         │          │             │                 │               │
├────────────────────┼──────────────┼────────────────────────────────┼───────────────┼─────────┼──────────┼─────────────┼─────────────────┼───────────────┤
│ #1                 │ 0.000697     │ conv(FUSE_ADD_RELU[383],multi_ │ 102.76        │ 327.08  │ 4.48     │ 13.92       │ {1,2048,7,7}    │ {1,512,7,7}   │
│ 0.000314           │ 5.9%         │ -  dv[0]:o100)[385]            │ MFLO          │ GFLOPS  │ MiB      │ GiB/s       │ {512,2048,1,1}  │               │
│ 2.7%               │              │ ConvolutionForward             │               │         │          │             │                 │               │
│                    │              │ 385                            │               │         │          │             │                 │               │
├────────────────────┼──────────────┼────────────────────────────────┼───────────────┼─────────┼──────────┼─────────────┼─────────────────┼───────────────┤
│ #2                 │ 0.000949     │ conv(FUSE_ADD_RELU[246],multi_ │ 231.21        │ 917.84  │ 3.21     │ 12.43       │ {1,256,28,28}   │ {1,256,14,14} │
│ 0.000252           │ 8.0%         │ -  dv[0]:o59)[248]             │ MFLO          │ GFLOPS  │ MiB      │ GiB/s       │ {256,256,3,3}   │               │
│ 2.1%               │              │ ConvolutionForward             │               │         │          │             │                 │               │
│                    │              │ 248                            │               │         │          │             │                 │               │
├────────────────────┼──────────────┼────────────────────────────────┼───────────────┼─────────┼──────────┼─────────────┼─────────────────┼───────────────┤
│ #3                 │ 0.00119      │ conv(FUSE_ADD_RELU[366],multi_ │ 102.76        │ 417.64  │ 4.48     │ 17.78       │ {1,2048,7,7}    │ {1,512,7,7}   │
│ 0.000246           │ 10.1%        │ -  dv[0]:o95)[368]             │ MFLO          │ GFLOPS  │ MiB      │ GiB/s       │ {512,2048,1,1}  │               │
│ 2.1%               │              │ ConvolutionForward             │               │         │          │             │                 │               │
│                    │              │ 368                            │               │         │          │             │                 │               │
├────────────────────┼──────────────┼────────────────────────────────┼───────────────┼─────────┼──────────┼─────────────┼─────────────────┼───────────────┤
│ #4                 │ 0.00143      │ conv(FUSE_ADD_RELU[346],multi_ │ 205.52        │ 881.88  │ 9.15     │ 38.34       │ {1,1024,14,14}  │ {1,2048,7,7}  │
│ 0.000233           │ 12.1%        │ -  dv[0]:o91)[361]             │ MFLO          │ GFLOPS  │ MiB      │ GiB/s       │ {2048,1024,1,1} │               │
│ 2.0%               │              │ ConvolutionForward             │               │         │          │             │                 │               │
│                    │              │ 361                            │               │         │          │             │                 │               │
╘════════════════════╧══════════════╧════════════════════════════════╧═══════════════╧═════════╧══════════╧═════════════╧═════════════════╧═══════════════╛
"""  # noqa: E501


# Name, id, shapes of data, weights and result, microseconds.
SAMPLE_ROWS = (
    ("conv(FUSE_ADD_RELU[351],multi_dv[0]:o89)[353]", (512, 14), (512, 512, 3), (512, 7), 382.8),
    ("conv(FUSE_ADD_RELU[383],multi_dv[0]:o100)[385]", (2048, 7), (512, 2048, 1), (512, 7), 314.18),
    ("conv(FUSE_ADD_RELU[246],multi_dv[0]:o59)[248]", (256, 28), (256, 256, 3), (256, 14), 251.907),
    ("conv(FUSE_ADD_RELU[366],multi_dv[0]:o95)[368]", (2048, 7), (512, 2048, 1), (512, 7), 246.049),
    (
        *("conv(FUSE_ADD_RELU[346],multi_dv[0]:o91)[361]", (1024, 14), (2048, 1024, 1)),
        *((2048, 7), 233.048),
    ),
)


def profile_of_sample() -> Profile:
    """The profile that the sample was printed from, as far as it can be seen."""
    operators, times_ns = [], []
    for name, (channels, size), (outputs, inputs, kernel), (_, result), microseconds in SAMPLE_ROWS:
        shapes = (
            (1, channels, size, size),
            (outputs, inputs, kernel, kernel),
            (1, outputs, result, result),
        )
        data, weights, written = (TensorFact(shape, "float32") for shape in shapes)
        operators.append(
            ProfiledOperator(
                id=name[-4:-1],
                type="ConvolutionForward",
                name=name,
                inputs=(data, weights),
                outputs=(written,),
                flops=2 * outputs * inputs * kernel**2 * result**2,
                size_bytes=4 * sum(int(np.prod(shape)) for shape in shapes),
            )
        )
        times_ns.append(round(microseconds * 1000))
    others = 60
    rest = 11_800_700 - sum(times_ns)
    for number in range(others):
        operators.append(ProfiledOperator(id=str(number), type="Elemwise", name=f"add{number}"))
        times_ns.append(rest // others + (number < rest % others))
    host_ns = 12_106_000 // len(operators)
    first_ns = 12_106_000 - host_ns * (len(operators) - 1)
    executions, at = [], 0
    for index, duration in enumerate(times_ns):
        dispatched = first_ns if index == 0 else host_ns
        executions.append(Execution(index, 0, 2, at, at + duration, 0, 0, dispatched, 1))
        at += duration
    return Profile(
        facts=ProfileFacts(engine="megengine", device="cuda"),
        operators=tuple(operators),
        steps=(Step(0, 0, at),),
        executions=tuple(executions),
    )
