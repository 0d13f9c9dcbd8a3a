"""The printed lines of a run are the ones that scripts in the field parse."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lar import __version__
from lar.measurement.rows import NAN, SampleRows
from lar.records import events
from lar.records.events import Fed, Judged, Loaded
from lar.records.run import (
    MEASURED,
    AlgorithmChoice,
    Case,
    FedInput,
    ItemClasses,
    NoiseSources,
    NumericError,
    OutputSummary,
    RunResult,
    RunSpec,
    Samples,
    Scenario,
    ScenarioResult,
)
from lar.reports.run_text import (
    CaseLines,
    format_accuracy,
    format_algorithms,
    format_classes,
    format_event,
    format_finish,
    format_ms,
    format_note,
    format_profile,
    format_scenario,
    format_summary,
)
from tests.conftest import RunLar, WriteScript
from tests.tables import each_row

# What load_and_run printed for a resnet50 on a telephone, from its manual; without the command and
# the line with the versions.
LOG = Path(__file__).parents[1] / "data" / "load_and_run" / "manual_8.4.txt"
MANUAL = LOG.read_text().split("\n", 2)[2].partition("\n\n")[0] + "\n"
CASES = Case(name="first"), Case(name="second")
LINE = r"iter \d+/10: ([\d.]+)ms \(exec=([\d.]+),device=([\d.]+)\)"
MANUAL_TIMES = [("581.284", "10", "580"), *re.findall(LINE, MANUAL)]
SPEC = RunSpec(model="m.fake", engine="fake", driver="script")


def result_of(*end_to_end: float, **fields: Any) -> RunResult:
    count = len(end_to_end)
    samples = Samples(
        end_to_end=end_to_end,
        host=(0.0,) * count,
        device=(None,) * count,
        queue_delay=fields.pop("queue_delay", (None,) * count),
        **{name: fields.pop(name) for name in MEASURED if name in fields},
    )
    return RunResult(spec=SPEC, status="ok", phase="done", samples=samples, **fields)


def test_a_run_prints_the_manuals_lines_byte_for_byte(
    run_lar: RunLar, write_script: WriteScript
) -> None:
    script = write_script(
        load_seconds=0.198030,
        prepare_seconds=0.005846,
        times=[[float(time) / 1000 for time in times] for times in MANUAL_TIMES],
    )
    first, _, rest = run_lar(script, "--iter", "10", code=0).stdout.partition("\n")
    assert first == f"lar {__version__}: using the scripted engine 1 (script)"
    assert rest[: len(MANUAL)] == MANUAL
    own = [line.split(":")[0] for line in rest[len(MANUAL) :].splitlines()]
    assert own == ["latency", "throughput", "peak memory"]


@each_row("reports/cases/milliseconds")
def test_times_are_milliseconds_with_three_decimals(seconds: float | None, text: str) -> None:
    assert format_ms(seconds) == text


@each_row("reports/cases/percentiles")
def test_percentiles_are_told_where_the_samples_support_them(count: int, line: str) -> None:
    lines = format_summary(result_of(*[number / 1000 for number in range(1, count + 1)]))
    assert lines[0][: len(line)] == line
    assert lines[0].endswith(")") == (count < 100)


@each_row("reports/cases/cost of the profiler")
@pytest.mark.parametrize("key", ["profile", "profile_host"])
def test_a_profiled_run_says_what_the_profiler_cost(
    key: str, plain: list[float], line: str | None
) -> None:
    spec = replace(SPEC, settings={key: "p.json"})
    result = replace(result_of(*plain), spec=spec, profiled=Samples(end_to_end=(0.006,)))
    assert format_profile(result) == [f"profile: p.json; {line}" if line else "profile: p.json"]
    assert format_profile(replace(result, status="failed")) == []
    assert format_profile(result_of(0.006)) == []


@each_row("reports/cases/ends of tests")
def test_the_line_that_ends_a_test(times: list[float], end: str) -> None:
    assert format_finish(result_of(*times)) == [f"=== finished test #0: {end}"]
    assert format_finish(result_of()) == format_summary(result_of()) == []


def test_the_summary_tells_throughput_and_memory() -> None:
    lines = format_summary(result_of(0.1, 0.3, peak_memory_bytes=3 * 2**20))
    assert lines[1:] == ["throughput: 5.000 iterations/s", "peak memory: 3.0 MiB"]
    assert format_summary(result_of(0.0))[-1] == "throughput: N/A"
    line = format_summary(result_of(*[0.1 + 0.001 * ((7 * index) % 20) for index in range(20)]))[0]
    assert re.match(r"latency: min=100.000ms median=109.500ms interval=[\d.]+,[\d.]+ms p90=", line)


def test_interrupted_runners_have_the_throughput_of_their_own_rates() -> None:
    """The time that all took is not known."""
    result = result_of(0.1, 0.1, 0.2, 0.2)
    spec = replace(SPEC, iterations=2, settings={"thread": 2})
    cut = replace(result, spec=spec, samples=replace(result.samples, runner=(0, 0, 1, 1)))
    assert "throughput: 15.000 iterations/s over 2 runners" in format_summary(cut)


def test_disturbed_iterations_are_noted() -> None:
    result = result_of(
        *(0.1, 0.1, 0.1, 0.1),
        queue_delay=(0.02, 0.001, 0.03, 0.0),
        steal=(0.0, 0.0, 0.0, 0.04),
        throttled=(0.0, 0.0, 0.05, 0.0),
        frequency=(2e9, 1e9, 2e9, 2e9),
    )
    lines = format_summary(result)
    assert lines[0] == (
        "note: trust neither the latency nor the CPU time, median=N/A: "
        "4 of 4 iterations were disturbed"
    )
    assert lines[-1] == (
        "note: disturbed iterations: 2 waited for a CPU that other work held; "
        "1 lost time to other guests of the host; 1 were throttled; "
        "1 ran at a lower frequency than the others"
    )
    beside_probes = format_summary(result_of(*[0.1, 0.2] * 10, probe=(2e-6, 4e-6) * 10))
    assert beside_probes[-1].endswith(" iterations: 10 ran on a core that others slowed down")
    calm = format_summary(result_of(1, 1, queue_delay=(0.0, 0.001)))
    assert not any("disturbed" in line for line in calm)


def test_a_run_says_what_is_not_seen_on_its_machine() -> None:
    sources = NoiseSources(queue_delay="schedstat", cpu="clock", steal="/proc/stat")
    lines = format_summary(result_of(0.1, noise_sources=sources))
    assert lines[-1] == "note: not seen on this machine: throttled, heat, frequency"
    everything = NoiseSources(**dict.fromkeys(vars(NoiseSources()), "there"))
    for known in (everything, None):  # None: by an older lar
        assert "not seen" not in format_summary(result_of(0.1, noise_sources=known))[-1]


def test_outputs_that_are_not_finite_are_warned_about() -> None:
    output = OutputSummary(
        name="prob",
        dtype="float32",
        shape=(3,),
        minimum=0,
        maximum=1,
        mean=0.5,
        nonfinite_count=1,
        sha256="",
    )
    result = replace(result_of(), outputs=(output, replace(output, name="fine", nonfinite_count=0)))
    assert format_summary(result) == ["warning: output prob holds 1 NaN or infinite value"]


def test_generated_inputs_are_noted_and_warnings_passed_on() -> None:
    fed = FedInput(
        name="data", dtype="float32", shape=(1, 3), source="uniform, seed 0", generated=True
    )
    given = replace(fed, source="data.npy", generated=False)
    (note,) = format_note(Fed((fed,), ()), SPEC)
    assert note.startswith(
        "lar: note: no --input: data is generated (uniform, seed 0): data float32"
    )
    assert format_note(Fed((given,), ("odd",)), SPEC) == ["lar: warning: odd"]
    assert format_note(Loaded(0.1, ()), SPEC) == []
    assert format_note(Fed((fed,), ()), replace(SPEC, inputs=("{1,3}",))) == []


@each_row("reports/cases/lines left out")
def test_runs_without_warmup_or_iterations_leave_their_lines_out(
    run_lar: RunLar, write_script: WriteScript, arguments: list[str], lines: list[str]
) -> None:
    done = run_lar(write_script(times=[[0.1, 0.01, 0.09]]), *arguments, code=0)
    found = done.stdout.splitlines()[1:]
    ends = ("latency:", "throughput:", "peak memory:")
    contract = [line for line in found if not line.startswith(ends)]
    assert len(contract) == len(lines)
    assert all(line.startswith(begin) for line, begin in zip(contract, lines, strict=True))
    assert ("going to warmup" in contract[1]) == ("warmup 0" in lines)


def case_lines(warmups: int, iterations: int, rows: int) -> tuple[CaseLines, list[str], RunResult]:
    """The lines of a run over two testcases that took so many rows, of 1 s, 2 s, ..."""
    spec = replace(SPEC, iterations=iterations, warmup_iterations=warmups, cases=CASES)
    table = SampleRows.anonymous(rows)
    for index in range(rows):
        table.append(index + 1.0, 0.5, NAN, NAN)
    lines = CaseLines(spec)
    lines.add(table, 0, rows)
    taken = [line for _ in range(rows - 1) for line in lines.take(Judged(0, "", ()))]
    return lines, [line for line in taken if line], RunResult(spec=spec, status="ok", phase="done")


@each_row("reports/cases/tests and their iterations")
def test_each_test_ends_after_its_iterations(
    warmups: int, iterations: int, rows: int, averages: list[str], total: int, why: str
) -> None:
    lines, taken, result = case_lines(warmups, iterations, rows)
    whole = [*taken, *lines.finish(result)]
    ends = [line for line in whole if line.startswith("=== finished test")]
    assert [f"#{number}: " in line for number, line in enumerate(ends)] == [True] * len(averages)
    assert [line.partition("avg_time=")[2].partition("ms")[0] for line in ends] == averages, why
    assert whole[-1] == f"=== total time: {1000 * total}.000ms"
    assert sum(line.startswith("warmup ") for line in whole) == warmups
    assert sum(line.startswith("iter ") for line in whole) == rows - warmups


def spec_of(names: tuple[str, ...] = (), items: int = 0) -> RunSpec:
    return replace(SPEC, class_names=names, item_names=tuple(map(str, range(items))))


def item_of(*classes: int, label: int | None = None) -> ItemClasses:
    scores = tuple(0.5 / (place + 1) for place in range(len(classes)))
    return ItemClasses(number=0, name="a.png", classes=classes, scores=scores, label=label)


@pytest.mark.parametrize(
    ("item", "names", "line"),
    [
        (item_of(2, 0, 1), (), "a.png: top-1 2 (0.5), top-5 2 0 1"),
        (item_of(2, 0, label=0), (), "a.png: top-1 2 (0.5), top-5 2 0, is 0"),
        (item_of(1), ("cat", "dog"), "a.png: top-1 1 dog (0.5), top-5 1"),
        (item_of(2), ("cat", "dog"), "a.png: top-1 2 (0.5), top-5 2"),  # without a name
        (item_of(), (), "a.png: the first output has no classes"),
    ],
)
def test_an_item_has_its_best_classes(item: ItemClasses, names: tuple[str, ...], line: str) -> None:
    assert format_classes(item, spec_of(names)) == line


def accuracy_of(*items: ItemClasses, count: int = 0) -> list[str]:
    spec = spec_of(items=count or len(items))
    return format_accuracy(RunResult(spec=spec, status="ok", phase="done", items=items))


def test_the_accuracy_counts_the_items_with_a_label() -> None:
    items = (item_of(1, 2, label=1), item_of(1, 2, label=2), item_of(1, label=3), item_of(label=1))
    assert accuracy_of(*items) == ["accuracy: top-1 25.00% (1 of 4), top-5 50.00% (2 of 4)"]
    (line,) = accuracy_of(*items[:1], count=3)
    assert line == (
        "accuracy: top-1 100.00% (1 of 1), top-5 100.00% (1 of 1); 2 unfinished items skipped"
    )


SHAPES = "ConvBiasForward {1,4,8,8,4} -> {1,8,8,8,4} Float32"


def choice_of(seconds: float | None = 0.002, other: float | None = 0.008) -> AlgorithmChoice:
    return AlgorithmChoice(
        operator="ConvBiasForward",
        shapes="{1,4,8,8,4} -> {1,8,8,8,4} Float32",
        algorithm="WINOGRAD:X:4:4:8:3",
        winograd="F(4,3)",
        seconds=seconds,
        other_algorithm="DIRECT" if other is not None else "",
        other_seconds=other,
    )


DIRECT = AlgorithmChoice(operator="ConvBiasForward", shapes="{1,1}", algorithm="DIRECT")


def algorithm_lines(*choices: AlgorithmChoice, errors: tuple[NumericError, ...] = ()) -> list[str]:
    return format_algorithms(
        RunResult(spec=SPEC, status="ok", phase="done", algorithms=choices, numeric_errors=errors)
    )


def test_the_choice_of_winograd_is_told_with_its_times_and_its_error() -> None:
    errors = (
        NumericError(output="prob", absolute=1.25e-6, relative=1e-6),
        NumericError(output="odd", absolute=None, relative=None),
    )
    assert algorithm_lines(choice_of(), DIRECT, errors=errors) == [
        "winograd: 1 of 2 kinds of convolution",
        "error of winograd in prob: at most 1.25e-06, relative 1e-06",
        "error of winograd in odd: NaN or infinite values in one run alone",
        f"  F(4,3) 2.000ms, DIRECT 8.000ms: {SHAPES}",
    ]
    assert algorithm_lines() == []


def test_a_convolution_that_the_search_did_not_time_has_no_times() -> None:
    assert algorithm_lines(choice_of(None, None))[-1] == f"  F(4,3) N/A: {SHAPES}"


@each_row("reports/cases/scenarios")
def test_a_scenario_has_its_figure_its_latencies_and_the_verdict(
    given: dict[str, Any], figures: dict[str, float], reasons: list[str], lines: list[str]
) -> None:
    spec = replace(SPEC, scenario=Scenario(**given))
    found = ScenarioResult(version="6", valid=not reasons, reasons=tuple(reasons), figures=figures)
    assert format_scenario(replace(result_of(), spec=spec, scenario=found)) == lines
    assert format_scenario(result_of()) == format_scenario(replace(result_of(), spec=spec)) == []


@each_row("reports/cases/lines of events")
def test_the_line_of_an_event(
    kind: str, event: dict[str, Any], given: dict[str, Any], line: str
) -> None:
    spec = msgspec.convert({"model": "m", "engine": "fake", "driver": "script", **given}, RunSpec)
    text = format_event(msgspec.convert(event, getattr(events, kind)), spec)
    assert text.removeprefix(f"lar {__version__}: ") == line
