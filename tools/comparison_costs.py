"""What `lar compare` costs: in a chain four times as long, and with the proof of a culprit."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
from bench import LAR, run_quietly
from model_zoo import describe_resnet18
from network import Array
from onnx import numpy_helper
from onnx_twin import onnx_of
from real_networks import Exporter, RealNetwork
from real_pairs import side_of_model, write_network

NODES = (1000, 4000)
ROUNDS = 5
FAULT = 1.5  # what a weight is multiplied by


def make_chain(nodes: int) -> RealNetwork:
    """Return Conv, Add, Relu and Mul one behind the other; numbers neither grow nor vanish."""
    net = Exporter("paddle", seed=nodes)
    x = net.add_input("input", net.draw(1, 8, 4, 4))
    for layer in range(nodes // 4):
        net.scope = f"layer{layer}"
        basis, _ = np.linalg.qr(net.draw(8, 8))
        weight = net.weight("weight", basis.astype(np.float32).reshape(8, 8, 1, 1))
        shift = net.weight("shift", net.draw(1, 8, 1, 1))
        x = net.add("Relu", net.add("Add", net.add("Conv", x, weight), shift))
        x = net.add("Mul", x, net.weight("scale", np.full((1, 8, 1, 1), 0.9, np.float32)))
    return net.finish(output=x)


def write_pair(folder: Path, name: str, network: RealNetwork, weight: str) -> tuple[str, str]:
    """Write a model with a fault in a weight, and as it should be; return them as sides."""
    write_network(folder / f"{name}.onnx", network)
    faulty = onnx.ModelProto()
    faulty.CopyFrom(network.model)
    constant = next(each for each in faulty.graph.initializer if each.name == weight)
    array: Array = numpy_helper.to_array(constant).copy()
    array *= np.float32(FAULT)
    constant.CopyFrom(numpy_helper.from_array(array, weight))
    write_network(folder / f"{name}.faulty.onnx", RealNetwork(faulty, network.feeds))
    return side_of_model(folder / f"{name}.faulty.onnx"), side_of_model(folder / f"{name}.onnx")


def chain_sides(folder: Path, nodes: int) -> tuple[str, str]:
    """Return a chain with a fault eight nodes before its end, and as it should be: an earlier one
    would fade before the output."""
    return write_pair(folder, f"chain{nodes}", make_chain(nodes), f"layer{nodes // 4 - 2}.weight")


def dumps_of(sides: Sequence[str]) -> list[str]:
    """Return dumps of models that `write_pair` wrote."""
    folders = []
    for side in sides:
        model, _, flags = side.partition(" ")
        folders.append(f"{model}.dump")
        command = [LAR, model, *flags.split(), "--iter", "1", "--warmup-iter", "0"]
        done = run_quietly([*command, "--bin-io-dump", folders[-1]])
        if done.returncode:
            raise SystemExit(done.stderr)
    return folders


WAYS: dict[str, tuple[Callable[[Sequence[str]], Sequence[str]], tuple[str, ...]]] = {
    "two dumps": (dumps_of, ()),
    "two models": (list, ()),
    "`--truth`": (list, ("--truth",)),
    "`--isolate`": (list, ("--isolate",)),
}


def measure_growth(folder: Path) -> dict[str, tuple[float, float]]:
    """Return the seconds of `lar compare` of a shorter and a longer chain, by what is compared."""
    chains = [chain_sides(folder, nodes) for nodes in NODES]
    found = {}
    for way, (prepare, flags) in WAYS.items():
        times = [time_comparison(*prepare(each), *flags) for each in chains]
        found[way] = times[0], times[1]
    return found


def measure_proof(folder: Path) -> float:
    """Return by what `lar compare` takes longer for ResNet18 with a fault than without."""
    image = np.random.RandomState(0).normal(0, 1, (1, 3, 224, 224)).astype(np.float32)
    network = RealNetwork(onnx_of(describe_resnet18()), {"data": image})
    faulty, right = write_pair(folder, "resnet18", network, "layer3.0.conv2.weight")
    same = folder / "resnet18.same.onnx"
    write_network(same, network)
    return statistics.median(
        time_comparison(faulty, right) / time_comparison(side_of_model(same), right)
        for _ in range(ROUNDS)
    )


def time_comparison(*words: str) -> float:
    """Return the seconds of the whole process."""
    began = time.perf_counter()
    done = run_quietly([LAR, "compare", *words])
    if done.returncode not in (0, 1):
        raise SystemExit(f"lar compare {' '.join(words)}: {done.stderr}")
    return time.perf_counter() - began
