"""An engine that is played: its iterations take given times, on a clock of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable


class Server:
    """A driver whose iterations take given times, on a clock of its own."""

    rearm: Callable[[], object] | None = None
    after_iteration: Callable[[], object] | None = None
    record: Callable[[float, float, float], object] | None = None
    own_seconds: Callable[[], float] | None = None
    device_seconds: Callable[[], float] | None = None

    def __init__(self, services: Iterable[float]) -> None:
        self.services = iter(services)
        self.now = 0.0
        self.slept = 0.0
        self.spun = 0.0
        self.clock: Callable[[], float] = lambda: self.now
        self.sleep: Callable[[float], object] = self.pass_asleep
        self.spin: Callable[[float], object] = self.pass_awake
        self.start: Callable[[], object] = lambda: None
        self.wait: Callable[[], object] = self.serve

    def pass_asleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept += seconds

    def pass_awake(self, seconds: float) -> None:
        self.now += seconds
        self.spun += seconds

    def serve(self) -> None:
        self.now += next(self.services)

    def failure(self) -> Exception:
        return RuntimeError("the reason")
