"""Compares lar's float64 operators with ONNX Runtime: `python tools/sweep_operators.py`.

Cases are the test cases of the package onnx, each at all opsets that accept it, and the variants of
`operator_variants.py`. The tool prints the cases that differ, the operators for which lar has no
reference values, and how many cases ONNX Runtime refuses. The exit code is 1 if a case differs and
`operator_variants.txt` does not explain why.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper
from onnx_twin import run_onnx
from operator_variants import SECTIONS, Case, variants

from lar.engines.onnx_file.control_flow import NoTruth
from lar.engines.onnx_file.fields import Message
from lar.engines.reference.driver import evaluator_of
from lar.engines.reference.operators import widened

NEWEST = {"": 23, "ai.onnx.ml": 5}  # the newest opsets that ONNX Runtime knows

SAME, DIFFERENT, EXPLAINED = "same", "different", "wrong in ONNX Runtime"
WITHOUT_TRUTH, REFUSED = "without truth", "refused by ONNX Runtime"


class Outcome(NamedTuple):
    """The verdict on a case, and a text that explains the verdict."""

    verdict: str
    says: str = ""


def cases_of_onnx() -> Iterator[Case]:
    """Yield the cases of the package onnx, at all opsets at which ONNX's checker accepts them."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    for case in found:
        if "_expanded" in case.name or not case.data_sets:
            continue
        names = [each.name for each in case.model.graph.input]
        values = [
            numpy_helper.to_array(each) if isinstance(each, onnx.TensorProto) else each
            for each in case.data_sets[0][0]
        ]
        for version, model in models_at_opsets(case.model):
            name = f"{case.name.removeprefix('test_')}@{version}"
            yield Case(name, model, dict(zip(names, values, strict=False)))


def models_at_opsets(model: Any) -> Iterator[tuple[int, Any]]:
    """Yield a model once for each opset that changed the definition of its operator."""
    node = model.graph.node[0]
    versions = {
        each.since_version
        for each in onnx.defs.get_all_schemas_with_history()
        if (each.name, each.domain) == (node.op_type, node.domain)
    }
    for version in sorted(each for each in versions if each <= NEWEST.get(node.domain, 1)):
        copy = onnx.ModelProto.FromString(model.SerializeToString())
        copy.ir_version = min(copy.ir_version, 10)
        for each in copy.opset_import:
            each.version = version if each.domain == node.domain else each.version
        try:
            onnx.checker.check_model(copy)
        except onnx.checker.ValidationError:
            continue
        yield version, copy


def try_case(case: Case) -> Outcome:
    """Compute a case with lar and with ONNX Runtime, and compare the outputs."""
    model = case.model.SerializeToString()
    try:
        theirs = run_onnx(model, case.inputs, is_optimised=False)
    except Exception:  # ONNX Runtime's errors have no common class
        return Outcome(REFUSED)
    ours = evaluator_of(Message("Model", model), Path()).run(
        {name: widened(it) for name, it in case.inputs.items()}
    )
    pairs = [*zip(theirs, ours, theirs.values(), strict=True)]
    if says := next((f"{name}: {it}" for name, *each in pairs if (it := difference(*each))), ""):
        for words, _, why in (line.partition(": ") for line in SECTIONS["wrong in ONNX Runtime"]):
            if all(word in case.name for word in words.split()):
                return Outcome(EXPLAINED, why)
        return Outcome(DIFFERENT, says)
    lacking = [each.why(name) for name, each, _ in pairs if isinstance(each, NoTruth)]
    return Outcome(WITHOUT_TRUTH, lacking[0]) if lacking else Outcome(SAME)


def difference(ours: Any, theirs: Any) -> str:
    """Return how two values differ; empty if they are equal or lar has no reference value."""
    if isinstance(ours, NoTruth):
        return ""
    if isinstance(ours, (list, dict)) or isinstance(theirs, (list, dict)):
        if type(ours) is not type(theirs) or len(ours) != len(theirs):
            return f"{type(ours).__name__} and {type(theirs).__name__}, or of other lengths"
        keys = ours if isinstance(ours, dict) else range(len(ours))
        return next(filter(None, (difference(ours[key], theirs[key]) for key in keys)), "")
    if ours is None or theirs is None:
        return "" if ours is theirs else "one is none"
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    if ours.shape != theirs.shape:
        return f"shapes {ours.shape} and {theirs.shape}"
    if theirs.dtype.kind in "OSU":
        return "" if (ours.astype(str) == theirs.astype(str)).all() else "other texts"
    kind = theirs.dtype.name
    if ours.dtype != (np.float64 if kind in ("float16", "float32", "bfloat16") else theirs.dtype):
        return f"types {ours.dtype} and {kind}"
    if theirs.dtype.kind in "bi" or not theirs.size:
        return "" if np.array_equal(ours, theirs) else "other integers"
    if theirs.dtype.kind == "u":  # rounding may differ by one step
        return "" if np.abs(ours.astype(float) - theirs).max() <= 1 else "other integers"
    digits = 2e-5 if kind in ("float32", "float64") else 4e-3
    scale = np.abs(theirs[np.isfinite(theirs)]).max(initial=0)
    close = np.allclose(ours, theirs, rtol=10 * digits, atol=digits * scale, equal_nan=True)
    return "" if close else f"off by {np.abs(ours - theirs).max():.3g} of {scale:.3g}"


def sweep(cases: Iterable[Case]) -> Counter[str]:
    """Try cases, print the results, and return the number of cases for each verdict."""
    counts, lacking = Counter[str](), Counter[str]()
    for case in cases:
        outcome = try_case(case)
        counts[outcome.verdict] += 1
        if outcome.verdict in (WITHOUT_TRUTH, EXPLAINED):
            lacking[f"{outcome.verdict}: {case.model.graph.node[0].op_type}: {outcome.says}"] += 1
        elif outcome.verdict == DIFFERENT:
            print(f"{outcome.verdict}: {case.name}: {outcome.says}")
    for says, count in sorted(lacking.items()):
        print(f"{says} ({count})")
    for verdict in (SAME, DIFFERENT, EXPLAINED, WITHOUT_TRUTH, REFUSED):
        print(f"{counts[verdict]:6} {verdict}")
    return counts


def main(arguments: Sequence[str] | None = None) -> int:
    """Try all cases; return 1 if a case differs without an explanation."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="cases whose name holds this word")
    asked = parser.parse_args(arguments)
    cases = [it for source in (variants, cases_of_onnx) for it in source() if asked.only in it.name]
    return int(bool(sweep(cases)[DIFFERENT]))


if __name__ == "__main__":
    sys.exit(main())
