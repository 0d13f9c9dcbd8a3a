"""The toy engine's own profile: the mean time of each operator, as JSON."""

from __future__ import annotations

import json
from dataclasses import replace

from lar.engines.driver import EngineTrace
from lar.engines.operator_times import OperatorTimes, executions_in
from lar.records.profile import Profile, ProfiledOperator, ProfileFacts, Step


class ToyProfiler(OperatorTimes):
    def finish(self) -> EngineTrace:
        rows = zip(self.operators, self.read(), strict=True)
        raw = {"toy_profile": [[each.name, each.type, ns] for each, ns in rows]}
        return replace(super().finish(), engine_raw=json.dumps(raw).encode())


def profile_of_raw(data: bytes, name: str) -> Profile:
    """Return the profile in the file of --profile-raw, as one iteration."""
    rows = json.loads(data)["toy_profile"]
    durations = [ns for _, _, ns in rows]
    step = Step(0, 0, sum(durations))
    return Profile(
        facts=ProfileFacts(engine="toy", driver="reference", iterations=1, times="mean"),
        operators=tuple(ProfiledOperator(id=it, type=kind, name=it) for it, kind, _ in rows),
        steps=(step,),
        executions=[*executions_in(step, 0, durations)],
    )
