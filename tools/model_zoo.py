"""The architectures: what each model of lar consists of.

Image models take `data`, (1, 3, 224, 224) float32, BGR with values 0 to 255 as `cv2.imread` gives
them: no preprocessing is needed outside, the batch norm folded into the first convolution does
it. All end in `logits`. The small ones are in a text beside this.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from network import Network, read_networks

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


def describe_mobilenet_v2() -> Network:
    """MobileNetV2, 0.35 of the full width: `data` to `logits` (1, 1000)."""
    network = Network("mobilenet_v2")
    x, channels = network.add_input("data", IMAGE_SHAPE), _narrow(32)
    x = network.add_activated(
        "relu6", "stem.relu", "stem", x, (3, channels), stride=2, norm=ACTIVATED
    )
    blocks = [
        (expansion, _narrow(full_channels), 1 if repeat else stride)
        for expansion, full_channels, repeats, stride in MOBILENET_V2_STAGES
        for repeat in range(repeats)
    ]
    for index, (expansion, out_channels, stride) in enumerate(blocks):
        ends = channels, out_channels
        x = _add_inverted_residual(network, f"block{index}", x, ends, expansion, stride)
        channels = out_channels
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
    source, inner = x, channels[0] * expansion
    if expansion > 1:
        expand, ends = f"{name}.expand", (channels[0], inner)
        x = network.add_activated(
            "relu6", f"{expand}_relu", expand, x, ends, kernel=1, norm=ACTIVATED
        )
    depthwise, sizes = f"{name}.depthwise", {"stride": stride, "groups": inner}
    x = network.add_activated(
        "relu6", f"{depthwise}_relu", depthwise, x, (inner, inner), **sizes, norm=ACTIVATED
    )
    is_residual = stride == 1 and channels[0] == channels[1]
    norm = BRANCH_END if is_residual else (1.0, 0.0)
    x = network.add_conv(f"{name}.project", x, (inner, channels[1]), kernel=1, norm=norm)
    return network.add("add", f"{name}.sum", x, source) if is_residual else x


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


NETWORKS: dict[str, Callable[[], Network]] = {
    **read_networks(Path(__file__).with_suffix(".txt")),
    "mobilenet_v2": describe_mobilenet_v2,
    "resnet18": describe_resnet18,
    "resnet50": describe_resnet50,
    "encoder": describe_encoder,
}
