"""MegEngine's own profile, taken after each iteration.

Lite writes it into a file at the end of each wait, for which it needs longer than many a model:
the iteration ends at lite's finish callback, which comes before that. The graph driver is asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

from lar.engines.megengine.choice_log import ChoiceListener, algorithms_in
from lar.engines.megengine.clocks import (
    Iteration,
    alignments_of,
    fit_clocks,
    place_executions,
)
from lar.engines.megengine.profile_file import executions_of, memory_plan_of, threads_of
from lar.engines.megengine.profiled_graphs import ProfiledGraphs, placed_plan
from lar.engines.megengine.profiled_spans import allocations_of, kernel_spans, move_spans
from lar.engines.profiler import HOST_THREAD, EngineTrace
from lar.options.option import Option
from lar.options.table import PROFILE_FILES
from lar.profiles.megengine_file import decode_raw
from lar.records.profile import Allocation, MemoryPlan, Step
from lar.records.run import RunSpec

NAME = "MegEngine's profile"


def begin_profile(driver: Any, _: object) -> None:
    """Begin to profile, before the model is loaded."""
    if driver.profiler is not None:
        return  # for another of the options
    driver.profiler = MegEngineProfiler(driver)
    driver.profiler.listen()
    if driver.name == "graph":

        def attach(graph: Any) -> None:
            profiler = driver.tools.GraphProfiler(graph)
            driver.profiler.read = lambda: profiler.get().encode()

        driver.graph_setup.append(attach)


def take_profile(driver: Any, _: object) -> None:
    """Have a loaded network profile itself, and tell when an iteration ends."""
    if driver.name == "lite" and driver.profile_clock is None:
        place = Path(driver.context.written[asked_profile(driver).key] + ".engine")
        driver.network.enable_profile_performance(str(place))
        driver.profiler.read = place.read_bytes
        driver.profile_clock = ProfileClock(driver)
        driver.own_seconds = driver.profile_clock.own_seconds


def asked_profile(driver: Any) -> Option[str]:
    return next(each for each in PROFILE_FILES if each.key in driver.spec.settings)


class ProfileClock:
    """Tells how long a wait was the writing of the profile."""

    def __init__(self, driver: Any) -> None:
        from megenginelite.network import LiteFinishCallback

        self._now = driver.clock
        self._finished: float | None = None
        self._own_seconds = 0.0
        self.missed_count = 0  # waits in which the callback did not come
        # Not by LiteNetwork.set_finish_callback, which lets go of it when another one is set.
        self._callback = LiteFinishCallback(self._finish)
        driver.network._api.LITE_set_finish_callback(driver.network._network, self._callback)

    def _finish(self, inputs: Any, tensors: Any, count: int) -> int:
        self._finished = self._now()
        return 0

    def around(self, wait: Callable[[], int]) -> Callable[[], int]:
        """Return a wait whose end is looked at."""

        def wait_and_look() -> int:
            self._finished = None
            status = wait()
            returned = self._now()
            if self._finished is None:
                self.missed_count += 1
            self._own_seconds = returned - (self._finished or returned)
            return status

        return wait_and_look

    def own_seconds(self) -> float:
        """Return how long the last wait went on after the iteration had ended."""
        return self._own_seconds


class MegEngineProfiler:
    """Keeps what the engine tells of each iteration."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.read: Callable[[], bytes] = bytes
        self._graphs = ProfiledGraphs()
        self._iterations: list[Iteration] = []
        self._threads: dict[int, str] = {}
        self._plan = MemoryPlan()  # the largest
        # That of each iteration, where its memory is asked for; most have one and the same.
        self._plans: dict[int, MemoryPlan] = {}
        self._known_plans: dict[MemoryPlan, MemoryPlan] = {}
        self._last = b""
        self._choices: list[bytes] = []
        self._listener = ChoiceListener(self._choices.append)
        self._listened = False

    def listen(self) -> None:
        """Listen to the choices of algorithms until the first iteration has ended."""
        self._listened = self._listener.begin(asked_profile(self.driver).flag)

    def take(self, step: Step, forward_ns: int, dispatched_ns: int, waited_ns: int) -> None:
        """Keep what the engine has told of an iteration that has just ended."""
        self._listener.end()
        self._last = self.read()
        raw = decode_raw(self._last, NAME)
        if not raw.profiler.device:
            return  # nothing was computed: the first execution of --fake-first
        places = self._graphs.places_in(raw)
        self._threads |= threads_of(raw)
        executions = executions_of(raw, places, step=step.number, warmup=step.warmup)
        self._iterations.append(Iteration(step, forward_ns, dispatched_ns, waited_ns, executions))
        plan = placed_plan(memory_plan_of(raw), [*places.values()])
        self._plan = max(self._plan, plan, key=lambda each: each.static_bytes or 0)
        if "profile_memory" in self.driver.spec.settings:
            self._plans[step.number] = self._known_plans.setdefault(plan, plan)

    def finish(self) -> EngineTrace:
        """Return all that was kept, on the recorder's clock."""
        hosts, devices = fit_clocks(self._iterations)
        executions = place_executions(self._iterations, hosts, devices)
        choices = b"\n".join(self._choices).decode(errors="replace")
        algorithms = algorithms_in(choices)
        operators = self._graphs.operators_with(algorithms)
        device = self.driver.spec.device
        spans = move_spans(self._graphs, executions, device)
        if not device.startswith("cpu"):
            spans += kernel_spans(operators, self._graphs, executions, device)
        allocations: list[Allocation] = []
        for number, group in groupby(executions, key=lambda each: each.step):
            if plan := self._plans.get(number):
                allocations += allocations_of(plan, [*group], device)
        chosen = {kernel.type for kernel in algorithms}
        untold = sum(each.type in chosen and each.algorithm is None for each in operators)
        return EngineTrace(
            operators=operators,
            executions=tuple(executions),
            spans=tuple(spans),
            allocations=tuple(allocations),
            memory_plan=self._plan,
            threads={
                number: name for number, name in self._threads.items() if number != HOST_THREAD
            },
            thread_count=thread_count_of(self.driver.spec),
            alignments=(
                *alignments_of("MegEngine's host clock", hosts, self._iterations),
                *alignments_of("MegEngine's device clock", devices, self._iterations),
            ),
            dropped=tuple(self._dropped(untold, told_dispatch=bool(hosts))),
            engine_raw=self._last,
        )

    def _dropped(self, untold_count: int, *, told_dispatch: bool) -> Iterator[str]:
        """Yield what the engine could not tell, the algorithms of so many operators among it."""
        if self._iterations and not told_dispatch:
            yield "the dispatch of operators: the thread that dispatches computes them meanwhile"
        if not self._listened:
            yield "the algorithms of operators: this build of MegEngine does not tell them"
        elif untold_count:
            yield (
                f"the algorithms of {untold_count} operators: they are told in the first iteration "
                "alone, which had other shapes"
            )
        clock = getattr(self.driver, "profile_clock", None)
        if clock is not None and clock.missed_count:
            yield (
                f"the ends of {clock.missed_count} iterations: their times include the writing of "
                "MegEngine's profile"
            )


def thread_count_of(spec: RunSpec) -> int | None:
    """Return how many threads compute, None on a device."""
    if not spec.device.startswith("cpu"):
        return None
    settings = spec.settings
    return int(settings.get("multithread") or settings.get("multithread_default") or 1)
