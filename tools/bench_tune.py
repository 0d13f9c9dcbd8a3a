"""Measures what `lar tune` finds: against the engine's own search, all there is, and the plain run.

    uv run python tools/bench_tune.py [--count N] [--budget S] [--seed N] [FIGURE ...]

prints the table of `lar help benchmarks`. Large models are made in `models/large` first. All
figures with all repetitions take some hours; `--count` makes fewer of each.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bench_farm
from bench import LAR, PYTHON, RESNET50, ROOT, run_quietly
from figures import Figure, Outcome, Settings, measure_figures, note, repeat, run_json

import lar
from lar.records.bench import BenchResult
from lar.records.tuning import RankedCandidate, TuneResult
from lar.results.regressions import GAP_SECONDS

ALLOWED = "engine-fixes,engine-env"
SMALL = tuple(
    str(ROOT / "models" / f"{name}.{suffix}")
    for name in ("digits_cnn", "mobilenet_v2")
    for suffix in ("mge", "onnx")
)
LARGE = ROOT / "models" / "large"
# Seconds in which a variant of a comparison is measured.
COMPARE_SECONDS = 20.0
# Two winners may be compared for so long: `--layout-transform` chooses anew at each load, by which
# processes differ by a half; otherwise it ends sooner.
WINNERS_SECONDS = 180.0
# An exhaustive search has so many budgets.
EXHAUSTIVE_BUDGETS = 2.0
KILLS = 20
# Slow algorithms that are put into a cache.
PLANTED = 6
# Tuned settings are run again after so many sittings, which show how much sittings differ.
SITTINGS = 4
WORKERS = 4
# A session of the scripted engine takes about so long.
LANDSCAPE_SECONDS = 120.0

# The scripted engine's options: two that help together, wrong numbers, a crash, a hang, a search.
LANDSCAPE: dict[str, Any] = {
    "times": [[0.010, 0.001, None]],
    "outputs": {"prob": [0.25, 0.75]},
    "search_seconds": 2.0,
    "search_depends": ["enable_nchw44"],
    "dimensions": [
        {
            "name": "layout",
            "choices": [
                {"name": "nchw44", "options": {"enable_nchw44": True}},
                {"name": "nchw32", "options": {"enable_nchw32": True}},
                {"name": "nchw88", "options": {"enable_nchw88": True}},
            ],
        },
        {
            "name": "algorithms",
            "choices": [
                {
                    "name": "fast-run",
                    "search": {"fast_run": True},
                    "cache": "fast_run_algo_policy",
                    "cache_depends": ["layout"],
                }
            ],
        },
        {
            "name": "threads",
            "choices": [
                {"name": "2 threads", "options": {"multithread": 2}},
                {"name": "in the caller", "options": {"cpu_default": True}},
            ],
        },
        {"name": "shapes", "choices": [{"name": "const", "options": {"const_shape": True}}]},
    ],
    "effects": [
        {"when": {"enable_nchw44": True}, "factor": 0.8},
        {"when": {"multithread": 2}, "factor": 0.6},
        {"when": {"enable_nchw44": True, "multithread": 2}, "factor": 0.7},
        {"when": {"fast_run_algo_policy": True}, "factor": 0.7},
        {"when": {"const_shape": True}, "factor": 0.97},
        {"when": {"cpu_default": True}, "fault": {"at": "start", "index": 1, "do": "abort"}},
        {"when": {"enable_nchw32": True}, "factor": 0.2, "error": 0.01},
        {"when": {"enable_nchw88": True}, "fault": {"at": "load", "do": "hang"}},
    ],
}


def measure_engine_search(settings: Settings) -> Outcome:
    """Tune ResNet50, and compare the result with the engine's own searches and single options."""
    make_large("resnet50")
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        found, tuned = tune(RESNET50, folder, settings.budget_seconds)
        variants = {"plain": RESNET50, "tuned": f"{RESNET50} --settings {tuned}"}
        for option in ("fast-run", "full-run"):
            cache = folder / f"{option}.cache"
            began = time.monotonic()
            search = [LAR, RESNET50, f"--{option}", "--fast-run-algo-policy", str(cache)]
            run_quietly([*search, "--iter", "0"])
            note(f"{option}: {time.monotonic() - began:.0f} s")
            variants[option] = f"{RESNET50} --fast-run-algo-policy {cache}"
        for each in best_single_options(found, 3):
            variants[each.name] = f"{RESNET50} {flags_of(each)}"
        result = compare([*variants.values()], COMPARE_SECONDS * len(variants))
        names = dict(zip((it.name for it in result.variants), variants, strict=True))
        ratios = {names[it.name]: it.difference.ratio for it in result.variants if it.difference}
        tuned_ratio = ratios.pop("tuned")
        others = ", ".join(f"{name} {1 / ratio:.2f}x" for name, ratio in ratios.items())
        return Outcome(
            f"{1 / tuned_ratio:.2f}x ({winner_of(found).name}); {others}",
            all(tuned_ratio <= 1.01 * ratio for ratio in ratios.values()),
        )


def measure_exhaustive(settings: Settings) -> Outcome:
    """Tune models in a quarter of the time of an exhaustive search, and compare the winners."""
    make_large("resnet18")
    models = [*SMALL, str(LARGE / "resnet18.mge"), str(LARGE / "resnet18.onnx")]
    ratios, parts = [], []
    for at in repeat(settings):
        model = models[at % len(models)]
        with tempfile.TemporaryDirectory() as place:
            exhaustive_seconds = EXHAUSTIVE_BUDGETS * settings.budget_seconds
            whole, best = tune(model, Path(place), exhaustive_seconds, "--space", "full")
            seconds = spent_in(whole)
            quick, tuned = tune(model, Path(place, "quick"), seconds / 4)
            first, second = (f"{model} --settings {each}" for each in (best, tuned))
            ratio = ratio_of(first, second, WINNERS_SECONDS, "--margin", "3%")
        ratios.append(ratio)
        parts.append(spent_in(quick) / seconds)
        note(
            f"{Path(model).name}: {winner_of(whole).name} in {seconds:.0f} s, "
            f"{winner_of(quick).name} in {spent_in(quick):.0f} s, ratio {ratio:.3f}"
        )
    return Outcome(
        f"ratio {min(ratios):.2f} to {max(ratios):.2f}, in {max(parts):.2f} of the time",
        max(ratios) <= 1.05,
    )


def measure_never_slower(settings: Settings) -> Outcome:
    """Tune models for a short time, and compare what won with the plain run in fresh processes."""
    slower = 0
    gains = []
    for at in repeat(settings):
        model = SMALL[at % len(SMALL)]
        with tempfile.TemporaryDirectory() as place:
            found, tuned = tune(model, Path(place), settings.budget_seconds / 4)
            result = compare([model, f"{model} --settings {tuned}"], COMPARE_SECONDS)
        difference = result.variants[1].difference
        slower += difference is not None and difference.verdict == "slower"
        gains.append(difference.ratio if difference else 1.0)
        note(f"{Path(model).name}: {winner_of(found).name}, ratio {gains[-1]:.3f}")
    return Outcome(
        f"{settings.repetitions - slower} of {settings.repetitions}, median ratio "
        f"{statistics.median(gains):.2f}",
        not slower,
    )


def measure_kills(settings: Settings) -> Outcome:
    """Kill a search at random moments until it ends; compare it with one that nobody killed."""
    draw = random.Random(settings.seed)
    same = 0
    repeated = 0
    kills = []
    for _ in repeat(settings):
        with landscape() as model:
            whole = run_json("tune", model, "--session", f"{model}.whole", *quick_words())
            command = [LAR, "tune", model, "--session", f"{model}.killed", *quick_words()]
            count = 0
            while count < KILLS and kill_after(command, draw.uniform(0.3, 2.0)):
                count += 1
            killed = run_json(*command[1:])
        names = [[each["name"] for each in it["ranking"]] for it in (whole, killed)]
        both = set(names[0]) & set(names[1])  # what is worth its time depends on the time
        orders = [[name for name in each if name in both] for each in names]
        same += orders[0] == orders[1] and names[0][0] == names[1][0]
        repeated += max(0, count_repeated(killed) - count_repeated(whole))
        kills.append(count)
    return Outcome(
        f"{same} of {settings.repetitions} with the same ranking, {sum(kills)} kills, "
        f"{repeated} candidates screened or searched twice",
        same == settings.repetitions and not repeated,
    )


def measure_planted(settings: Settings) -> Outcome:
    """Plant slow algorithms into a searched cache, have them found, and compare the caches."""
    model = str(ROOT / "models" / "mobilenet_v2.mge")
    words = [model, "--fast-run-algo-policy"]
    with tempfile.TemporaryDirectory() as place:
        slow, better = (str(Path(place, f"{name}.cache")) for name in ("slow", "better"))
        run_quietly([LAR, *words, slow, "--fast-run", "--iter", "0"])
        planted = slower_algorithms(slow)[:PLANTED]
        for number, name in planted:
            run_quietly([LAR, "cache", "pick", slow, str(number), name, "-o", slow])
        found = run_json(
            *("tune", model, "--algorithms", slow, "-o", better, "--json", "-"),
            *("--budget", f"{settings.budget_seconds:g}"),
        )
        changed = sum(it["after"] != it["before"] for it in found["operators"])
        text = f"{len(planted)} planted, {changed} operators with a faster one"
        if not found["written"]:
            return Outcome(f"{text}, not written: {found['reason']}", False)
        ratio = ratio_of(" ".join([*words, slow]), " ".join([*words, better]))
    return Outcome(f"{text}, ratio {ratio:.2f} in fresh processes", ratio < 1)


def slower_algorithms(cache: str) -> list[tuple[int, str]]:
    """Return the number and the second best algorithm of the operators in a cache, those first that
    lose most time with it."""
    found = []
    operators = run_json("cache", "show", cache, "--json", "-")["operators"]
    for number, operator in enumerate(operators, 1):
        first, *others = operator["algorithms"]
        if others:
            second = min(others, key=lambda it: it["seconds"])
            found.append((second["seconds"] - first["seconds"], number, second["name"]))
    return [(number, name) for _, number, name in sorted(found, reverse=True)]


def measure_wrong_numbers(settings: Settings) -> Outcome:
    """Search with all that is known to be wrong in the space; compare the winners' outputs."""
    models = [
        str(ROOT / "models" / name)
        for name in ("mobilenet_v2.mge", "int8.mge", "uint8_input.mge", "int8.onnx")
    ]
    wrong, rejected = [], Counter[str]()
    for at in repeat(settings):
        with landscape() as script, tempfile.TemporaryDirectory() as place:
            model = [*models, script][at % (len(models) + 1)]
            words = ("--space", "full", "--allow", f"{ALLOWED},reduced-precision")
            found, tuned = tune(model, Path(place), settings.budget_seconds, *words)
            names = [it.name for it in found.ranking if it.status == "wrong"]
            rejected[Path(model).stem] += len(names)
            note(f"{Path(model).name}: {winner_of(found).name}; rejected: {', '.join(names)}")
            if model != script:
                if not gives_the_same(model, tuned):
                    wrong.append(Path(model).name)
            elif "nchw32" in winner_of(found).candidate.choices:
                wrong.append("planted")
    return Outcome(
        f"{len(wrong)} accepted, {sum(rejected.values())} rejected", not wrong and bool(rejected)
    )


def measure_reproduced(settings: Settings) -> Outcome:
    """Run tuned settings again in fresh processes, and check them against the search's samples.

    A shared machine is of another speed every few minutes. How much that is, sittings in between
    show: without them nothing could be judged.
    """
    verdicts = []
    with tempfile.TemporaryDirectory() as place:
        folders = [Path(place, str(at)) for at in range(settings.repetitions)]
        commands, stores = [], []
        for at, folder in zip(repeat(settings), folders, strict=True):
            model = SMALL[at % len(SMALL)]
            stores.append(["--store", f"{folder}.sqlite"])
            saved = ["--save", *stores[-1], "--tag", "tuned"]
            found, tuned = tune(model, folder, settings.budget_seconds / 4, *saved)
            note(f"{Path(model).name}: {winner_of(found).name}")
            commands.append([LAR, model, "--settings", tuned, "--target-ci", "1%"])
        for sitting in range(SITTINGS + 1):
            tag = "again" if sitting == SITTINGS else "between"
            for command, store in zip(commands, stores, strict=True):
                for _ in range(5):
                    run_quietly([*command, "--max-time", "3", "--save", *store, "--tag", tag])
            if sitting < SITTINGS:
                time.sleep(1.1 * GAP_SECONDS)
        for store in stores:
            check = [LAR, "history", "check", *store, "--tag", "again", "--baseline", "tuned"]
            done = subprocess.run(check, capture_output=True, text=True, check=False)
            note(done.stdout + done.stderr)
            verdicts.append((done.returncode == 0, "not judged" not in done.stdout))
    held, judged = (sum(column) for column in zip(*verdicts, strict=True))
    return Outcome(
        f"{held} of {settings.repetitions}, {judged} could be judged",
        held == judged == settings.repetitions,
    )


def measure_farm(settings: Settings) -> Outcome:
    """Have four workers make runs of the scripted engine, and kill one of them halfway."""
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "sleeps.fake")
        seconds = bench_farm.SECONDS
        script.write_text(json.dumps({"times": [[seconds, 0.01, seconds]], "real_time": True}))
        row = bench_farm.measure("script", str(script), settings.repetitions, WORKERS, folder)
    overhead = statistics.median(row.overheads)
    return Outcome(
        f"{row.results} of {row.specs}, {1e3 * overhead:.0f} ms, {row.alone / row.wall:.1f}x",
        row.results == row.specs and overhead < 0.05,
    )


# Steps


def make_large(name: str) -> None:
    """Make a large model in both formats where it is missing."""
    if not (LARGE / f"{name}.mge").exists():
        subprocess.run([PYTHON, str(ROOT / "tools" / "make_models.py"), name], check=True)


def tune(model: str, folder: Path, seconds: float, *words: str) -> tuple[TuneResult, str]:
    """Tune a model; return the result and the settings file."""
    folder.mkdir(exist_ok=True)
    settings = str(folder / "tuned.json")
    answer = run_json(
        *("tune", model, "--budget", f"{seconds:g}", "--allow", ALLOWED, "--json", "-"),
        *("--session", str(folder / "session.tune"), "--output", settings, *words),
    )
    return lar.read_tune(json.dumps(answer)), settings


def winner_of(result: TuneResult) -> RankedCandidate:
    """Return the winner of a search that has measured something."""
    assert result.winner
    return result.winner


def spent_in(result: TuneResult) -> float:
    """Return the seconds that a search took."""
    return max(trial.began + trial.seconds for trial in result.trials)


def best_single_options(result: TuneResult, count: int) -> list[RankedCandidate]:
    """Return the best candidates of one choice that need no cache."""
    able = [it for it in result.ranking if len(it.candidate.choices) == 1 and it.status == "ok"]
    return [it for it in able if "run" not in it.name][:count]


def flags_of(candidate: RankedCandidate) -> str:
    """Return the flags of a candidate."""
    from lar.options.command_line import format_flags

    return format_flags(candidate.options)


def compare(specs: Sequence[str], seconds: float, *words: str) -> BenchResult:
    """Compare specs with the first of them."""
    answer = run_json("bench", *specs, "--budget", f"{seconds:g}", "--json", "-", *words)
    return lar.read_bench(json.dumps(answer))


def gives_the_same(model: str, tuned: str) -> bool:
    """Return whether the outputs of settings are the plain run's, by `lar compare`. What a run
    records cannot be dumped; it changes no numbers."""
    settings = json.loads(Path(tuned).read_text())
    options = settings["options"]
    settings["options"] = {key: options[key] for key in options if not key.startswith("record_")}
    dumped = Path(tuned).with_name("dumped.json")  # beside the cache
    dumped.write_text(json.dumps(settings))
    return lar.compare(f"{model} --settings {dumped}", model).finding == "same"


def ratio_of(first: str, second: str, seconds: float = COMPARE_SECONDS, *words: str) -> float:
    """Return the time of a second spec over that of a first."""
    difference = compare([first, second], seconds, *words).variants[1].difference
    return difference.ratio if difference else 1.0


@contextmanager
def landscape() -> Iterator[str]:
    """Write the script with all that can happen, in a folder of its own."""
    folder = tempfile.mkdtemp()
    try:
        path = Path(folder, "landscape.fake")
        path.write_text(json.dumps(LANDSCAPE))
        yield str(path)
    finally:
        shutil.rmtree(folder)


def quick_words() -> list[str]:
    return ["--budget", f"{LANDSCAPE_SECONDS:g}", "--stall-timeout", "1", "--json", "-"]


def kill_after(command: Sequence[str], seconds: float) -> bool:
    """Start a command and kill it after so long, with all that it has started; return False where
    it has ended before."""
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as process:
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return True
    return False


def count_repeated(result: dict[str, Any]) -> int:
    """Return how often a candidate was screened or searched that had been before. The plain run,
    and the best, are beside the others in each trial."""
    seen: dict[str, set[str]] = {"screen": set(), "search": set()}
    count = 0
    for trial in result["trials"]:
        rows = [row for row in trial["rows"] if row["status"] != "interrupted"]
        names = [" + ".join(row["candidate"]["choices"]) for row in rows]
        known = seen.get(trial["kind"])
        if known is not None:
            new = names if trial["kind"] == "search" else names[2:]
            count += sum(name in known for name in new)
            known |= {*names}
    return count


FIGURES = (
    Figure(
        "engine-search",
        "ResNet50 .mge, 120 s: plain over tuned; the engine's searches and single options beside",
        "the best of them",
        1,
        measure_engine_search,
    ),
    Figure(
        "exhaustive",
        "tuned against the best of an exhaustive search: three models, both engines",
        "within 5 %, in a quarter of the time",
        6,
        measure_exhaustive,
    ),
    Figure(
        "never-slower",
        "tuned not slower than the plain run, by `lar bench` in fresh processes",
        "20 of 20",
        20,
        measure_never_slower,
    ),
    Figure(
        "kills",
        "searches killed 20 times, against one that nobody killed",
        "the same ranking, nothing twice",
        1,
        measure_kills,
    ),
    Figure(
        "planted",
        "slow algorithms planted in a cache of mobilenet_v2, `lar tune --algorithms`: new over old",
        "under 1",
        1,
        measure_planted,
    ),
    Figure(
        "wrong-numbers",
        "wrong numbers accepted, planted ones and the engines' own in the space",
        "none",
        5,
        measure_wrong_numbers,
    ),
    Figure(
        "reproduced",
        "tuned settings in fresh processes, by `lar history check`",
        "no regression",
        4,
        measure_reproduced,
    ),
    Figure(
        "farm",
        "runs on 4 local workers, one killed halfway: results, overhead of a run, times as fast",
        "all, under 50 ms",
        40,
        measure_farm,
    ),
)


def main() -> int:
    """Measure the figures that the command line names, and print their table."""
    return measure_figures(FIGURES, __doc__.splitlines()[0] if __doc__ else "", 120.0)


if __name__ == "__main__":
    sys.exit(main())
