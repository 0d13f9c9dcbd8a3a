"""Blocked layouts: there and back again."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from lar.dumps.layouts import (
    TAGS,
    block_of,
    fits_layout,
    in_plain_order,
    is_padded,
    layout_of_weight,
    plain_shape,
    to_plain,
)
from tests.dumps.blocked_tensors import to_blocked
from tests.tables import each_row

LAYOUTS = [*TAGS, "nchw8c", "nchw16c"]
sizes = st.integers(1, 5)


@given(st.sampled_from(LAYOUTS), sizes, st.integers(1, 130), sizes, sizes)
def test_a_tensor_survives_the_way_there_and_back(
    layout: str, batch: int, channels: int, height: int, width: int
) -> None:
    plain = np.arange(batch * channels * height * width).reshape(batch, channels, height, width)
    blocked = to_blocked(plain, layout)
    assert blocked.shape[-1] == block_of(layout)
    assert np.array_equal(to_plain(blocked, layout, plain.shape), plain)
    assert np.array_equal(in_plain_order(blocked, layout, plain.shape).reshape(plain.shape), plain)
    whole = to_plain(blocked, layout)
    assert whole.shape == plain_shape(blocked.shape, layout)
    assert whole.shape[1] % block_of(layout) == 0
    assert not whole[:, channels:].any()


WEIGHTS = ["OIhw4i4o", "OIhw4o4i", "OIhw8i8o", "Ohwi4o", "oIhw32i", "Ihwo4i"]
GROUPS = ["gOIhw4i4o", "gOIhw8i8o", "goIhw4i", "Goihw4g", "Goihw8g"]


@given(st.sampled_from([*WEIGHTS, *GROUPS]), st.tuples(*[st.integers(1, 9)] * 3), sizes, sizes)
def test_weights_survive_the_way_there_and_back(
    layout: str, channels: tuple[int, ...], height: int, width: int
) -> None:
    shape = (*channels[layout in WEIGHTS :], height, width)
    plain = np.arange(1, 1 + np.prod(shape)).reshape(shape)
    blocked = to_blocked(plain, layout)
    assert np.array_equal(to_plain(blocked, layout, shape), plain)
    assert np.array_equal(in_plain_order(blocked, layout, shape).reshape(shape), plain)
    whole = to_plain(blocked, layout)
    assert whole.shape == plain_shape(blocked.shape, layout)
    assert np.count_nonzero(whole) == plain.size


@each_row("dumps/layouts/axes")
def test_where_the_axes_stand(layout: str, shape: list[int]) -> None:
    plain = np.arange(12 * 8 * 5 * 6).reshape(12, 8, 5, 6)
    blocked = to_blocked(plain, layout)
    assert blocked.shape == tuple(shape)
    if layout == "OIhw4i4o":
        assert blocked[2, 1, 0, 0, 3, 1] == plain[4 * 2 + 1, 4 * 1 + 3, 0, 0]
    if layout == "nhwcd4":
        assert blocked[7, 1, 1, 2, 3] == plain[7, 4 * 1 + 3, 1, 2]


@each_row("dumps/layouts/unfit")
def test_what_does_not_fit_is_not_blocked(layout: str, shape: list[int]) -> None:
    assert not fits_layout(tuple(shape), layout)


def test_what_the_last_block_fills_up_is_padded() -> None:
    for count in (9, 12):
        assert is_padded((1, 12, 1, 1), (1, count, 1, 1), "nchw4")
    for shape in ((1, 3, 1, 1), (1, 8, 1, 1), (1, 13, 1, 1), (1, -1, 1, 1), (1, 9, 2, 1), (9,)):
        assert not is_padded((1, 12, 1, 1), shape, "nchw4")


@each_row("dumps/layouts/weights")
def test_the_layout_of_weights(
    before: str, after: str, group: bool, shape: list[int], layout: str
) -> None:
    assert layout_of_weight(tuple(shape), before, after, group) == layout
