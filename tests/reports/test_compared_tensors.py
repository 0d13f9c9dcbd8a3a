"""Words in tables of compared tensors."""

from __future__ import annotations

import pytest

from lar.reports.compared_tensors import type_of


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        ("Elemwise", "RELU(conv1)[3]", "Elemwise RELU"),
        ("ElemwiseMultiType", "QADD(a,b)[9]", "ElemwiseMultiType QADD"),
        ("Elemwise", "relu(conv1)[3]", "Elemwise"),
        ("Convolution", "CONV(x)", "Convolution"),
        ("Convolution", "conv(x)", "Convolution"),
        ("Relu", "", "Relu"),
    ],
)
def test_an_elementwise_operator_has_its_mode(kind: str, name: str, expected: str) -> None:
    assert type_of(kind, name) == expected
