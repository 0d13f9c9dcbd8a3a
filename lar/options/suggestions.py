"""Suggestions for a mistyped flag: the flag of that meaning, else one that is spelt nearly so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_SHAPE = "--input 'NAME:{1,3,224,224}' gives the shape of an input"
_MODEL = "the model is given without a flag: `lar MODEL`"
_DEVICE = "--provider NAME chooses the device, as --cpu and --cuda:0 do"
_WINDOWS = "--target-ci 1% measures until the median is known so well, --duration S for S seconds"
_LAYERS = "`lar info MODEL` prints the operators, --profile FILE records what each takes"

# Flags of other runners, and the flag of lar that means the same, or a sentence that says what
# does. Hyphens and underscores are left out; long names are in lower case.
OTHER_RUNNERS: Mapping[str, str] = {
    # trtexec
    "iterations": "--iter",
    "warmup": "--warmup 200ms warms up for so long, --warmup-iter N for N iterations",
    "idletime": "--idle-ms",
    "avgruns": "the summary of every run has the mean of all iterations",
    "infstreams": "--runners",
    "threads": "--thread",
    "batch": "--batch-size",
    "maxbatch": "--batch-size",
    "shapes": _SHAPE,
    "minshapes": _SHAPE,
    "optshapes": _SHAPE,
    "maxshapes": _SHAPE,
    "loadinputs": "--input",
    "onnx": _MODEL,
    "model": _MODEL,
    "loadengine": _MODEL,
    "saveengine": "--model-dump",
    "output": "--json FILE writes the result, --bin-out-dump DIR the values of the outputs",
    "exportoutput": "--bin-out-dump",
    "dumpoutput": "--bin-out-dump",
    "dumprawbindingstofile": "--bin-out-dump",
    "exporttimes": "--csv",
    "exportprofile": "--profile",
    "dumpprofile": "--profile",
    "separateprofilerun": "--profile",
    "exportlayerinfo": _LAYERS,
    "dumplayerinfo": _LAYERS,
    "timingcachefile": "--fast-run-algo-policy",
    "device": _DEVICE,
    "workspace": "--workspace-limit",
    "mempoolsize": "--workspace-limit",
    "plugins": "--c-opr-lib",
    "staticplugins": "--c-opr-lib",
    "dynamicplugins": "--c-opr-lib",
    "fp16": "--enable-ioc16",
    "nodatatransfers": "outputs are copied to the host only with --copy-to-host",
    "buildonly": "--iter 0 loads and prepares the model, and runs no timed iteration",
    "skipinference": "--iter 0 loads and prepares the model, and runs no timed iteration",
    # benchmark_app of OpenVINO
    "m": _MODEL,
    "pathtomodel": _MODEL,
    "pathstomodel": _MODEL,
    "i": "--input",
    "pathstoinput": "--input",
    "d": _DEVICE,
    "targetdevice": _DEVICE,
    "niter": "--iter",
    "numberiterations": "--iter",
    "t": "--duration",
    "time": "--duration",
    "maxirate": "--rate",
    "b": "--batch-size",
    "datashape": _SHAPE,
    "layout": "--input-layout",
    "nstreams": "--streams",
    "numberstreams": "--streams",
    "nireq": "--runners",
    "numberinferrequests": "--runners",
    "nthreads": "--multithread",
    "numberthreads": "--multithread",
    "pin": "--multi-thread-core-ids",
    "inferthreadspinning": "--multi-thread-core-ids",
    "latencypercentile": "--percentile",
    "extensions": "--c-opr-lib",
    "cdir": "--fast-run-algo-policy",
    "cachedir": "--fast-run-algo-policy",
    "pc": "--profile",
    "perfcounts": "--profile",
    "pcsort": "--profile",
    "perfcountssort": "--profile",
    "execgraphpath": "--model-dump",
    "reporttype": "--json",
    "reportfolder": "--json",
    "jsonstats": "--json",
    "imean": "--mean",
    "inputmean": "--mean",
    "meanvalues": "--mean",
    "iscale": "--scale",
    "inputscale": "--scale",
    "scalevalues": "--scale",
    # onnxruntime_perf_test
    "r": "--iter",
    "x": "--multithread",
    "c": "--runners",
    "e": "--provider",
    "o": "--graph-optimization-level",
    "u": "--model-dump",
    "p": "--profile",
    "s": "--percentile",
    "S": "--seed",
    "v": "--verbose",
    "A": "--disable-mem-opt",
    "M": "--disable-mem-opt",
    "R": "--c-opr-lib",
    "T": "--multi-thread-core-ids",
    "f": _SHAPE,
    "F": _SHAPE,
    "I": "without --input the data is generated: --fill and --seed say how",
    "n": "--iter 0 loads and prepares the model, and runs no timed iteration",
    # perf_analyzer of Triton
    "requestraterange": "--rate",
    "requestrate": "--rate",
    "requestdistribution": "--arrivals",
    "concurrencyrange": "--runners",
    "concurrency": "--runners",
    "measurementinterval": _WINDOWS,
    "measurementmode": _WINDOWS,
    "stabilitypercentage": "--target-ci",
    "requestcount": "--iter",
    "measurementrequestcount": "--iter",
    "warmuprequestcount": "--warmup-iter",
    "modelname": _MODEL,
    "inputdata": "--input",
    "profileexportfile": "--json",
    "latencyreportfile": "--csv",
    # benchmark_model of TensorFlow Lite, nvbench, Google Benchmark
    "numruns": "--iter",
    "warmupruns": "--warmup-iter",
    "warmupminsecs": "--warmup-iter",
    "minsecs": "--min-time",
    "maxsecs": "--max-time",
    "rundelay": "--idle-ms",
    "runfrequency": "--rate",
    "benchmarkmintime": "--min-time",
    "minnoise": "--target-ci",
    "maxnoise": "--target-ci",
    # hyperfine
    "w": "--warmup-iter",
    "runs": "--iter",
    "minruns": "--iter",
    "maxruns": "--iter",
    "exportcsv": "--csv",
    "exportjson": "--json",
    "showoutput": "--verbose",
    # load_and_run in C++, and MegEngine's load_network_and_run
    "lite": "--driver",
    "fitting": "--fast-run",
    "coprlibwithparam": "--c-opr-lib",
    "customoplib": "--c-opr-lib",
    "waitgdb": "--in-process",
    "loadinputdata": "--input",
    "inputdesc": _SHAPE,
    "rng": "--fill",
    "log": "--json",
    # flags that lar had
    "profilecounters": "few machines permit it; `perf stat lar MODEL` counts cycles",
    "embedinput": "`lar pack` writes a model with testcases",
}


def suggest_flag(word: str, flags: Iterable[str]) -> str:
    """Return a hint for an unknown flag, empty when no flag is near.

    `word` and `flags` begin with their hyphens, or are all keys as `lar.run` takes them.
    """
    known = list(flags)
    is_flag = word.startswith("-")
    name = word.lstrip("-").replace("_", "").replace("-", "")
    found = OTHER_RUNNERS.get(name if len(name) == 1 else name.lower(), "")
    if " " in found:  # a sentence, about runs
        return found if ("--iter" if is_flag else "iter") in known else ""
    if found and not is_flag:
        found = found.lstrip("-").replace("-", "_")
    near = found if found in known else nearest_spelling(word, known)
    return f"did you mean {near if is_flag else repr(near)}?" if near else ""


def nearest_spelling(word: str, known: Iterable[str]) -> str:
    """Return the known word that a mistyped one is, as far as its letters say: the one that it
    begins, or the nearest by one typing mistake, two in a long word. Empty when there is none."""
    words = list(known)
    letters = word.lstrip("-")
    begun = [each for each in words if each.startswith(word)]
    if len(begun) == 1 and len(letters) >= 3:
        return begun[0]
    distances = {each: typing_mistakes(letters, each.lstrip("-")) for each in words}
    near = min(words, key=lambda each: distances[each], default="")
    return near if near and distances[near] <= (1 if len(letters) < 8 else 2) else ""


def typing_mistakes(word: str, other: str) -> int:
    """Return how many letters were left out, added, replaced or swapped with the next between two
    words: their distance of optimal string alignment."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(word, 1):
        older, before, row = before, row, [i]
        for j, its in enumerate(other, 1):
            best = min(before[j] + 1, row[j - 1] + 1, before[j - 1] + (letter != its))
            if i > 1 and j > 1 and letter == other[j - 2] and word[i - 2] == its:
                best = min(best, older[j - 2] + 1)
            row.append(best)
    return row[-1]
