"""The architectures: what each model of lar consists of.

Image models take `data`, (1, 3, 224, 224) float32, BGR with values 0 to 255 as `cv2.imread` gives
them: no preprocessing is needed outside, the batch norm folded into the first convolution does
it. All end in `logits`.
"""

from __future__ import annotations

from network import Network

IMAGE_SHAPE = (1, 3, 224, 224)
CLASS_COUNT = 1000

# MobileNetV2 (Sandler et al., 2018), table 2: expansion, channels, repeats, stride.
MOBILENET_V2_STAGES = [
    (1, 16, 1, 1),
    (6, 24, 2, 2),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
]
MOBILENET_V2_WIDTH = 0.35

# Scale and shift of batch norms: before a ReLU, at the end of a residual branch. Random weights
# amplify rounding errors from layer to layer; mostly positive values and weak branches keep that
# down, as training does, so that the engines' outputs agree to a few 1e-5.
ACTIVATED = (1.0, 0.5)
BRANCH_END = (0.25, 0.0)


def describe_digits_cnn() -> Network:
    """A CNN for 8x8 digits: `data` (N, 1, 8, 8) float32, 0 to 16, to `logits` (N, 10)."""
    network = Network("digits_cnn")
    x = network.add_input("data", (1, 1, 8, 8), any_batch=True)
    x = network.add_activated("relu", "relu1", "conv1", x, (1, 16))
    x = network.add_activated("relu", "relu2", "conv2", x, (16, 32))
    x = network.add("max_pool", "pool2", x, kernel_size=2, stride=2, padding=0)
    x = network.add_activated("relu", "relu3", "conv3", x, (32, 32))
    x = network.add("max_pool", "pool3", x, kernel_size=2, stride=2, padding=0)
    x = network.add("flatten", "features", x)
    network.outputs = [network.add_linear("logits", x, (128, 10))]
    return network


def describe_mobilenet_v2() -> Network:
    """MobileNetV2, 0.35 of the full width: `data` to `logits` (1, 1000)."""
    network = Network("mobilenet_v2")
    x = network.add_input("data", IMAGE_SHAPE)
    channels = _narrow(32)
    x = network.add_activated(
        "relu6", "stem.relu", "stem", x, (3, channels), stride=2, norm=ACTIVATED
    )
    index = 0
    for expansion, full_channels, repeats, stage_stride in MOBILENET_V2_STAGES:
        for repeat in range(repeats):
            out_channels = _narrow(full_channels)
            stride = stage_stride if repeat == 0 else 1
            x = _add_inverted_residual(
                network, f"block{index}", x, (channels, out_channels), expansion, stride
            )
            channels = out_channels
            index += 1
    # The last convolution is narrowed too, else classes and features alone take 5 MB.
    features = _narrow(1280)
    x = network.add_activated(
        "relu6", "head.relu", "head", x, (channels, features), kernel=1, norm=ACTIVATED
    )
    network.add_classifier(x, features, CLASS_COUNT)
    return network


def _narrow(channels: int) -> int:
    """The channels left at our width: a multiple of 8, at most a tenth less than asked for."""
    asked = channels * MOBILENET_V2_WIDTH
    rounded = max(8, int(asked + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * asked else rounded


def _add_inverted_residual(
    network: Network, name: str, x: str, channels: tuple[int, int], expansion: int, stride: int
) -> str:
    source = x
    in_channels, out_channels = channels
    inner = in_channels * expansion
    if expansion > 1:
        expand = f"{name}.expand"
        x = network.add_activated(
            "relu6", f"{expand}_relu", expand, x, (in_channels, inner), kernel=1, norm=ACTIVATED
        )
    depthwise = f"{name}.depthwise"
    x = network.add_conv(depthwise, x, (inner, inner), 3, stride, inner, ACTIVATED)
    x = network.add("relu6", f"{depthwise}_relu", x)
    if stride > 1 or in_channels != out_channels:
        return network.add_conv(f"{name}.project", x, (inner, out_channels), kernel=1)
    x = network.add_conv(f"{name}.project", x, (inner, out_channels), kernel=1, norm=BRANCH_END)
    return network.add("add", f"{name}.sum", x, source)


def describe_resnet18() -> Network:
    """ResNet-18 (He et al., 2015), 1.8 GMACs, 11.7 M parameters: `data` to `logits` (1, 1000)."""
    return _describe_resnet("resnet18", (2, 2, 2, 2), expansion=1)


def describe_resnet50() -> Network:
    """ResNet-50 (He et al., 2015), 4.1 GMACs, 25.5 M parameters: `data` to `logits` (1, 1000)."""
    return _describe_resnet("resnet50", (3, 4, 6, 3), expansion=4)


def _describe_resnet(name: str, depths: tuple[int, ...], expansion: int) -> Network:
    network = Network(name)
    x = network.add_input("data", IMAGE_SHAPE)
    x = network.add_activated(
        "relu", "conv1.relu", "conv1", x, (3, 64), kernel=7, stride=2, norm=ACTIVATED
    )
    x = network.add("max_pool", "maxpool", x, kernel_size=3, stride=2, padding=1)
    channels = 64
    for stage, depth in enumerate(depths):
        width = 64 * 2**stage
        for index in range(depth):
            stride = 2 if stage > 0 and index == 0 else 1
            out_channels = width * expansion
            x = _add_residual(
                network, f"layer{stage + 1}.{index}", x, (channels, width, out_channels), stride
            )
            channels = out_channels
    network.add_classifier(x, channels, CLASS_COUNT)
    return network


def _add_residual(
    network: Network, name: str, x: str, channels: tuple[int, int, int], stride: int
) -> str:
    """Append a residual block, a bottleneck (1x1, 3x3, 1x1) where its output is wider."""
    in_channels, width, out_channels = channels
    shortcut = x
    strides = [(3, stride), (3, 1)] if out_channels == width else [(1, 1), (3, stride), (1, 1)]
    sizes = [in_channels, *[width] * (len(strides) - 1), out_channels]
    for number, (kernel, step) in enumerate(strides, 1):
        is_last = number == len(strides)
        norm = BRANCH_END if is_last else ACTIVATED
        ends = sizes[number - 1], sizes[number]
        x = network.add_conv(f"{name}.conv{number}", x, ends, kernel, step, norm=norm)
        x = x if is_last else network.add("relu", f"{name}.relu{number}", x)
    if stride > 1 or in_channels != out_channels:
        ends = in_channels, out_channels
        shortcut = network.add_conv(f"{name}.shortcut", shortcut, ends, kernel=1, stride=stride)
    x = network.add("add", f"{name}.sum", x, shortcut)
    return network.add("relu", f"{name}.relu", x)


def describe_encoder(layers: int = 4, tokens: int = 64, width: int = 256) -> Network:
    """A BERT-like encoder: attention, normalisation and two products with Gelu in each layer."""
    network = Network("encoder", seed=3)
    x = network.add_input("data", (tokens, width))
    for name in (f"layer{layer}" for layer in range(layers)):
        mixed = network.add_attention(name, x, width)
        mixed = network.add_linear(f"{name}.projected", mixed, (width, width))
        summed = network.add("add", f"{name}.sum1", mixed, x)
        x = network.add_layer_norm(f"{name}.norm1", summed, width)
        y = network.add_linear(f"{name}.wide", x, (width, 4 * width))
        y = network.add("gelu", f"{name}.gelu", y)
        y = network.add_linear(f"{name}.narrow", y, (4 * width, width))
        x = network.add_layer_norm(f"{name}.norm2", network.add("add", f"{name}.sum2", y, x), width)
    network.outputs = [network.add_linear("logits", x, (width, 16))]
    return network


def describe_multi_input() -> Network:
    """Two inputs, two outputs: `a` (2, 3), `b` (3, 4) to `product` (2, 4), `rectified` (2, 3)."""
    network = Network("multi_input")
    a = network.add_input("a", (2, 3))
    b = network.add_input("b", (3, 4))
    network.outputs = [
        network.add("matmul", "product", a, b),
        network.add("relu", "rectified", a),
    ]
    return network


def describe_uint8_input() -> Network:
    """Preprocessing inside: `data` (1, 224, 224, 3) uint8, a picture file's, to `logits` (1, 8)."""
    network = Network("uint8_input")
    x = network.add_input("data", (1, 224, 224, 3), dtype="uint8")
    x = network.add("cast", "cast", x)
    x = network.add("transpose", "transpose", x, axes=(0, 3, 1, 2))
    x = network.add("affine", "normalize", x, scale=1 / 128, shift=-1.0)
    for number, channels in ((1, (3, 16)), (2, (16, 32))):
        relu, conv = f"relu{number}", f"conv{number}"
        x = network.add_activated("relu", relu, conv, x, channels, stride=4, norm=ACTIVATED)
    network.add_classifier(x, 32, 8)
    return network


def describe_dynamic_batch() -> Network:
    """Any batch size, it may change between runs: `data` (N, 16) to `logits` (N, 8)."""
    network = Network("dynamic_batch")
    x = network.add_input("data", (1, 16), any_batch=True)
    x = network.add_linear("hidden", x, (16, 32))
    x = network.add("relu", "hidden.relu", x)
    network.outputs = [network.add_linear("logits", x, (32, 8))]
    return network


def describe_one_operator() -> Network:
    """A single ReLU, to see what a call itself costs: `data` (4,) to `output` (4,)."""
    network = Network("one_operator")
    network.outputs = [network.add("relu", "output", network.add_input("data", (4,)))]
    return network
