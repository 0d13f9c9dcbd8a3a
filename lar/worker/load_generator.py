"""MLPerf's load generator, which decides when queries come and whether a run is valid.

LoadGen has its own thread, and calls back with the samples of each query. The samples wait in a
queue for the runners. Each runner stays in the thread that loaded its model, since some engines
work in no other thread. The queue takes some microseconds, which LoadGen counts as latency.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from lar.errors import LarError, UsageError, first_line
from lar.measurement.machine import installed_version
from lar.records.run import Scenario, ScenarioResult

PACKAGE = "mlcommons-loadgen"
DETAILED_LOG = "mlperf_log_detail.txt"
LINE_START = ":::MLLOG "
# The queue adds at least this time to each iteration.
QUEUE_SECONDS = 5e-6
# LoadGen draws the samples of a query from this many samples. All have the same input.
SAMPLES_IN_LIBRARY = 1024


def import_loadgen() -> Any:
    """Import LoadGen, and return its module.

    Raises:
        UsageError: LoadGen is not installed.
    """
    try:
        import mlperf_loadgen
    except ImportError:
        problem, hint = "MLPerf's LoadGen is not installed", f"install it: uv pip install {PACKAGE}"
        raise UsageError(problem, hint, flag="--scenario") from None
    return mlperf_loadgen


@dataclass(eq=False)
class LoadGenerator:
    """Sends the queries of a scenario to runners.

    Attributes:
        batch: how many samples one iteration computes.

    Raises:
        UsageError: LoadGen is not installed.
    """

    scenario: Scenario
    batch: int
    runners: int
    log_folder: str
    loadgen: Any = field(default_factory=import_loadgen)
    waiting: SimpleQueue[list[int]] = field(default_factory=SimpleQueue)

    def start(self, iteration_seconds: float) -> None:
        """Start LoadGen; `iteration_seconds` is the shortest time of an iteration.

        LoadGen makes its queries in advance. The number of queries depends on `iteration_seconds`.
        """
        self.ended = ThreadPoolExecutor(1).submit(self.generate, iteration_seconds + QUEUE_SECONDS)

    def serve(self, iterate: Callable[[], object]) -> None:
        """Run an iteration for each batch of samples that one runner takes from the queue."""
        response = self.loadgen.QuerySampleResponse
        for samples in iter(self.waiting.get, []):
            iterate()
            self.loadgen.QuerySamplesComplete([response(number, 0, 0) for number in samples])

    def finish(self) -> ScenarioResult:
        """Wait for the end of LoadGen, and return its result.

        Raises:
            LarError: LoadGen failed, or wrote no result.
        """
        if (error := self.ended.exception()) is not None:
            raise LarError(f"LoadGen failed: {first_line(error)}") from error
        return read_result(Path(self.log_folder, DETAILED_LOG), installed_version(PACKAGE))

    def generate(self, iteration_seconds: float) -> None:
        """Let LoadGen issue all queries; then end every runner with an empty batch."""
        loadgen, sizes = self.loadgen, (SAMPLES_IN_LIBRARY, SAMPLES_IN_LIBRARY)
        logs = loadgen.LogSettings()
        logs.log_output.outdir, logs.enable_trace = self.log_folder, False
        try:
            system = loadgen.ConstructSUT(self.issue, lambda: None)
            samples = loadgen.ConstructQSL(*sizes, lambda them: None, lambda them: None)
            settings = self.settings(iteration_seconds)
            loadgen.StartTestWithLogSettings(system, samples, settings, logs)
            loadgen.DestroyQSL(samples)
            loadgen.DestroySUT(system)
        finally:
            for _ in range(self.runners):
                self.waiting.put([])

    def issue(self, samples: Sequence[Any]) -> None:
        """Put the samples of a query into the queue, in batches."""
        numbers = [sample.id for sample in samples]
        for first in range(0, len(numbers), self.batch):
            self.waiting.put(numbers[first : first + self.batch])

    def settings(self, iteration_seconds: float) -> Any:
        """Return LoadGen's settings for the scenario, with the default mode, a performance test."""
        loadgen, scenario = self.loadgen, self.scenario
        settings = loadgen.TestSettings()
        # The scenario "single-stream" is called SingleStream.
        settings.scenario = getattr(loadgen.TestScenario, scenario.name.title().replace("-", ""))
        settings.min_duration_ms = round(scenario.min_seconds * 1e3)
        settings.min_query_count = scenario.min_queries
        for seed in ("qsl_rng_seed", "sample_index_rng_seed", "schedule_rng_seed"):
            setattr(settings, seed, scenario.seed)
        iterations = -(-scenario.samples_per_query // self.batch)
        settings.single_stream_expected_latency_ns = round(iteration_seconds * 1e9)
        settings.multi_stream_expected_latency_ns = round(iteration_seconds * iterations * 1e9)
        settings.multi_stream_samples_per_query = scenario.samples_per_query
        settings.offline_expected_qps = self.batch * self.runners / iteration_seconds
        settings.server_target_qps = scenario.target_rate or 1.0
        settings.server_target_latency_ns = round(scenario.target_latency_seconds * 1e9)
        return settings


def read_result(log: Path, version: str = "") -> ScenarioResult:
    """Read LoadGen's detailed log: each line has a JSON object with a key and a value.

    Raises:
        LarError: the log is missing, or has no result.
    """
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError as error:
        raise LarError(f"LoadGen wrote no log: {error.strerror}", subject=log) from None
    values, errors = dict[str, Any](), list[str]()
    for line in lines:
        # Some lines are not JSON: LoadGen does not quote all of its own strings.
        with contextlib.suppress(ValueError):
            entry = json.loads(line.partition(LINE_START)[2])
            values[entry["key"]] = entry["value"]
            errors += [str(entry["value"])] if entry["metadata"]["is_error"] else []
    if "result_validity" not in values:
        raise LarError("LoadGen's log has no result", subject=log)
    valid = values["result_validity"] == "VALID"
    return ScenarioResult(
        version=version,
        valid=valid,
        reasons=() if valid else (*reasons_in(values), *errors),
        figures={
            key: float(value)
            for key, value in values.items()
            if key.startswith(("result_", "early_stopping_latency"))
            and type(value) in (int, float)
            and math.isfinite(value)
        },
    )


# The reasons why LoadGen calls a run invalid, by the condition's name in its log.
CONDITIONS = {
    "result_min_duration_met": "the run was shorter than asked for",
    "result_min_queries_met": "there were fewer queries than asked for",
    "result_perf_constraints_met": "too many queries were answered late",
    "early_stopping_met": "there were too few queries for the percentile",
}


def reasons_in(values: Mapping[str, object]) -> Iterator[str]:
    """Yield the reasons why a run is not valid."""
    yield from (reason for key, reason in CONDITIONS.items() if values.get(key) is False)
    for key in ("result_invalid_reason", "early_stopping_result"):
        if said := " ".join(str(values.get(key, "")).replace("*", " ").split()):
            yield f"LoadGen says: {said}"
