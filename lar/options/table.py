"""Every flag of a run, declared once.

An `Option` says what the flag is called, what it takes and who honours it. Scope "engine" means
that each engine's own table (`engines/*/options.py`) has a row which says how, and that a flag
without a row is refused; the other scopes are honoured by lar itself on every engine.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from lar.errors import UsageError
from lar.options.values import (
    parse_bytes,
    parse_channel_values,
    parse_check_interval,
    parse_core_ids,
    parse_count,
    parse_device_id,
    parse_limit,
    parse_path,
    parse_pattern,
    parse_positive,
    parse_range,
    parse_seconds,
    parse_seed,
    parse_size,
    parse_stall,
    parse_threads,
    parse_variable,
)

Scope = Literal["run", "input", "report", "debug", "engine"]


class Option(NamedTuple):
    """One flag: `--fast-run` has the key `fast_run`. Without `parse` it is a switch."""

    key: str
    help: str
    group: str
    scope: Scope
    parse: Callable[[str], Any] | None = None
    metavar: str = ""
    default: Any = None
    choices: tuple[str, ...] = ()
    repeatable: bool = False
    joined_by: str = "\n"  # in the settings, where the option is given several times
    conflicts: Collection[str] = ()
    # What the engine writes there during the run, or the stream on which that is printed then.
    writes: Literal["", "file", "folder", "stdout", "stderr"] = ""

    @property
    def flag(self) -> str:
        return flag_of(self.key)


def flag_of(key: str) -> str:
    """Return the flag of a key: `fast_run` is `--fast-run`."""
    return "--" + key.replace("_", "-")


LAYOUTS = frozenset(
    f"enable_{layout}"
    for layout in ("nchw4", "chwn4", "nchw44", "nchw44_dot", "nchw88", "nchw32", "nchw64", "nhwcd4")
)
LAYOUT_CHOICES = LAYOUTS | {"layout_transform"}

PROFILES = ("profile", "profile_host")  # of lar
PROFILE_FILES = (*PROFILES, "profile_raw")
LAYER_DUMPS = ("bin_io_dump", "io_dump", "io_dump_stdout", "io_dump_stderr")

# fmt: off
OPTIONS: tuple[Option, ...] = (
    Option("iter", "timed iterations (default 10, of each item of a data set 1); 0 loads and "
           "prepares only, but makes the search of --fast-run", "run", "run", parse_count, "N"),
    Option("warmup_iter", "iterations before the timed ones (default 1)", "run", "run", parse_count,
           "N"),
    Option("engine", "the engine, instead of the one that the model file asks for", "run", "run",
           str, "NAME"),
    Option("driver", "the engine's driver, where it has several (`lar engines`)", "run", "run", str,
           "NAME"),
    Option("timeout", "end the whole run after that many seconds", "run", "run", parse_seconds, "S",
           conflicts=("in_process",)),
    Option("stall_timeout", "end a run that neither computes nor answers for that long; 0: never",
           "run", "run", parse_stall, "S", 30.0),
    Option("cpu", "run on the CPU (the default)", "device", "engine", conflicts=("cuda",)),
    Option("cuda", "run on a CUDA device: --cuda, --cuda:1", "device", "engine", parse_device_id,
           ":ID", conflicts=("cpu", "cpu_default", "multithread", "multithread_default",
           "multi_thread_core_ids", "provider")),
    Option("cpu_default", "run on the CPU in the calling thread", "device", "engine",
           conflicts=("cuda", "multithread", "multithread_default")),
    Option("multithread", "run each operator on N threads", "device", "engine", parse_threads, "N",
           conflicts=("cuda", "cpu_default", "multithread_default")),
    Option("multithread_default", "the same, the calling thread being one of them", "device",
           "engine", parse_threads, "N", conflicts=("cuda", "cpu_default", "multithread")),
    Option("multi_thread_core_ids", "bind the threads to these cores", "device", "engine",
           parse_core_ids, "0,1", conflicts=("cuda",)),
    Option("thread", "run N copies of the model at once, each in a thread of its own", "device",
           "engine", parse_threads, "N"),
    Option("share_param_mem", "hold the weights once: mapped from the file, shared by the copies",
           "device", "engine"),
    Option("provider", "the execution provider to run on, and no other", "device", "engine", str,
           "NAME", conflicts=("cuda",)),
    Option("enable_nchw4", "run convolutions in the layout nchw4", "layout", "engine",
           conflicts=LAYOUT_CHOICES - {"enable_nchw4"}),
    Option("enable_chwn4", "run convolutions in the layout chwn4", "layout", "engine",
           conflicts=LAYOUT_CHOICES - {"enable_chwn4"}),
    Option("enable_nchw44", "run convolutions in the layout nchw44", "layout", "engine",
           conflicts=LAYOUT_CHOICES - {"enable_nchw44"}),
    Option("enable_nchw44_dot", "run convolutions in the layout nchw44_dot", "layout", "engine",
           conflicts=LAYOUT_CHOICES - {"enable_nchw44_dot"}),
    Option("enable_nchw88", "run convolutions in the layout nchw88", "layout", "engine",
           conflicts=LAYOUT_CHOICES - {"enable_nchw88"}),
    Option("enable_nchw32", "run convolutions in the layout nchw32", "layout", "engine",
           conflicts=LAYOUT_CHOICES - {"enable_nchw32"}),
    Option("enable_nchw64", "run convolutions in the layout nchw64", "layout", "engine",
           conflicts=LAYOUT_CHOICES - {"enable_nchw64"}),
    Option("enable_nhwcd4", "run convolutions in the layout nhwcd4", "layout", "engine",
           conflicts=LAYOUT_CHOICES - {"enable_nhwcd4"}),
    Option("layout_transform", "search the layout of each operator for that kind of device",
           "layout", "engine", str, "TARGET", choices=("cpu", "cuda", "arm", "opencl", "unspec"),
           conflicts=LAYOUTS),
    Option("layout_transform_dump", "write the model that --layout-transform makes", "layout",
           "engine", parse_path, "FILE", writes="file"),
    Option("fast_run", "measure each operator's algorithms and take the fastest", "algorithm",
           "engine", conflicts=("full_run",)),
    Option("full_run", "measure naive algorithms too", "algorithm", "engine",
           conflicts=("fast_run",)),
    Option("fast_run_algo_policy", "cache file of fast-run: a search writes it, later runs read it",
           "algorithm", "engine", parse_path, "FILE"),
    Option("fast_run_shared_batch_size", "measure with this batch whatever the model's is",
           "algorithm", "engine", parse_positive, "N"),
    Option("binary_equal_between_batch", "only algorithms whose result for an item does not depend "
           "on the batch", "algorithm", "engine"),
    Option("reproducible", "only algorithms that give the same bits each time", "algorithm",
           "engine"),
    Option("workspace_limit", "most workspace of an algorithm, in bytes", "algorithm", "engine",
           parse_bytes, "BYTES"),
    Option("weight_preprocess", "transform weights ahead where an algorithm can (winograd does)",
           "winograd", "engine"),
    Option("winograd_transform", "the old name of --weight-preprocess", "winograd", "engine"),
    Option("optimize_for_inference", "optimise the graph as the engine's dump does", "optimise",
           "engine"),
    Option("enable_fuse_conv_bias_nonlinearity", "fuse convolution, bias and activation",
           "optimise", "engine"),
    Option("enable_fuse_conv_bias_with_z", "fuse convolution, bias, sum and activation", "optimise",
           "engine"),
    Option("enable_fuse_preprocess", "fuse cast, padding and transposition of the input",
           "optimise", "engine"),
    Option("enable_ioc16", "keep and compute tensors as float16", "optimise", "engine"),
    Option("enable_jit", "compile chains of elementwise operators", "optimise", "engine"),
    Option("tensorrt", "run on TensorRT what it can run", "optimise", "engine"),
    Option("tensorrt_cache", "cache file of TensorRT's engines", "optimise", "engine",
           parse_path, "FILE"),
    Option("const_shape", "take the input's shapes for constant", "optimise", "engine"),
    Option("fake_first", "first execution allocates and dispatches without computing", "optimise",
           "engine"),
    Option("no_sanity_check", "leave out the check of the first execution", "optimise", "engine"),
    Option("record_comp_seq", "record the first execution and replay it", "optimise", "engine",
           conflicts=("record_comp_seq2",)),
    Option("record_comp_seq2", "the same, and free what the replay does not need", "optimise",
           "engine", conflicts=("record_comp_seq",)),
    Option("disable_mem_opt", "no reuse of memory between operators", "optimise", "engine"),
    Option("graph_optimization_level", "how far the engine optimises the graph", "optimise",
           "engine", str, choices=("disable", "basic", "extended", "all")),
    Option("disable_optimizer", "leave out a graph optimiser of the engine, or several: A,B",
           "optimise", "engine", str, "NAME", repeatable=True, joined_by=","),
    Option("io_dump", "write what each operator gave as text", "dump", "engine", parse_path, "FILE",
           conflicts=("io_dump_stdout", "io_dump_stderr", *PROFILE_FILES), writes="file"),
    Option("io_dump_stdout", "the same, to standard output when the run has ended", "dump",
           "engine", conflicts=("io_dump", "io_dump_stderr", *PROFILE_FILES), writes="stdout"),
    Option("io_dump_stderr", "the same, to standard error", "dump", "engine",
           conflicts=("io_dump", "io_dump_stdout", *PROFILE_FILES), writes="stderr"),
    Option("bin_io_dump", "write what each operator gave, a file a tensor, into this new folder",
           "dump", "engine", parse_path, "DIR", conflicts=PROFILE_FILES, writes="folder"),
    Option("bin_out_dump", "write the outputs of each run, a file a tensor, into this new folder",
           "dump", "engine", parse_path, "DIR", writes="folder"),
    Option("dump_filter", "dump those variables whose name or operator matches", "dump", "engine",
           parse_pattern, "REGEX"),
    Option("overwrite", "replace the dump in a folder that is not empty", "dump", "run"),
    Option("profile", "write what each operator of each iteration took (`lar report FILE`)",
           "profile", "engine", parse_path, "FILE", conflicts=("profile_host", *LAYER_DUMPS),
           writes="file"),
    Option("profile_host", "the same, for an engine that tells the host's dispatch of each "
           "operator", "profile", "engine", parse_path, "FILE", conflicts=("profile", *LAYER_DUMPS),
           writes="file"),
    Option("profile_raw", "write the engine's own profile", "profile", "engine", parse_path,
           "FILE", conflicts=LAYER_DUMPS, writes="file"),
    Option("profile_memory", "have the profile tell the memory that operators take and give back",
           "profile", "engine"),
    Option("profile_syscalls", "have it tell the calls of the operating system (needs strace)",
           "profile", "engine"),
    Option("range_by", "in a profile, name what operators do whose name matches", "profile",
           "engine", parse_range, "REGEX=NAME", repeatable=True),
    Option("disable_assert_throw", "go on when an output is not the packed expected one", "check",
           "engine"),
    Option("range", "fail when a value is above that, below its negative, or NaN", "check",
           "engine", parse_limit, "LIMIT", conflicts=("get_static_mem_info",)),
    Option("check_var_value", "fail when a variable has another value than in the first run: I "
           "runs for each, from number J on", "check", "engine", parse_check_interval, "I[:J]",
           conflicts=("get_static_mem_info",)),
    Option("check_dispatch", "fail when an operator gives the CPU no kernel to run", "check",
           "engine"),
    Option("model_dump", "write the model as it is after the options set", "model", "engine",
           parse_path, "FILE", writes="file"),
    Option("packed_model_dump", "write the model in the engine's packed format", "model", "engine",
           parse_path, "FILE", writes="file"),
    Option("pack_info_json", "put this JSON file into the packed model", "model", "engine",
           parse_path, "FILE"),
    Option("pack_cache", "put this fast-run cache file into the packed model", "model", "engine",
           parse_path, "FILE"),
    Option("c_opr_lib", "load a library of operators written in C", "model", "engine", parse_path,
           "FILE"),
    Option("engine_fix", "mend a known defect of the engine in memory (`lar engines --quirks`)",
           "run", "engine", str, "NAME", choices=("x2apic",)),
    Option("copy_to_host", "copy the outputs to the host in each iteration, and time it", "run",
           "run"),
    Option("engine_env", "set an environment variable for the engine", "run", "run",
           parse_variable, "KEY=VALUE", repeatable=True),
    Option("input", "what to feed: NAME:FILE;NAME:[1.5,2];NAME:{1,3,224,224}", "input", "input",
           str, "ITEMS", repeatable=True),
    Option("input_layout", "layout of the model's image input", "input", "input", str,
           choices=("nchw", "nhwc")),
    Option("resize", "resize an image to HEIGHTxWIDTH", "input", "input", parse_size, "HxW"),
    Option("mean", "subtract from an image: one number, or one for each channel", "input", "input",
           parse_channel_values, "M"),
    Option("scale", "then multiply by: one number, or one for each channel", "input", "input",
           parse_channel_values, "S"),
    Option("bgr", "feed the channels of an image as blue, green, red", "input", "input",
           conflicts=("rgb",)),
    Option("rgb", "feed the channels of an image as red, green, blue", "input", "input",
           conflicts=("bgr",)),
    Option("batch_size", "repeat the data of each input to a batch of N", "input", "input",
           parse_positive, "N"),
    Option("fill", "how generated data is drawn (default uniform)", "input", "input", str,
           default="uniform", choices=("uniform", "normal", "zeros", "ones")),
    Option("seed", "seed of generated data (default 0)", "input", "input", parse_seed, "N", 0),
    Option("labels", "the class of each item of a data set, or the names of the classes; tells "
           "the top-1 and top-5", "input", "run", parse_path, "FILE"),
    Option("resume", "go on with a data set whose outputs are dumped in part", "input", "run"),
    Option("model_info", "print what the model holds before it runs", "info", "report"),
    # The checkers run small graphs of their own, whose memory would be recorded instead.
    Option("get_static_mem_info", "write the plan of the static memory into this new folder",
           "info", "engine", parse_path, "DIR", writes="folder",
           conflicts=("range", "check_var_value")),
    Option("verbose", "show what the engine itself prints", "info", "engine"),
    Option("json", "write the whole result as JSON; - is standard output", "report", "report",
           parse_path, "FILE"),
    Option("csv", "write the whole result as CSV, a row an iteration; - is standard output",
           "report", "report", parse_path, "FILE"),
    Option("in_process", "run without a worker process and its time limits, for a debugger",
           "debug", "debug", conflicts=("timeout",)),
    Option("debug", "show the traceback of an error", "debug", "debug"),
)
# fmt: on

BY_KEY: Mapping[str, Option] = {option.key: option for option in OPTIONS}


def add_arguments(parser: argparse.ArgumentParser, support: Mapping[str, Sequence[str]]) -> None:
    """Add every option to a parser, by group.

    `support` gives the names of the engines that honour an engine option, shown after its help.
    """
    groups: dict[str, argparse._ArgumentGroup] = {}
    for option in OPTIONS:
        if option.group not in groups:
            groups[option.group] = parser.add_argument_group(option.group)
        engines = support.get(option.key)
        text = option.help + (f" [{', '.join(engines)}]" if engines else "")
        add_option(groups[option.group], option, text)


def add_option(parser: argparse._ActionsContainer, option: Option, text: str) -> None:
    """Add one option to a parser or a group, with that help."""
    keywords: dict[str, Any] = {"dest": option.key, "help": text.replace("%", "%%")}
    if option.parse is None:
        keywords |= {"action": "store_true", "default": False}
    else:
        keywords |= {"type": option.parse, "default": option.default}
        keywords |= {"choices": option.choices} if option.choices else {}
        keywords |= {"metavar": option.metavar} if option.metavar else {}
        keywords |= {"action": "append", "default": None} if option.repeatable else {}
    parser.add_argument(option.flag, **keywords)


def is_set(value: Any) -> bool:
    """Tell an option that the user set from one left out and from a switch that is off."""
    return value is not None and value is not False


def check_conflicts(values: Mapping[str, Any]) -> None:
    """Refuse two options that exclude each other.

    Raises:
        UsageError: naming both flags.
    """
    chosen = {key for key, value in values.items() if is_set(value)}
    for key in chosen:
        for other in BY_KEY[key].conflicts if key in BY_KEY else ():
            if other in chosen:
                first, second = sorted((key, other))
                raise UsageError(
                    f"{flag_of(first)} and {flag_of(second)} exclude each other",
                    "give one of them",
                )


def collect_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the engine options that the user set, by key."""
    return {
        option.key: (
            option.joined_by.join(values[option.key]) if option.repeatable else values[option.key]
        )
        for option in OPTIONS
        # Not by truth: the device number 0 is a setting.
        if option.scope == "engine" and is_set(values.get(option.key))
    }
