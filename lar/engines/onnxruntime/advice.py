"""What settings of ONNX Runtime may save in the run of a profile, by what the profile shows.

Its defaults fit most models: as many threads as cores, its blocked layout, all optimisations. So a
setting is named only where a figure speaks against a default, or where the run has turned one off.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from math import prod

from lar.engines.engine import Site
from lar.engines.onnxruntime.dimensions import dimensions_of
from lar.engines.onnxruntime.operator_kinds import KINDS
from lar.options.table import (
    BATCH_SIZE,
    CPU_DEFAULT,
    DISABLE_OPTIMIZER,
    GRAPH_OPTIMIZATION_LEVEL,
    MULTI_THREAD_CORE_IDS,
    MULTITHREAD,
    MULTITHREAD_DEFAULT,
    NO_ARENA,
    NO_SPINNING,
    THREAD,
)
from lar.profiles.recommendations import Figure, Prospect, Shown, figure_of_threads
from lar.records.choices import Choice
from lar.records.profile import ProfiledOperator

REORDERS = frozenset({"reorderinput", "reorderoutput"})
HEAVY = ("conv", "deconv", "matmul")
# Instructions that multiply int8 several at a time.
OF_INT8 = frozenset({"avx512_vnni", "avx_vnni", "amx_int8", "asimddp"})

# The parts of the time concerned that settings save, where they were measured.
MORE_THREADS = 0.7
LEVEL = 0.2  # from the level basic to all
PLAIN_LAYOUT = 0.7  # of the conversions
# Threads that wait for each other in operators that are so short save nothing.
LEAST_DIVIDED_NS = 20_000
SHORT_ITERATION_NS = 100_000
ONE_THREAD = 0.15
# Where others compute so many CPUs' worth, threads that spin take it from them.
BUSY_CPUS = 0.5
# Threads that sleep are woken for each operator that is divided among them, all but the shortest.
WAKING_NS, LEAST_WOKEN_NS = 7_000, 5_000
# Without the arena the system gives memory for so many elements anew each time, and clears it.
LEAST_ELEMENTS = 32_768
ARENA = 0.06
FEWER_THREADS = 0.05
# Notes.
LEAST_OF_INT8 = 0.5
LEAST_OUTSIDE = 0.3


def prospects_of(shown: Shown, site: Site) -> Iterator[Prospect]:
    """Yield the settings that a profile speaks for, in any order; those that the run has set, and
    those that save too little, are among them."""
    work = Work(shown, site)
    yield from work.lowered_defaults()
    if site.device == "cpu":
        yield from work.threads()
        yield from work.conversions()
        yield from work.busy_machine()
        yield from work.sleeping_threads()
        yield from work.memory()
        yield from work.integers()
    yield from work.batches()


class Work:
    """What ONNX Runtime computes in a profile, and what can be chosen for it at the site."""

    def __init__(self, shown: Shown, site: Site) -> None:
        self.shown, self.site = shown, site
        self.facts = shown.profile.facts
        self.given = self.facts.options

    @cached_property
    def choices(self) -> Mapping[str, Choice]:
        """What a search would try, by name."""
        found = dimensions_of(self.site)
        return {choice.name: choice for each in found for choice in each.choices}

    @cached_property
    def heavy(self) -> float:
        """The part of an iteration that convolutions and matrix products take."""
        return self.shown.share(lambda it: KINDS.kinds.get(it.type.lower()) in HEAVY)

    @property
    def threads_set(self) -> tuple[str, ...]:
        """The keys of the options that the run has set for its threads."""
        taken = (MULTITHREAD, MULTITHREAD_DEFAULT, MULTI_THREAD_CORE_IDS, CPU_DEFAULT)
        return tuple(each.key for each in taken if each.is_given(self.given))

    @property
    def thread_count(self) -> int:
        """How many threads the engine was given: by itself as many as there are cores."""
        if CPU_DEFAULT.is_given(self.given):
            return 1
        given = MULTITHREAD.of(self.given) or MULTITHREAD_DEFAULT.of(self.given)
        return given or len(self.site.cores)

    def lowered_defaults(self) -> Iterator[Prospect]:
        """Yield the defaults that the run has turned off, although they usually help."""
        level = GRAPH_OPTIMIZATION_LEVEL.of(self.given)
        taken = [GRAPH_OPTIMIZATION_LEVEL] if level in ("disable", "basic", "extended") else []
        taken += [DISABLE_OPTIMIZER] if DISABLE_OPTIMIZER.is_given(self.given) else []
        for option in taken:
            yield Prospect(
                "optimisation",
                Choice(name=f"without {option.flag}"),
                LEVEL * self.heavy,
                Figure(
                    self.heavy,
                    f"convolutions and matrix products take {self.shown.part(self.heavy)}, "
                    f"with {option.flag} {self.given[option.key]}",
                ),
                0.0,
                "have the engine fuse and arrange them as it does by itself",
                (option.key,),
            )

    def threads(self) -> Iterator[Prospect]:
        """Yield all cores where the run was given fewer, and one where operators are too short to
        be divided."""
        now, cores = self.thread_count, len(self.site.cores)
        if THREAD.is_given(self.given):
            return
        idle = self.shown.idle_cpus
        free = cores - now if idle is None else min(cores - now, round(idle))
        long = self.shown.share(lambda _: True, LEAST_DIVIDED_NS)
        if self.threads_set and free > 0:
            yield Prospect(
                "idle cores",
                Choice(name="all threads"),
                long * (1 - 1 / (1 + MORE_THREADS * free / now)),
                Figure(
                    long,
                    f"operators of {LEAST_DIVIDED_NS / 1e3:.0f} us and more take {long:.1%} of an "
                    f"iteration on {now} of {cores} cores",
                ),
                0.0,
                "let the engine take all cores",
                self.threads_set,
            )
        whole = min(self.shown.whole_ns, self.shown.unprofiled_ns)
        if now > 1 and 0 < whole < SHORT_ITERATION_NS:
            yield Prospect(
                "short operators",
                self.choices["1 thread"],
                ONE_THREAD * (1 - long),
                Figure(
                    1 - long,
                    f"an iteration takes {whole / 1e3:.0f} us, and its operators are too short to "
                    f"be divided among {now} threads",
                ),
                0.0,
                "compute in one",
            )
        figure = figure_of_threads(self.shown.profile)
        if figure is not None and figure.share < 0.5 and now > 1:
            name = f"{now // 2} threads" if now > 3 else "1 thread"
            if name in self.choices:
                yield Prospect(
                    "threads",
                    self.choices[name],
                    FEWER_THREADS,
                    figure,
                    0.5,
                    "run on fewer threads",
                    self.threads_set,
                )

    def conversions(self) -> Iterator[Prospect]:
        """Yield the plain layout where conversions to the blocked one take much of the time."""
        share = self.shown.share(lambda it: it.type.lower() in REORDERS)
        if share > 0.10:
            yield Prospect(
                "copies",
                self.choices["no-blocked-layout"],
                PLAIN_LAYOUT * share,
                Figure(
                    share,
                    f"conversions to the blocked layout and back take {self.shown.part(share)}",
                ),
                0.10,
                "keep the operators in one layout",
            )

    @property
    def busy_with_others(self) -> float | None:
        """On how many CPUs other processes computed, None if that was not measured."""
        cpu = self.facts.cpu
        if cpu.system_percent is None or cpu.process_percent is None or not cpu.count:
            return None
        return (cpu.count * cpu.system_percent - cpu.process_percent) / 100

    def busy_machine(self) -> Iterator[Prospect]:
        """Yield a note on threads that spin where other processes need the CPUs. It is no setting
        to try: iterations that nothing disturbs are slower without."""
        cpu, now, others = self.facts.cpu, self.thread_count, self.busy_with_others
        if others is None or now < 2 or NO_SPINNING.is_given(self.given):
            return
        if others >= BUSY_CPUS and now + others > cpu.count:
            yield Prospect(
                "busy machine",
                None,
                0.0,
                Figure(
                    others / cpu.count,
                    f"other processes computed on {others:.1f} of {cpu.count} CPUs while {now} "
                    "threads of this one spun between operators",
                ),
                BUSY_CPUS / cpu.count,
                f"where they must share the CPUs, {NO_SPINNING.flag} lets threads that wait sleep",
            )

    def sleeping_threads(self) -> Iterator[Prospect]:
        """Yield threads that spin again where nothing else needs the CPUs."""
        others, whole = self.busy_with_others, self.shown.whole_ns
        is_calm = others is not None and others < BUSY_CPUS
        if (
            not NO_SPINNING.is_given(self.given)
            or not is_calm
            or self.thread_count < 2
            or not whole
        ):
            return
        waking = min(1.0, WAKING_NS * self.divided_calls / whole)
        yield Prospect(
            "spinning",
            Choice(name=f"without {NO_SPINNING.flag}"),
            waking,
            Figure(
                waking,
                f"threads that sleep are woken for {self.divided_calls:.0f} operators of an "
                f"iteration, which may take {self.shown.part(waking)}",
            ),
            0.0,
            "have them wait awake, as nothing else needs the CPUs",
            (NO_SPINNING.key,),
        )

    @property
    def divided_calls(self) -> float:
        """The executions of operators in an iteration that several threads may share."""
        single, whole = self.shown.single_ns, self.shown.operator_ns
        return sum(whole[it] / ns for it, ns in single.items() if ns >= LEAST_WOKEN_NS)

    def memory(self) -> Iterator[Prospect]:
        """Yield the arena again, where the run has turned it off and large tensors are written."""
        if not NO_ARENA.is_given(self.given):
            return
        share = self.shown.share(writes_much)
        yield Prospect(
            "arena",
            Choice(name=f"without {NO_ARENA.flag}"),
            ARENA * share,
            Figure(
                share,
                f"operators that give {LEAST_ELEMENTS:,} elements and more take "
                f"{self.shown.part(share)}, and the system gives their memory anew each time",
            ),
            0.0,
            "have the engine keep it",
            (NO_ARENA.key,),
        )

    def integers(self) -> Iterator[Prospect]:
        """Yield a note on quantisation where the processor multiplies int8 faster."""
        sets = sorted(OF_INT8 & self.site.instruction_sets)
        share = self.shown.share(is_float_product)
        if sets and share > LEAST_OF_INT8:
            yield Prospect(
                "quantisation",
                None,
                0.0,
                Figure(
                    share,
                    f"float32 convolutions and matrix products take {self.shown.part(share)}, "
                    f"and the processor multiplies int8 several at a time ({sets[0]})",
                ),
                LEAST_OF_INT8,
                "a model that is quantised to int8 may be faster, with other numbers",
            )

    def batches(self) -> Iterator[Prospect]:
        """Yield a note on larger batches where much time passes outside of operators."""
        whole = self.shown.whole_ns
        outside = 1 - self.shown.computing_ns / whole if whole else 0.0
        if outside > LEAST_OUTSIDE and not BATCH_SIZE.is_given(self.given):
            yield Prospect(
                "batch",
                None,
                0.0,
                Figure(outside, f"{self.shown.part(outside)} pass outside of operators"),
                LEAST_OUTSIDE,
                f"for more items in a second, feed several at once with {BATCH_SIZE.flag}",
            )


def is_float_product(operator: ProfiledOperator) -> bool:
    """Return whether an operator is a convolution or a matrix product of float32."""
    is_heavy = KINDS.kinds.get(operator.type.lower()) in HEAVY
    # The first input is what is multiplied: further ones of a quantised operator are its scales.
    return is_heavy and any(each.dtype in ("float", "float32") for each in operator.inputs[:1])


def writes_much(operator: ProfiledOperator) -> bool:
    """Return whether an operator gives a tensor whose memory comes from the system each time where
    the engine keeps none."""
    return any(prod(each.shape) >= LEAST_ELEMENTS for each in operator.outputs)
