"""What MegEngine's own profile file (`lar.profiles.megengine_file`) says, as lar's records."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from lar.engines.profiler import HOST_THREAD
from lar.profiles.intervals import merge_intervals, total_of
from lar.profiles.megengine_file import (
    RawFootprint,
    RawLayout,
    RawProfile,
    RawVariable,
    decode_raw,
)
from lar.records.profile import (
    Execution,
    MemoryChunk,
    MemoryPlan,
    Profile,
    ProfiledOperator,
    ProfileFacts,
    Step,
    TensorFact,
)

CALLING_THREAD = ("cpu:default", "multithread:default")
COMP_NODE = re.compile(r'CompNode\("([^"]*)"')
MODULE_PATH = re.compile(r"(\w+(?:\.\w+)*)\.\w+")


def operators_of(raw: RawProfile) -> tuple[ProfiledOperator, ...]:
    """Return the executed operators in the order of execution, those without a footprint too."""
    return tuple(operator_of(raw, key) for key in raw.graph_exec.comp_seq)


def operator_of(raw: RawProfile, key: str) -> ProfiledOperator:
    graph, footprint = raw.graph_exec, raw.profiler.opr_footprint.get(key)
    operator = graph.operator[key]
    inputs = [graph.var[number] for number in operator.input]
    written = [graph.var[number] for number in operator.output]
    outputs = [var for var in written if not var.name.endswith(":workspace")]
    workspaces = [var for var in written if var.name.endswith(":workspace")]
    known = footprint or RawFootprint()
    if footprint:
        outputs = outputs[: len(footprint.out_shapes)]
    return ProfiledOperator(
        id=key,
        type=operator.type,
        name=operator.name,
        module=module_of([var.name for var in inputs], [var.name for var in outputs]),
        inputs=facts_of(inputs, known.in_shapes, known.in_layouts or ()),
        outputs=facts_of(outputs, known.out_shapes),
        parameters=known.param or {},
        flops=known.computation,
        size_bytes=known.memory,
        workspace_bytes=workspace_bytes_of(workspaces),
        source="measured" if footprint else "none",
    )


def facts_of(
    variables: Sequence[RawVariable],
    shapes: Sequence[tuple[int, ...]],
    layouts: Sequence[tuple[int | str, ...]] = (),
) -> tuple[TensorFact, ...]:
    """Return what is known of variables; the footprint alone knows shapes of those that only the
    host reads."""
    facts = []
    for index, var in enumerate(variables):
        layout = var.mem_plan.layout if var.mem_plan else RawLayout()
        facts.append(
            TensorFact(
                shapes[index] if index < len(shapes) else layout.shape,
                dtype_of(layout.dtype),
                ",".join(map(str, layouts[index])) if index < len(layouts) else "",
            )
        )
    return tuple(facts)


def dtype_of(name: str) -> str:
    """Return a dtype as NumPy calls it; the quantised ones keep their names."""
    return name if name.startswith("Quantized") else name.lower()


def workspace_bytes_of(workspaces: Sequence[RawVariable]) -> int | None:
    """Return the size of a workspace, which is a vector of bytes."""
    sizes = [var.mem_plan.layout.shape for var in workspaces if var.mem_plan]
    return sum(shape[0] if shape else 0 for shape in sizes) if sizes else None


def module_of(inputs: Iterable[str], outputs: Iterable[str]) -> str:
    """Return the path of the layer: that of the weights, else that of the output's name."""
    weights = (name for name in inputs if name.endswith((".weight", ".bias")))
    for name in (*weights, *outputs):
        if found := MODULE_PATH.fullmatch(name):
            return found[1]
    return ""


def places_of(operators: Iterable[ProfiledOperator]) -> dict[str, int]:
    """Return the index of each operator by its id."""
    return {operator.id: index for index, operator in enumerate(operators)}


def threads_of(raw: RawProfile) -> dict[int, str]:
    """Return the threads: those of the host that dispatch, and one for each computing node."""
    return {number: name for number, name, _ in list_threads(raw)}


def list_threads(raw: RawProfile) -> list[tuple[int, str, list[str]]]:
    """List number, name and the engine's own names of each thread, in the order of their first
    operator. On some nodes the engine computes in the thread that dispatches."""
    sequence, times = raw.graph_exec.comp_seq, raw.profiler
    hosts = list(dict.fromkeys(name for key in sequence for name in times.host.get(key, ())))
    nodes = list(dict.fromkeys(name for key in sequence for name in times.device.get(key, ())))
    inplace = [name for name in nodes if node_of(name).startswith(CALLING_THREAD)]
    threads = [(HOST_THREAD, "host", hosts[:1] + inplace)]
    for name in nodes:
        if name not in inplace:
            threads.append((len(threads) + HOST_THREAD, node_of(name), [name]))
    for name in hosts[1:]:
        threads.append((len(threads) + HOST_THREAD, f"host {len(threads)}", [name]))
    return threads


def node_of(name: str) -> str:
    """Return `cpu0:0` of `CompNode("cpu0:0" from "cpu0:0")`."""
    found = COMP_NODE.match(name)
    return found[1] if found else name


def executions_of(
    raw: RawProfile,
    places: Mapping[str, int],
    *,
    step: int = 0,
    warmup: bool = False,
    host_offset_ns: int = 0,
    device_offset_ns: int = 0,
) -> tuple[Execution, ...]:
    """Return the executions on each computing node, in the order of time.

    `places` has the index of each operator (`places_of`); the offsets are added to the times, the
    host's to those of the dispatch. Of several dispatches of one operator the longest counts.
    """
    numbers = {own: number for number, _, names in list_threads(raw) for own in names}
    found = []
    for key in raw.graph_exec.comp_seq:
        begin = done = thread = None
        if dispatches := raw.profiler.host.get(key):
            name, longest = max(dispatches.items(), key=lambda item: item[1].end - item[1].start)
            begin = nanoseconds(longest.start) + host_offset_ns
            done = nanoseconds(longest.end) + host_offset_ns
            thread = numbers[name]
        for name, times in raw.profiler.device.get(key, {}).items():
            start = nanoseconds(times.start)
            found.append(
                Execution(
                    places[key],
                    step,
                    numbers[name],
                    start + device_offset_ns,
                    nanoseconds(times.end) + device_offset_ns,
                    nanoseconds(times.kern) - start,
                    begin,
                    done,
                    thread,
                    warmup,
                )
            )
    return tuple(sorted(found, key=lambda execution: execution.start_ns))


def nanoseconds(seconds: float) -> int:
    return round(seconds * 1e9)


def memory_plan_of(raw: RawProfile) -> MemoryPlan:
    """Return the static memory plan.

    A chunk is held from the operator that writes it to the last that reads a variable in it.
    Weights and inputs stay: they have neither, and are no part of `static_bytes`, which is what
    the others cover together.
    """
    graph = raw.graph_exec
    writers: dict[str, int] = {}
    users: dict[str, list[int]] = {}
    for index, key in enumerate(graph.comp_seq):
        operator = graph.operator[key]
        writers.update(dict.fromkeys(operator.output, index))
        for number in (*operator.input, *operator.output):
            plan = graph.var[number].mem_plan
            if plan:
                users.setdefault(plan.mem_chunk_id, []).append(index)
    chunks: list[MemoryChunk] = []
    planned: list[tuple[int, int]] = []
    for name, chunk in graph.mem_chunk.items():
        if not chunk.size:
            continue
        owner = graph.var[chunk.owner_var]
        stays = "PERSISTENT_DEVICE_VALUE" in owner.flag
        first = None if stays else writers.get(chunk.owner_var)
        last = None if stays else max(users.get(name, ()), default=None)
        chunks.append(MemoryChunk(chunk.dev_ptr, chunk.size, owner.name, first, last))
        if not stays:
            planned.append((chunk.dev_ptr, chunk.dev_ptr + chunk.size))
    return MemoryPlan(total_of(merge_intervals(planned)) if chunks else None, tuple(chunks))


def device_of(raw: RawProfile) -> str:
    """Return `cpu`, `cuda`, or what the first computing node is called."""
    nodes = [node_of(name) for times in raw.profiler.device.values() for name in times]
    kind = re.sub(r"\d*:.*", "", nodes[0]) if nodes else "cpu"
    return {"multithread": "cpu", "gpu": "cuda"}.get(kind, kind)


def profile_of_raw(data: bytes, name: str) -> Profile:
    """Return the profile of the one iteration that a file holds.

    Its step lasts from the first operator's start to the last one's end on the device's clock.

    Raises:
        UsageError: it is empty, truncated, foreign or damaged.
    """
    raw = decode_raw(data, name)
    operators = operators_of(raw)
    executions = executions_of(raw, places_of(operators))
    steps: tuple[Step, ...] = ()
    if executions:
        end = max(execution.end_ns for execution in executions)
        steps = (Step(0, executions[0].start_ns, end),)
    return Profile(
        facts=ProfileFacts(
            engine="megengine",
            device=device_of(raw),
            iterations=len(steps),
            dropped=("the host's times have another zero than the operators'",),
        ),
        operators=operators,
        steps=steps,
        executions=executions,
        memory_plan=memory_plan_of(raw),
        threads=threads_of(raw),
        engine_raw=data,
    )
