"""How well two operators fit, by the kinds of what they do."""

from __future__ import annotations

from lar.graphs import kind_score
from tests.tables import each_row


@each_row("graphs/kinds/ends")
def test_two_operators_fit_by_their_ends(one: list[str], other: list[str], score: float) -> None:
    """Two that differ in a bias alone have -1; what is unknown may be a fused activation."""
    assert kind_score(tuple(one), tuple(other)) == score
    assert kind_score(tuple(other), tuple(one)) == score
