"""Files with the inputs that Python code gives to `lar.run`, where a worker finds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from lar.records.run import RunResult

if TYPE_CHECKING:
    import numpy as np

    Source: TypeAlias = str | Path | np.ndarray[Any, Any]
    Inputs: TypeAlias = Mapping[str, Source] | Source


class GivenInputs:
    """The `--input` items of what was given, and what to call the files that were made for it."""

    def __init__(self, inputs: Inputs, folder: Path) -> None:
        """Write arrays into the folder; it must stay as long as a worker may read them."""
        self.items: list[str] = []
        self._calls: dict[str, str] = {}
        self._folder = folder
        if isinstance(inputs, Mapping):
            for name, source in inputs.items():
                self.items.append(f"{name}:{self._place(source, f' for {name!r}')}")
        else:
            is_text = isinstance(inputs, (str, Path))
            self.items.append(str(inputs if is_text else self._place(inputs, "")))

    def _place(self, source: Source, whose: str) -> str:
        """Return the path of what holds a source."""
        path = self._folder / str(len(self.items))
        if not isinstance(source, (str, Path)):
            import numpy as np

            path = path.with_suffix(".npy")
            np.save(path, np.asarray(source))
            self._calls[str(path)] = f"the array given{whose}"
        elif ";" in str(source) and Path(source).exists():
            # It would be read as two items.
            path = path.with_suffix(Path(source).suffix)
            path.symlink_to(Path(source).resolve())
            self._calls[str(path)] = str(source)
        else:
            return str(source)
        return str(path)

    def named_in(self, result: RunResult) -> RunResult:
        """Return a result that calls the inputs what they are to who gave them, since neither the
        files nor a flag was theirs."""

        def named(text: str) -> str:
            for path, call in self._calls.items():
                text = text.replace(path, call)
            text = text.replace("put NAME: before it", "give a mapping from names to arrays")
            return text.replace("--input: ", "inputs: ")

        spec, failure = result.spec, result.failure
        if failure is not None:
            failure = replace(failure, message=named(failure.message), hint=named(failure.hint))
        return replace(
            result,
            spec=replace(spec, inputs=tuple(map(named, spec.inputs))),
            fed=tuple(replace(fed, source=named(fed.source)) for fed in result.fed),
            failure=failure,
            warnings=tuple(map(named, result.warnings)),
        )


def items_of(inputs: Inputs, folder: Path) -> list[str]:
    """Return `--input` items; arrays are written to files in `folder` for the worker to read."""
    return GivenInputs(inputs, folder).items
