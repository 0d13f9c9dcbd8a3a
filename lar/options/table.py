"""Every option of a run, declared once.

Search the code for an option's name to find all its uses. An option belongs to the group above it,
which is a heading of the help. `lar/options/rules.json` lists which options need or exclude each
other. `lar/engines/*/options.py` lists the options that an engine honours.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from lar.errors import UsageError
from lar.options import values
from lar.options.option import Group, Option, Switch, Value, Word

TYPE_CHECKING = False  # as in `typing`, which is slow to import
if TYPE_CHECKING:
    from typing import Any

COUNT = Value(values.parse_count, "N")
THREADS = Value(values.parse_threads, "N")
SECONDS = Value(values.parse_duration, "S")
ERROR = Value(values.parse_error, "E")
NAME = Value(str, "NAME")
DEVICE_ID = Value(values.parse_device_id, ":ID")
READ_FILE = Value(values.parse_path, "FILE", reads=True)
NEW_FILE = Value(values.parse_path, "FILE", writes="file")
NEW_FOLDER = Value(values.parse_path, "DIR", writes="folder")

# Run

IN_RUN = Group("run", "run", "run")

ITER = Option(
    "iter",
    COUNT,
    "time N iterations (default 10, or 1 for each item of a data set); if N is 0, lar only loads "
    "the model, and with --fast-run also searches for the fastest algorithms",
)
WARMUP_ITER = Option("warmup_iter", COUNT, "first run N iterations of warm-up (default 1)")
ENGINE = Option(
    "engine", NAME, "run on this engine, not on the default engine of the model's format"
)
DRIVER = Option(
    "driver", NAME, "run the engine via this interface (driver); `lar engines` lists the drivers"
)
TIMEOUT = Option("timeout", SECONDS, "end the whole run after S seconds")
STALL_TIMEOUT = Option(
    "stall_timeout",
    Value(values.parse_stall, "S"),
    "end the run if its engine neither computes nor answers for S seconds (default 30; 0: never)",
    default=30.0,
)
COPY_TO_HOST = Switch(
    "copy_to_host", "copy the outputs to the host in each iteration, and time the copy too"
)
ENGINE_ENV = Option(
    "engine_env",
    Value(values.parse_variable, "KEY=VALUE"),
    "set the environment variable KEY for the engine; may be given several times",
    repeatable=True,
)
ENGINE_OPTION = Option(
    "engine_option",
    Value(values.parse_property, "KEY=VALUE"),
    "set the property that the engine calls KEY; may be given several times",
    purpose="setting",
    repeatable=True,
)
PYTHON = Option(
    "python",
    Value(values.parse_path, "PATH"),
    "run the model with this Python or virtual environment instead of lar's own",
)
ENGINE_FIX = Option(
    "engine_fix",
    Word("x2apic", metavar="NAME"),
    "correct a known defect of the engine in this run (`lar engines --quirks` prints each NAME)",
    purpose="setting",
)
SETTINGS = Option(
    "settings",
    READ_FILE,
    "run with the settings that `lar tune` wrote to FILE; a flag that you type replaces the same "
    "flag in FILE; lar refuses a typed flag that contradicts a different flag in FILE",
)
FORCE = Switch("force", "accept a file of --settings made for another model, machine or engine")

# End and pace of measuring

IN_MEASURING = Group("measuring", "end and pace of measuring", "run")

DURATION = Option("duration", SECONDS, "measure for S seconds")
TARGET_CI = Option(
    "target_ci",
    Value(values.parse_share, "SHARE"),
    "warm up until times are stable, then measure until half the width of the median's 95 % "
    "confidence interval is at most SHARE of the median; write SHARE as 1% or as 0.01",
)
MIN_TIME = Option(
    "min_time", SECONDS, "with --target-ci, measure for at least S seconds (default 0.5)"
)
MAX_TIME = Option(
    "max_time", SECONDS, "with --target-ci, measure for at most S seconds (default 60)"
)
WARMUP = Option(
    "warmup", SECONDS, "warm up for S seconds, and for at least the N iterations of --warmup-iter N"
)
PERCENTILE = Option(
    "percentile",
    Value(values.parse_percentiles, "90,99.9"),
    "print these percentiles of the times instead of 90, 95 and 99",
)
IDLE_MS = Option(
    "idle_ms",
    Value(values.parse_milliseconds, "MS"),
    "sleep MS milliseconds before each iteration; the sleep is not timed",
)
RATE = Option(
    "rate",
    Value(values.parse_rate, "R"),
    "send R requests per second, even while the model is busy, and print how long requests wait",
)
ARRIVALS = Option(
    "arrivals",
    Word("poisson", "fixed"),
    "with --rate, let requests arrive at random times (poisson, the default, drawn with --seed) or "
    "at equal intervals (fixed)",
    default="poisson",
)

# Inputs

IN_INPUT = Group("input", "inputs", "input")

INPUT = Option(
    "input",
    Value(str, "ITEMS"),
    "set the inputs: NAME:FILE reads a file, NAME:[1.5,2] gives the values, NAME:{1,3,224,224} "
    "generates data of this shape; write ; between two inputs",
    repeatable=True,
)
INPUT_LAYOUT = Option("input_layout", Word("nchw", "nhwc"), "layout of the model's image input")
RESIZE = Option("resize", Value(values.parse_size, "HxW"), "resize images to HEIGHTxWIDTH pixels")
MEAN = Option(
    "mean",
    Value(values.parse_channel_values, "M"),
    "subtract M from the pixels of an image; M is one number, or one number for each channel",
)
SCALE = Option(
    "scale",
    Value(values.parse_channel_values, "S"),
    "multiply an image by S, after --mean; S is one number, or one number for each channel",
)
BGR = Switch("bgr", "feed the channels of an image in the order blue, green, red")
RGB = Switch("rgb", "feed the channels of an image in the order red, green, blue")
BATCH_SIZE = Option(
    "batch_size", Value(values.parse_positive, "N"), "repeat each input's data to fill a batch of N"
)
SHAPE = Option(
    "shape",
    Value(values.parse_axes, "AXIS=N"),
    "set the sizes of axes by name (batch=4,n=64), or by input and position (x[0]=4 for the first "
    "axis of x); `lar info` prints the names",
)
FILL = Option(
    "fill",
    Word("uniform", "normal", "zeros", "ones"),
    "fill generated inputs with random numbers (uniform, the default, or normal), zeros or ones",
    default="uniform",
)
SEED = Option(
    "seed",
    Value(values.parse_seed, "N"),
    "seed of the random numbers in generated data and in the arrivals of --rate (default 0)",
    default=0,
)

# Data sets

IN_DATASET = Group("dataset", "data sets", "dataset")

LABELS = Option(
    "labels",
    READ_FILE,
    "print the most likely class of each item, and its five most likely classes, from the first "
    "output; FILE has the right class of each item, or the names of all classes",
)
RESUME = Switch(
    "resume", "skip the items whose outputs an interrupted run wrote into the DIR of --bin-out-dump"
)

# Device and threads

IN_DEVICE = Group("device", "device and threads")

CPU = Switch("cpu", "run on the CPU (the default)")
CUDA = Option("cuda", DEVICE_ID, "run on CUDA device 0; --cuda:1 means device 1")
CPU_DEFAULT = Switch("cpu_default", "run on the CPU, only in the thread that calls the engine")
MULTITHREAD = Option("multithread", THREADS, "run each operator on N threads")
MULTITHREAD_DEFAULT = Option(
    "multithread_default",
    THREADS,
    "run each operator on N threads, one of which is the thread that calls the engine",
)
MULTI_THREAD_CORE_IDS = Option(
    "multi_thread_core_ids",
    Value(values.parse_core_ids, "0,1"),
    "bind each thread of the engine to one of these CPU cores; give a core for each thread",
)
THREAD = Option(
    "thread", THREADS, "run N copies of the model at once, each in its own thread", alias="runners"
)
SHARE_PARAM_MEM = Switch(
    "share_param_mem",
    "map the weights from the model file, so that the copies of --thread share the same memory",
)
NO_SPINNING = Switch("no_spinning", "let idle threads sleep at once instead of polling for work")
NO_ARENA = Switch("no_arena", "return freed memory to the system at once instead of keeping it")
PROVIDER = Option(
    "provider",
    NAME,
    "run only on this execution provider or device; with NAME,cpu, the CPU runs the operators that "
    "the provider cannot run",
)
HINT = Option(
    "hint",
    Word("latency", "throughput"),
    "let the engine choose its threads and streams for low latency, or for high throughput",
)
STREAMS = Option(
    "streams", THREADS, "divide the threads into N groups, each of which computes one request"
)
NO_TF32 = Switch(
    "no_tf32", "on a CUDA device, multiply float32 numbers without rounding them to TF32"
)

# Layouts of convolutions

IN_LAYOUT = Group("layout", "layouts of convolutions")

ENABLE_NCHW4 = Switch("enable_nchw4", "run convolutions in the layout nchw4")
ENABLE_CHWN4 = Switch("enable_chwn4", "run convolutions in the layout chwn4")
ENABLE_NCHW44 = Switch("enable_nchw44", "run convolutions in the layout nchw44")
ENABLE_NCHW44_DOT = Switch("enable_nchw44_dot", "run convolutions in the layout nchw44_dot")
ENABLE_NCHW88 = Switch("enable_nchw88", "run convolutions in the layout nchw88")
ENABLE_NCHW32 = Switch("enable_nchw32", "run convolutions in the layout nchw32")
ENABLE_NCHW64 = Switch("enable_nchw64", "run convolutions in the layout nchw64")
ENABLE_NHWCD4 = Switch("enable_nhwcd4", "run convolutions in the layout nhwcd4")
LAYOUT_TRANSFORM = Option(
    "layout_transform",
    Word("cpu", "cuda", "arm", "opencl", "unspec", metavar="TARGET"),
    "measure each operator in each layout on a device of this kind, and use the fastest layouts",
)
LAYOUT_TRANSFORM_DUMP = Option(
    "layout_transform_dump", NEW_FILE, "write the model that --layout-transform has changed"
)

# Choice of algorithms

IN_ALGORITHM = Group("algorithm", "choice of algorithms")

FAST_RUN = Switch("fast_run", "measure each operator's algorithms, and use the fastest one")
FULL_RUN = Switch(
    "full_run", "measure all algorithms of each operator, even naive ones, and use the fastest one"
)
FAST_RUN_ALGO_POLICY = Option(
    "fast_run_algo_policy",
    READ_FILE,
    "cache of chosen algorithms: a run with --fast-run writes FILE, and later runs read FILE",
    purpose="cache",
)
FAST_RUN_SHARED_BATCH_SIZE = Option(
    "fast_run_shared_batch_size",
    Value(values.parse_positive, "N"),
    "measure algorithms with a batch size of N instead of the model's batch size",
)
BINARY_EQUAL_BETWEEN_BATCH = Switch(
    "binary_equal_between_batch",
    "use only algorithms that compute the same bits for an item in a batch of any size",
)
REPRODUCIBLE = Switch("reproducible", "use only algorithms that give the same bits in every run")
WORKSPACE_LIMIT = Option(
    "workspace_limit",
    Value(values.parse_bytes, "BYTES"),
    "use only algorithms that need at most BYTES of temporary memory (workspace)",
)
WEIGHT_PREPROCESS = Switch(
    "weight_preprocess",
    "transform weights while the model loads, for algorithms that support this (such as winograd)",
)
WINOGRAD_TRANSFORM = Switch(
    "winograd_transform",
    "wherever --fast-run or its cache has a winograd algorithm, use it, even if it is slower",
)

# Optimisation and execution of the graph

IN_GRAPH = Group("graph", "optimisation and execution of the graph")

OPTIMIZE_FOR_INFERENCE = Switch(
    "optimize_for_inference", "optimise the graph as the engine does when it writes a model file"
)
ENABLE_FUSE_CONV_BIAS_NONLINEARITY = Switch(
    "enable_fuse_conv_bias_nonlinearity", "fuse a convolution with the bias and activation after it"
)
ENABLE_FUSE_CONV_BIAS_WITH_Z = Switch(
    "enable_fuse_conv_bias_with_z", "fuse a convolution with the bias, sum and activation after it"
)
ENABLE_FUSE_PREPROCESS = Switch(
    "enable_fuse_preprocess", "fuse cast, padding and transposition of the input into one operator"
)
ENABLE_IOC16 = Switch("enable_ioc16", "store tensors as float16, and compute in float16")
ENABLE_JIT = Switch("enable_jit", "compile each chain of elementwise operators into one kernel")
TENSORRT = Switch("tensorrt", "use TensorRT for every operator that TensorRT supports")
TENSORRT_CACHE = Option(
    "tensorrt_cache",
    READ_FILE,
    "file in which lar keeps the engines that TensorRT has built, for later runs",
    purpose="cache",
)
CONST_SHAPE = Switch("const_shape", "treat the shapes of the inputs as constant")
FAKE_FIRST = Switch(
    "fake_first", "in the first execution, only allocate memory and dispatch operators"
)
NO_SANITY_CHECK = Switch("no_sanity_check", "skip the engine's checks during the first execution")
RECORD_COMP_SEQ = Switch(
    "record_comp_seq", "record the first execution and replay it in all later executions"
)
RECORD_COMP_SEQ2 = Switch(
    "record_comp_seq2",
    "do what --record-comp-seq does, and free the memory that the replay does not need",
)
DISABLE_MEM_OPT = Switch("disable_mem_opt", "do not reuse memory between operators")
GRAPH_OPTIMIZATION_LEVEL = Option(
    "graph_optimization_level",
    Word("disable", "basic", "extended", "all"),
    "how much the engine optimises the graph (default all)",
)
DISABLE_OPTIMIZER = Option(
    "disable_optimizer",
    NAME,
    "turn off the engine's graph optimiser NAME; A,B turns off two optimisers",
    repeatable=True,
    joined_by=",",
)
PRECISION = Option(
    "precision",
    Word("float32", "bfloat16", "float16"),
    "compute float32 tensors in this type (default float32)",
)

# Model files and operators

IN_MODEL = Group("model", "model files and operators")

MODEL_DUMP = Option("model_dump", NEW_FILE, "write the model as changed by the other options")
PACKED_MODEL_DUMP = Option(
    "packed_model_dump", NEW_FILE, "write the model in the engine's packed format"
)
PACK_INFO_JSON = Option(
    "pack_info_json", READ_FILE, "add the settings in this JSON file to the packed model"
)
PACK_CACHE = Option("pack_cache", READ_FILE, "add this fast-run cache file to the packed model")
ALLOW_EXTERNAL_DATA = Option(
    "allow_external_data",
    Value(values.parse_path, "DIR"),
    "let the model read weights from the folder DIR too, not only from the model's folder",
    repeatable=True,
)
C_OPR_LIB = Option("c_opr_lib", READ_FILE, "load custom operators from this shared library")

# Dumps of tensors

IN_DUMP = Group("dump", "dumps of tensors", "dump")

BIN_OUT_DUMP = Option(
    "bin_out_dump",
    NEW_FOLDER,
    "write the outputs of each iteration into this new folder, one file for each tensor",
)
BIN_IO_DUMP = Option(
    "bin_io_dump",
    NEW_FOLDER,
    "write what each operator computes into this new folder, one file for each tensor",
)
IO_DUMP = Option("io_dump", NEW_FILE, "write what each operator computes into FILE, as text")
IO_DUMP_STDOUT = Switch(
    "io_dump_stdout",
    "at the end of the run, print on standard output what each operator computes, as text",
    writes="stdout",
)
IO_DUMP_STDERR = Switch(
    "io_dump_stderr",
    "at the end of the run, print on standard error what each operator computes, as text",
    writes="stderr",
)
DUMP_FILTER = Option(
    "dump_filter",
    Value(values.parse_pattern, "REGEX"),
    "dump a tensor only if its name, or the name of its operator, matches REGEX",
)
OVERWRITE = Switch(
    "overwrite", "replace an old dump or memory plan if the folder is not empty", purpose="run"
)

# Profiles

IN_PROFILE = Group("profile", "profiles", "profile")

PROFILE = Option(
    "profile",
    NEW_FILE,
    "write the time of each operator in each iteration; `lar report FILE` prints these times",
)
PROFILE_HOST = Option(
    "profile_host",
    NEW_FILE,
    "write what --profile writes, and also how long the host takes to dispatch each operator",
)
PROFILE_RAW = Option("profile_raw", NEW_FILE, "write the profile that the engine itself makes")
PROFILE_MEMORY = Switch(
    "profile_memory", "add to the profile the memory that operators allocate and free"
)
PROFILE_SYSCALLS = Switch(
    "profile_syscalls", "add the system calls to the profile (this needs the program strace)"
)
RANGE_BY = Option(
    "range_by",
    Value(values.parse_range, "REGEX=NAME"),
    "show the operators whose names match REGEX as a range called NAME; may be given several times",
    repeatable=True,
)

# Checks

IN_CHECK = Group("check", "checks", "check")

RANGE = Option(
    "range",
    Value(values.parse_limit, "LIMIT"),
    "fail if a computed value is NaN, or greater than LIMIT in magnitude",
)
CHECK_VAR_VALUE = Option(
    "check_var_value",
    Value(values.parse_check_interval, "I[:J]"),
    "fail if a variable changes after the first run; after every I runs, another variable is "
    "checked, beginning with variable number J",
)
CHECK_DISPATCH = Switch("check_dispatch", "fail if an operator starts no kernel on the CPU")
DISABLE_ASSERT_THROW = Switch(
    "disable_assert_throw", "warn instead of failing if an output of a testcase is wrong"
)

# Reports of a run

IN_REPORT = Group("report", "reports of a run", "report")

MODEL_INFO = Switch("model_info", "before the run, print the model's inputs, outputs and operators")
JSON = Option("json", NEW_FILE, "write the whole result as JSON; FILE - means standard output")
CSV = Option(
    "csv", NEW_FILE, "write a CSV with a row for each iteration; FILE - means standard output"
)
HTML = Option("html", NEW_FILE, "write the result as an HTML page; FILE - means standard output")
SAVE = Switch("save", "keep the result in a store that `lar history` reads")
TAG = Option("tag", Value(values.parse_tag, "TAG"), "with --save, give the stored result this tag")
STORE = Option("store", NEW_FILE, "with --save, use this store instead of the user's own store")
VERBOSE = Switch("verbose", "show what the engine itself prints", purpose="setting")
GET_STATIC_MEM_INFO = Option(
    "get_static_mem_info",
    NEW_FOLDER,
    "write the engine's memory plan (which operators use which memory) into this new folder",
    purpose="setting",
)

# Other machines

IN_FARM = Group("farm", "other machines", "farm")

SCHEDULER = Option(
    "scheduler",
    Value(str, "dask://HOST:PORT"),
    "run on a worker of this Dask scheduler (see `lar help farm`)",
)
ON = Option("on", Value(str, "LABEL"), "with --scheduler, use a worker that has this label")

# Finding faults

IN_DEBUG = Group("debug", "finding faults", "debug")

IN_PROCESS = Switch(
    "in_process", "run the model in lar's own process, without time limits, for a debugger"
)
DEBUG = Switch("debug", "show the traceback of an error")
MAX_FILE_SIZE = Option(
    "max_file_size",
    Value(values.parse_bytes, "SIZE"),
    "let lar read files of up to SIZE, such as 8G; SIZE also limits the decompressed content",
)


def in_groups(declared: Iterable[object]) -> Iterator[Option[Any]]:
    """Yield the declared options, each with its group: the last group declared before it."""
    group = Group("", "")
    for each in declared:
        if isinstance(each, Group):
            group = each
        elif isinstance(each, Option):
            each.group = group
            yield each


# All options, in the order in which they are declared above.
OPTIONS: tuple[Option[Any], ...] = tuple(in_groups([*globals().values()]))

# The options that `lar run --help` shows.
COMMON: tuple[Option[Any], ...] = (
    *(ITER, WARMUP_ITER, DURATION, TARGET_CI, ENGINE, TIMEOUT, SETTINGS),
    *(INPUT, RESIZE, BATCH_SIZE, LABELS, CUDA, MULTITHREAD, THREAD),
    *(FAST_RUN, FAST_RUN_ALGO_POLICY, BIN_OUT_DUMP, BIN_IO_DUMP, PROFILE),
    *(MODEL_INFO, JSON, CSV, VERBOSE),
)

BY_KEY: Mapping[str, Option[Any]] = {option.key: option for option in OPTIONS}
BY_ALIAS: Mapping[str, Option[Any]] = {option.alias: option for option in OPTIONS if option.alias}
FLAGS: tuple[str, ...] = tuple(flag for option in OPTIONS for flag in option.flags)

# The keyword arguments of functions in Python that are flags of `lar compare`, `bench` and `tune`.
KEYWORDS: Mapping[str, Option[Any]] = {
    **{key: Option(key, ERROR, "") for key in ("rtol", "atol", "max_error", "tolerance")},
    **{key: Option(key, SECONDS, "", default=120.0) for key in ("budget", "budget_seconds")},
    "margin": Option("margin", Value(values.parse_share, "SHARE"), "", default=0.01),
}

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
# If several runs share these options, a run's own values are added after the shared values. The
# last value of a name counts.
ADDED: tuple[Option[Any], ...] = (ENGINE_ENV, ENGINE_OPTION)
# Only the command line may set them: they name code to run, or remove a protection.
TYPED_ONLY: tuple[Option[Any], ...] = (PYTHON, ENGINE_ENV, C_OPR_LIB, ALLOW_EXTERNAL_DATA)


def check_typed(options: Mapping[str, Any], typed: Mapping[str, Any], own: Collection[str]) -> None:
    """Refuse a file that sets a value which only the user may set (see `find_untyped`).

    Raises:
        UsageError: naming the flag.
    """
    if flag := find_untyped(options, typed, own):
        raise UsageError(
            f"sets {flag}: a flag that can run code or open a folder must be on the command line",
            f"give {flag} on the command line, if you trust its value",
        )


def find_untyped(options: Mapping[str, Any], typed: Mapping[str, Any], own: Collection[str]) -> str:
    """Return the first flag in a file, with its value, that only the user may set.

    The result is empty if the file has no such flag.

    Args:
        options: what the file sets.
        typed: the values that the user gave; a file may repeat them.
        own: the environment variables that lar's engines suggest, as `KEY=VALUE`; a file may set
            these.
    """
    for option in TYPED_ONLY:
        for value in values_of(options.get(option.key)):
            if value not in (*own, *values_of(typed.get(option.key))):
                return f"{option.flag} {value}"
    return ""


def values_of(given: object) -> Sequence[object]:
    """Return the values of an option that may be given several times."""
    return given if isinstance(given, (list, tuple)) else () if given is None else (given,)


def collect_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that the user has given and that engines honour, by key."""
    return {
        option.key: (
            option.joined_by.join(values[option.key]) if option.repeatable else values[option.key]
        )
        for option in OPTIONS
        if option.by_engine and option.is_given(values)
    }


def option_of(key: str) -> Option[Any] | None:
    """Return the option with this key or alias, or None if no option has it."""
    return BY_KEY.get(key) or BY_ALIAS.get(key)


def one_of(options: tuple[Option[Any], ...], values: Mapping[str, Any]) -> Option[Any] | None:
    """Return the first option in `options` that is given, or None if no option is given."""
    return next((option for option in options if option.is_given(values)), None)


def can_vary(option: Option[Any]) -> bool:
    """Return whether the variants of a bench may differ in an option.

    Variants may differ in how the model is run, but not in what a run writes. The bench itself
    decides how often and how long each variant runs.
    """
    if option.writes or option in (ITER, VERBOSE):
        return False
    return option.group is IN_RUN or option.purpose in ("setting", "input", "cache")


BENCH_OPTIONS: tuple[Option[Any], ...] = tuple(filter(can_vary, OPTIONS))
BENCH_KEYS = frozenset(option.key for option in BENCH_OPTIONS)
