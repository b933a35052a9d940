"""Which files: odd names, links, lists that lead elsewhere, many files."""

from __future__ import annotations

import io
import os
import threading
import tracemalloc
from pathlib import Path

import pytest

from fretta.data.listing import checked, list_folder, read_list
from fretta.data.read_ahead import read_entries
from fretta.errors import DataError


def touch(*paths: Path) -> None:
    for path in paths:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()


def test_sorted_and_recursive(tmp_path: Path) -> None:
    touch(tmp_path / "b" / "2.PNG", tmp_path / "a.jpg", tmp_path / "b" / "deep" / "1.gif")
    touch(tmp_path / "notes.txt", tmp_path / ".hidden.jpg", tmp_path / ".git" / "x.jpg")
    (tmp_path / "folder.jpg").mkdir()
    touch(tmp_path / "folder.jpg" / "c.webp")
    found = list_folder(tmp_path)
    assert found.names == ["a.jpg", "b/2.PNG", "b/deep/1.gif", "folder.jpg/c.webp"]
    assert (found.ignored, found.links, found.folders) == (1, 0, 4)
    assert os.path.samefile(found.path("b/2.PNG"), tmp_path / "b" / "2.PNG")


def test_any_name_a_file_system_allows(tmp_path: Path) -> None:
    names = ["größe 猫.jpg", "line\nbreak.jpg", 'quote".jpg', "comma,.jpg", "\udcff.jpg"]
    for name in names:
        touch(tmp_path / name)
    assert sorted(list_folder(tmp_path).names) == sorted(names)


def test_links_end_and_stay_inside(tmp_path: Path) -> None:
    inner, outer = tmp_path / "in", tmp_path / "out"
    touch(inner / "a.jpg", outer / "b.jpg", outer / "c.jpg")
    (inner / "loop").symlink_to(inner)
    (inner / "self").symlink_to(inner / "self")
    (inner / "dead.jpg").symlink_to(inner / "nothing.jpg")
    (inner / "same.jpg").symlink_to(inner / "a.jpg")
    (inner / "elsewhere").symlink_to(outer)
    (inner / "one.jpg").symlink_to(outer / "b.jpg")
    (outer / "back").symlink_to(inner)
    (outer / "up").symlink_to(tmp_path)
    found = list_folder(inner)
    assert found.names == ["a.jpg", "dead.jpg", "same.jpg"]
    assert found.links == 2
    followed = list_folder(inner, outside=True).names
    assert {"elsewhere/b.jpg", "elsewhere/c.jpg", "one.jpg"} < set(followed)
    assert sum(name.endswith("c.jpg") for name in followed) == 1  # no folder twice


def test_folders_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="there is no folder"):
        list_folder(tmp_path / "absent")

    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DataError, match=r"cannot list .*Permission denied"):
        list_folder(tmp_path)


@pytest.mark.slow
def test_twenty_thousand_files(tmp_path: Path) -> None:
    for part in range(20):
        (tmp_path / str(part)).mkdir()
        for number in range(1000):
            os.close(os.open(tmp_path / str(part) / f"{number:05d}.jpg", os.O_CREAT))
    tracemalloc.start()
    found = list_folder(tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found.names) == 20_000
    assert found.names == sorted(found.names)
    assert peak < 16e6  # names, not entries of directories or facts about files


def test_a_list_keeps_its_order_and_names(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_bytes(b"b.jpg\r\n\nsub/../a b.jpg\n\xff.jpg")
    found = read_list(tmp_path / "list.txt", None)
    assert found.names == ["b.jpg", "sub/../a b.jpg", "\udcff.jpg"]
    (tmp_path / "list.txt").write_bytes(b"line\nbreak.jpg\0b.jpg\0")
    assert read_list(tmp_path / "list.txt", None, null=True).names == ["line\nbreak.jpg", "b.jpg"]
    with pytest.raises(DataError, match="NUL"):
        read_list(tmp_path / "list.txt", None)


@pytest.mark.parametrize(
    "entry", ["../secret.jpg", "/etc/passwd", "sub/../../secret.jpg", "link/x"]
)
def test_a_list_that_leads_elsewhere_is_refused(tmp_path: Path, entry: str) -> None:
    place = tmp_path / "lists"
    place.mkdir()
    (place / "link").symlink_to(tmp_path)
    (place / "list.txt").write_text(f"fine.jpg\n{entry}\n")
    with pytest.raises(DataError, match=r"entry 2: .* lies outside .*--root.*--allow-outside"):
        read_list(place / "list.txt", None)
    assert len(read_list(place / "list.txt", None, outside=True).names) == 2


def test_root_widens_a_list_on_purpose(tmp_path: Path) -> None:
    touch(tmp_path / "data" / "a.jpg")
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "list.txt").write_text(f"{tmp_path}/data/a.jpg\na.jpg\n")
    found = read_list(tmp_path / "lists" / "list.txt", tmp_path / "data")
    assert all(os.path.samefile(found.path(n), tmp_path / "data" / "a.jpg") for n in found.names)


def test_an_image_is_not_a_list(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(DataError, match="is an image, not a list"):
        read_list(tmp_path / "a.png", None)


def test_paths_as_they_arrive() -> None:
    number, writer = os.pipe()
    stop = threading.Event()
    with os.fdopen(number, "rb") as stream:
        found = read_entries(stream, stop)
        os.write(writer, b"a.jpg\nb")
        assert next(found) == b"a.jpg"  # without waiting for the end
        os.write(writer, b".jpg\nc.jpg")
        assert next(found) == b"b.jpg"
        os.close(writer)
        assert list(found) == [b"c.jpg"]


def test_waiting_for_paths_can_be_ended() -> None:
    number, writer = os.pipe()
    stop = threading.Event()
    seen: list[bytes] = []
    with os.fdopen(number, "rb") as stream:
        thread = threading.Thread(target=lambda: seen.extend(read_entries(stream, stop)))
        thread.start()
        stop.set()
        thread.join(30)
        assert not thread.is_alive()
    os.close(writer)
    assert seen == []
    assert list(read_entries(io.BytesIO(b"x\0y"), threading.Event(), b"\0")) == [b"x", b"y"]


def test_entries_are_numbered_as_in_the_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the list, entry 3"):
        list(checked([b"a", b"", b"../b"], str(tmp_path), False, False, "the list"))
