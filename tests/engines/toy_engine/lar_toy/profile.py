"""The toy engine's profile: the mean time of each operator."""

from __future__ import annotations

import json
from typing import Any

from lar.engines.driver import HOST_THREAD, EngineTrace
from lar.records.profile import Execution, Profile, ProfiledOperator, ProfileFacts, Step


class ToyProfiler:
    """Sums up the times of operators, and gives their means when the last iteration has ended."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver
        self.steps: list[tuple[Step, int]] = []  # each with the begin of its dispatch

    def take(self, step: Step, forward_ns: int, dispatched_ns: int, waited_ns: int) -> None:
        self.steps.append((step, forward_ns))

    def finish(self) -> EngineTrace:
        means = {name: sum(of) // len(of) for name, of in self.driver.seen_ns.items()}
        shortest = min(step.end_ns - at for step, at in self.steps)
        whole = sum(means.values()) or 1
        # A mean may be longer than an iteration that was shorter than most.
        fitted = {name: min(ns, ns * shortest // whole) for name, ns in means.items()}
        types = {name: kind for name, kind, _ in self.driver.steps}
        raw = {"toy_profile": [[name, types[name], ns] for name, ns in fitted.items()]}
        return EngineTrace(
            operators=operators_in(raw),
            executions=[it for step, at in self.steps for it in executions_in(raw, step, at)],
            thread_count=1,
            times="mean",
            engine_raw=json.dumps(raw).encode(),
        )


def operators_in(raw: dict[str, Any]) -> tuple[ProfiledOperator, ...]:
    return tuple(
        ProfiledOperator(id=name, type=kind, name=name) for name, kind, _ in raw["toy_profile"]
    )


def executions_in(raw: dict[str, Any], step: Step, at: int) -> list[Execution]:
    """Put the operators one after the other into an iteration."""
    found = []
    for index, (_, _, ns) in enumerate(raw["toy_profile"]):
        times = (at, at + ns)
        found.append(Execution(index, step.number, HOST_THREAD, *times, warmup=step.warmup))
        at += ns
    return found


def profile_of_raw(data: bytes) -> Profile:
    """Return the profile in the file of --profile-raw, as one iteration."""
    raw = json.loads(data)
    step = Step(0, 0, sum(ns for _, _, ns in raw["toy_profile"]))
    return Profile(
        facts=ProfileFacts(engine="toy", driver="reference", iterations=1, times="mean"),
        operators=operators_in(raw),
        steps=(step,),
        executions=executions_in(raw, step, 0),
    )
