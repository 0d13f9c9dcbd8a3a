"""Places that clash: what is told, and what is left alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lar.errors import UsageError
from lar.options.paths import Place, paths_in, places_of_dump, refuse_clashes, split_items

DUMP = (
    Place("d", "--bin-io-dump"),
    Place("d.index.json", "--bin-io-dump", "the index of --bin-io-dump"),
)
COMPARED = (
    Place("d", what="a dump that is compared"),
    Place("d.index.json", what="the index of a dump that is compared"),
)


@pytest.fixture(autouse=True)
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def complaint(*places: Place, read: tuple[str, ...] = ()) -> str:
    with pytest.raises(UsageError) as caught:
        refuse_clashes(places, read)
    return caught.value.message


def test_neighbours_do_not_clash() -> None:
    others = [Place("d.json", "--json"), Place("dd", "--csv"), Place("e/d", "--dump")]
    refuse_clashes([*DUMP, *others])
    refuse_clashes([*COMPARED, *COMPARED, Place("d", what="read twice")])


def test_the_index_stands_beside_the_folder(workplace: Path) -> None:
    (workplace / "in").mkdir()
    os.chdir("in")
    for folder in (".", "../in", "../in/"):
        index = places_of_dump(folder, "--dump")[1]
        assert index == Place(str(workplace / "in.index.json"), "--dump", "the index of --dump")


def test_links_lead_to_the_same_place(workplace: Path) -> None:
    (workplace / "there").mkdir()
    (workplace / "link").symlink_to("there")
    both = complaint(Place("link/new", "--json"), Place("there/new", "--csv"))
    assert both == "--json and --csv both write to there/new"
    Path("there/a.npy").touch()
    os.link("there/a.npy", "hard.npy")
    for name in ("hard.npy", "link/a.npy", "there/a.npy"):
        assert "the command also reads" in complaint(Place(name, "-o"), read=("there/a.npy",))
    refuse_clashes([Place("there/b.npy", "-o")], ["there/a.npy"])


def test_a_folder_of_tensors_stands_for_its_files(workplace: Path) -> None:
    (workplace / "test_data_set_0").mkdir()
    for name in ("input_0.pb", "note.txt"):
        Path("test_data_set_0", name).touch()
    read = ("test_data_set_0",)
    assert "also reads" in complaint(Place("test_data_set_0/input_0.pb", "-o"), read=read)
    refuse_clashes([Place("test_data_set_0/note.txt", "-o")], read)


def test_paths_are_found_in_what_is_fed() -> None:
    for name in ("x.npy", "b.bin", "c;d.npy", "e:f.npy"):
        Path(name).touch()
    found = [*paths_in(["a:x.npy; b.bin,float32,1x4", "{1,2}", "c;d.npy;a:e:f.npy", "a:gone.npy"])]
    assert found == ["x.npy", "b.bin", "c;d.npy", "e:f.npy"]


def test_the_name_of_a_file_has_at_most_eight_semicolons() -> None:
    most, more = ";".join("abcdefghi"), ";".join("0123456789")
    for name in (most, more):
        Path(name).touch()
    assert split_items(f"x:1;{most};c", more) == ["x:1", most, "c", *"0123456789"]
