"""Models as exporters write them: healthy pairs are the same, and a fault is named alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

import lar
from lar.dumps.dump import Dump
from tests.comparison.exported_models import (
    FLOAT,
    Case,
    Change,
    Exporter,
    Models,
    RealNetwork,
    blamed,
    compare,
    draw,
    make_network,
    model_of,
    node,
    rename,
    set_attribute,
    set_type,
    set_weight,
)

LEVELS = ("disable", "basic", "extended", "all")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Models:
    return Models(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="module")
def original(models: Models) -> Callable[[str], Case]:
    """Return a network of the tools, written once."""
    known: dict[str, Case] = {}

    def write(name: str) -> Case:
        if name not in known:
            known[name] = models.write(make_network(name))
        return known[name]

    return write


# What the optimiser makes of a model is the model


def make_folded(kind: str) -> RealNetwork:
    """A layer without bias, and what the optimiser folds into it."""
    net = Exporter("paddle", opset=13)
    x = net.add_image(3, 12)
    if kind == "ConvTranspose":
        net.scope = "up"
        x = net.add(kind, x, net.weight("weight", net.draw(3, 8, 3, 3)), strides=[2, 2])
    else:
        x = net.conv("conv1", x, (3, 8), bias=kind == "biased")
    for role in ("mul", "sub", "add") if kind == "affine" else ():
        x = net.add(role.capitalize(), x, net.weight(role, 1 + net.draw(1, 8, 1, 1, spread=0.2)))
    if kind != "affine":
        weights = [net.weight(role, 1 + net.draw(8, spread=0.1)) for role in "sbmv"]
        x = net.add("BatchNormalization", x, *weights)
    return net.finish(y=net.classifier(net.add("Relu", x), 8))


def make_moved(kind: str) -> RealNetwork:
    """Data in other axes, which the optimiser moves behind what comes after."""
    x = node("MatMul", "x w", "product"), node("Transpose", "product", "turned", perm=[0, 2, 1])
    behind = {
        "Softmax": node("Softmax", "turned", "z", axis=1),
        "Split": node("Split", "turned", "z other", axis=1),
        "ReduceMean": node("ReduceMean", "turned", "z", axes=[1], keepdims=1),
        "Concat": node("Concat", "turned turned", "z", axis=2),
    }[kind]
    ends = node("Relu", "z", "y"), node("Transpose", "y", "out", perm=[0, 2, 1])
    feeds = {"x": draw(1, 6, 16)}
    return model_of([*x, behind, *ends], feeds, {"out": FLOAT}, {"w": draw(16, 8, seed=1)})


OPTIMISED: dict[str, Callable[[], RealNetwork]] = {
    **{
        f"folded {kind}": lambda kind=kind: make_folded(kind)  # type: ignore[misc]
        for kind in ("Conv", "biased", "ConvTranspose", "affine")
    },
    **{
        f"moved {kind}": lambda kind=kind: make_moved(kind)  # type: ignore[misc]
        for kind in ("Softmax", "Split", "ReduceMean", "Concat")
    },
    "attention_paddle": lambda: make_network("attention_paddle"),
    "attention_timm": lambda: make_network("attention_timm"),
    "mobile": lambda: make_network("mobile"),
    "lstm": lambda: make_network("lstm"),
}


@pytest.mark.parametrize("name", OPTIMISED)
def test_all_levels_of_optimisation_are_the_same(models: Models, name: str) -> None:
    network = OPTIMISED[name]()
    case = models.write(network)
    dumps: dict[str, Dump] = {}
    for level in LEVELS:
        place = models.folder / f"{name}.{level}".replace(" ", "_")
        once = {"iter": 1, "warmup_iter": 0, "bin_io_dump": str(place)}
        done = lar.run(case.path, network.feeds, graph_optimization_level=level, **once)
        assert done.status == "ok", done.failure
        dumps[level] = lar.open_dump(place)
    for one, other in itertools.combinations(LEVELS, 2):
        found = lar.compare(dumps[one], dumps[other])
        assert (found.finding, found.culprits) == ("same", ()), (one, other)
        assert found.output_count
        assert not [it.problem for it in found.tensors if it.problem], (one, other)


# Names that say nothing


@pytest.mark.parametrize("name", ["residual", "mobile_running", "attention_running"])
@pytest.mark.parametrize("recipe", ["moved 1", "moved 2", "moved 3", "rotated"])
def test_running_numbers_are_no_names(
    models: Models, original: Callable[[str], Case], name: str, recipe: str
) -> None:
    network = make_network(name)
    moved = models.write(RealNetwork(rename(network.model, recipe), network.feeds))
    found = compare(moved, original(name))
    assert (found.finding, found.culprits) == ("same", ())
    assert all(it.passed for it in found.tensors)


@pytest.mark.parametrize(
    ("name", "fault", "kind"),
    [
        ("residual", set_weight("layer1.0.conv2.weight", lambda it: it * 1.2), "Conv"),
        ("attention_running", set_attribute("Softmax", axis=-2), "Softmax"),
        ("mobile_running", set_type("GlobalAveragePool", "GlobalMaxPool"), "GlobalMaxPool"),
    ],
)
@pytest.mark.parametrize("recipe", ["moved 2", "rotated"])
def test_a_fault_is_named_though_all_names_have_moved(
    models: Models,
    original: Callable[[str], Case],
    name: str,
    fault: Change,
    kind: str,
    recipe: str,
) -> None:
    network = make_network(name)
    moved = models.write(RealNetwork(rename(network.model, recipe), network.feeds), fault)
    assert blamed(compare(moved, original(name))) == [kind]
