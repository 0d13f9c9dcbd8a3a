"""Values become those of another dtype where they fit, from both sides of each limit."""

from __future__ import annotations

import numpy as np
import pytest

from lar.inputs.dtypes import cast_values


@pytest.mark.parametrize("kind", ["int8", "uint8", "int16", "uint16", "int32", "bool"])
def test_a_value_at_the_end_of_a_dtypes_range_is_kept(kind: str) -> None:
    dtype = np.dtype(kind)
    low, high = (0, 1) if kind == "bool" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
    for source in (np.int64, np.float64):
        ends = np.array([low, high], source)
        assert cast_values(ends, dtype).astype(np.int64).tolist() == [low, high]
        for outside in (low - 1, high + 1):
            with pytest.raises(ValueError, match=f"holds {outside}, out of the range"):
                cast_values(np.array([low, outside], source), dtype)


def test_the_largest_float16_is_kept() -> None:
    assert cast_values(np.array([65504.0]), np.dtype(np.float16))[0] == 65504
    with pytest.raises(ValueError, match="out of the range of float16"):
        cast_values(np.array([65536.0]), np.dtype(np.float16))
