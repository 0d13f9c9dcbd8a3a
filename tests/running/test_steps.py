"""Where the files and folders that an engine writes go, and what they may replace."""

from __future__ import annotations

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lar
from lar.dumps.binary import write_tensor
from lar.dumps.delivery import finish_text
from lar.errors import UsageError
from lar.records.run import Item, RunContext, RunResult, RunSpec, Samples, Status
from lar.running.steps import deliver_artifacts, folder_beside, grow_dump, place_artifacts
from lar.worker.main import failure_of
from tests.cli.failures import run_shell
from tests.command_lines import ROOT
from tests.running.isolated_runs import NO_BYTECODE, finished
from tests.tables import each_row
from tests.test_imports import modules_after


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "r.mge").write_text("a model")
    return tmp_path


def spec_of(*items: Item, **settings: str | bool) -> RunSpec:
    return RunSpec(
        model="r.mge",
        engine="megengine",
        driver="lite",
        settings=dict(settings),
        items=items,
        item_names=tuple(item.name for item in items),
    )


def write(status: Status = "ok", *, overwrite: bool = False, **settings: str | bool) -> RunResult:
    """Do what a run does whose engine writes two tensors, or a text, for each option."""
    spec = spec_of(**settings)
    with place_artifacts(spec, RunContext(overwrite=overwrite)) as (spec, context):
        for key, written in context.written.items():
            place = Path(written)
            if key.startswith("bin_"):
                place.mkdir()
                for name in ("000001", "000003"):
                    write_tensor(place / name, np.ones(2, np.float32), name)
            else:
                place.write_text("卷积\n")
        result = RunResult(
            spec=spec,
            status=status,
            phase="done",
            warmup=Samples(end_to_end=(1.0,)),
            samples=Samples(end_to_end=(1.0, 1.0)),
        )
        return deliver_artifacts(spec, context.written, result)


def names(folder: str | Path) -> list[str]:
    return sorted(os.listdir(folder))


def complaint(*, overwrite: bool = False, **settings: str | bool) -> str:
    with pytest.raises(UsageError) as caught:
        write("ok", overwrite=overwrite, **settings)
    return caught.value.message


def test_a_folder_and_its_index_stand_side_by_side() -> None:
    write(bin_io_dump="dir")
    assert names(".") == ["dir", "dir.index.json", "r.mge"]
    assert names("dir") == ["000001", "000003"]
    index = lar.open_dump("dir").index
    assert (index.complete, index.model, index.iteration) == (True, "r.mge", 2)


def test_folders_on_the_way_are_made() -> None:
    write(bin_io_dump="new/deep/dir/")
    assert names("new/deep") == ["dir", "dir.index.json"]


def test_an_empty_folder_is_filled_and_stays_itself(workplace: Path) -> None:
    (workplace / "dir").mkdir(mode=0o700)
    (workplace / "link").symlink_to("dir")
    before = os.stat("dir").st_ino
    write(bin_io_dump="link")
    assert os.stat("dir").st_ino == before
    assert names("dir") == ["000001", "000003"]
    assert (workplace / "link").is_symlink()


def test_the_current_folder_may_be_the_place(
    workplace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (workplace / "dir").mkdir()
    (workplace / "dir" / "r.mge").touch()
    monkeypatch.chdir(workplace / "dir")
    assert complaint(bin_io_dump="../dir").endswith("the folder is not empty")
    (workplace / "dir" / "r.mge").unlink()
    write(bin_out_dump="../dir")
    assert names(".") == ["000001", "000003"]
    assert names("..") == ["dir", "dir.index.json", "r.mge"]


@pytest.mark.parametrize(
    ("before", "grows"), [(None, True), ((), True), (("run1-var2", "run2-var2"), False)]
)
def test_outputs_of_a_data_set_are_written_to_their_place_unless_they_replace_others(
    before: tuple[str, ...] | None, grows: bool
) -> None:
    place = Path("out")
    if before is not None:
        place.mkdir()
        for name in before:
            write_tensor(place / name, np.ones(2, np.float32), name)
    items = (Item(number=number, name=str(number)) for number in range(2))
    spec = spec_of(*items, bin_out_dump="out")
    with place_artifacts(spec, RunContext(overwrite=True)) as (_, context):
        assert (Path(context.written["bin_out_dump"]) == place) == grows


def test_a_dump_is_replaced_when_that_is_asked_for() -> None:
    write(bin_io_dump="dir")
    os.rename("dir/000001", "dir/00000b")
    assert complaint(bin_io_dump="dir") == "--bin-io-dump: dir: the folder is not empty"
    assert names("dir") == ["000003", "00000b"]
    write(bin_io_dump="dir", overwrite=True)
    assert names("dir") == ["000001", "000003"]


@pytest.mark.parametrize("other", ["file", "folder"])
def test_nothing_but_a_dump_is_replaced(other: str) -> None:
    write(bin_io_dump="dir")
    if other == "file":
        Path("dir/thesis.txt").write_text("years of work")
    else:
        Path("dir/years").mkdir()
    assert "replaces only what --bin-io-dump wrote" in complaint(bin_io_dump="dir", overwrite=True)
    assert len(names("dir")) == 3


@pytest.mark.parametrize("status", ["crashed", "failed", "timed_out", "interrupted"])
def test_a_dump_is_kept_however_the_run_ended_and_marked_so(status: Status) -> None:
    result = write(status, bin_io_dump="dir")
    assert result.warnings == ("--bin-io-dump: dir: holds what was dumped before the run ended",)
    index = lar.open_dump("dir").index
    assert (index.complete, index.iteration) == (False, 3)
    assert len(index.tensors) == 2


def test_a_tensor_that_was_cut_off_is_left_out() -> None:
    spec = spec_of(bin_io_dump="dir")
    result = RunResult(spec=spec, status="crashed", phase="warmup")
    with place_artifacts(spec, RunContext()) as (_, context):
        folder = Path(context.written["bin_io_dump"])
        folder.mkdir()
        write_tensor(folder / "000001", np.ones(2, np.float32), "whole")
        (folder / "000003").write_bytes((folder / "000001").read_bytes()[:-1])
        deliver_artifacts(spec, context.written, result)
    assert names("dir") == ["000001"]
    assert [tensor.key for tensor in lar.open_dump("dir")] == ["000001"]


def test_nothing_is_left_where_nothing_was_dumped() -> None:
    spec = spec_of(bin_io_dump="dir")
    result = RunResult(spec=spec, status="crashed", phase="load")
    with place_artifacts(spec, RunContext()) as (_, context):
        assert deliver_artifacts(spec, context.written, result) == result
        with pytest.raises(UsageError, match="the engine has written nothing"):
            deliver_artifacts(spec, context.written, replace(result, status="ok"))
    assert names(".") == ["r.mge"]


@pytest.mark.parametrize("made", [False, True])
def test_a_growing_folder_that_stays_empty_goes_unless_it_was_there(made: bool) -> None:
    place = Path("out")
    if made:
        place.mkdir()
    with grow_dump(spec_of(Item(number=0, name="0"), bin_out_dump="out"), place):
        assert place.is_dir()
    assert names(".") == (["out", "r.mge"] if made else ["r.mge"])


def test_other_files_wait_for_a_run_that_ends_well() -> None:
    assert write("crashed", model_dump="new.mge").warnings == ()
    assert names(".") == ["r.mge"]
    write(model_dump="new.mge")
    assert names(".") == ["new.mge", "r.mge"]


def test_text_goes_to_its_stream_or_its_file(capsys: pytest.CaptureFixture[str]) -> None:
    write(io_dump_stdout=True)
    assert capsys.readouterr() == ("卷积\n", "")
    write(io_dump_stderr=True)
    assert capsys.readouterr() == ("", "卷积\n")
    write(io_dump="out.txt")
    assert Path("out.txt").read_text() == "卷积\n"
    write("crashed", io_dump="out.txt")
    assert names(".") == ["out.txt", "r.mge"]


def test_a_run_without_a_dump_imports_nothing_for_dumps() -> None:
    modules = modules_after("models/one_operator.mge", "--iter", "1", "--cpu")
    # The facts that an engine knows are a light module; the formats of dumps are not.
    assert not [name for name in modules if name.startswith("lar.dumps.")]


def test_python_may_overwrite_too() -> None:
    model = ROOT / "models" / "one_operator.onnx"
    options: dict[str, Any] = {"iter": 1, "bin_out_dump": "dir"}
    finished(lar.run(model, **options))
    with pytest.raises(UsageError, match="the folder is not empty"):
        lar.run(model, **options)
    finished(lar.run(model, overwrite=True, **options))
    assert names("dir") == ["run0-var0", "run1-var0"]


def test_a_filter_removes_tensors_and_keeps_the_graph() -> None:
    write(bin_io_dump="dir", dump_filter="3$")
    assert names("dir") == ["000003"]
    index = lar.open_dump("dir").index
    assert [tensor.name for tensor in index.tensors] == ["000003"]
    assert index.settings["dump_filter"] == "3$"
    assert "has 'nothing' in its name" in complaint(bin_io_dump="d", dump_filter="nothing")
    write("crashed", bin_io_dump="dir2", dump_filter="nothing")
    assert json.loads(Path("dir2.index.json").read_text())["tensors"] == []


def test_text_that_is_not_whole_is_told_or_marked(tmp_path: Path) -> None:
    text = tmp_path / "dump.txt"
    text.write_text("")
    finish_text(text, "", complete=True)
    text.write_text("var1 produced: name=a\n val: [1] s\nvar2 produ")
    with pytest.raises(OSError, match="No space left"):
        finish_text(text, "", complete=True)
    finish_text(text, "", complete=False)
    assert text.read_text().endswith("var2 produ\nnot complete: the run ended before\n")


def test_a_full_disk_is_no_failure_of_the_engine() -> None:
    failure = failure_of(OSError(errno.ENOSPC, "No space left on device"))
    assert failure.message == "a file cannot be written: no space left on device"


def test_what_a_link_leads_to_is_written_beside_that(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "there" / "p.json")
    with folder_beside(link, "file", "") as folder:
        assert os.path.dirname(folder) == str(tmp_path / "there")
    link.unlink()
    link.symlink_to(tmp_path / "nowhere" / "p.json")
    with pytest.raises(FileNotFoundError), folder_beside(link, "file", ""):
        pass


@each_row("running/cases/limits of files")
def test_a_full_disk_is_one_exit_code_for_what_an_engine_writes(
    tmp_path: Path, name: str, flag: str, kib: int
) -> None:
    command = f"{NO_BYTECODE}; ulimit -f {kib}; exec $LAR $1 {flag} file --iter 20"
    done = run_shell(command, str(ROOT / "models" / name), cwd=tmp_path)
    assert done.returncode == 4
    reason = f"the limit of a file's size is reached\nhint: the limit is {kib} KiB"
    assert f"error: {flag}: file: cannot be written: {reason}" in done.stderr
    assert not [*tmp_path.glob("file*"), *tmp_path.glob(".lar-*")]
