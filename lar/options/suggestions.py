"""Suggestions for a mistyped flag: the flag of that meaning, else one that is spelt nearly so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

_SHAPE = "--input 'NAME:{1,3,224,224}' gives the shape of an input"
_MODEL = "the model is given without a flag: `lar MODEL`"
_DEVICE = "--provider NAME chooses the device, as --cpu and --cuda:0 do"
_WINDOWS = "--target-ci 1% measures until the median is known so well, --duration S for S seconds"
_LAYERS = "`lar info MODEL` prints the operators, --profile FILE records what each takes"

# What means the same in lar, or a sentence that says what does, and the flags of other runners that
# mean it: trtexec, OpenVINO's benchmark_app, onnxruntime_perf_test, Triton's perf_analyzer,
# TensorFlow Lite's benchmark_model, nvbench, Google Benchmark, hyperfine, load_and_run in C++ and
# MegEngine's load_network_and_run. Hyphens and underscores are left out; long names are in lower
# case.
MEANINGS: Mapping[str, str] = {
    "--iter": (
        "iterations niter numberiterations r requestcount measurementrequestcount numruns runs "
        "minruns maxruns"
    ),
    "--warmup 200ms warms up for so long, --warmup-iter N for N iterations": "warmup",
    "--idle-ms": "idletime rundelay",
    "the summary of every run has the mean of all iterations": "avgruns",
    "--runners": "infstreams nireq numberinferrequests c concurrencyrange concurrency",
    "--thread": "threads",
    "--batch-size": "batch maxbatch b",
    _SHAPE: "shapes minshapes optshapes maxshapes datashape f F inputdesc",
    "--input": "loadinputs i pathstoinput inputdata loadinputdata",
    _MODEL: "onnx model loadengine m pathtomodel pathstomodel modelname",
    "--model-dump": "saveengine execgraphpath u",
    "--json FILE writes the result, --bin-out-dump DIR the values of the outputs": "output",
    "--bin-out-dump": "exportoutput dumpoutput dumprawbindingstofile",
    "--csv": "exporttimes latencyreportfile exportcsv",
    "--profile": (
        "exportprofile dumpprofile separateprofilerun pc perfcounts pcsort perfcountssort p"
    ),
    _LAYERS: "exportlayerinfo dumplayerinfo",
    "--fast-run-algo-policy": "timingcachefile cdir cachedir",
    _DEVICE: "device d targetdevice",
    "--workspace-limit": "workspace mempoolsize",
    "--c-opr-lib": "plugins staticplugins dynamicplugins extensions R coprlibwithparam customoplib",
    "--enable-ioc16": "fp16",
    "--engine-option": "C loadconfig",
    "outputs are copied to the host only with --copy-to-host": "nodatatransfers",
    "--iter 0 loads and prepares the model, and runs no timed iteration": (
        "buildonly skipinference n"
    ),
    "--duration": "t time",
    "--rate": "maxirate requestraterange requestrate runfrequency",
    "--input-layout": "layout",
    "--streams": "nstreams numberstreams",
    "--multithread": "nthreads numberthreads x",
    "--multi-thread-core-ids": "pin inferthreadspinning T",
    "--percentile": "latencypercentile s",
    "--json": "reporttype reportfolder jsonstats profileexportfile exportjson log",
    "--mean": "imean inputmean meanvalues",
    "--scale": "iscale inputscale scalevalues",
    "--provider": "e",
    "--graph-optimization-level": "o",
    "--seed": "S",
    "--verbose": "v showoutput",
    "--disable-mem-opt": "A M",
    "without --input the data is generated: --fill and --seed say how": "I",
    "--arrivals": "requestdistribution",
    _WINDOWS: "measurementinterval measurementmode",
    "--target-ci": "stabilitypercentage minnoise maxnoise",
    "--warmup-iter": "warmuprequestcount warmupruns warmupminsecs w",
    "--min-time": "minsecs benchmarkmintime",
    "--max-time": "maxsecs",
    "--driver": "lite",
    "--fast-run": "fitting",
    "--in-process": "waitgdb",
    "--fill": "rng",
    "few machines permit it; `perf stat lar MODEL` counts cycles": "profilecounters",
    "`lar pack` writes a model with testcases": "embedinput",
}
OTHER_RUNNERS: Mapping[str, str] = {
    name: meaning for meaning, names in MEANINGS.items() for name in names.split()
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
