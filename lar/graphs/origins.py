"""Finds the model file's names for the tensors of an engine's optimised graph.

Engines fuse operators, bring tensors into blocks of channels, and name new tensors themselves: the
tensor `reorder_token_9` may be the model's `stage4/relu`. The graphs of the engine and of the model
are walked side by side, from the inputs on. If the engine has not changed a tensor's name, the
tensor's origin is certain. A tensor whose name the engine has changed may be found by the name of
its operator. Engines derive the names of operators from the model's names; an example is
`stage4/conv_nchwc`. If an engine made up the name of an operator, the operator's output is found by
the operator's inputs: the operator stands for all operators of the model between these inputs and
the output. If an operator only moves or casts data, its output has the same origin as its input.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from heapq import heappop, heappush
from typing import NamedTuple

from lar.dumps import DumpedOperator, DumpIndex
from lar.graphs.graph import BODY_INPUT, walk, with_computed

# Endings that engines append to the names of operators that they change, and to all names.
SUFFIXES = re.compile(r"(_nchwc|_token_\d+|_nchwc_token_\d+)$")
NUMBER = re.compile(r"\[\d+\]$")

# Operators whose results depend only on shapes. Engines compute these results in advance.
OF_SHAPES = ("shape", "size", "getvarshape", "getvarshapev1")

# Operators whose constants, such as 0 and 6, vanish when they are fused.
BOUNDED = ("clip", "min", "max")

# The beginning of the name of a tensor that the model lacks. For example, an engine may compute a
# sum of fused operators in another order.
PART = "part of "

# The characters between the parts of a name, such as layer1.0/conv or layer1_0_conv.
SEPARATORS = re.compile(r"[^0-9A-Za-z]+")

# The largest number of the model's operators that one operator of an engine stands for.
MOST_COVERED = 64


class ModelOperator(NamedTuple):
    """An operator of a model file: its type, its name, the names of its inputs and outputs."""

    type: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def name_origins(
    index: DumpIndex, model: Sequence[ModelOperator], moves: Collection[str]
) -> DumpIndex:
    """Return an index with the model's names as `origin`.

    `origin` stays empty for tensors and operators that the engine did not change. `moves` are the
    types (in lower case) of operators that only move or cast data.
    """
    if not model:
        return index
    return Alignment(index, ModelGraph(model, index), moves).named_index()


class ModelGraph:
    """The operators of a model file, and for each tensor the operators that compute or read it."""

    def __init__(self, operators: Sequence[ModelOperator], index: DumpIndex) -> None:
        self.operators = operators = in_order(operators)
        # The place of the operator that gives each tensor, and the places of all that take it. An
        # operator without inputs does not count as a giver.
        givers = [(place, each) for place, each in enumerate(operators) if each.inputs]
        self.places = {name: place for place, each in givers for name in each.outputs if name}
        self.takers: dict[str, list[int]] = defaultdict(list)
        for place, each in enumerate(operators):
            for name in dict.fromkeys(each.inputs):
                self.takers[name].append(place)
        self.by_name = {each.name: each for each in operators if each.name}
        sources = {*self.takers, *(name for each in operators for name in each.outputs)}
        fed = {each.key for each in index.operators if not each.inputs and not each.constant}
        inputs = {tensor.name for tensor in index.tensors if tensor.operator in fed}
        self.data = (inputs & sources) - self.places.keys()
        for each in operators:
            is_computed = each.type.lower() not in OF_SHAPES and self.data & {*each.inputs}
            if is_computed or each.type == BODY_INPUT:  # later iterations feed other values
                self.data.update(filter(None, each.outputs))

    def region(self, end: str, begin: Collection[str]) -> tuple[list[ModelOperator], set[str]]:
        """Return the operators between `begin` and `end`, and the input tensors of this region.

        If `end` also needs tensors from before `begin`, these tensors are among the input tensors.
        """
        first = min((self.places.get(name, -1) for name in begin), default=-1)

        def before(name: str) -> list[str]:
            place = self.places.get(name, -1)
            stops = name in begin or place <= first
            return [] if stops else [it for it in self.operators[place].inputs if it in self.data]

        reached = walk([end], before)
        needed = {it for it in reached if it in begin or self.places.get(it, -1) <= first}
        places = sorted({self.places[name] for name in reached.keys() - needed})
        return [self.operators[place] for place in places], needed

    def behind(self, sources: Collection[str]) -> Iterator[str]:
        """Yield each tensor that depends on all of `sources`, and otherwise only on constants.

        The tensors have the model's order.

        The search stops after `MOST_COVERED` operators.
        """
        reached = {name: frozenset({name}) for name in sources}
        waiting = sorted(place for name in sources for place in self.takers.get(name, ()))
        while waiting and len(reached) < len(sources) + MOST_COVERED:
            operator = self.operators[heappop(waiting)]
            taken = [name for name in operator.inputs if name in self.data]
            if not reached.keys() >= {*taken}:
                continue
            for output in operator.outputs:
                if output not in self.data or output in reached:
                    continue
                reached[output] = frozenset().union(*(reached[name] for name in taken))
                if len(reached[output]) == len(sources):
                    yield output
                for place in self.takers.get(output, ()):
                    heappush(waiting, place)


class Alignment:
    """Finds for each tensor of an optimised graph the same tensor of the model."""

    def __init__(self, index: DumpIndex, model: ModelGraph, moves: Collection[str]) -> None:
        self.index, self.model, self.moves = index, model, moves
        self.names = {tensor.key: tensor.name for tensor in index.tensors}
        self.kept = {*self.names.values()}
        self.constants = constants_in(index)
        self.origins: dict[str, str] = {}
        self.parts: dict[str, str] = {}
        self.regions: dict[str, list[ModelOperator]] = {}
        for operator in index.operators:
            for slot, key in enumerate(operator.outputs):
                if key not in self.constants and (origin := self.origin_of(operator, key, slot)):
                    self.origins[key] = origin
        self.find_parts()
        self.find_regions()

    def taken(self, operator: DumpedOperator) -> list[str]:
        """Return the keys of an operator's inputs that are not constants."""
        return [key for key in dict.fromkeys(operator.inputs) if key not in self.constants]

    def weights_of(self, operator: DumpedOperator) -> list[str]:
        """Return the keys of the constants that an operator reads."""
        return [key for key in operator.inputs if key in self.constants]

    def weights_in(self, region: Iterable[ModelOperator]) -> list[str]:
        """Return the names of the constants that some operators of the model read, in order."""
        names = (name for each in region for name in each.inputs)
        return [name for name in names if name and name not in self.model.data]

    def is_move(self, operator: DumpedOperator) -> bool:
        return operator.type.lower() in self.moves and len(self.taken(operator)) == 1

    def origin_of(self, operator: DumpedOperator, key: str, slot: int) -> str:
        """Return the model's name of an operator's output; empty if the name is not found."""
        name = self.names.get(key, "")
        if name in self.model.data:
            return name
        named = self.named_after(operator, slot)
        sources = {self.origins.get(each, "") for each in self.taken(operator)}
        if not sources or "" in sources or (slot and not named):
            return named  # a further output may be a tensor that the model lacks
        if named or len(sources) > 1:
            found = self.computed_from(operator, sources, named)
        else:
            found = self.alike(operator, *sources)
        return self.behind_activation(operator, found)

    def named_after(self, operator: DumpedOperator, slot: int) -> str:
        """Return the output of the model's operator that has the name of the engine's `operator`.

        The result is empty if no operator of the model has the name. If the engine used the name of
        a tensor of the model, the result is this tensor.
        """
        name = NUMBER.sub("", operator.name)
        for each in (name, SUFFIXES.sub("", name)):
            if found := self.model.by_name.get(each):
                output = found.outputs[slot] if slot < len(found.outputs) else ""
                return output if output in self.model.data else ""
            if each in self.model.data:
                return each
        return ""

    def computed_from(self, operator: DumpedOperator, sources: set[str], named: str) -> str:
        """Return the first tensor that the model computes from all inputs of an operator.

        The result is empty if the model computes no tensor from all inputs. If the operator is
        named after a tensor of the model, the result must be this tensor or a tensor that is
        computed from this tensor. In this case, the model's operators between `sources` and the
        result must also have at least as many inputs from `sources` as the engine's operator has
        non-constant inputs.
        """
        count = sum(key not in self.constants for key in operator.inputs)
        for name in self.model.behind(sources):
            region, _ = self.model.region(name, sources)
            taken = [it for each in region for it in each.inputs]
            if not named:
                # An engine may add two branches before it adds a bias that one of them has.
                fits = len(self.weights_in(region)) <= len(self.weights_of(operator))
                return name if fits else ""
            if named in (name, *taken) and sum(map(sources.__contains__, taken)) >= count:
                return name
        return ""

    def behind_activation(self, operator: DumpedOperator, name: str) -> str:
        """Return the output of a fused activation, or `name` if no activation is fused."""
        parameters = {key.lower(): value for key, value in operator.parameters.items()}
        mode = str(parameters.get("activation", "")).lower()
        takers = [self.model.operators[place] for place in self.model.takers.get(name, ())]
        if len(takers) == 1 and takers[0].type.lower() == mode:
            return takers[0].outputs[0]
        return name

    def alike(self, operator: DumpedOperator, source: str) -> str:
        """Return the output of the model's operator that reads `source` and has `operator`'s type.

        If the model has no such operator, but the engine's operator only moves data, the result is
        `source`, because the engine may have added its operator. The result is empty if the model
        has no such operator, and the engine's operator does more than move data.
        """
        found = [
            each.outputs[0]
            for each in map(self.model.operators.__getitem__, self.model.takers.get(source, ()))
            if plain_type(each.type) == plain_type(operator.type)
            and each.outputs[0] not in self.kept
            and len(self.weights_in([each])) == len(self.weights_of(operator))
        ]
        if len(found) == 1:
            return found[0]
        return source if self.is_move(operator) else ""

    def find_parts(self) -> None:
        """Find tensors that are not tensors of the model, but only parts of the model's tensors.

        For example, the engine may compute a sum in another order than the model. If two tensors
        seem to have the same origin, and one tensor is computed from the other tensor, the earlier
        tensor is only a part of the later tensor.
        """
        for operator in reversed(self.index.operators):
            known = (self.origins.get(key) or self.parts.get(key) for key in operator.outputs)
            whole = next(filter(None, known), "")
            moved = self.is_move(operator) and operator.outputs[0] in self.origins
            for key in self.taken(operator) if whole else ():
                if self.origins.get(key) == whole != self.names.get(key) and not moved:
                    del self.origins[key]
                self.parts.setdefault(key, whole)

    def find_regions(self) -> None:
        """Find the model's operators that each engine operator replaces; name the engine's weights.

        The engine operator's weights get the names of the weights of the replaced operators, in the
        same order.
        """
        for operator in self.index.operators:
            first = operator.outputs[0] if operator.outputs else ""
            if first not in self.origins or first in self.constants:
                continue
            sources = {self.origins[key] for key in self.taken(operator) if key in self.origins}
            if not sources or self.origins[first] in sources:
                continue
            region, needed = self.model.region(self.origins[first], sources)
            if not needed <= sources:
                continue
            self.regions[operator.key] = region
            used = self.weights_of(operator)
            held = self.weights_in(each for each in region if each.type.lower() not in BOUNDED)
            known = {self.names.get(key) for key in used}
            free = [key for key in used if key in self.names and self.names[key] not in held]
            left = [name for name in held if name not in known]
            # If the engine has fewer weights, it may have folded some into others.
            if len(free) == len(left):
                for key, name in zip(free, left, strict=True):
                    self.origins.setdefault(key, name)

    def named_index(self) -> DumpIndex:
        """Return the index with the model's names."""
        names = {key: PART + name for key, name in self.parts.items()} | self.origins
        tensors = (
            it if names.get(it.key, it.name) == it.name else replace(it, origin=names[it.key])
            for it in self.index.tensors
        )
        made = (replace(it, origin=self.origin_of_operator(it)) for it in self.index.operators)
        return replace(self.index, tensors=tuple(tensors), operators=tuple(made))

    def origin_of_operator(self, operator: DumpedOperator) -> tuple[str, ...]:
        """Return the outputs of the model's operators that an engine's operator replaces.

        The result is () if the operator is an unchanged operator of the model.
        """
        names = tuple(each.outputs[0] for each in self.regions.get(operator.key, []))
        kept = names == tuple(self.names.get(key, "") for key in operator.outputs[:1])
        return () if kept else names


def in_order(operators: Sequence[ModelOperator]) -> Sequence[ModelOperator]:
    """Sort operators so that each operator follows the operators that compute its inputs.

    Some converters list an operator after the operators that read its outputs.
    """
    makers = {name: place for place, each in enumerate(operators) for name in each.outputs}
    before = {
        place: sorted({makers[name] for name in each.inputs if name in makers})
        for place, each in enumerate(operators)
    }
    try:
        return [operators[place] for place in TopologicalSorter(before).static_order()]
    except CycleError:  # a damaged model
        return operators


def plain_type(kind: str) -> str:
    """Return an operator's type in lower case, without an ending such as `v2` or `forward`."""
    return re.sub(r"(forward|v\d)$", "", kind.lower())


def constants_in(index: DumpIndex) -> set[str]:
    """Return the keys of constants, and of tensors that are computed from constants only.

    A tensor that no operator computes counts as a constant.
    """
    given = {key for each in index.operators for key in each.outputs}
    constants = {key for each in index.operators for key in each.inputs if key not in given}
    constants.update(key for each in index.operators if each.constant for key in each.outputs)
    return with_computed(constants, index.operators)
