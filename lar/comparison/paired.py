"""The pairs of twins of two graphs, each measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property

from lar.comparison.fault_kinds import Names
from lar.comparison.pairs import Measure, in_order, type_of
from lar.graphs.graph import LOOPS, Node, is_end, results_of, sources_of, walk
from lar.graphs.matching import Pair
from lar.graphs.twins import Twins
from lar.records.comparison import TensorComparison


class Paired:
    """Two graphs, their twins and what was found of each pair.

    `compared` has what was found by the actual node, `constants` by the actual key. `drawn` are
    pairs that random operators made differ; they are not among the `pairs`. `outputs` are the
    actual nodes of the models' outputs. `names` are what the sides are called.
    """

    def __init__(self, measure: Measure, twins: Twins, names: Names) -> None:
        self.measure, self.twins, self.names = measure, twins, names
        self.graphs, self.values = measure.graphs, measure.values
        self.by_node = measure.rounding.by_node = {
            node: pair for pair in in_order(twins.pairs) for node in pair[:2]
        }
        self.outputs = self.find_outputs()
        self.compared: dict[Node, TensorComparison] = {}
        self.constants: dict[str, TensorComparison] = {}
        self.drawn: list[Pair] = []

    @property
    def pairs(self) -> list[Pair]:
        """All pairs, in the order of the expected side."""
        return [pair for node, pair in self.by_node.items() if node is pair.actual]

    @cached_property
    def loops(self) -> list[Pair]:
        """The pairs that operators give which run a body for each iteration."""
        return [pair for pair in self.pairs if type_of(pair) in LOOPS]

    def find_outputs(self) -> set[Node]:
        """Return the actual nodes of the pairs that are outputs of a model, and those of outputs
        without a pair; an output that merely holds the data of another tensor may be that one's
        pair.

        Where a dump does not say what the model gives, it is that from which nothing is computed.
        """
        found: set[Node] = set()
        for side, graph in enumerate(self.graphs):
            for node in graph.outputs or filter(is_end, graph.present):
                pair = self.pair_of(node)
                if pair is not None:
                    found.add(pair.actual)
                elif side == 0 and graph.outputs:
                    found.add(node)
        return found

    def pair_of(self, node: Node) -> Pair | None:
        """Return the pair of a tensor, or that of the tensor whose data it holds."""
        return self.by_node.get(node) or self.by_node.get(self.twins.originals.get(node, node))

    def measure_all(self, progress: Callable[[str], None]) -> None:
        """Measure every pair, one at a time; those that random operators made differ are put
        apart."""
        self.constants = self.measure.measure_constants(self.twins.constants)
        pairs = self.pairs
        for number, pair in enumerate(pairs):
            progress(f"{number} of {len(pairs)} tensors compared")
            sources = [self.found(it) for it in self.sources(pair) if it.actual in self.compared]
            is_output = pair.actual in self.outputs
            found = self.measure.measure_pair(pair, sources, is_output=is_output)
            random = (graph.random for graph in self.graphs)
            if not found.passed and any(map(set.__contains__, random, pair[:2])):
                self.drawn.append(pair)
            else:
                self.compared[pair.actual] = found
        for node in (node for pair in self.drawn for node in pair[:2]):
            del self.by_node[node]

    def found(self, pair: Pair) -> TensorComparison:
        return self.compared[pair.actual]

    def around(self, pair: Pair, near: Callable[..., list[Node]]) -> list[Pair]:
        """Return the nearest twins before or behind a pair, on either side."""
        nodes = (node for side in pair[:2] for node in near(side, self.by_node))
        return [*dict.fromkeys(map(self.by_node.__getitem__, nodes))]

    def sources(self, pair: Pair) -> list[Pair]:
        return self.around(pair, sources_of)

    def results(self, pair: Pair) -> list[Pair]:
        return self.around(pair, results_of)

    def leading_to(self, ends: Iterable[Pair], is_off: Callable[[Pair], bool]) -> list[Pair]:
        """Return the pairs that lead to some through pairs that are off, these among them."""
        return [*in_order(walk(ends, lambda pair: filter(is_off, self.sources(pair))))]

    def growth(self, pair: Pair) -> float:
        """Return by which factor the error of a pair exceeds those of its sources."""
        return growth_of(self.found(pair), map(self.found, self.sources(pair)))

    def steepest(self) -> tuple[Pair, float] | None:
        """Return the pair where errors grow most, among those whose inputs differ; None if errors
        grow nowhere."""
        growths = ((pair, self.growth(pair)) for pair in self.pairs)
        growing = (each for each in growths if 1 < each[1] < math.inf)
        return max(growing, key=lambda it: it[1], default=None)

    def wrong_inputs(self) -> Iterator[TensorComparison]:
        """Yield what was found of inputs of the model that differ."""
        return (it for it in self.compared.values() if it.is_input and not it.passed)

    def constants_of(self, nodes: Iterable[Node]) -> list[TensorComparison]:
        """Return what was found of the constants that some actual operators take."""
        integers_of = self.graphs[0].integers_of
        taken = dict.fromkeys(integers_of(key) for node in nodes for _, key in node.constants)
        return [self.constants[key] for key in taken if key in self.constants]


def error_of(found: TensorComparison) -> tuple[float, float]:
    """Return two errors in units of the tensor's size: of the whole, and of the worst element."""
    figures = found.figures
    if figures is None or figures.nonfinite_mismatches or figures.relative_l2 is None:
        return (0.0, 0.0) if found.passed else (math.inf, math.inf)
    return figures.relative_l2, figures.peak or 0.0


def growth_of(found: TensorComparison, sources: Iterable[TensorComparison]) -> float:
    """Return by which factor an error exceeds those of the inputs, infinite if the inputs have
    none.

    Of the error of the whole and that of the worst element, the one that grew more counts: a
    fault may concern a single element.
    """
    before = [error_of(source) for source in sources]
    growths = [0.0]
    for place, error in enumerate(error_of(found)):
        most = max((each[place] for each in before), default=0.0)
        if error > 0:
            growths.append(error / most if most > 0 else math.inf)
    return max(growths)
