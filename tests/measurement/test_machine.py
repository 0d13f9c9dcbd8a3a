"""Facts about the machine, and the checksum beside a model file."""

from __future__ import annotations

import hashlib
import os
from importlib import metadata
from pathlib import Path

import pytest

from lar.measurement import machine as facts_of_machine
from lar.measurement.machine import (
    installed_version,
    read_field,
    read_machine,
    read_memory,
    read_model_file,
    read_processor,
    read_text,
)
from tests.refusals import refused
from tests.tables import each_row

CONTENT = b"model" * 1000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "a model.onnx"
    path.write_bytes(CONTENT)
    return path


def write_checksum(model: Path, text: str) -> None:
    model.with_name(model.name + ".sha256").write_text(text)


def test_the_machine_is_described(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (1.5, 2.5, 3.5), raising=False)
    machine = read_machine()
    assert machine.system.startswith(os.uname().sysname)
    assert machine.processor
    assert 1 <= machine.usable_cores <= machine.cores
    assert machine.memory_bytes is None or machine.memory_bytes > 2**20
    assert machine.python.startswith("3.")
    assert len(machine.affinity) == machine.usable_cores
    assert machine.load == 1.5
    assert machine.threads_per_core is None or 1 <= machine.threads_per_core <= machine.cores


def test_variables_that_libraries_heed_are_kept() -> None:
    environment = {"OMP_NUM_THREADS": "2", "HOME": "/root", "ORT_X": "1", "MGB_Y": "2"}
    assert read_machine(environment, ("ORT_",)).variables == {"OMP_NUM_THREADS": "2", "ORT_X": "1"}
    assert read_machine().variables == {}


def test_what_the_system_does_not_tell_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert read_text(str(tmp_path / "none")) == ""
    assert read_field(str(tmp_path / "none"), "x") == ""
    monkeypatch.setattr("lar.measurement.machine.read_text", lambda path: "")
    assert read_memory() is None
    assert read_machine().processor == os.uname().machine


def test_a_model_file_is_measured_and_hashed(model: Path) -> None:
    file = read_model_file(model)
    assert (file.path, file.size_bytes, file.sha256) == (str(model), len(CONTENT), SHA256)


@each_row("measurement/cases/checksum files that match")
def test_a_matching_checksum_file_is_fine(model: Path, text: str) -> None:
    write_checksum(model, text.format(SHA256, SHA256.upper(), "0" * 64))
    assert read_model_file(model).sha256 == SHA256


@each_row("measurement/cases/checksum files that are damaged")
def test_a_damaged_checksum_file_is_refused(model: Path, text: str) -> None:
    write_checksum(model, text.format(SHA256, SHA256[:40]))
    caught = refused("", read_model_file, model)
    assert caught.message.startswith(f"{model}.sha256: is damaged")
    assert "remove the file" in caught.hint


def test_a_checksum_file_that_cannot_be_read_is_refused(model: Path) -> None:
    place = Path(f"{model}.sha256")
    os.mkfifo(place)
    refused("sha256: is not a regular file", read_model_file, model)
    place.unlink()
    place.mkdir()
    refused("is a folder, not a checksum file", read_model_file, model)
    place.rmdir()
    place.symlink_to("gone")
    refused("no such checksum file", read_model_file, model)


@pytest.mark.parametrize("name", ["a model.onnx", "other.onnx"])
def test_a_checksum_file_that_does_not_match_means_damage(model: Path, name: str) -> None:
    write_checksum(model, f"{'0' * 64}  {name}\n")
    said = "the file is damaged or has changed: its SHA-256 is not in a model.onnx.sha256"
    caught = refused(said, read_model_file, model)
    assert caught.hint.endswith("if the model changed, remove the .sha256 file")


ARM = (Path(__file__).parents[1] / "data" / "arm_cpuinfo.txt").read_text()


@each_row("measurement/cases/processors")
def test_a_processor_is_named_by_the_numbers_that_arm_gives(
    tmp_path: Path, cpuinfo: str, numbers: list[str], name: str
) -> None:
    text = ARM if cpuinfo == "ARM" else cpuinfo
    (tmp_path / "cpuinfo").write_text(text.format(*numbers) + "\nMemTotal:  2048 kB")
    assert read_processor(str(tmp_path / "cpuinfo")) == name
    assert read_memory(path=str(tmp_path / "cpuinfo")) == 2048 * 1024


@pytest.mark.parametrize(
    ("siblings", "threads"), [("3,7", 2), ("0-3", 4), ("3", 1), ("0-1,8-9", 4), (None, None)]
)
def test_threads_of_a_core_are_those_of_the_first_cpu_that_may_be_used(
    siblings: str | None, threads: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts_of_machine, "CPUS", str(tmp_path))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {5, 3}, raising=False)
    if siblings is not None:
        place = tmp_path / "cpu3" / "topology"
        place.mkdir(parents=True)
        (place / "thread_siblings_list").write_text(f"{siblings}\n")
    facts = read_machine()
    assert (facts.affinity, facts.usable_cores) == ((3, 5), 2)
    assert facts.threads_per_core == threads


@pytest.mark.parametrize("package", ["numpy", "msgspec", "pytest", "typing-extensions", "PyTest"])
def test_the_version_of_a_package_is_that_of_its_metadata(package: str) -> None:
    assert installed_version(package) == metadata.version(package)
    assert installed_version("no-such-package-anywhere") == ""
