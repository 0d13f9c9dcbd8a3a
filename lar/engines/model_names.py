"""Adds a model's own tensor names and graph to dumps and arrays that lack them."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, TypeAlias, TypeVar

import msgspec

from lar.dumps import Dump, DumpedOperator, DumpedTensor, DumpIndex
from lar.dumps.graph import with_operators, with_quantizations
from lar.engines import operator_kinds_of, read_operators, read_quantizations
from lar.engines.engine import Engine, import_late
from lar.errors import LarError, UsageError
from lar.files.input_file import check_input
from lar.graphs.graph import graph_of
from lar.graphs.origins import SEPARATORS, ModelOperator, name_origins
from lar.inputs import Array
from lar.records.run import TensorInfo

if TYPE_CHECKING:
    from lar.records.profile import ProfiledOperator

Side = TypeVar("Side")

FLAG = "--model"

Models: TypeAlias = Mapping[str, "str | os.PathLike[str]"]

# If a model has a smaller part of a dump's tensors, the dump may be of another model.
LEAST_SHARE = 0.4

# The kinds of operators whose output is their input's data, with other axes or another type.
MOVES = ("move", "cast")

# The version at the end of an operator type in a model file; an engine's types may lack it.
VERSION = re.compile(r"V\d$")


def read_ahead(engine: Engine, model: Path) -> None:
    """Prepare for finishing a dump, while the run that writes the dump is still going on.

    If the engine has a function that describes dumps, import the function and read the model's
    operators.
    """
    if import_late(engine, "describe_dump"):
        operators_of(model)


# Keeps the operators of the last model; the file's time shows whether it has changed since.
read_once = lru_cache(maxsize=1)(lambda model, changed_ns: read_operators(model))


def operators_of(model: Path) -> tuple[ModelOperator, ...]:
    """Return the operators of a model file, or an empty tuple if the operators cannot be read."""
    with contextlib.suppress(OSError, ValueError, LarError):
        return read_once(model, os.stat(model).st_mtime_ns)
    return ()


def name_by_operators(
    index: DumpIndex, operators: Sequence[ModelOperator], engine: str
) -> DumpIndex:
    """Return the index of an engine's dump, with the model's tensor names added.

    The tensor names come from `operators`, the operators of the model. If `operators` is empty, the
    index is returned unchanged.
    """
    kinds = operator_kinds_of(engine).kinds
    return name_origins(index, operators, {name for name, kind in kinds.items() if kind in MOVES})


def parse_models(texts: Iterable[str]) -> dict[str, str]:
    """Parse the values of `--model`, which have the form `FILE`, or `A=FILE` for the side A.

    Returns:
        The model files, by the letter of the side; the file with the empty letter is for all sides
        without a file of their own.
    """
    found = (re.fullmatch(r"(?:([A-Z])=)?(.+)", text, re.DOTALL) for text in texts)
    return {each[1] or "": each[2] for each in found if each}


def give_model(dump: Dump, letter: str, model: str | os.PathLike[str]) -> tuple[Dump, list[str]]:
    """Return a dump with the tensor names of its model, and messages for the user.

    If the dump has no operators, it gets the operators of the model.

    Raises:
        UsageError: the model cannot be read, or the model and the dump have no tensor name in
            common.
    """
    check_input(model, FLAG, what="model file")
    operators: tuple[ModelOperator, ...] = ()
    with contextlib.suppress(OSError, ValueError):  # a LarError names the file
        operators = read_operators(Path(model))
    if not operators:
        raise refusal(model, "is damaged, or does not say its operators", "give a .onnx or .mge")
    names = {name for each in operators for name in (*each.inputs, *each.outputs) if name}
    if dump.index.operators:
        index = name_by_operators(dump.index, operators, dump.index.engine)
        index = with_quantizations(index, read_quantizations(Path(model)))
    else:
        index = with_model(dump.index, operators, names)
    known, count = count_known(index, names)
    if not known:
        problem = f"has none of the names of {letter}'s tensors"
        raise refusal(model, problem, "give the model of these tensors")
    part = f"{os.fspath(model)} has {known} of the {count} tensors of {letter}"
    notes = [f"{part}: it may be another model"] if known < LEAST_SHARE * count else []
    return replace(dump, index=index), notes


def refusal(model: str | os.PathLike[str], problem: str, hint: str) -> UsageError:
    """Return a usage error about a model file that the user gave by `--model`."""
    return UsageError(problem, hint, flag=FLAG, subject=model)


def count_known(index: DumpIndex, names: Iterable[str]) -> tuple[int, int]:
    """Return how many of a dump's tensors have a name from the model, and the number of tensors.

    Constants are not counted.
    """
    starts = tuple(operator_kinds_of(index.engine).rounded)
    constants = {key for each in index.operators if each.constant for key in each.outputs}
    tensors = [tensor for tensor in index.tensors if tensor.key not in constants]
    alike = {SEPARATORS.sub("_", name) for name in names}

    def is_known(name: str) -> bool:
        plain = next((name.removeprefix(it) for it in starts if name.startswith(it)), name)
        return SEPARATORS.sub("_", plain) in alike

    return sum(is_known(it.name) or is_known(it.origin) for it in tensors), len(tensors)


def give_models(
    sides: Sequence[Dump | Side], models: Models
) -> tuple[list[Dump | Side], tuple[str, ...]]:
    """Add the models' tensor names to the dumps; return all sides, and messages for the user.

    `models` has a model file for each letter of a side. A model file with an empty letter is used
    for each dump whose letter is not in `models`.

    Raises:
        UsageError: a model cannot be read, has no tensor name in common with its dump, or is given
            for a side that is not a dump.
    """
    given, notes, unused = [*sides], list[str](), {*models}
    for place, (letter, side) in enumerate(zip(ascii_uppercase, sides, strict=False)):
        key = letter if letter in models else ""
        if isinstance(side, Dump) and key in models:
            unused.discard(key)
            given[place], found = give_model(side, letter, models[key])
            notes += found
    for letter in sorted(unused):
        problem = f"{letter} is no dump" if letter else "no side is a dump"
        raise refusal(models[letter], problem, "a model that is run needs no --model")
    return given, tuple(notes)


def with_model(
    index: DumpIndex, operators: Sequence[ModelOperator], names: Iterable[str]
) -> DumpIndex:
    """Add the operators of a model to an index of arrays, and return the new index.

    `names` are the names of the model's tensors. The names of the arrays may have other separators
    than the names of the model's tensors.
    """
    named = {tensor.name: tensor.key for tensor in index.tensors}
    alike = {SEPARATORS.sub("_", name): key for name, key in named.items()}
    keys = {
        name: named.get(name) or alike.get(SEPARATORS.sub("_", name)) or f"model {name}"
        for name in names
    }
    kinds = operator_kinds_of("").kinds
    made = (
        DumpedOperator(
            key=f"operator {place}",
            name=each.name or each.outputs[0],
            type=type_in(kinds, each.type),
            inputs=tuple(keys[name] for name in each.inputs if name),
            outputs=tuple(keys[name] for name in each.outputs if name),
        )
        for place, each in enumerate(operators)
    )
    origins = {key: name for name, key in keys.items() if name not in named}
    tensors = (replace(it, origin=origins.get(it.key, "")) for it in index.tensors)
    return with_operators(replace(index, tensors=tuple(tensors)), made)


def type_in(kinds: Mapping[str, str], kind: str) -> str:
    """Return the operator type in engines' dumps that matches an operator type in a model file."""
    plain = VERSION.sub("", kind)
    return next((each for each in (kind, plain, f"{plain}Forward") if each.lower() in kinds), plain)


def name_operators(
    operators: Sequence[ProfiledOperator], *, model: Path, engine: str
) -> tuple[ProfiledOperator, ...]:
    """Return a profile's operators, with the model's names for the operators' output tensors."""
    index = name_by_operators(graph_of(operators, engine).dump_index, operators_of(model), engine)
    origins = {tensor.key: tensor.origin for tensor in index.tensors if tensor.origin}
    return tuple(
        msgspec.structs.replace(
            operator, names={key: origins[key] for key in operator.writes if key in origins}
        )
        for operator in operators
    )


def inputs_of(dump: Dump, infos: Sequence[TensorInfo]) -> dict[str, Array]:
    """Return the dumped inputs of a run, to feed them to a model with the inputs `infos`.

    The result is empty if an input is missing in the dump. If the dump is a set of arrays without
    operators, the arrays with the names of the model's inputs are returned.
    """
    from lar.graphs.graph import Graph  # not above: a run does without NumPy

    graph = Graph(dump, operator_kinds_of(dump.index.engine))
    wanted = [node.tensor for node in graph.nodes if node.is_input and node.operator]
    if not (dump.index.operators or dump.excerpts):
        tensors = {tensor.name: tensor for tensor in dump}
        wanted = [tensors.get(each.name) for each in infos if not each.optional]
    found = {tensor.name: read_fed(dump, tensor) for tensor in wanted if tensor is not None}
    return found if len(found) == len(wanted) else {}


def read_fed(dump: Dump, tensor: DumpedTensor) -> Array:
    """Return a dumped tensor as an array that a model can be fed with."""
    from lar.dumps.binary import TEXT
    from lar.dumps.recording import texts_of_bytes

    array = dump.read(tensor.key)
    return texts_of_bytes(array) if tensor.dtype == TEXT.dtype else array
