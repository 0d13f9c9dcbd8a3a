"""The styles of reports: one row and one module each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Style(NamedTuple):
    """A style: `build` is `module:function`, which takes a profile and the options set.

    `options` are the keys of those in `lar.profiling.report_options` that it honours; any other
    is refused. `sorts` and `groups` are what --sort and --group-by may say, `views` its parts for
    --view, the first of each being the default, but for views, which are all shown. A style with
    `raw` also takes the engine's own profile file: that is `module:function`, which takes the
    file's content and its name and returns a profile. A style that `compares` takes two profiles.
    """

    build: str
    help: str
    options: frozenset[str] = frozenset()
    sorts: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    views: tuple[str, ...] = ()
    raw: str = ""
    compares: bool = False


COMMON = frozenset({"top", "sort", "filter", "view", "time_unit"})

STYLES: Mapping[str, Style] = {
    "megengine": Style(
        "lar.profiling.styles.megengine:build",
        "the slowest operators",
        options=frozenset(
            {
                *("sort", "top", "filter", "type", "aggregate_by", "aggregate", "opr_name"),
                *("input_dtype", "top_end_key", "copy_time", "min_time", "max_time", "show_host"),
                *("dump_only_opr", "confluence", "print_only"),
            }
        ),
        raw="lar.engines.megengine.profile_file:profile_of_raw",
    ),
    "paddle": Style("lar.profiling.styles.paddle:build", "Paddle's summaries", COMMON),
    "torch": Style("lar.profiling.styles.torch:build", "torch's key averages", COMMON),
    "nsys": Style("lar.profiling.styles.nsys:build", "statistics as of nsys", COMMON),
    "ncu": Style("lar.profiling.styles.ncu:build", "roofline of operators and ranges", COMMON),
    "tensorboard": Style(
        "lar.profiling.styles.tensorboard:build", "the views of the TensorBoard plugin", COMMON
    ),
    "html": Style("lar.profiling.styles.html:build", "one page with every view", COMMON),
    "diff": Style("lar.profiling.styles.diff:build", "two runs", COMMON, compares=True),
}

# What a profile can be written as for other programs: `module:function`, which takes a profile
# and returns the file's content, and what it is.
EXPORTS: Mapping[str, tuple[str, str]] = {}
