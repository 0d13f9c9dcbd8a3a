"""What the engine's log says of its choices of algorithms."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from lar.engines.megengine.algorithms import LoggedChoice, choices_in

# As MegEngine 1.13 prints it.
HEAD = "[20 11:58:22 setup_algo@algo_chooser.cpp:87][DEBUG] "
LOG = f"""\
[20 11:58:22 get_policy@algo_chooser.cpp:1175][DEBUG] Use Stragegy :HEURISTIC PROFILE
{HEAD}ConvBiasForward: tensor layouts({{1(1024),4(256),8(32),8(4),4(1) Float32}} , \
{{8(576),4(144),3(48),3(16),4(4),4(1) Float32}} , {{1(32),8(4),1(4),1(4),4(1) Float32}} , \
{{ Float32}} ) -> ({{1(2048),8(256),8(32),8(4),4(1) Float32}} )): \
algo=WINOGRAD_NCHW44:FB_GI_F32_MK4_4x8:4:4:8:3 workspace=0.06MiB attribute=1
{HEAD}MatrixMul: tensor layouts({{1(128),128(1) Float32}} , {{10(128),128(1) Float32}} ) -> \
({{1(10),10(1) Float32}} )): algo=X86_F32_BLAS workspace=0.00MiB attribute=9
[20 11:58:22 alloc@var_node_mem_mgr.cpp:65][DEBUG] static storage
"""


def test_each_line_of_a_choice_is_read() -> None:
    first, second = choices_in(LOG)
    assert first == LoggedChoice(
        "ConvBiasForward",
        ((1, 4, 8, 8, 4), (8, 4, 3, 3, 4, 4), (1, 8, 1, 1, 4), (), (1, 8, 8, 8, 4)),
        "Float32",
        "WINOGRAD_NCHW44:FB_GI_F32_MK4_4x8:4:4:8:3",
        0.06,
    )
    assert first.text == "{1,4,8,8,4} {8,4,3,3,4,4} {1,8,1,1,4} -> {1,8,8,8,4} Float32"
    assert (second.operator, second.algorithm) == ("MatrixMul", "X86_F32_BLAS")


def test_a_choice_that_is_told_twice_is_one() -> None:
    assert choices_in(LOG + LOG) == choices_in(LOG)


def test_messages_without_time_and_place_are_read_too() -> None:
    assert choices_in(LOG.replace(HEAD, "")) == choices_in(LOG)


SHAPES = st.lists(st.lists(st.integers(1, 9999), max_size=7).map(tuple), min_size=2, max_size=5)


def line_of(choice: LoggedChoice) -> str:
    shapes = (",".join(f"{size}(1)" for size in shape) for shape in choice.shapes)
    layouts = [f"{{{shape} {choice.dtype}}} " for shape in shapes]
    return (
        f"{HEAD}{choice.operator}: tensor layouts({', '.join(layouts[:-1])}) -> ({layouts[-1]})): "
        f"algo={choice.algorithm} workspace={choice.workspace_mib:.2f}MiB attribute=1\n"
    )


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.builds(
            LoggedChoice,
            st.sampled_from(["ConvBiasForward", "PoolingForward"]),
            SHAPES.filter(lambda shapes: any(shapes[:-1]) and bool(shapes[-1])).map(tuple),
            st.sampled_from(["Float32", "QuantizedS8"]),
            st.from_regex(r"[A-Z][A-Z0-9_:]{0,20}", fullmatch=True),
            st.integers(0, 10**6).map(lambda number: number / 100),
        ),
        unique=True,
    )
)
def test_any_choice_reads_back(choices: list[LoggedChoice]) -> None:
    assert choices_in("noise\n".join(map(line_of, choices))) == choices


@given(st.text())
def test_any_other_text_holds_none(text: str) -> None:
    assert choices_in(text) == []
