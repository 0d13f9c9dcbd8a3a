"""Reads MegEngine's own profile after each iteration, and converts it to lar's records.

The module `lar.profiles.megengine_file` describes the format of the profile. At the end of each
wait, lite writes the profile, which may take longer than the computation of the model. Therefore
lar ends the iteration at lite's finish callback, which lite calls before it writes the profile.
With the graph driver, the engine returns its profile only when lar asks for it. A profiled run may
execute several graphs, one for each set of input shapes.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from lar.dumps import Kernel
from lar.dumps.graph import CONSTANT
from lar.engines.driver import HOST_THREAD, EngineTrace
from lar.engines.megengine.algorithms import ChoiceListener, algorithms_in
from lar.engines.megengine.clocks import Iteration, alignments_of, fit_clocks, place_executions
from lar.engines.megengine.graph_operators import parameters_of
from lar.engines.megengine.model_file import CONSTANTS, INPUT, operation_of
from lar.engines.megengine.operator_kinds import FACTS
from lar.engines.operator_facts import flops_of
from lar.engines.operator_times import DOTTED, RELAYOUT, bytes_of, copy_span, layer_in, moved_bytes
from lar.errors import count_of
from lar.options.option import Option
from lar.options.table import PROFILE_FILES, PROFILE_MEMORY
from lar.profiles.megengine_file import RawFootprint, RawLayout, RawProfile, decode_raw
from lar.profiles.times import merge_intervals, total_of
from lar.records import profile as records
from lar.records.profile import Execution, MemoryPlan, ProfiledOperator, TensorFact

if TYPE_CHECKING:
    from lar.engines.megengine.graph import GraphDriver
    from lar.engines.megengine.lite import LiteDriver
    from lar.profiles.megengine_file import RawOperator, RawVariable

Facts = Sequence[TensorFact]

CALLING_THREAD = ("cpu:default", "multithread:default")
COMP_NODE = re.compile(r'CompNode\("([^"]*)"')
# The number of an operator or variable in its name; it changes when a graph is compiled again.
NUMBER = re.compile(r"\[\d+\]")

PERSISTENT = "PERSISTENT_DEVICE_VALUE"
PLAN = "static plan"
COPIES, RELAYOUTS, SELECTIONS, VIEWS = (
    FACTS.moves[what] for what in ("copies", "relayouts", "selections", "views")
)


class OperatorReader:
    """Makes records of the operators that an iteration has executed.

    `keys` has a key for each variable, by the variable's number. The key is the name of the
    variable. If several variables have equal names, the key is the name followed by the number of
    the variable. `computed` has the numbers of the variables that are not constants.
    """

    def __init__(self, raw: RawProfile) -> None:
        self.graph, self.footprints = raw.graph_exec, raw.profiler.opr_footprint
        self.variables = self.graph.var
        counts = Counter(var.name for var in self.variables.values())
        self.keys = {
            number: var.name if counts[var.name] == 1 else f"{var.name}#{number}"
            for number, var in self.variables.items()
        }
        made = (self.graph.operator[key] for key in self.graph.comp_seq)
        computing = (each for each in made if not CONSTANT.fullmatch(each.type))
        self.computed = {number for each in computing for number in each.output}

    def read(self, key: str) -> ProfiledOperator:
        """Return the record of an operator.

        The operator's FLOPs and bytes are counted from the shapes of the iteration. The engine's
        own counts of FLOPs and bytes are for the shapes with which the graph was compiled.
        """
        operator, footprint = self.graph.operator[key], self.footprints.get(key)
        known = footprint or RawFootprint()
        given = [number for number in operator.output if not is_workspace(self.variables[number])]
        if footprint:
            given = given[: len(footprint.out_shapes)]
        inputs, outputs = ([self.variables[it] for it in each] for each in (operator.input, given))
        taken = facts_of(inputs, known.in_shapes, known.in_layouts or ())
        made = facts_of(outputs, known.out_shapes)
        workspaces = filter(is_workspace, (self.variables[number] for number in operator.output))
        plans = [var.mem_plan for var in workspaces if var.mem_plan]  # vectors of bytes
        return ProfiledOperator(
            id=key,
            type=operator.type,
            name=operator.name,
            module=module_of([var.name for var in inputs], [var.name for var in outputs]),
            inputs=taken,
            outputs=made,
            parameters=parameters_of(known.param),
            flops=flops_of_operator(operator.type, taken, made, known) if footprint else None,
            size_bytes=self.moved_bytes_of(operator, taken, made) if footprint else None,
            workspace_bytes=sum(sum(it.layout.shape) for it in plans) if plans else None,
            source="derived" if footprint else "none",
            reads=tuple(self.keys[number] for number in operator.input),
            writes=tuple(self.keys[number] for number in given),
            weights=tuple(self.keys[it] for it in operator.input if it not in self.computed),
        )

    def moved_bytes_of(self, operator: RawOperator, inputs: Facts, outputs: Facts) -> int | None:
        """Return how many bytes an operator reads and writes, None if a type's size is unknown.

        Views and constants move no bytes. Each input counts once. The bytes of a broadcast input
        are the bytes that the input takes in memory.
        """
        if self.moves_nothing(operator):
            return 0
        if operator.type in COPIES:
            written = bytes_of(outputs)
            return written and 2 * written
        plans = {number: self.variables[number].mem_plan for number in operator.input}
        facts = dict(zip(operator.input, inputs, strict=False))
        # Only the host reads variables without a memory plan, so they do not count.
        taken = {it: as_stored(facts[it], plan.layout) for it, plan in plans.items() if plan}
        picked = taken.keys() & operator.input[:1] if operator.type in SELECTIONS else ()
        return moved_bytes(taken, outputs, picked)

    def moves_nothing(self, operator: RawOperator) -> bool:
        """Return whether an operator moves no bytes, because its outputs need no copy.

        Constants, values on the host that are read in place, and views of inputs need no copy.
        """
        taken = [self.variables[number] for number in operator.input]
        given = [self.variables[number] for number in operator.output]
        made = [variable for variable in given if not is_workspace(variable)]
        if made and all(PERSISTENT in variable.flag for variable in made):
            return True
        places = {*map(chunk_of, taken)} - {None}
        return operator.type in VIEWS and bool(places) and places >= {*map(chunk_of, made)}


def operators_of(raw: RawProfile) -> tuple[ProfiledOperator, ...]:
    """Return all executed operators, even those without a footprint, in the order of execution."""
    return tuple(map(OperatorReader(raw).read, raw.graph_exec.comp_seq))


def is_workspace(variable: RawVariable) -> bool:
    return variable.name.endswith(":workspace")


def chunk_of(variable: RawVariable) -> str | None:
    return variable.mem_plan.mem_chunk_id if variable.mem_plan else None


def facts_of(
    variables: Sequence[RawVariable],
    shapes: Sequence[tuple[int, ...]],
    layouts: Sequence[tuple[int | str, ...] | None] = (),
) -> tuple[TensorFact, ...]:
    """Return the shape, type and layout of some variables.

    If only the host reads a variable, its shape comes from the operator's footprint. Types have
    NumPy's names, except quantised types, which keep MegEngine's names.
    """
    facts = []
    count = len(variables)
    for var, shape, layout in zip_longest(variables, shapes[:count], layouts[:count]):
        own = var.mem_plan.layout if var.mem_plan else RawLayout(shape or ())
        dtype = own.dtype if own.dtype.startswith("Quantized") else own.dtype.lower()
        facts.append(TensorFact(own.shape, dtype, ",".join(map(str, layout or ()))))
    return tuple(facts)


def module_of(inputs: Iterable[str], outputs: Iterable[str]) -> str:
    """Return the name of the model's layer that an operator belongs to.

    The layer's name is part of the names of the operator's weights. If the operator has no weights,
    the layer's name is part of the names of the operator's outputs.
    """
    weights = (name for name in inputs if name.endswith((".weight", ".bias")))
    return layer_in((*weights, *outputs), DOTTED)


def flops_of_operator(type: str, inputs: Facts, outputs: Facts, known: RawFootprint) -> int | None:
    """Return the number of operations of an operator, by the formulas of `operator_facts`.

    If lar has no formula for the operator's type, return the engine's own count, which may be None.
    """
    if type in (INPUT, *CONSTANTS):
        return 0
    taken, made = ([fact.shape for fact in facts] for facts in (inputs, outputs))
    flops = None
    # A parameter may be missing, or impossible in a damaged file.
    with contextlib.suppress(LookupError, TypeError, ValueError):
        parameters = known.param if isinstance(known.param, dict) else {}
        flops = flops_of(operation_of(type, taken, made, parameters))
    return flops if flops is not None and flops >= 0 else known.computation


def as_stored(fact: TensorFact, layout: RawLayout) -> TensorFact:
    """Return a tensor with its shape in memory, where a broadcast axis has the length 1."""
    if len(layout.stride) != len(fact.shape):
        return fact
    axes = zip(fact.shape, layout.stride, strict=True)
    return replace(fact, shape=tuple(axis if step else 1 for axis, step in axes))


def list_threads(raw: RawProfile) -> list[tuple[str, list[str]]]:
    """Return a list of the threads, each with its name in lar and its names in the engine.

    The host's first thread comes first. The threads of the computing nodes come second, and all
    other threads that dispatch come last. Threads of the same kind are in the order of their first
    operators. Some computing nodes belong to the host's first thread, since the engine computes
    their operators in the thread that dispatches these operators.
    """
    sequence, times = raw.graph_exec.comp_seq, raw.profiler
    hosts = list(dict.fromkeys(name for key in sequence for name in times.host.get(key, ())))
    nodes = list(dict.fromkeys(name for key in sequence for name in times.device.get(key, ())))
    inplace = [name for name in nodes if node_of(name).startswith(CALLING_THREAD)]
    threads = [("host", hosts[:1] + inplace)]
    threads += [(node_of(name), [name]) for name in nodes if name not in inplace]
    return threads + [(f"host {at}", [name]) for at, name in enumerate(hosts[1:], len(threads))]


def threads_of(raw: RawProfile) -> dict[int, str]:
    """Return the names of the threads by their numbers."""
    return dict(enumerate((name for name, _ in list_threads(raw)), start=HOST_THREAD))


def node_of(name: str) -> str:
    """Return the short name of a computing node (MegEngine's word for a device with a stream).

    The short name of `CompNode("cpu0:0" from "cpu0:0")` is `cpu0:0`.
    """
    found = COMP_NODE.match(name)
    return found[1] if found else name


def executions_of(
    raw: RawProfile, places: Mapping[str, int], *, step: int = 0, warmup: bool = False
) -> tuple[Execution, ...]:
    """Return the executions on all computing nodes in order of time, with the engine's times.

    `places` maps the id of each operator to its index. If an operator has several dispatches, the
    longest dispatch is used.
    """
    threads = enumerate(list_threads(raw), start=HOST_THREAD)
    numbers = {own: number for number, (_, names) in threads for own in names}
    found = []
    for key in raw.graph_exec.comp_seq:
        dispatch: tuple[int | None, int | None, int | None] = (None, None, None)
        if dispatches := raw.profiler.host.get(key):
            name, longest = max(dispatches.items(), key=lambda item: item[1].end - item[1].start)
            dispatch = nanoseconds(longest.start), nanoseconds(longest.end), numbers[name]
        for name, times in raw.profiler.device.get(key, {}).items():
            start, begin, end = map(nanoseconds, (times.start, times.kern, times.end))
            place = places[key], step, numbers[name]
            found.append(Execution(*place, start, end, begin - start, *dispatch, warmup))
    return tuple(sorted(found, key=lambda execution: execution.start_ns))


def nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def memory_plan_of(raw: RawProfile, places: Mapping[str, int]) -> MemoryPlan:
    """Return the static memory plan of a graph.

    `places` maps the id of each operator to its index. A chunk of memory is in use from the
    operator that writes it to the last operator that reads a variable in it. The chunks of weights
    and inputs are always in use. `static_bytes` is the size of the memory for all chunks, except
    the chunks of weights and inputs.
    """
    graph = raw.graph_exec
    writers: dict[str, int] = {}
    last_users: dict[str | None, int] = {}
    for key in graph.comp_seq:
        operator = graph.operator[key]
        writers.update(dict.fromkeys(operator.output, places[key]))
        used = (graph.var[number] for number in (*operator.input, *operator.output))
        last_users.update(dict.fromkeys(map(chunk_of, used), places[key]))
    chunks, planned = [], []
    for name, chunk in graph.mem_chunk.items():
        owner, first, last = graph.var[chunk.owner_var], None, None
        if chunk.size and PERSISTENT not in owner.flag:
            planned.append((chunk.dev_ptr, chunk.dev_ptr + chunk.size))
            first, last = writers.get(chunk.owner_var), last_users.get(name)
        if chunk.size:
            chunks.append(records.MemoryChunk(chunk.dev_ptr, chunk.size, owner.name, first, last))
    return MemoryPlan(total_of(merge_intervals(planned)) if chunks else None, tuple(chunks))


def device_of(raw: RawProfile) -> str:
    """Return the kind of the first computing node's device, such as `cpu` or `cuda`."""
    nodes = (node_of(name) for times in raw.profiler.device.values() for name in times)
    kind = re.sub(r"\d*:.*", "", next(nodes, "cpu"))
    return {"multithread": "cpu", "gpu": "cuda"}.get(kind, kind)


def profile_of_raw(data: bytes, _: str = "") -> records.Profile:
    """Return the profile in a profile file of MegEngine, which contains one iteration.

    The iteration lasts from the start of the first operator to the end of the last operator, on the
    device's clock.

    Raises:
        msgspec.MsgspecError, ValueError: the file is truncated or damaged, or is not a profile of
            MegEngine.
    """
    raw = decode_raw(data)
    places = {key: index for index, key in enumerate(raw.graph_exec.comp_seq)}
    executions = executions_of(raw, places)
    ends = [execution.end_ns for execution in executions]
    steps = (records.Step(0, executions[0].start_ns, max(ends)),) if executions else ()
    return records.Profile(
        facts=records.ProfileFacts(
            engine="megengine",
            device=device_of(raw),
            iterations=len(steps),
            dropped=("the host's times have another zero than the operators'",),
        ),
        operators=operators_of(raw),
        steps=steps,
        executions=executions,
        memory_plan=memory_plan_of(raw, places),
        threads=threads_of(raw),
        engine_raw=data,
    )


class ProfiledGraphs:
    """The operators of all graphs of a run, without repetitions.

    Operators of two graphs count as the same operator if their positions, types, names and shapes
    are equal. The ids of such operators may differ, since a graph that is compiled again has new
    ids.
    """

    def __init__(self) -> None:
        self.operators: list[ProfiledOperator] = []
        self._known: dict[object, int] = {}
        # The operators and tensors of the last graph, and the places of its operators.
        self._graph: object = None
        self._places: dict[str, int] = {}

    def places_in(self, raw: RawProfile) -> Mapping[str, int]:
        """Map the id of each operator of an iteration to the operator's index in `operators`.

        The ids are in the order of execution.
        """
        plans = [variable.mem_plan for variable in raw.graph_exec.var.values()]
        graph = raw.graph_exec.comp_seq, plans
        if graph != self._graph:
            places = enumerate(operators_of(raw))
            self._places = {each.id: self._place_of(position, each) for position, each in places}
            self._graph = graph
        return self._places

    def _place_of(self, position: int, operator: ProfiledOperator) -> int:
        name = NUMBER.sub("", operator.name)
        key = position, operator.type, name, operator.inputs, operator.outputs
        place = self._known.setdefault(key, len(self.operators))
        if place == len(self.operators):
            self.operators.append(operator)
        return place

    def operators_with(self, algorithms: Mapping[Kernel, str]) -> tuple[ProfiledOperator, ...]:
        """Return the operators, each with the algorithm that the engine has chosen."""
        return tuple(
            replace(operator, algorithm=algorithms.get(kernel_of(operator)))
            for operator in self.operators
        )


def kernel_of(operator: ProfiledOperator) -> Kernel:
    """Return the type and shapes of an operator, by which the engine chooses an algorithm."""
    tensors = (*operator.inputs, *operator.outputs[:1])
    return Kernel(operator.type, tuple(each.shape for each in tensors))


def spans_of(
    operators: Sequence[ProfiledOperator], executions: Iterable[Execution], device: str
) -> records.SpanColumns:
    """Return the spans of executions that copy a tensor or convert its layout.

    Views need no span. On CUDA, each execution that computes also has a span, with the name of its
    algorithm.
    """
    on_host = device.startswith("cpu")
    ends = ("host", "CPU") if on_host else ("device", "CUDA")
    spans = records.SpanColumns()
    for each in executions:
        operator, (start, end) = operators[each.operator], each.computation
        common: dict[str, Any] = {"thread": each.thread, "warmup": each.warmup}
        common["operator"] = each.operator
        common |= {} if on_host else {"device": device, "stream": each.thread}
        copies = operator.type in COPIES
        moves = (copies or operator.type in RELAYOUTS) and operator.size_bytes != 0
        if moves:
            source = "host" if on_host or operator.type == INPUT else "device"
            named = copy_span(source, *ends) if copies else RELAYOUT
            moved = {**named, "size_bytes": bytes_of(operator.outputs), "tensor": operator.name}
            spans.add(start, end, each.step, **moved, **common)
        if not on_host and each.compute_ns > 0 and not (copies and moves):
            name = operator.algorithm or operator.type
            spans.add(start, end, each.step, category="kernel", name=name, **common)
    return spans


def allocations_of(
    plan: MemoryPlan, executions: Iterable[Execution], device: str
) -> list[records.Allocation]:
    """Return the times at which the chunks of a memory plan are allocated and freed.

    `executions` has the executions of one iteration. A chunk is allocated when its first operator
    begins, and freed when its last operator ends. If the last operator writes its result into the
    memory of the chunk, the chunk is freed when the last operator begins.
    """
    times = {each.operator: each.interval for each in executions}
    planned = [
        (chunk, first, last)
        for chunk in plan.chunks
        if (first := chunk.first_operator) in times and (last := chunk.last_operator) in times
    ]
    made: defaultdict[int, list[records.MemoryChunk]] = defaultdict(list)
    for chunk, first, _ in planned:
        made[first].append(chunk)
    events = []
    for chunk, first, last in planned:
        over = any(overlap(chunk, each) for each in made[last] if each is not chunk)
        begin, end = times[first][0], times[last][0 if over else 1]
        # If two events have the same time, memory is freed before it is allocated.
        for at, operator, order, sign in ((begin, first, 1, 1), (end, last, 0 if over else 2, -1)):
            taken = at, sign * chunk.size_bytes, operator, chunk.address, device, PLAN
            events.append((at, operator, order, records.Allocation(*taken)))
    return [taken for *_, taken in sorted(events, key=lambda event: event[:3])]


def overlap(chunk: records.MemoryChunk, other: records.MemoryChunk) -> bool:
    first, second = sorted((chunk, other), key=lambda each: each.address)
    return second.address < first.address + first.size_bytes


def begin_profile(driver: LiteDriver | GraphDriver, _: object) -> None:
    """Begin to profile, before the model is loaded."""
    if driver.profiler is not None:
        return  # the hook of another profile option has run already
    driver.profiler = taken = MegEngineProfiler(driver)
    if driver.name == "graph":
        tools = driver.tools

        def attach(graph: Any) -> None:
            profiler = tools.GraphProfiler(graph)
            taken.read = lambda: profiler.get().encode()

        driver.graph_setup.append(attach)


def take_profile(driver: LiteDriver | GraphDriver, _: object) -> None:
    """Have a loaded network write its profile, and have it report the end of each iteration."""
    if driver.name == "lite" and driver.profile_clock is None:
        if not driver.runner:
            release_loaded("megengine")  # saves a third of a small model's memory
        place = Path(driver.context.written[asked_profile(driver).key] + ".engine")
        driver.network.enable_profile_performance(str(place))
        assert isinstance(driver.profiler, MegEngineProfiler)
        driver.profiler.read = place.read_bytes
        driver.profile_clock = ProfileClock(driver)
        driver.own_seconds = driver.profile_clock.own_seconds


def asked_profile(driver: LiteDriver | GraphDriver) -> Option[str]:
    return next(each for each in PROFILE_FILES if each.key in driver.spec.settings)


class ProfileClock:
    """Measures how much longer a wait takes because lite writes its profile during the wait."""

    def __init__(self, driver: LiteDriver) -> None:
        from megenginelite.network import LiteFinishCallback

        self._now = driver.clock
        self._finished: float | None = None
        self._own_seconds = 0.0
        self.missed_count = 0  # waits in which the callback did not come
        # LiteNetwork.set_finish_callback would drop its callback when another one is set.
        self._callback = LiteFinishCallback(self._finish)
        driver.network._api.LITE_set_finish_callback(driver.network._network, self._callback)

    def _finish(self, inputs: Any, tensors: Any, count: int) -> int:
        self._finished = self._now()
        return 0

    def around(self, wait: Callable[[], int]) -> Callable[[], int]:
        """Return a wait function that also records when the iteration and the wait have ended."""

        def wait_and_look() -> int:
            self._finished = None
            status = wait()
            returned = self._now()
            self.missed_count += self._finished is None
            self._own_seconds = returned - (self._finished or returned)
            return status

        return wait_and_look

    def own_seconds(self) -> float:
        """Return how many seconds the last wait went on after the iteration had ended."""
        return self._own_seconds


class MegEngineProfiler:
    """Collects the engine's profiles of all iterations."""

    def __init__(self, driver: LiteDriver | GraphDriver) -> None:
        self.driver = driver
        self.read: Callable[[], bytes] = bytes
        self._graphs = ProfiledGraphs()
        self._executions = records.ExecutionColumns()  # with times of the engine's clocks
        # The number of each iteration, its three times, and the range of its executions.
        self._iterations = records.RecordColumns(self._iteration, "qqqqqq")
        self._threads: dict[int, str] = {}
        self._plan = MemoryPlan()  # the largest
        # The plan of each iteration with --profile-memory; most iterations have the same plan.
        self._plans: dict[int, MemoryPlan] = {}
        self._known_plans: dict[MemoryPlan, MemoryPlan] = {}
        self._last = b""
        self._choices: list[bytes] = []
        # Choices are collected until the first iteration has ended.
        self._listener = ChoiceListener(self._choices.append)
        self._listened = self._listener.begin(asked_profile(driver).flag)

    def take(self, step: records.Step, forward_ns: int, dispatched_ns: int, waited_ns: int) -> None:
        """Store the engine's profile of the iteration that has just ended."""
        self._listener.end()
        self._last = self.read()
        raw = decode_raw(self._last)
        if not raw.profiler.device:
            return  # the first execution of --fake-first computes nothing
        places = self._graphs.places_in(raw)
        self._threads |= threads_of(raw)
        first = len(self._executions)
        self._executions.extend(executions_of(raw, places, step=step.number, warmup=step.warmup))
        times = forward_ns, dispatched_ns, waited_ns
        self._iterations.add(step.number, *times, first, len(self._executions))
        plan = memory_plan_of(raw, places)
        self._plan = max(self._plan, plan, key=lambda each: each.static_bytes or 0)
        if PROFILE_MEMORY.is_given(self.driver.spec.settings):
            self._plans[step.number] = self._known_plans.setdefault(plan, plan)

    def _iteration(self, *values: int) -> Iteration:
        number, forward_ns, dispatched_ns, waited_ns, first, last = values
        return Iteration(number, forward_ns, dispatched_ns, waited_ns, self._executions[first:last])

    def finish(self) -> EngineTrace:
        """Return the profiles of all iterations, with times converted to the recorder's clock."""
        hosts, devices = fit_clocks(self._iterations)
        executions = self._executions
        executions.rewrite(place_executions(self._iterations, hosts, devices))
        algorithms = algorithms_in(b"\n".join(self._choices).decode(errors="replace"))
        operators = self._graphs.operators_with(algorithms)
        device = self.driver.spec.device
        allocations: list[records.Allocation] = []
        for number, group in groupby(executions if self._plans else (), key=lambda each: each.step):
            if plan := self._plans.get(number):
                allocations += allocations_of(plan, [*group], device)
        chosen = {kernel.type for kernel in algorithms}
        unknown = sum(each.type in chosen and each.algorithm is None for each in operators)
        return EngineTrace(
            operators=operators,
            executions=executions,
            spans=spans_of(operators, executions, device),
            allocations=tuple(allocations),
            memory_plan=self._plan,
            threads={key: name for key, name in self._threads.items() if key != HOST_THREAD},
            thread_count=self.driver.thread_count(),
            alignments=(
                *alignments_of("MegEngine's host clock", hosts, self._iterations),
                *alignments_of("MegEngine's device clock", devices, self._iterations),
            ),
            dropped=tuple(self._dropped(unknown, has_dispatches=bool(hosts))),
            engine_raw=self._last,
        )

    def _dropped(self, unknown_count: int, *, has_dispatches: bool) -> Iterator[str]:
        """Yield the facts that the engine could not report, as texts for the user."""
        if self._iterations and not has_dispatches:
            yield "the dispatch of operators: the thread that dispatches computes them meanwhile"
        if not self._listened:
            yield "the algorithms of operators: this build of MegEngine does not report them"
        elif unknown_count:
            operators = f"the algorithms of {count_of(unknown_count, 'operator')}"
            yield f"{operators}: reported in the first iteration alone, which had other shapes"
        clock = getattr(self.driver, "profile_clock", None)
        if clock is not None and clock.missed_count:
            ends = f"the ends of {count_of(clock.missed_count, 'iteration')}"
            yield f"{ends}: their times include the writing of MegEngine's profile"


def release_loaded(folder: str) -> None:
    """On Linux, release the memory of loaded libraries whose path contains the folder `folder`.

    Only read-only memory that was never written is released. If the memory is needed again, the
    system reads the memory's content again, from the page cache or from the file.
    """
    if sys.platform != "linux":
        return
    advise, do_not_need = ctypes.CDLL(None).madvise, 4
    advise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    with contextlib.suppress(OSError), open("/proc/self/smaps") as file:
        for line in file:
            word, _, rest = line.partition(" ")
            if not word.endswith(":"):  # addresses, permissions and more, the path
                begin = end = 0
                if f"/{folder}/" in rest and rest[1] == "-":
                    begin, end = (int(address, 16) for address in word.split("-"))
            elif end and word == "Anonymous:" and rest.split()[0] == "0":
                advise(begin, end - begin, do_not_need)
