"""Every option of a run, declared once; search for its name to find all that it does.

`lar/options/rules.py` says which options need or exclude which others. How an engine honours an
option is a row of that engine's own table (`lar/engines/*/options.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lar.options.option import Group, Option, PathOption, Switch
from lar.options.values import (
    parse_axes,
    parse_bytes,
    parse_channel_values,
    parse_check_interval,
    parse_core_ids,
    parse_count,
    parse_device_id,
    parse_duration,
    parse_limit,
    parse_milliseconds,
    parse_pattern,
    parse_percentiles,
    parse_positive,
    parse_property,
    parse_range,
    parse_rate,
    parse_seed,
    parse_share,
    parse_size,
    parse_stall,
    parse_tag,
    parse_threads,
    parse_variable,
)

IN_RUN = Group("run", "run", "run")
IN_MEASURING = Group("measuring", "end and pace of measuring", "run")
IN_INPUT = Group("input", "inputs", "input")
IN_DATASET = Group("dataset", "data sets", "dataset")
IN_DEVICE = Group("device", "device and threads")
IN_LAYOUT = Group("layout", "layouts of convolutions")
IN_ALGORITHM = Group("algorithm", "choice of algorithms")
IN_GRAPH = Group("graph", "optimisation and execution of the graph")
IN_MODEL = Group("model", "model files and operators")
IN_DUMP = Group("dump", "dumps of tensors", "dump")
IN_PROFILE = Group("profile", "profiles", "profile")
IN_CHECK = Group("check", "checks", "check")
IN_REPORT = Group("report", "reports of a run", "report")
IN_FARM = Group("farm", "other machines", "farm")
IN_DEBUG = Group("debug", "finding faults", "debug")

# Run

ITER = Option(
    "iter",
    "time N iterations (default 10; of each item of a data set 1); 0 loads the model and, with "
    "--fast-run, searches algorithms",
    IN_RUN,
    parse_count,
    "N",
)
WARMUP_ITER = Option(
    "warmup_iter", "run N iterations before the timed ones (default 1)", IN_RUN, parse_count, "N"
)
ENGINE = Option(
    "engine",
    "run the model on this engine instead of the first that reads its format",
    IN_RUN,
    str,
    "NAME",
)
DRIVER = Option(
    "driver", "use this driver of the engine (`lar engines` lists them)", IN_RUN, str, "NAME"
)
TIMEOUT = Option("timeout", "end the whole run after S seconds", IN_RUN, parse_duration, "S")
STALL_TIMEOUT = Option(
    "stall_timeout",
    "end a run that neither computes nor answers for S seconds (default 30); 0: never",
    IN_RUN,
    parse_stall,
    "S",
    default=30.0,
)
COPY_TO_HOST = Switch(
    "copy_to_host", "copy the outputs to the host in each iteration, as part of its time", IN_RUN
)
ENGINE_ENV = Option(
    "engine_env",
    "set an environment variable for the engine; may be given again",
    IN_RUN,
    parse_variable,
    "KEY=VALUE",
    repeatable=True,
)
ENGINE_OPTION = Option(
    "engine_option",
    "set a property of the engine itself, by the engine's own name; may be given again",
    IN_RUN,
    parse_property,
    "KEY=VALUE",
    purpose="setting",
    repeatable=True,
)
PYTHON = PathOption(
    "python",
    "run the model with this Python, or that of a virtual environment, in place of lar's own",
    IN_RUN,
    "PATH",
)
ENGINE_FIX = Option(
    "engine_fix",
    "mend a known defect of the engine in memory, for this run (`lar engines --quirks`)",
    IN_RUN,
    str,
    "NAME",
    choices=("x2apic",),
    purpose="setting",
)
SETTINGS = PathOption(
    "settings",
    "run with the settings in this file, which `lar tune` has written; a flag typed beside it "
    "takes the place of the file's, or is refused where it contradicts another of them",
    IN_RUN,
    reads=True,
)
FORCE = Switch(
    "force", "use --settings that were made for another model, machine or engine too", IN_RUN
)

# End and pace of measuring

DURATION = Option("duration", "measure for S seconds", IN_MEASURING, parse_duration, "S")
TARGET_CI = Option(
    "target_ci",
    "warm up until times settle, and measure until the 95 % interval of the median is within this "
    "share of it, as 1% or 0.01",
    IN_MEASURING,
    parse_share,
    "SHARE",
)
MIN_TIME = Option(
    "min_time",
    "with --target-ci, measure for at least S seconds (default 0.5)",
    IN_MEASURING,
    parse_duration,
    "S",
)
MAX_TIME = Option(
    "max_time",
    "with --target-ci, measure for at most S seconds (default 60)",
    IN_MEASURING,
    parse_duration,
    "S",
)
WARMUP = Option(
    "warmup",
    "warm up for S seconds, and with --warmup-iter N for at least N iterations",
    IN_MEASURING,
    parse_duration,
    "S",
)
PERCENTILE = Option(
    "percentile",
    "print these percentiles of the times instead of 90,95,99",
    IN_MEASURING,
    parse_percentiles,
    "90,99.9",
)
IDLE_MS = Option(
    "idle_ms",
    "sleep MS milliseconds before each iteration, outside its time",
    IN_MEASURING,
    parse_milliseconds,
    "MS",
)
RATE = Option(
    "rate",
    "have R requests a second arrive, whether or not the model is free, and report how long they "
    "wait",
    IN_MEASURING,
    parse_rate,
    "R",
)
ARRIVALS = Option(
    "arrivals",
    "with --rate, the times between requests: those of a Poisson process (the default; drawn with "
    "--seed), or all the same",
    IN_MEASURING,
    str,
    default="poisson",
    choices=("poisson", "fixed"),
)

# Inputs

INPUT = Option(
    "input",
    "feed NAME:FILE, NAME:[1.5,2] or generated NAME:{1,3,224,224}; several with ; between",
    IN_INPUT,
    str,
    "ITEMS",
    repeatable=True,
)
INPUT_LAYOUT = Option(
    "input_layout", "layout of the model's image input", IN_INPUT, str, choices=("nchw", "nhwc")
)
RESIZE = Option("resize", "resize an image to HEIGHTxWIDTH", IN_INPUT, parse_size, "HxW")
MEAN = Option(
    "mean",
    "subtract M from an image: one number, or one for each channel",
    IN_INPUT,
    parse_channel_values,
    "M",
)
SCALE = Option(
    "scale",
    "multiply an image by S after --mean: one number, or one for each channel",
    IN_INPUT,
    parse_channel_values,
    "S",
)
BGR = Switch("bgr", "feed the channels of an image as blue, green, red", IN_INPUT)
RGB = Switch("rgb", "feed the channels of an image as red, green, blue", IN_INPUT)
BATCH_SIZE = Option(
    "batch_size", "repeat the data of each input to a batch of N", IN_INPUT, parse_positive, "N"
)
SHAPE = Option(
    "shape",
    "give axes of the inputs sizes, by their names as `lar info` prints them, or by place: "
    "batch=4,n=64 or x[0]=4",
    IN_INPUT,
    parse_axes,
    "AXIS=N",
)
FILL = Option(
    "fill",
    "draw generated data from this distribution (default uniform)",
    IN_INPUT,
    str,
    default="uniform",
    choices=("uniform", "normal", "zeros", "ones"),
)
SEED = Option(
    "seed",
    "seed of generated data, and of the arrivals of --rate (default 0)",
    IN_INPUT,
    parse_seed,
    "N",
    default=0,
)

# Data sets

LABELS = PathOption(
    "labels",
    "print top-1 and top-5 of the first output; FILE maps items to classes or lists class names",
    IN_DATASET,
    reads=True,
)
RESUME = Switch(
    "resume",
    "go on with a data set whose outputs are dumped in part (with --bin-out-dump DIR)",
    IN_DATASET,
)

# Device and threads

CPU = Switch("cpu", "run on the CPU (the default)", IN_DEVICE)
CUDA = Option("cuda", "run on a CUDA device: --cuda, --cuda:1", IN_DEVICE, parse_device_id, ":ID")
CPU_DEFAULT = Switch("cpu_default", "run on the CPU in the calling thread", IN_DEVICE)
MULTITHREAD = Option("multithread", "run each operator on N threads", IN_DEVICE, parse_threads, "N")
MULTITHREAD_DEFAULT = Option(
    "multithread_default",
    "run each operator on N threads, one of which is the calling thread",
    IN_DEVICE,
    parse_threads,
    "N",
)
MULTI_THREAD_CORE_IDS = Option(
    "multi_thread_core_ids",
    "bind the threads to these cores, one for each thread",
    IN_DEVICE,
    parse_core_ids,
    "0,1",
)
THREAD = Option(
    "thread",
    "run N copies of the model at once, each in a thread of its own",
    IN_DEVICE,
    parse_threads,
    "N",
    alias="runners",
)
SHARE_PARAM_MEM = Switch(
    "share_param_mem",
    "hold the weights once: mapped from the file, and shared by the copies of --thread",
    IN_DEVICE,
)
NO_SPINNING = Switch(
    "no_spinning",
    "have threads that wait for work sleep at once, instead of asking for it again and again",
    IN_DEVICE,
)
NO_ARENA = Switch(
    "no_arena", "give memory back to the system at once, and keep none for later", IN_DEVICE
)
PROVIDER = Option(
    "provider",
    "run on this execution provider or device and on no other; NAME,cpu has the CPU run what a "
    "provider cannot",
    IN_DEVICE,
    str,
    "NAME",
)
HINT = Option(
    "hint",
    "have the engine choose threads and streams for short times of one request, or for many",
    IN_DEVICE,
    str,
    choices=("latency", "throughput"),
)
STREAMS = Option(
    "streams",
    "share the threads out among N streams, each for one request",
    IN_DEVICE,
    parse_threads,
    "N",
)
NO_TF32 = Switch(
    "no_tf32",
    "multiply float32 numbers as they are on a CUDA device, without rounding them to TF32",
    IN_DEVICE,
)

# Layouts of convolutions

ENABLE_NCHW4 = Switch("enable_nchw4", "run convolutions in the layout nchw4", IN_LAYOUT)
ENABLE_CHWN4 = Switch("enable_chwn4", "run convolutions in the layout chwn4", IN_LAYOUT)
ENABLE_NCHW44 = Switch("enable_nchw44", "run convolutions in the layout nchw44", IN_LAYOUT)
ENABLE_NCHW44_DOT = Switch(
    "enable_nchw44_dot", "run convolutions in the layout nchw44_dot", IN_LAYOUT
)
ENABLE_NCHW88 = Switch("enable_nchw88", "run convolutions in the layout nchw88", IN_LAYOUT)
ENABLE_NCHW32 = Switch("enable_nchw32", "run convolutions in the layout nchw32", IN_LAYOUT)
ENABLE_NCHW64 = Switch("enable_nchw64", "run convolutions in the layout nchw64", IN_LAYOUT)
ENABLE_NHWCD4 = Switch("enable_nhwcd4", "run convolutions in the layout nhwcd4", IN_LAYOUT)
LAYOUT_TRANSFORM = Option(
    "layout_transform",
    "measure each operator in each layout on this kind of device and take the fastest",
    IN_LAYOUT,
    str,
    "TARGET",
    choices=("cpu", "cuda", "arm", "opencl", "unspec"),
)
LAYOUT_TRANSFORM_DUMP = PathOption(
    "layout_transform_dump",
    "write the model that --layout-transform makes",
    IN_LAYOUT,
    writes="file",
)

# Choice of algorithms

FAST_RUN = Switch(
    "fast_run", "measure each operator's algorithms and take the fastest", IN_ALGORITHM
)
FULL_RUN = Switch(
    "full_run",
    "measure each operator's algorithms, naive ones too, and take the fastest",
    IN_ALGORITHM,
)
FAST_RUN_ALGO_POLICY = PathOption(
    "fast_run_algo_policy",
    "fast-run's cache file: a search (--fast-run) writes it, later runs read it",
    IN_ALGORITHM,
    reads=True,
    purpose="cache",
)
FAST_RUN_SHARED_BATCH_SIZE = Option(
    "fast_run_shared_batch_size",
    "measure algorithms with a batch of N, whatever the model's is",
    IN_ALGORITHM,
    parse_positive,
    "N",
)
BINARY_EQUAL_BETWEEN_BATCH = Switch(
    "binary_equal_between_batch",
    "take only algorithms whose result for an item does not depend on the batch",
    IN_ALGORITHM,
)
REPRODUCIBLE = Switch(
    "reproducible", "take only algorithms that give the same bits each time", IN_ALGORITHM
)
WORKSPACE_LIMIT = Option(
    "workspace_limit",
    "take only algorithms that need at most this much workspace",
    IN_ALGORITHM,
    parse_bytes,
    "BYTES",
)
WEIGHT_PREPROCESS = Switch(
    "weight_preprocess",
    "transform weights when the model is loaded, where an algorithm can (winograd does)",
    IN_ALGORITHM,
)
WINOGRAD_TRANSFORM = Switch(
    "winograd_transform",
    "prefer winograd algorithms where the search has found some, with --weight-preprocess",
    IN_ALGORITHM,
)

# Optimisation and execution of the graph

OPTIMIZE_FOR_INFERENCE = Switch(
    "optimize_for_inference", "optimise the graph as the engine's dump does", IN_GRAPH
)
ENABLE_FUSE_CONV_BIAS_NONLINEARITY = Switch(
    "enable_fuse_conv_bias_nonlinearity", "fuse convolution, bias and activation", IN_GRAPH
)
ENABLE_FUSE_CONV_BIAS_WITH_Z = Switch(
    "enable_fuse_conv_bias_with_z", "fuse convolution, bias, sum and activation", IN_GRAPH
)
ENABLE_FUSE_PREPROCESS = Switch(
    "enable_fuse_preprocess", "fuse cast, padding and transposition of the input", IN_GRAPH
)
ENABLE_IOC16 = Switch("enable_ioc16", "keep and compute tensors as float16", IN_GRAPH)
ENABLE_JIT = Switch("enable_jit", "compile chains of elementwise operators", IN_GRAPH)
TENSORRT = Switch("tensorrt", "run on TensorRT what it can run", IN_GRAPH)
TENSORRT_CACHE = PathOption(
    "tensorrt_cache",
    "keep the engines that TensorRT builds in this file",
    IN_GRAPH,
    reads=True,
    purpose="cache",
)
CONST_SHAPE = Switch("const_shape", "take the shapes of the inputs as constant", IN_GRAPH)
FAKE_FIRST = Switch(
    "fake_first", "have the first execution allocate and dispatch without computing", IN_GRAPH
)
NO_SANITY_CHECK = Switch(
    "no_sanity_check", "leave out the engine's check of the first execution", IN_GRAPH
)
RECORD_COMP_SEQ = Switch(
    "record_comp_seq", "record the first execution and replay it in the others", IN_GRAPH
)
RECORD_COMP_SEQ2 = Switch(
    "record_comp_seq2",
    "record the first execution, replay it in the others, and free what the replay does not need",
    IN_GRAPH,
)
DISABLE_MEM_OPT = Switch("disable_mem_opt", "do not reuse memory between operators", IN_GRAPH)
GRAPH_OPTIMIZATION_LEVEL = Option(
    "graph_optimization_level",
    "how far the engine optimises the graph",
    IN_GRAPH,
    str,
    choices=("disable", "basic", "extended", "all"),
)
DISABLE_OPTIMIZER = Option(
    "disable_optimizer",
    "leave out a graph optimiser of the engine, or several: A,B",
    IN_GRAPH,
    str,
    "NAME",
    repeatable=True,
    joined_by=",",
)
PRECISION = Option(
    "precision",
    "compute float32 tensors in this type (default float32)",
    IN_GRAPH,
    str,
    choices=("float32", "bfloat16", "float16"),
)

# Model files and operators

MODEL_DUMP = PathOption(
    "model_dump", "write the model as it is after the options set", IN_MODEL, writes="file"
)
PACKED_MODEL_DUMP = PathOption(
    "packed_model_dump", "write the model in the engine's packed format", IN_MODEL, writes="file"
)
PACK_INFO_JSON = PathOption(
    "pack_info_json",
    "put the settings in this JSON file into the packed model",
    IN_MODEL,
    reads=True,
)
PACK_CACHE = PathOption(
    "pack_cache", "put this fast-run cache file into the packed model", IN_MODEL, reads=True
)
ALLOW_EXTERNAL_DATA = PathOption(
    "allow_external_data",
    "let the model keep weights in files in DIR too, outside its own folder",
    IN_MODEL,
    "DIR",
    repeatable=True,
)
C_OPR_LIB = PathOption(
    "c_opr_lib", "load a library of operators written in C", IN_MODEL, reads=True
)

# Dumps of tensors

BIN_OUT_DUMP = PathOption(
    "bin_out_dump",
    "write the outputs of each run, a file a tensor, into this new folder",
    IN_DUMP,
    "DIR",
    writes="folder",
)
BIN_IO_DUMP = PathOption(
    "bin_io_dump",
    "write what each operator computes, a file a tensor, into this new folder",
    IN_DUMP,
    "DIR",
    writes="folder",
)
IO_DUMP = PathOption(
    "io_dump", "write what each operator computes, as text", IN_DUMP, writes="file"
)
IO_DUMP_STDOUT = Switch(
    "io_dump_stdout",
    "print what each operator computes, as text, to standard output when the run has ended",
    IN_DUMP,
    writes="stdout",
)
IO_DUMP_STDERR = Switch(
    "io_dump_stderr",
    "print what each operator computes, as text, to standard error when the run has ended",
    IN_DUMP,
    writes="stderr",
)
DUMP_FILTER = Option(
    "dump_filter",
    "dump only variables whose name or operator matches",
    IN_DUMP,
    parse_pattern,
    "REGEX",
)
OVERWRITE = Switch(
    "overwrite", "replace the dump in a folder that is not empty", IN_DUMP, purpose="run"
)

# Profiles

PROFILE = PathOption(
    "profile",
    "write the time of each operator in each iteration (`lar report FILE` prints it)",
    IN_PROFILE,
    writes="file",
)
PROFILE_HOST = PathOption(
    "profile_host",
    "write a profile as --profile does, with the time that the host dispatches each operator",
    IN_PROFILE,
    writes="file",
)
PROFILE_RAW = PathOption("profile_raw", "write the engine's own profile", IN_PROFILE, writes="file")
PROFILE_MEMORY = Switch(
    "profile_memory",
    "record in the profile the memory that operators take and give back",
    IN_PROFILE,
)
PROFILE_SYSCALLS = Switch(
    "profile_syscalls",
    "record in the profile the calls of the operating system (needs strace)",
    IN_PROFILE,
)
RANGE_BY = Option(
    "range_by",
    "name a range in the profile for the operators whose name matches; may be given again",
    IN_PROFILE,
    parse_range,
    "REGEX=NAME",
    repeatable=True,
)

# Checks

RANGE = Option(
    "range",
    "fail if any value is NaN or its magnitude exceeds LIMIT",
    IN_CHECK,
    parse_limit,
    "LIMIT",
)
CHECK_VAR_VALUE = Option(
    "check_var_value",
    "fail if a variable differs from the first run; look at each in I runs, from number J on",
    IN_CHECK,
    parse_check_interval,
    "I[:J]",
)
CHECK_DISPATCH = Switch(
    "check_dispatch", "fail if an operator gives the CPU no kernel to run", IN_CHECK
)
DISABLE_ASSERT_THROW = Switch(
    "disable_assert_throw",
    "warn and go on if an output differs from the testcase's expected one",
    IN_CHECK,
)

# Reports of a run

MODEL_INFO = Switch("model_info", "print what the model holds before it runs", IN_REPORT)
JSON = PathOption(
    "json", "write the whole result as JSON; - is standard output", IN_REPORT, writes="file"
)
CSV = PathOption(
    "csv",
    "write the whole result as CSV, a row an iteration; - is standard output",
    IN_REPORT,
    writes="file",
)
HTML = PathOption(
    "html", "write the result as a page; - is standard output", IN_REPORT, writes="file"
)
SAVE = Switch("save", "keep the result in a store that `lar history` reads", IN_REPORT)
TAG = Option("tag", "keep the result with this tag", IN_REPORT, parse_tag, "TAG")
STORE = PathOption(
    "store", "keep it in this store instead of the user's own", IN_REPORT, writes="file"
)
VERBOSE = Switch("verbose", "show what the engine itself prints", IN_REPORT, purpose="setting")
GET_STATIC_MEM_INFO = PathOption(
    "get_static_mem_info",
    "write the plan of the static memory into this new folder",
    IN_REPORT,
    "DIR",
    writes="folder",
    purpose="setting",
)

# Other machines

SCHEDULER = Option(
    "scheduler",
    "have a worker of this Dask scheduler make the run (`lar help farm`)",
    IN_FARM,
    str,
    "dask://HOST:PORT",
)
ON = Option("on", "with --scheduler, take a worker that has this label", IN_FARM, str, "LABEL")

# Finding faults

IN_PROCESS = Switch(
    "in_process", "run without a worker process and its time limits, for a debugger", IN_DEBUG
)
DEBUG = Switch("debug", "show the traceback of an error", IN_DEBUG)

# All that are declared above, in that order.
OPTIONS: tuple[Option[Any], ...] = tuple(
    each for each in list(globals().values()) if isinstance(each, Option)
)

# The twenty-three that `lar run --help` shows.
COMMON: tuple[Option[Any], ...] = (
    *(ITER, WARMUP_ITER, DURATION, TARGET_CI, ENGINE, TIMEOUT, SETTINGS),
    *(INPUT, RESIZE, BATCH_SIZE, LABELS, CUDA, MULTITHREAD, THREAD),
    *(FAST_RUN, FAST_RUN_ALGO_POLICY, BIN_OUT_DUMP, BIN_IO_DUMP, PROFILE),
    *(MODEL_INFO, JSON, CSV, VERBOSE),
)

BY_KEY: Mapping[str, Option[Any]] = {option.key: option for option in OPTIONS}
BY_ALIAS: Mapping[str, Option[Any]] = {option.alias: option for option in OPTIONS if option.alias}
FLAGS: tuple[str, ...] = tuple(flag for option in OPTIONS for flag in option.flags)

LAYOUTS: tuple[Switch, ...] = (
    *(ENABLE_NCHW4, ENABLE_CHWN4, ENABLE_NCHW44, ENABLE_NCHW44_DOT, ENABLE_NCHW88),
    *(ENABLE_NCHW32, ENABLE_NCHW64, ENABLE_NHWCD4),
)
LAYOUT_CHOICES: tuple[Option[Any], ...] = (*LAYOUTS, LAYOUT_TRANSFORM)
TEXT_DUMPS: tuple[Option[Any], ...] = (IO_DUMP, IO_DUMP_STDOUT, IO_DUMP_STDERR)
OPERATOR_DUMPS: tuple[Option[Any], ...] = (*TEXT_DUMPS, BIN_IO_DUMP)
DUMPS: tuple[Option[Any], ...] = (*OPERATOR_DUMPS, BIN_OUT_DUMP)
PROFILES: tuple[Option[str], ...] = (PROFILE, PROFILE_HOST)  # in lar's format
PROFILE_FILES: tuple[Option[str], ...] = (*PROFILES, PROFILE_RAW)
SEARCHES: tuple[Option[Any], ...] = (FAST_RUN, FULL_RUN)
# Given for one of several runs, they come after those of all, and the last of a name counts.
ADDED: tuple[Option[Any], ...] = (ENGINE_ENV, ENGINE_OPTION)


def collect_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that an engine honours and the user set, by key."""
    return {
        option.key: (
            option.joined_by.join(values[option.key]) if option.repeatable else values[option.key]
        )
        for option in OPTIONS
        if option.by_engine and option.is_given(values)
    }


def option_of(key: str) -> Option[Any] | None:
    """Return the option of a key or an alias, None if there is none."""
    return BY_KEY.get(key) or BY_ALIAS.get(key)


def one_of(options: tuple[Option[Any], ...], values: Mapping[str, Any]) -> Option[Any] | None:
    """Return the first of some options that is given, None if none is."""
    return next((option for option in options if option.is_given(values)), None)
