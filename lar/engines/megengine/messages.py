"""Clear errors for MegEngine's own messages, for both drivers: a table of what they mean."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from lar.engines.formats import BROKEN
from lar.errors import CheckFailed, LarError, UsageError
from lar.options import table
from lar.options.option import Option

if TYPE_CHECKING:
    from lar.records.run import TensorInfo


class Meaning(NamedTuple):
    """What a message of the engine's means to the user: what is wrong, and what to do.

    Both texts may hold groups of the pattern, the name of the `model` and what the engine `said`,
    in a line. If there are options, one of them must be given, and is named as the flag. `about` is
    whether the error is about the model file, perhaps only while that is loaded.
    """

    pattern: str
    problem: str
    hint: str
    options: Collection[Option[Any]] = ()
    error: type[LarError] = UsageError
    about: Literal["", "file", "loading"] = ""

    def explain(
        self, message: str, model: str, *, loading: bool, settings: Collection[str]
    ) -> LarError | None:
        """Return the error for a message, None for another one."""
        flags = [option.flag for option in self.options if option.key in settings]
        found = re.search(self.pattern, message)
        is_for_it = bool(flags) == bool(self.options) and (loading or self.about != "loading")
        if not (found and is_for_it):
            return None
        said = (message.strip().splitlines() or ["nothing"])[0]
        facts = {**found.groupdict(), "model": model, "said": said}
        texts = (text.format(*found.groups(), **facts) for text in (self.problem, self.hint))
        subject = model if self.about else ""
        return self.error(*texts, flag=(*flags, "")[0], subject=subject)


# The checkers name the graph's variable and the place of its first wrong element, as in
#   var: {id:9, ..., owner:relu(x)[8]{Elemwise}, name:y, slot:0, ...}
VARIABLE = r"owner:.*?\{(?P<type>\w+)\}, name:(?P<name>.*?), slot:.*"
PLACE = r"index=(?P<index>\S+)/(?P<shape>\S+)"
WHERE = "{name} has the value {value} at index {index} of {shape}"
WHOSE = "the operator that computes it is of type {type}"
BROKEN_FILE: Mapping[str, str] = {
    r"m_offset \+ size <= m_size|(?:m_refhold|ptr) && size|unexpected (?:end|eof)": "the file is "
    "cut short",
    "model verification failed": "its content is damaged (verification failed)",
    "invalid model format|access invalid Maybe value": "this is not a MegEngine model, or it is "
    "damaged",
    "tensor name must be .* input tensor name": "its content is damaged: it does not have a tensor "
    "that it names",
    "device < nr_gpu": "it asks for a CUDA device, and this machine has no such one",
}

# The first that fits counts.
MEANINGS = (
    Meaning(
        rf"float value out of range: var: \{{.*, {VARIABLE}\n value=(?P<value>\S+) "
        rf"range=(?P<limit>\S+) {PLACE}",
        f"--range {{limit}}: {WHERE}",
        WHOSE,
        error=CheckFailed,
    ),
    Meaning(
        rf"Unequal value\nValue of: .* owner:get:\{{.*?, {VARIABLE}\n +Actual: (?P<value>\S+)\n"
        r"Expected: .*\nWhich is: (?P<first>\S+)\nAt index: (?P<index>\S+)/(?P<shape>\S+)",
        f"--check-var-value: {WHERE}, it had {{first}} in the first run",
        f"{WHOSE}; those that draw random numbers change by nature",
        error=CheckFailed,
    ),
    Meaning(
        r"unsupport dtype in lite : \{.* (\w+)\}",
        "an input or output is of type {}, which MegEngine's lite lacks",
        "--driver graph takes it; or cast it to float32 or int32 in the model, and dump it again",
        about="file",
    ),
    Meaning(
        r"failed to find opr with type (\w+)",
        "MegEngine has no operator of the type {}, or the file is damaged",
        f"dump the model with this version of MegEngine, or {BROKEN}",
        error=LarError,
        about="loading",
    ),
    *(Meaning(said, what, BROKEN, about="loading") for said, what in BROKEN_FILE.items()),
    Meaning(
        "failed to malloc|bad_alloc|out of memory|cudaErrorMemoryAllocation",
        "out of memory in MegEngine",
        "a smaller batch or model, or more memory",
        error=LarError,
    ),
    # Of a variable of bytes, which the dumps do not know.
    Meaning(
        r"is_contiguous\(\)' failed at .*\bdump_tensor\(|can not handle dtype \w+ in print_",
        "{model} has a variable that MegEngine cannot dump, as batch normalisation has that is not "
        "folded",
        "dump the model with optimize_for_inference, which folds it; --bin-out-dump DIR writes the "
        "outputs alone",
        table.OPERATOR_DUMPS,
    ),
    Meaning(
        "failed to write to .*(No space left on device|Disk quota exceeded|File too large)",
        "MegEngine cannot write a file: {}",
        "make room on the disk",
        error=LarError,
    ),
    Meaning(
        "ExternCOprRunner::load",
        "it has an operator in C that no loaded library has",
        "name its library: lar run --c-opr-lib FILE",
        about="file",
    ),
    Meaning(
        r"(?s)(?=.*`ch >= 1')(?=.*json\.cpp)",
        "{model} has a name that is not ASCII, which MegEngine cannot write into its profile",
        "export the model with other names, or leave the flag out",
        table.PROFILE_FILES,
    ),
    Meaning(
        r"map\.find\(desc\) != map\.end\(\)",
        "the fast-run cache names an algorithm that is not here",
        "it was made on another machine or by another version: search again",
    ),
)
# Those that blame an option, where the shapes that are fed are not to blame.
OF_OPTIONS = (
    Meaning(
        "attempt to modify ExecutionPolicy",
        "MegEngine cannot set it on this model with these options",
        "leave it or the layout out",
        [table.WORKSPACE_LIMIT],
    ),
    Meaning(
        r"contain_attribute_all\(positive_attr\)",
        "an operator of {model} has naive algorithms alone with these options, and it takes none",
        "--full-run takes them too; or leave the layout out",
        [table.FAST_RUN],
    ),
    Meaning(
        "param.mode == Param::Mode::",
        "{model} has quantised variables, which MegEngine cannot compare",
        "--range looks at its floating-point values",
        [table.CHECK_VAR_VALUE],
    ),
    Meaning(
        "",
        "MegEngine cannot run {model} in float16",
        "leave the flag out; it says: {said}",
        [table.ENABLE_IOC16],
    ),
    Meaning(
        r"value\.initialized\(\)",
        "it cannot go with a layout on {model}: MegEngine computes weights in that layout in "
        "executions of their own",
        "leave one of them out; it says: {said}",
        [table.FAKE_FIRST],
    ),
    *(
        Meaning(
            said,
            "MegEngine cannot run {model} in this layout",
            f"leave the flag out{fold}; it says: {{said}}",
            table.LAYOUT_CHOICES,
        )
        for said, fold in {
            "batch_norm": ", or fold batch normalisation before the dump",
            "": "",
        }.items()
    ),
)


def resized_inputs(
    infos: Iterable[TensorInfo], fed_shapes: Mapping[str, tuple[int, ...]]
) -> list[tuple[TensorInfo, tuple[int, ...]]]:
    """Return the inputs that are fed with another shape than their file's, with that shape."""
    fed = [(info, fed_shapes[info.name]) for info in infos if info.name in fed_shapes]
    return [(info, shape) for info, shape in fed if shape != info.shape]


def shape_error(model: str, resized: Sequence[tuple[TensorInfo, tuple[int, ...]]]) -> UsageError:
    """Return the error of a model that cannot be computed with the shapes that are fed."""
    from lar.inputs.axes import hint_to_generate
    from lar.inputs.image_settings import image_size  # imports NumPy
    from lar.records.run import format_shape

    fed = ", ".join(f"{info.name} of shape {format_shape(shape)}" for info, shape in resized)
    own = ", ".join(format_shape(info.shape) for info, _ in resized)
    (info, shape), *_ = resized
    hint = f"feed it that shape: {hint_to_generate(info)}"
    if len(shape) == 4 and image_size(shape) != image_size(info.shape):
        height, width = image_size(info.shape)
        hint += f", --resize {height}x{width} makes an image fit"
    return UsageError(
        f"MegEngine cannot compute it with {fed}; it was dumped for {own}", hint, subject=model
    )


def explain_megengine(
    message: str,
    model: str,
    *,
    loading: bool,
    settings: Collection[str] = (),
    resized: Sequence[tuple[TensorInfo, tuple[int, ...]]] = (),
) -> LarError | None:
    """Return the clear error behind a message of the engine, None for an unknown one.

    `resized` are the inputs fed with other shapes than those of the model file.
    """

    # The engine's checks of shapes say so, or stand in functions that are called so.
    is_of_shape = bool(resized and re.search("shape|layout", message))
    for meaning in (*MEANINGS, *(() if is_of_shape else OF_OPTIONS)):
        if error := meaning.explain(message, model, loading=loading, settings=settings):
            return error
    return shape_error(model, resized) if is_of_shape else None
