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


def touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    odd = ["größe 猫.jpg", "line\nbreak.jpg", 'quote".jpg', "comma,.jpg", "\udcff.jpg"]
    images = ["a.jpg", "b/2.PNG", "b/deep/1.gif", "folder.jpg/c.webp", *odd]
    touch(tmp_path, *images, "notes.txt", ".hidden.jpg", ".git/x.jpg")
    found = list_folder(tmp_path)
    assert found.names == sorted(images)
    assert (found.ignored, found.links) == (1, 0)
    assert found.folders == {"", "b", "b/deep", "folder.jpg"}
    assert os.path.samefile(found.path("b/2.PNG"), tmp_path / "b" / "2.PNG")
    with pytest.raises(DataError, match="there is no folder"):
        list_folder(tmp_path / "absent")

    def refuse(path: str) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DataError, match=r"cannot list .*Permission denied"):
        list_folder(tmp_path)


def test_links_end_and_stay_inside(tmp_path: Path) -> None:
    inner, outer = tmp_path / "in", tmp_path / "out"
    touch(tmp_path, "in/a.jpg", "out/b.jpg", "out/c.jpg")
    for link, target in {
        inner / "loop": inner,
        inner / "self": inner / "self",
        inner / "dead.jpg": inner / "nothing.jpg",
        inner / "same.jpg": inner / "a.jpg",
        inner / "elsewhere": outer,
        inner / "one.jpg": outer / "b.jpg",
        outer / "back": inner,
        outer / "up": tmp_path,
    }.items():
        link.symlink_to(target)
    found = list_folder(inner)
    assert found.names == ["a.jpg", "dead.jpg", "same.jpg"]
    assert found.links == 2
    followed = list_folder(inner, outside=True).names
    assert {"elsewhere/b.jpg", "elsewhere/c.jpg", "one.jpg"} < set(followed)
    assert sum(name.endswith("c.jpg") for name in followed) == 1  # no folder twice


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
    file = tmp_path / "list.txt"
    file.write_bytes(b"b.jpg\r\n\nsub/../a b.jpg\n\xff.jpg")
    assert read_list(file, None).names == ["b.jpg", "sub/../a b.jpg", "\udcff.jpg"]
    file.write_bytes(b"line\nbreak.jpg\0b.jpg\0")
    assert read_list(file, None, null=True).names == ["line\nbreak.jpg", "b.jpg"]
    with pytest.raises(DataError, match=r"NUL.*\(adapt: --null\)"):
        read_list(file, None)
    file.write_bytes("\ufeffa.jpg\nb.jpg\n".encode())  # as some editors begin a file
    assert read_list(file, None).names == ["a.jpg", "b.jpg"]
    file.write_bytes("\ufeffa.jpg\0".encode())
    assert read_list(file, None, null=True).names == ["\ufeffa.jpg"]
    for encoding in ("utf-16-le", "utf-16-be"):
        file.write_bytes("\ufeffa.jpg\r\nb.jpg\r\n".encode(encoding))
        with pytest.raises(DataError, match=r"is UTF-16 text.* write it as UTF-8"):
            read_list(file, None)
    file.write_text("BMW/1.jpg\n")
    assert read_list(file, None).names == ["BMW/1.jpg"]
    file.write_bytes(b"\x89PNG\r\n\x1a\n")
    with pytest.raises(DataError, match="is an image, not a list"):
        read_list(file.rename(tmp_path / "a.png"), None)


@pytest.mark.parametrize(
    "entry", ["../secret.jpg", "/etc/passwd", "sub/../../secret.jpg", "link/x"]
)
def test_a_list_that_leads_elsewhere_is_refused(tmp_path: Path, entry: str) -> None:
    place = tmp_path / "lists"
    place.mkdir()
    (place / "link").symlink_to(tmp_path)
    (place / "list.txt").write_text(f"fine.jpg\n\n{entry}\n")
    with pytest.raises(DataError, match=r"entry 3: .* lies outside .*--root.*\(adapt: --allow-"):
        read_list(place / "list.txt", None)
    with pytest.raises(DataError, match="the list, entry 3"):  # as paths that come one by one
        list(checked([b"a", b"", entry.encode()], str(place), False, False, "the list"))
    assert len(read_list(place / "list.txt", None, outside=True).names) == 2
    # --root widens a list on purpose
    touch(tmp_path, "data/a.jpg")
    (place / "list.txt").write_text(f"{tmp_path}/data/a.jpg\na.jpg\n")
    found = read_list(place / "list.txt", tmp_path / "data")
    assert all(os.path.samefile(found.path(n), tmp_path / "data" / "a.jpg") for n in found.names)


def test_paths_as_they_arrive() -> None:
    number, writer = os.pipe()
    with os.fdopen(number, "rb") as stream:
        found = read_entries(stream, threading.Event())
        os.write(writer, b"a.jpg\nb")
        assert next(found) == b"a.jpg"  # without waiting for the end
        os.write(writer, b".jpg\nc.jpg")
        assert next(found) == b"b.jpg"
        os.close(writer)
        assert list(found) == [b"c.jpg"]
    assert list(read_entries(io.BytesIO(b"x\0y"), threading.Event(), b"\0")) == [b"x", b"y"]


def test_waiting_for_paths_can_be_ended() -> None:
    number, writer = os.pipe()
    stop, seen = threading.Event(), list[bytes]()
    with os.fdopen(number, "rb") as stream:
        thread = threading.Thread(target=lambda: seen.extend(read_entries(stream, stop)))
        thread.start()
        stop.set()
        thread.join(30)
        assert not thread.is_alive()
    os.close(writer)
    assert seen == []
