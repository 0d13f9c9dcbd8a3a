"""The inputs that Python code, or lar itself, gives to models: arrays in files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from lar.errors import UsageError
from lar.inputs import Array
from lar.records.run import RunSpec, TensorInfo

Source: TypeAlias = "str | Path | Array"
Inputs: TypeAlias = "Mapping[str, Source] | Source"


class GivenInputs:
    """The `--input` items of what was given, and the names for them in messages to the giver, who
    knows neither the files made for arrays nor a flag.
    """

    def __init__(self, inputs: Inputs | None, folder: Path) -> None:
        """Write arrays into the folder, which is made where it is missing; it must stay as long as
        a worker may read them."""
        self.names = {} if inputs is None else {"--input": "inputs"}
        self.items: tuple[str, ...] = ()
        sources = inputs if isinstance(inputs, Mapping) else {"": inputs}
        for name, source in sources.items() if inputs is not None else ():
            prefix = f"{name}:" if name else ""
            if isinstance(source, (str, Path)):
                place = str(source)
            else:
                import numpy as np

                folder.mkdir(exist_ok=True)
                place = str(folder / f"{len(self.items)}.npy")
                np.save(place, np.asarray(source))
                call = f"the array given for {name!r}" if name else "the array given"
                self.names |= {place: call, prefix + place: prefix + call}
            self.items += (prefix + place,)

    def add_to(self, options: dict[str, Any]) -> None:
        """Add the items to the options of a run, before those of `input`."""
        if self.items:
            options["input"] = [*self.items, *(options.get("input") or [])]


def with_names(spec: RunSpec, names: Mapping[str, str]) -> RunSpec:
    """Return a spec with its inputs as they were given."""
    return replace(spec, inputs=tuple(names.get(text, text) for text in spec.inputs))


def inputs_like(other: RunSpec, mine: RunSpec, folder: Path) -> tuple[str, ...]:
    """Write files with the data that is generated for another model, for a model whose inputs have
    other names, so that other data would be generated for it; return their `--input` items, none
    where the names are the same.

    Raises:
        UsageError: the models take different inputs.
        LarError: one of them cannot be read.
    """
    # Imported here: few runs need these.
    from lar.inputs.dtypes import dtype_of, generate_array
    from lar.inputs.model_inputs import AxisSizes
    from lar.running.isolation import info_of

    infos, theirs = (
        [info for info in info_of(spec).inputs if not info.optional] for spec in (mine, other)
    )
    if {each.name for each in infos} == {each.name for each in theirs}:
        return ()
    if [*map(describe_input, infos)] != [*map(describe_input, theirs)]:
        hint = 'say what to feed, in the options of each side: "model.mge --input a:a.npy"'
        raise UsageError(f"{mine.model} and {other.model} take different inputs", hint)
    sizes = AxisSizes(theirs, {})
    fed = {
        each.name: generate_array(
            its.name, dtype_of(its.dtype), sizes.shape_of(its), fill=other.fill, seed=other.seed
        )
        for each, its in zip(infos, theirs, strict=True)
    }
    return GivenInputs(fed, folder).items


def describe_input(info: TensorInfo) -> tuple[str, tuple[int, ...]]:
    return info.dtype, tuple(1 if size is None else size for size in info.shape)
