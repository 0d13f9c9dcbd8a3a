"""Variants of operators for `sweep_operators.py`: attributes, ranks, opsets, optional inputs.

A line of the table is an operator, `@` and opsets, its inputs, its attributes, and `>` with the
number of its outputs if it has several. An input is a shape of random numbers (`2x3`, `s` a
scalar), values with a type (`i8[1,2]` is int64), or `-` for one that is left out. What stands
between slashes makes a variant each.
"""

from __future__ import annotations

import ast
import itertools
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import helper

Array = np.ndarray[Any, np.dtype[Any]]


class Case(NamedTuple):
    """A model of one operator, and its inputs by name."""

    name: str
    model: Any
    inputs: dict[str, Any]


TABLE = """
{unary} @6/9/13/17/20/22 2x3x4/s/0x3/1x2x2x3x2
{binary} @7/9/13/17 2x3x4 2x3x4/4/3x1/s
Elu @6/22 2x3 alpha=0.3
LeakyRelu @6/16 2x3 alpha=0.3
Selu @6/22 2x3 alpha=0.3 gamma=1.2
HardSigmoid @6/22 2x3 alpha=0.3 beta=0.4
ThresholdedRelu @10/22 2x3 alpha=0.3
Celu @12 2x3 alpha=0.3
Shrink @9 2x3 lambd=0.3 bias=0.2
Gelu @20 2x3 approximate=none/tanh
Add/Sub/Mul/Div @6 2x3x4 3 axis=1 broadcast=1
Max/Min/Sum/Mean @8/13 2x3 3 2x1
Mod @10/13 2x3 3 fmod=1
Mod @13 i8[-7,7,-8] i8[3,-3,5] fmod=0/1
Div @13 i8[-7,7,-8] i8[3,-3,5]
Pow @15 i8[1,2,3] f4[0.5]
Softmax/LogSoftmax/Hardmax @1/11/13 2x3x4 axis=0/1/2/-1/-2/-3
Softmax/LogSoftmax/Hardmax @1/11/13 4/2x3/2x2x3x2/2x3x2x2x2
Softmax/LogSoftmax/Hardmax @11/13 2x0x3 axis=1
{reduce} @11/13 2x3x4 axes=[0]/[1,2]/[-1]/[0,1,2] keepdims=0/1
{reduce} @11/13/18 2x3x4/s keepdims=0/1
{reduce} @18 2x3x4 i8[0]/i8[1,2]/i8[-1] keepdims=0/1
{reduce} @18 2x3x4 -/i8[] keepdims=0/1 noop_with_empty_axes=0/1
{reduce} @18/20 2x0x4 i8[1] keepdims=0/1
{reduce} @18 i4[[1,2],[3,5]] i8[1]
ReduceSum @13 2x3x4 i8[0]/i8[1,2]/-/i8[] keepdims=0/1 noop_with_empty_axes=0/1
ArgMax/ArgMin @12/13 f4[[2,1,2],[0,0,1]] axis=0/1/-1 keepdims=0/1 select_last_index=0/1
LpNormalization @1/22 2x3x4 axis=0/1/-1/-2 p=1/2
LayerNormalization @17 2x3x4 4 -/4 axis=-1
LayerNormalization @17 2x3x4 3x4 3x4 axis=1/-2 epsilon=0.1 >3
RMSNormalization @23 2x3x4 4/1x4/3x4 axis=-1/1
GroupNormalization @18 2x4x3x3 2 2 num_groups=2
GroupNormalization @21 2x4x3x3 4 4 num_groups=2 epsilon=0.1
BatchNormalization @9/15 2x3 3 3 3 f4[1,2,3]
BatchNormalization @14/15 2x3x4 3 3 3 f4[1,2,3] training_mode=1 momentum=0.7 >3
BatchNormalization @7 2x2x2 4 4 4 f4[1,2,3,4] spatial=0
Resize @11/13/19 1x2x5x6 f4[0,0,.2,.1,1,1,.8,1.3] f4[1,1,1.2,1.5] mode=nearest/linear/cubic {crop}
Resize @11/13/19 1x2x9 f4[] f4[1,1,1.7] mode=linear/cubic/nearest
Resize @11/13/19 1x2x4x5x6 f4[] f4[1,1,1.7,0.6,2] mode=linear/nearest
Resize @11/13/19 4x5 f4[] f4[1.7,0.6] mode=linear/nearest/cubic
Resize @10 1x2x5x6 f4[1,1,2,2]/f4[1,1,1.5,0.5]/f4[1,1,0.6,0.7] mode=nearest/linear
Upsample @9 1x2x4x5 f4[1,1,2,2]/f4[1,1,1.5,2.6] mode=nearest/linear
Upsample @7 1x2x4x5 scales=[1.0,1.0,2.0,2.0] mode=nearest/linear
GridSample @16 1x2x4x5 1x3x4x2 mode=bilinear/nearest/bicubic {sampling}
GridSample @20/22 1x2x4x5 1x3x4x2 mode=linear/nearest/cubic {sampling}
GridSample @20/22 1x2x4x5x3 1x3x4x2x3 mode=linear/nearest {sampling}
GridSample @16/20 1x2x4x5 1x3x4x2
Pad @11/13/18/21 3x5 i8[1,2,0,1]/i8[-1,1,0,-2]/i8[0,-1,-1,0] mode=constant/reflect/edge/wrap
Pad @18/21 3x5 i8[-1,2] f4[3.5] i8[1]/i8[-2] mode=constant/edge/wrap
Pad @18 3x5 i8[-1,2,1,-1] f4[2.5] i8[1,0]/i8[-1,0]
Pad @2 3x5 pads=[1,2,0,1]/[-1,1,0,-2] mode=constant/reflect/edge value=1.5
GatherElements @11/13 3x4 i8[[0,-1],[1,2]] axis=0/1/-1
GatherElements @13 3x4x2 i8[[[0],[-1],[1]]] axis=0/1/2
Scatter @9 3x4 i8[[0,-1],[1,2]] 2x2 axis=0/1/-1
ScatterElements @11/13 3x4 i8[[0,-1],[1,2]] 2x2 axis=0/1/-1
ScatterElements @18 3x4 i8[[0,0],[1,-1]] 2x2 axis=0/1 reduction=none/add/mul/min/max
ScatterND @18 4x3 i8[[0],[0],[2]] 3x3 reduction=add/mul/min/max
ScatterND @11/13 4x3 i8[[0,1],[-1,2]] 2
Gather @1/11/13 3x4x2 i8[[0,-1],[1,2]]/i8[0,-1]/i8[1] axis=0/1/-2
GatherND @12/13 2x3x4 i8[[0,1],[-1,2]]/i8[[[0],[1]],[[1],[-1]]] batch_dims=0/1
Slice @10/11/13 3x7 i8[0]/i8[-1]/i8[5] i8[1]/i8[-10]/i8[9] i8[1]/i8[-1] i8[1]/i8[-1]/i8[-2]
Slice @1 3x7 starts=[1] ends=[-1] axes=[0]/[1]
Squeeze/Unsqueeze @1/11 1x3x1 axes=[0]/[0,2]/[2]
Squeeze/Unsqueeze @13/21 1x3x1 i8[0]/i8[0,2]/i8[-1]
Split @2/11/13 6x4 axis=0/1/-1 >2
Split @13 6x4 i8[1,5]/i8[0,6] >2
Split @18 7x4 num_outputs=3 >3
Concat @4/11/13 2x3x4 2x3x4 axis=0/1/2/-1
Flatten @1/9/11/13 2x3x4/2x3x4x5/4 axis=0/1/-1
Transpose @1/13 2x3x4 perm=[0,2,1]/[2,0,1]
Reshape @5/13/14 2x3x4 i8[0,-1]/i8[6,4]/i8[2,0,2,2]
Reshape @14 2x0x4 i8[4,0]/i8[0,0,4] allowzero=0/1
Expand @8/13 3x1 i8[3,4]/i8[2,3,4]/i8[1]
Tile @6/13 2x3 i8[2,1]/i8[0,2]
Clip @11/12/13 3x4 -/f4-0.3 -/f4[0.4]
Clip @6 3x4 min=-0.3 max=0.4
MatMul @1/9/13 3x4/4 4x5/4
MatMul @9/13 2x1x3x4 5x4x2
Gemm @7/9/11/13 4x4 4x4 4/4x4/4x1/s transA=0/1 transB=0/1 alpha=0.5 beta=0.3/1.0
Einsum @12 2x3x4 2x4x2 equation=bij,bjk/bij,bjk->ik
TopK @11 f4[[1,3,1,2],[0,0,4,4]] i8[2] axis=0/1/-1 largest=0/1 >2
TopK @10 f4[[1,3,1,2],[0,0,4,4]] i8[2] axis=0/1 >2
CumSum @11/14 2x3x4 i8[1]/i4[-1] exclusive=0/1 reverse=0/1
OneHot @9/11 i8[[0,-1],[2,7]] i8[4] f4[-1.5,2.5] axis=0/1/-1
DepthToSpace @11/13 1x8x2x3 blocksize=2 mode=DCR/CRD
EyeLike @9/22 3x4/4x3 k=-1/0/2 dtype=1/7
Trilu @14 2x3x4 -/i8[1]/i8[-9] upper=0/1
Dropout @7/10/12/13 3x4 >2
Dropout @12/13 3x4 f4[0.3] b1[False]/b1[True]
RandomNormalLike/RandomUniformLike @17 2x3
Multinomial/Bernoulli @15 f4[[0.5,0.4]]
Range @11 f4[0]/f4[1] f4[1]/f4[-2] f4[0.1]/f4[-0.3]
Shape @15/21 2x3x4 start=0/-1/-9 end=1/9
Compress @9/11 3x4 b1[True,False,True] axis=0/1/-1
ReverseSequence @10 4x3x2 i8[1,2,4] batch_axis=1 time_axis=0
Unique @11 f4[[2,1],[2,1],[0,3]] axis=0/1/-1 sorted=0/1 >4
Cast @9/13/19 f4[-1.5,2.7,0] to=1/3/6/7/8/9/10/11/12
IsInf @10/20 f8[1e999,-1e999,1] detect_negative=0/1 detect_positive=0/1
NonMaxSuppression @10/11 {boxes} -/i8[2]/i8[0] -/f4[0.5] -/f4[0.7] center_point_box=0/1
RoiAlign @10/16 2x3x6x7 f4[[0,0,4,5],[1.5,0.5,3,3.7]] i8[0,1] mode=avg {regions}
MaxRoiPool @1/22 2x3x6x7 f4[[0,0,0,4,5],[1,1,1,3,4]] pooled_shape=[2,2]
AffineGrid @20 2x2x3 i8[2,3,4,5] align_corners=0/1
Col2Im @18 1x8x6 i8[4,3] i8[2,2]
CenterCropPad @18 4x5 i8[6,3]/i8[3,7]
DFT @17 1x8x1 -/i8[6]/i8[10] axis=1 onesided=0/1
HannWindow/HammingWindow/BlackmanWindow @17 i8[9] periodic=0/1
DequantizeLinear @13/21 u1[[9,200],[30,4]] f4[0.1,0.2] u1[1,2] axis=0/1/-1
QuantizeLinear @13/21 2x2 f4[0.1,0.2] i1[1,2] axis=0/1/-1
SoftmaxCrossEntropyLoss @12/13 3x5 i8[0,2,4] -/5 reduction=none/sum/mean
ml:Scaler @1 2x3 offset=[0.1,0.2,0.3] scale=[2.0,1.5,0.5]
ml:Normalizer @1 2x3 norm=MAX/L1/L2
ml:Imputer @1 f4[[1,0,3]] imputed_value_floats=[9.0]/[4.0,5.0,6.0] replaced_value_float=0.0
ml:Binarizer @1 2x3 threshold=0.2
ml:FeatureVectorizer @1 2x3 2x2 inputdimensions=[3,2]
ml:ArrayFeatureExtractor @1 2x3 i8[0,2]
ml:LabelEncoder @2/4 i8[1,2,5] keys_int64s=[1,2] values_int64s=[7,8] default_int64=-3
ml:LabelEncoder @2 i8[1,2,5] keys_int64s=[1,2] values_floats=[0.7,0.8] default_float=0.5
ml:OneHotEncoder @1 i8[[1,3]] cats_int64s=[1,2,3] zeros=0/1
ml:LinearClassifier @1 2x2 coefficients=[0.1,0.2,0.3,-0.4,0.5,0.6] {more} {post} >2
ml:ZipMap @1 2x3 classlabels_int64s=[4,5,6]
ml:ZipMap @1 2x3 classlabels_strings=['a','b','c']
ml:LinearRegressor @1 2x3 coefficients=[0.1,0.2,0.3,0.4,0.5,0.6] {two} targets=2 {post}
ml:LinearClassifier @1 2x3 coefficients=[0.1,0.2,0.3,-0.4,0.5,0.6] {two} {labels} {post} >2
ml:LinearClassifier @1 2x3 coefficients=[0.1,0.2,0.3] intercepts=[0.2] {labels} {post} >2
ml:SVMRegressor @1 3x2 {vectors} coefficients=[0.5,-0.4,0.3] n_supports=3 rho=[0.2] {kernels}
ml:SVMClassifier @1 3x2 {vectors} vectors_per_class=[2,1] {support} {labels} {kernels} {post} >2
ml:TreeEnsembleRegressor @1/3 5x2 {tree} {targets} aggregate_function=SUM/AVERAGE/MIN/MAX {post}
ml:TreeEnsembleClassifier @1/3 5x2 {tree} {classes} {three} {post} >2
ml:TreeEnsembleClassifier @1/3 5x2 {tree} {one_class} {names} base_values=[0.1]/[0.1,0.2] {post} >2
"""

# For images of one, two and three axes: {x} is their shape, {k} a kernel, {one}, {two}, {three}
# strides and the like, {pads} and {odd} paddings.
IMAGES = """
MaxPool/AveragePool/LpPool @1/2/7/8/10/11/18/19/22 {x} kernel_shape={k}
MaxPool/AveragePool/LpPool @8/10/11/19/22 {x} kernel_shape={k} strides={two} pads={pads}
MaxPool/AveragePool/LpPool @10/11/19/22 {x} kernel_shape={k} strides={two}/{three} {some} {ceil}
MaxPool/AveragePool/LpPool @11/19/22 {x} kernel_shape={k} strides={two} ceil_mode=0/1 {auto}
MaxPool/AveragePool/LpPool @11/19/22 {x} kernel_shape={k} dilations={two} ceil_mode=0/1
MaxPool @8/12 {x} kernel_shape={k} strides={two} storage_order=0/1 ceil_mode=0/1 >2
MaxPool @12 {x} kernel_shape={k} strides={two} dilations={two} pads={pads} storage_order=0/1 >2
AveragePool @7/11/19/22 {x} kernel_shape={k} strides={two} count_include_pad=1 ceil_mode=0/1 {some}
AveragePool @11/19 {x} kernel_shape={k} strides={two} count_include_pad=1 {auto}
LpPool/GlobalLpPool @2/11/18/22 {x} p=1/3 kernel_shape={k}
GlobalMaxPool/GlobalAveragePool/GlobalLpPool @2/13/22 {x}
GlobalLpPool @2 {x} p=1/3
Conv @1/11/22 {x} {w} 4 strides={two} pads={odd} dilations={one}/{two}
Conv @11 {x} {w} strides={two} {auto}
Conv @11 {x} {half} group=2
ConvTranspose @1/11/22 {x} {t}
ConvTranspose @11 {x} {t} 3 strides={two} pads={odd} dilations={one}/{two} output_padding={one}
ConvTranspose @11 {x} {t} 3 strides={one}/{two}/{three} {auto}
ConvTranspose @11 {x} {t} strides={two} auto_pad=NOTSET/SAME_UPPER/SAME_LOWER output_shape={double}
ConvTranspose @11 {x} {half} 2 group=2 strides={two}
InstanceNormalization @6/22 {x} 2 2 epsilon=0.1
BatchNormalization @7/9/14/15 {x} 2 2 2 f4[1,2] epsilon=0.1
LRN @1/13 {x} size=1/2/3/5 alpha=0.3 beta=0.6 bias=2.0
"""

# For all ways to resize.
RESIZES = """
Resize @11/13/18/19 1x2x5x6 f4[] f4[1,1,.6,.7]/f4[1,1,2,2]/f4[1,1,1.5,.5]/f4[1,1,3,1.3] {way}
Resize @13/18/19 1x2x5x6 f4[] - i8[1,2,7,9]/i8[1,2,3,2]/i8[1,2,1,1]/i8[1,2,10,3] {way}
Resize @18/19 1x2x5x6 - - i8[7,4] axes=[2,3]/[3,2] keep_aspect_ratio_policy={policies} {way}
Resize @18/19 1x2x5x6 - f4[0.6,0.7] axes=[2,3] antialias=0/1 {way}
"""
WAYS = (
    *("half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"),
    *("tf_half_pixel_for_nn", "half_pixel_symmetric"),
)
MODES = (
    "mode=linear",
    "mode=cubic cubic_coeff_a=-0.75/-0.5 exclude_outside=0/1",
    "mode=nearest nearest_mode=round_prefer_floor/round_prefer_ceil/floor/ceil",
)

# For all recurrent operators and directions.
RECURRENT = """
{kind} @7/14/22 5x3x4 {w} {r} -/{b} -/i4[5,2,1] -/{h} {state} {direction} hidden_size=2 {outputs}
{kind} @7/14 5x3x4 {w} {r} {b} i4[5,2,1] clip=0.3 {direction} hidden_size=2 {outputs}
{kind} @14 3x5x4 {w} {r} {b} i4[5,2,1] {batch} layout=1 {direction} hidden_size=2 {outputs}
{kind} @7/14 5x3x4 {w} {r} {b} {own} {direction} hidden_size=2 {outputs}
{kind} @7 5x3x4 {w} {r} {b} {switch} {direction} hidden_size=2 {outputs}
"""
# The number of gates, activations of its own with their parameters, and its switch.
KINDS = {
    "RNN": (1, ["Affine"], [0.5], [0.1], "clip=0.2"),
    "GRU": (3, ["HardSigmoid", "ScaledTanh"], [0.3, 1.1], [0.4, 0.7], "linear_before_reset=1"),
    "LSTM": (4, ["HardSigmoid", "LeakyRelu", "Elu"], [0.3, 0.2, 0.5], [0.4], "input_forget=1"),
}
FIELDS = {
    "unary": "Abs/Acos/Acosh/Asin/Asinh/Atan/Atanh/Ceil/Cos/Cosh/Elu/Erf/Exp/Floor/HardSigmoid/"
    "HardSwish/LeakyRelu/Log/Neg/Reciprocal/Relu/Round/Selu/Sigmoid/Sign/Sin/Sinh/Softplus/"
    "Softsign/Sqrt/Tan/Tanh/ThresholdedRelu/Celu/Mish/Shrink/Gelu",
    "binary": "Add/Sub/Mul/Div/Pow/Max/Min/Mean/Sum/PRelu/Greater/Less/LessOrEqual",
    "reduce": "ReduceL1/ReduceL2/ReduceLogSum/ReduceLogSumExp/ReduceMax/ReduceMean/ReduceMin/"
    "ReduceProd/ReduceSum/ReduceSumSquare",
    "crop": "coordinate_transformation_mode=tf_crop_and_resize extrapolation_value=0.0/3.5",
    "sampling": "padding_mode=zeros/border/reflection align_corners=0/1",
    "boxes": "f4[[[0,0,1,1],[0,0.1,1,1.1],[0,10,1,11],[1,11,0,10]]] f4[[[0.9,0.75,0.6,0.95]]]",
    "regions": "output_height=2 output_width=3 sampling_ratio=0/1/2 spatial_scale=1.0/0.6",
    "policies": "stretch/not_larger/not_smaller",
    "ceil": "ceil_mode=1",
    "two": "intercepts=[0.2,-0.1]",
    "post": "post_transform=NONE/SOFTMAX/LOGISTIC/SOFTMAX_ZERO/PROBIT",
    "labels": "classlabels_ints=[3,8]",
    "names": "classlabels_int64s=[3,8]",
    "vectors": "support_vectors=[0.5,0.2,-0.3,0.9,0.1,0.4]",
    "support": "coefficients=[0.5,0.4,-0.9] rho=[0.2] prob_a=[0.3] prob_b=[0.1]",
    "kernels": "kernel_type=LINEAR/RBF/POLY/SIGMOID kernel_params=[0.5,0.1,2.0]",
    "tree": "nodes_treeids=[0,0,0,1,1,1] nodes_nodeids=[0,1,2,0,1,2] "
    "nodes_featureids=[0,0,0,1,0,0] nodes_values=[0.1,0.0,0.0,-0.2,0.0,0.0] "
    "nodes_modes=['BRANCH_LEQ','LEAF','LEAF','BRANCH_LT','LEAF','LEAF'] "
    "nodes_truenodeids=[1,0,0,1,0,0] nodes_falsenodeids=[2,0,0,2,0,0]",
    "targets": "target_treeids=[0,0,1,1] target_nodeids=[1,2,1,2] target_ids=[0,0,0,0] "
    "target_weights=[0.3,-0.4,1.5,0.7] n_targets=1 base_values=[]/[0.5]",
    "classes": "class_treeids=[0,0,0,0,0,0] class_nodeids=[1,1,1,2,2,2] class_ids=[0,1,2,0,1,2] "
    "class_weights=[0.3,0.6,0.1,0.2,-0.7,0.4]",
    "more": "intercepts=[0.2,-0.1,0.3] classlabels_ints=[3,8,5] multi_class=0/1",
    "three": "classlabels_int64s=[3,8,5]",
    "one_class": "class_treeids=[0,0,1,1] class_nodeids=[1,2,1,2] class_ids=[1,1,1,1] "
    "class_weights=[0.3,-0.4,0.5,-0.7]",
    "auto": "auto_pad=SAME_UPPER/SAME_LOWER/VALID",
}


def lines() -> Iterator[str]:
    """Yield the lines of all tables, filled in."""
    yield from TABLE.format(**FIELDS).strip().splitlines()
    for sizes, kernel in (([9], [3]), ([7, 8], [3, 2]), ([5, 6, 5], [2, 3, 2])):
        n = len(sizes)
        odd, pads = str([1, 0, 1, 1, 0, 0][: 2 * n]), str([1] * 2 * n)
        shapes = {"x": [1, 2, *sizes], "w": [4, 2, *kernel], "half": [2, 1, *kernel]}
        lists = {"one": [1] * n, "two": [2] * n, "three": [3] * n, "k": kernel}
        fields = {name: str(each).replace(" ", "") for name, each in lists.items()}
        fields |= {name: "x".join(map(str, each)) for name, each in shapes.items()}
        fields |= {"t": "x".join(map(str, [2, 3, *kernel])), "odd": odd, "pads": pads}
        fields |= {
            "some": f"pads={[0] * 2 * n}/{odd}/{pads}",
            "double": str([2 * s for s in sizes]),
        }
        fields = {name: each.replace(" ", "") for name, each in fields.items()}
        yield from IMAGES.format(**{**FIELDS, **fields}).strip().splitlines()
    for way, mode in itertools.product(WAYS, MODES):
        given = f"coordinate_transformation_mode={way} {mode}"
        yield from RESIZES.format(**FIELDS, way=given).strip().splitlines()
    for kind, direction in itertools.product(KINDS, ("forward", "reverse", "bidirectional")):
        gates, names, alphas, betas, switch = KINDS[kind]
        n = 2 if direction == "bidirectional" else 1
        own = f"activations={names * n} activation_alpha={alphas * n} activation_beta={betas * n}"
        is_lstm = kind == "LSTM"
        yield from (
            RECURRENT.format(
                kind=kind,
                w=f"{n}x{2 * gates}x4",
                r=f"{n}x{2 * gates}x2",
                b=f"{n}x{4 * gates}",
                h=f"{n}x3x2",
                state=f"-/{n}x3x2 -/{n}x6" if is_lstm else "",
                batch=f"3x{n}x2 3x{n}x2" if is_lstm else f"3x{n}x2",
                outputs=">3" if is_lstm else ">2",
                own=own.replace(", ", ","),
                switch=switch,
                direction=f"direction={direction}",
            )
            .strip()
            .splitlines()
        )


def variants() -> Iterator[Case]:
    """Yield all variants, the same ones each time."""
    for line in lines():
        first, versions, *words = line.split()
        outputs = next((int(word[1:]) for word in words if word[0] == ">"), 1)
        inputs = [word.split("/") for word in words if "=" not in word and word[0] != ">"]
        given = [word.partition("=") for word in words if "=" in word]
        choices = [first.split("/"), versions[1:].split("/"), *inputs]
        choices += [value.split("/") for _, _, value in given]
        for kind, version, *rest in itertools.product(*choices):
            names = [name for name, _, _ in given]
            attributes = dict(zip(names, map(read_value, rest[len(inputs) :]), strict=True))
            name = " ".join([f"{kind}@{version}", *rest[: len(inputs)]])
            name += "".join(f" {key}={value}" for key, value in attributes.items())
            yield make_case(name, kind, int(version), rest[: len(inputs)], attributes, outputs)


def read_value(text: str) -> Any:
    """Return a number, a list, or the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        names = text.strip("[]'").split("','")
        return names if text.startswith("[") else text


def make_case(
    name: str, kind: str, opset: int, words: Sequence[str], attributes: Any, outputs: int
) -> Case:
    """Return a model of one node, and random numbers that hang on its name alone."""
    random = np.random.RandomState(zlib.crc32(name.encode()) % (1 << 31))
    arrays = [read_input(word, random) for word in words]
    while arrays and arrays[-1] is None:
        arrays.pop()
    fed = {f"i{at}": each for at, each in enumerate(arrays) if each is not None}
    names = ["" if each is None else f"i{at}" for at, each in enumerate(arrays)]
    given = [f"o{at}" for at in range(outputs)]
    infos = [
        helper.make_tensor_value_info(key, helper.np_dtype_to_tensor_dtype(it.dtype), it.shape)
        for key, it in fed.items()
    ]
    domain, _, operator = kind.rpartition(":")
    domain = "ai.onnx.ml" if domain else ""
    attributes = {key: value for key, value in attributes.items() if value != []}
    node = helper.make_node(operator, names, given, domain=domain, **attributes)
    results = [onnx.ValueInfoProto(name=each) for each in given]
    graph = helper.make_graph([node], kind, infos, results)
    opsets = [helper.make_opsetid("", 17 if domain else opset)]
    opsets += [helper.make_opsetid(domain, opset)] if domain else []
    return Case(name, helper.make_model(graph, ir_version=8, opset_imports=opsets), fed)


def read_input(word: str, random: np.random.RandomState) -> Array | None:
    """Return an input: random numbers of a shape, or values with their type."""
    if word == "-":
        return None
    if word[0].isdigit() or word == "s":
        shape = () if word == "s" else tuple(map(int, word.split("x")))
        return np.asarray(random.standard_normal(shape), np.float32)
    return np.asarray(ast.literal_eval(word[2:]), word[:2])
