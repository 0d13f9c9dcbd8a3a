"""Files with the inputs that Python code gives to `lar.run`, where a worker finds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from lar.records.run import RunSpec

if TYPE_CHECKING:
    import numpy as np

    Source: TypeAlias = str | Path | np.ndarray[Any, Any]
    Inputs: TypeAlias = Mapping[str, Source] | Source


class GivenInputs:
    """The `--input` items of what was given, and what to call them to who gave it.

    Neither the files made for arrays nor a flag was theirs.
    """

    def __init__(self, inputs: Inputs | None, folder: Path) -> None:
        """Write arrays into the folder; it must stay as long as a worker may read them."""
        self.items: list[str] = []
        self.names = {} if inputs is None else {"--input": "inputs"}
        self._called: list[str] = []
        self._folder = folder
        if isinstance(inputs, Mapping):
            for name, source in inputs.items():
                self._add(f"{name}:", source, f" for {name!r}")
        elif inputs is not None:
            self._add("", inputs, "")

    def add_to(self, options: dict[str, Any]) -> None:
        """Add the items to the options of a run, before those of `input`."""
        if self.items:
            options["input"] = [*self.items, *(options.get("input") or [])]

    def _add(self, prefix: str, source: Source, whose: str) -> None:
        """Add the item of a source, in a file where it is an array."""
        if isinstance(source, (str, Path)):
            place = call = str(source)
        else:
            import numpy as np

            place = str(self._folder / f"{len(self.items)}.npy")
            call = f"the array given{whose}"
            np.save(place, np.asarray(source))
            self.names[place] = call
        self.items.append(prefix + place)
        self._called.append(prefix + call)

    def named_in(self, spec: RunSpec) -> RunSpec:
        """Return a spec with its inputs as they were given."""
        called = dict(zip(self.items, self._called, strict=True))
        return replace(spec, inputs=tuple(called.get(text, text) for text in spec.inputs))
