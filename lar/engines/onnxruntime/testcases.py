"""Testcases of ONNX models, written as a folder of the form that ONNX's own test data has.

`lar.testcases.paths` has the form. What is allowed stands in the doc_string of each expected
tensor, a field for readers that other programs pass over: `max_error=0.0001`.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from lar.engines.formats import begins_like_ort, read_head
from lar.engines.onnx_file.external_data import files_beside
from lar.engines.onnx_file.tensors import tensor_of
from lar.engines.onnxruntime.saving import options_changed
from lar.engines.onnxruntime.session import SessionDriver
from lar.engines.onnxruntime.values import Array
from lar.errors import UsageError


def write_testcases(
    driver: SessionDriver,
    cases: Sequence[tuple[Mapping[str, Array], Mapping[str, Array]]],
    path: str,
) -> None:
    """Write the model of a loaded driver with testcases: what is fed, what came out.

    Raises:
        UsageError: such a folder cannot hold the model.
    """
    packing = driver.context.packing
    assert packing is not None
    os.mkdir(path)
    write_model(driver, Path(path) / "model.onnx", packing.optimize)
    note = f"max_error={packing.max_error!r}{'' if packing.verbose else ' silent'}"
    for number, (inputs, outputs) in enumerate(cases):
        folder = Path(path) / f"test_data_set_{number}"
        folder.mkdir()
        for kind, arrays, text in (("input", inputs, ""), ("output", outputs, note)):
            for position, (name, array) in enumerate(arrays.items()):
                content = tensor_of(array, name, text).encode()
                (folder / f"{kind}_{position}.pb").write_bytes(content)


def write_model(driver: SessionDriver, place: Path, optimize: bool) -> None:
    """Copy the model, or write it as ONNX Runtime optimises it for any processor.

    Raises:
        UsageError: it is in the ORT format, or its weights are outside its folder.
    """
    source = Path(driver.spec.model)
    if begins_like_ort(read_head(source)):
        raise UsageError(
            "a model in the ORT format, which a folder of testcases does not hold",
            "give the .onnx file that it was made from",
            subject=source,
        )
    if optimize:
        with options_changed(driver, "basic", optimized_model_filepath=str(place)):
            driver.open_session(str(source))
    else:
        shutil.copyfile(source, place)
    for name in files_beside(place):
        if os.path.isabs(name) or ".." in Path(name).parts:
            raise UsageError(
                f"its weights are in {name}, outside its folder",
                "export it with the weights beside it",
                subject=source,
            )
        target = place.parent / name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source.parent / name, target)
