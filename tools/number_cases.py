"""The pairs that `bench_numbers` compares: networks with planted faults, and pairs without any.

A case says which networks it takes, what is done to them, and how each side is run; `number_dumps`
makes the models and the dumps.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from planted_faults import FAULTS, truth_of
from planted_networks import IN_BLOCKS, NETWORKS


class Form(NamedTuple):
    """How a network is written and run: the format, what the format is made of, and options."""

    suffix: str
    recipe: str = ""
    options: dict[str, Any] = {}


# By the names that cases and failing rows show.
BASIC = {"graph_optimization_level": "basic"}
DISABLED = {"graph_optimization_level": "disable"}
FORMS = {
    "basic": Form("onnx", options=BASIC),
    "disabled": Form("onnx", options=DISABLED),
    "extended": Form("onnx", options={"graph_optimization_level": "extended"}),
    "all": Form("onnx"),
    "float16": Form("onnx", "float16", BASIC),
    "float16 all": Form("onnx", "float16"),
    "qdq": Form("onnx", "qdq", DISABLED),
    "qdq all": Form("onnx", "qdq"),
    "qdq channels": Form("onnx", "qdq channels", DISABLED),
    "qoperator": Form("onnx", "qoperator", BASIC),
    "dynamic": Form("onnx", "dynamic", BASIC),
    "plain": Form("mge"),
    "nchw44": Form("mge", options={"enable_nchw44": True}),
    "nchw44 dot": Form("mge", options={"enable_nchw44_dot": True}),
    "threads": Form("mge", options={"multithread": 2}),
    "half": Form("mge", "half"),
}


class Side(NamedTuple):
    """One side of a case: a network as one of the `FORMS`, with the fault of that name; or, without
    a form, a folder that was dumped elsewhere."""

    network: str
    fault: str = "clean"
    form: str = ""

    @property
    def key(self) -> str:
        """The name of the dump's folder."""
        return f"{self.network}.{self.fault}.{self.form}".replace(" ", "_")

    @property
    def model(self) -> str:
        """The name of the model's file."""
        form = FORMS[self.form]
        recipe = f".{form.recipe}" if form.recipe else ""
        return f"{self.network}.{self.fault}{recipe}.{form.suffix}".replace(" ", "_")


class Case(NamedTuple):
    """A pair to compare; `faults` are the operators at fault, by the names that each may have."""

    group: str
    what: str
    actual: Side
    expected: Side
    faults: tuple[frozenset[str], ...] = ()

    @property
    def name(self) -> str:
        fault = f"{self.what}: " if self.what else ""
        return f"{self.group}: {fault}{self.actual.key} against {self.expected.key}"


def faulty_cases() -> Iterator[Case]:
    """Yield the cases of one altered operator, then those of other faults."""
    for word, fault in FAULTS.items():
        group = "fault" if word.startswith("old") else "new fault"
        right = f"prepared-{word}" if fault.prepare else "clean"
        truth = truth_of(fault)
        for one, other in fault.pairs:
            sides = Side(fault.network, word, one), Side(fault.network, right, other)
            yield Case(group, fault.kind, *sides, truth)


# Pairs without a fault

Forms = tuple[tuple[str, str], ...]


def pairs(text: str) -> Forms:
    """Read pairs of forms."""
    parts = (each.strip().partition("/") for each in text.split(","))
    return tuple((one, other) for one, _, other in parts)


PLAIN_FORMS = pairs("basic/all, disabled/extended, all/disabled, plain/basic, plain/all")
BLOCKED_FORMS = pairs("nchw44/plain, plain/nchw44, nchw44/basic, all/nchw44, nchw44 dot/threads")
HALF_FORMS = pairs("float16/basic, basic/float16, float16 all/all, half/plain")
INT8_FORMS = pairs(
    "qdq/basic, basic/qdq, qdq all/qdq, qdq channels/basic, qoperator/basic, qoperator/qdq,"
    "dynamic/basic"
)
QUANTIZED_NETWORKS = ("plain_cnn", "residual", "inverted", "branches", "perceptron", "dense")

# MegEngine's pooling of float16 with a small kernel gives numbers of the wrong sign on a CPU; the
# cast of the third network would end the float16 in the middle.
NO_HALF = ("plain_cnn", "branches", "picture")
MODEL_FORMS = pairs("plain/basic, all/basic, nchw44/all")

# Of the repository, with what they are fed with.
FLOAT16 = "tests/data/aarch64/digits_float16"
MODELS = {
    "models/digits_cnn": ("inputs/digit_7.npy",),
    "models/int8": ("inputs/digit_7.npy",),
    "models/mobilenet_v2": ("inputs/cat.npy",),
    "models/uint8_input": ("inputs/cat.jpg",),
    "models/multi_input": ("inputs/multi_input.json",),
    "models/dynamic_batch": (),
    FLOAT16: ("inputs/digit_7.npy",),
}

# Folders that were dumped on another processor, with what they are of.
OTHER_CPU = {
    "tests/data/aarch64/digits_cnn": "models/digits_cnn",
    "tests/data/aarch64/int8": "models/int8",
    "tests/data/aarch64/float16": FLOAT16,
}


def healthy_cases() -> Iterator[Case]:
    """Yield the pairs in which nothing is wrong."""
    for name in NETWORKS:
        if name == "int8_cnn":
            yield from cases_of("int8", name, pairs("plain/basic, nchw44/plain"))
            continue
        forms = PLAIN_FORMS + BLOCKED_FORMS if name in IN_BLOCKS else PLAIN_FORMS
        yield from cases_of("layouts, engines, levels", name, forms)
        yield from cases_of("float16", name, HALF_FORMS[:3] if name in NO_HALF else HALF_FORMS)
        if name in QUANTIZED_NETWORKS:
            yield from cases_of("int8", name, INT8_FORMS)
    for name in MODELS:
        if name != FLOAT16:
            yield from cases_of("layouts, engines, levels", name, MODEL_FORMS)
    for name in ("models/digits_cnn", "models/mobilenet_v2"):
        yield from cases_of("float16", name, HALF_FORMS[:3])
        yield from cases_of("int8", name, INT8_FORMS[:1] + INT8_FORMS[3:])
    yield from cpp_cases()
    for dump, name in OTHER_CPU.items():
        for form in ("disabled", "basic", "all"):
            yield from both_ways("another CPU", Side(dump), Side(name, form=form))


def cases_of(group: str, network: str, forms: Iterable[tuple[str, str]]) -> Iterator[Case]:
    for one, other in forms:
        yield Case(group, "", Side(network, form=one), Side(network, form=other))


def both_ways(group: str, one: Side, other: Side) -> Iterator[Case]:
    yield Case(group, "", one, other)
    yield Case(group, "", other, one)


def cpp_cases() -> Iterator[Case]:
    """Yield pairs of dumps that C++ `load_and_run` wrote, which have no index, and of them with
    runs here."""
    for name in ("digits_cnn", "int8"):
        dumps = [Side(f"{name}_{layout}") for layout in ("nchw", "nchw44", "nchw88")]
        runs = [Side(f"models/{name}", form=form) for form in ("plain", "nchw44", "basic")]
        for number, dump in enumerate(dumps):
            for other in (*dumps[number + 1 :], *runs):
                yield from both_ways("C++ dumps", dump, other)
    sides = Side("models/int8", form="plain"), Side("models/digits_cnn", form="plain")
    yield from both_ways("int8", *sides)


def all_cases() -> list[Case]:
    return [*faulty_cases(), *healthy_cases()]
