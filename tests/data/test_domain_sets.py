"""Domain folders: what is there, what is missing, what does not match."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from fretta.corruptions import corrupt
from fretta.data import list_datasets, open_dataset
from fretta.data.domainsets import DOMAIN_SETS, OFFICEHOME_CLASSES
from fretta.data.folders import locate
from fretta.errors import ConfigError, DataError, FrettaWarning

Tree = Callable[..., Path]


def refused(
    message: str,
    name: str,
    root: Path | None,
    error: type[Exception] = DataError,
    **options: Any,
) -> None:
    with pytest.raises(error, match=message):
        open_dataset(name, root, **options)


def test_facts_add_up() -> None:
    totals = {name: sum(facts.counts.values()) for name, facts in DOMAIN_SETS.items()}
    assert totals == {"pacs": 9991, "officehome": 15588, "vlcs": 10729, "domainnet": 586575}
    for facts in DOMAIN_SETS.values():
        if facts.classes is not None:
            assert list(facts.classes) == sorted(facts.classes)
            assert len(facts.classes) == facts.class_count


def test_pacs(pacs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (pacs / "PACS" / "__MACOSX" / "photo").mkdir(parents=True)  # clutter is ignored
    for name in (".DS_Store", "dog/Thumbs.db", "dog/._000.png"):
        (pacs / "PACS" / "photo" / name).write_text("")
    for root in (pacs, pacs / "PACS", str(pacs)):
        opened = open_dataset("pacs", root, size=20, verify="off")
        assert opened.names == ["cartoon", "photo"]
        assert opened.missing == ("art_painting", "sketch")
    monkeypatch.setenv("FRETTA_DATA", str(pacs))
    photo = open_dataset("PACS", size=20, verify="off").domain("photo")
    assert len(photo) == 14
    assert photo.labels.tolist() == [c for c in range(7) for _ in range(2)]
    assert photo.paths is not None
    assert photo.paths[3].endswith("PACS/photo/elephant/001.png")
    pixels = photo.read([3, 0])
    assert pixels.shape == (2, 20, 20, 3)
    assert pixels[:, 5, 5].tolist() == [[0, 20, 1], [0, 0, 0]]
    part = photo.subset([5, 3])
    assert part.labels.tolist() == [2, 1]
    assert (part.read([1]) == photo.read([3])).all()
    assert photo.read([]).shape[0] == 0
    for wrong in ([14], [-1], [[0]], [0.5]):
        with pytest.raises(ConfigError):
            photo.read(wrong)


def test_counts_and_domains(pacs: Path) -> None:
    with pytest.warns(FrettaWarning, match=r"cartoon 14 \(known: 2,344\), photo 14"):
        open_dataset("pacs", pacs)
    assert open_dataset("pacs", pacs, domains="photo", verify="off").names == ["photo"]
    refused("known number of images", "pacs", pacs, verify="error")
    refused("verify='maybe'", "pacs", pacs, ConfigError, verify="maybe")
    missing = r"domain sketch is missing: no folder .*PACS"
    refused(missing, "pacs", pacs, domains=["photo", "sketch"])
    known = "no domain 'clipart'; it has art_painting, cartoon"
    refused(known, "pacs", pacs, ConfigError, domains=["clipart"])
    refused("empty list of domains", "pacs", pacs, ConfigError, domains=[])


def test_wrong_names_roots_and_options(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "empty").mkdir()
    refused("does not exist", "pacs", tmp_path / "gone")
    refused("is not a folder", "pacs", tmp_path / "file")
    refused("FRETTA_DATA", "pacs", None)
    looked = rf"VLCS was not found: .*Caltech101.* looked for in {tmp_path / 'empty' / 'VLCS'}"
    refused(looked, "vlcs", tmp_path / "empty")
    refused(r"unknown data set 'mnist'; known: pacs, officehome", "mnist", None, ConfigError)
    known = "pacs has no option 'split'; it has domains"
    refused(known, "pacs", tmp_path, ConfigError, split="test")
    assert {"pacs", "digits", "cifar100c-lt", "folder"} <= set(list_datasets())
    for name in ("imagenet", "imagenet-c"):  # the listed order decides
        (tmp_path / name).mkdir()
    found = locate(tmp_path, "x", ("ImageNet-C", "imagenet"), lambda folder: True, "y")
    assert found == tmp_path / "imagenet-c"


@pytest.mark.parametrize("spelling", ["Real World", "RealWorld", "real_world"])
def test_officehome_spellings(tmp_path: Path, tree: Tree, spelling: str) -> None:
    tree(tmp_path / "office_home", {spelling: dict.fromkeys(OFFICEHOME_CLASSES, 1)})
    opened = open_dataset("officehome", tmp_path, domains=["RealWorld"], size=8, verify="off")
    assert opened.names == ["Real World"]
    assert opened.classes == list(OFFICEHOME_CLASSES)
    # Labels follow the sorted list whatever order the disk gives the folders in.
    assert opened.domains[0].labels.tolist() == list(range(65))


def test_domainnet_counts_its_classes(tmp_path: Path, tree: Tree) -> None:
    classes = {f"class{i:03}": int(i < 3) for i in range(345)}
    tree(tmp_path / "domain_net", {"real": classes, "sketch": classes})
    opened = open_dataset("domainnet", tmp_path, verify="off")
    assert (len(opened.classes), opened.names) == (345, ["real", "sketch"])
    (tmp_path / "domain_net" / "real" / "class000" / "000.png").unlink()
    (tmp_path / "domain_net" / "real" / "class000").rmdir()
    refused(r"class names do not match.*class000", "domainnet", tmp_path, verify="off")
    refused(r"345 classes, but .* has 344", "domainnet", tmp_path, domains="real")


def test_folders_that_cannot_be_right(pacs: Path) -> None:
    photo = pacs / "PACS" / "photo"
    os.rename(photo / "house", photo / "hut")
    refused(r"'photo' in .*PACS lacks house and has hut as well", "pacs", pacs)
    assert open_dataset("pacs", pacs, domains="cartoon", verify="off").names == ["cartoon"]
    os.rename(photo / "hut", photo / "house")
    (photo / "Dog").mkdir()
    refused("two folders for one class, 'Dog' and 'dog'", "pacs", pacs)
    (photo / "Dog").rmdir()
    (pacs / "PACS" / "Photo").mkdir()
    refused("two folders for domain 'photo'", "pacs", pacs)
    (pacs / "PACS" / "Photo").rmdir()
    for image in photo.glob("*/*.png"):
        image.unlink()
    refused(r"domain 'photo' is empty: .* \(7 class folders", "pacs", pacs)


def test_folder(tmp_path: Path, tree: Tree) -> None:
    tree(tmp_path / "a", {"": {"cat": 2, "dog": 1}})
    one = open_dataset("folder", tmp_path / "a", size=8)
    assert (one.names, one.classes, len(one.domains[0])) == (["clean"], ["cat", "dog"], 3)
    model = open_dataset("folder", tmp_path / "a", classes=["ant", "dog", "cat"])
    assert model.classes == ["ant", "dog", "cat"]
    assert model.domains[0].labels.tolist() == [2, 2, 1]
    refused("has cat as well", "folder", tmp_path / "a", classes=["ant", "dog"])
    refused("one domain, 'clean'", "folder", tmp_path / "a", ConfigError, domains=["cat"])
    tree(tmp_path / "b", {"day": {"cat": 1, "dog": 1}, "night": {"cat": 0, "dog": 2}})
    two = open_dataset("folder", tmp_path, path="b", size=8)
    assert two.names == ["day", "night"]
    assert two.domain("night").labels.tolist() == [1, 1]
    assert open_dataset("folder", tmp_path / "b", domains="night").names == ["night"]
    refused("no domain 'dusk'", "folder", tmp_path / "b", domains=["dusk"])
    # A class may have folders inside: layout='classes' decides.
    tree(tmp_path / "b", {"": {"day": 1}})
    refused("ambiguous: night hold folders and day hold images", "folder", tmp_path / "b")
    assert open_dataset("folder", tmp_path / "b", layout="classes").classes == ["day", "night"]


def test_folder_problems(tmp_path: Path, tree: Tree) -> None:
    refused("no class folder in", "folder", tmp_path)
    tree(tmp_path, {"": {"cat": 1, "dog": 0}})
    refused(r"no image of class dog .* would shift the labels", "folder", tmp_path)
    tree(tmp_path / "x", {"a": {"cat": 1, "dog": 1}, "b": {"cat": 1, "Dog": 1}})
    refused("lacks dog and has Dog as well", "folder", tmp_path, path="x")
    refused("layout='tree'", "folder", tmp_path, ConfigError, layout="tree")


def test_sizes_and_unreadable_images(tmp_path: Path, tree: Tree) -> None:
    tree(tmp_path, {"": {"cat": 3}})
    (tmp_path / "cat" / "001.png").write_bytes(b"nonsense")
    Image.new("RGB", (10, 10)).save(tmp_path / "cat" / "b.png")
    domain = open_dataset("folder", tmp_path, size=None).domains[0]
    with pytest.raises(DataError, match=r"b.png is 10×10 but .*000.png is 24×18.*size="):
        domain.read([0, 3])
    domain = open_dataset("folder", tmp_path, size=16).domains[0]
    assert domain.read([0, 3]).shape[1] == 16
    with pytest.raises(DataError, match=r"unreadable image .*001.png"):
        domain.read([0, 1, 2])
    images, kept, failures = domain.read_some([2, 1, 0])
    assert kept.tolist() == [0, 2]
    assert images[:, 0, 0, 2].tolist() == [2, 0]
    assert [f.path for f in failures] == [str(tmp_path / "cat" / "001.png")]


def test_imagenet_c(tmp_path: Path, tree: Tree) -> None:
    wnids = {"n01440764": 2, "n01443537": 1}
    tree(tmp_path / "ImageNet-C" / "fog", {"3": wnids, "5": wnids})
    tree(tmp_path / "ImageNet-C" / "weather" / "snow", {"5": wnids})  # as the archives unpack
    opened = open_dataset("imagenetc", tmp_path, domains=["snow", "fog"], size=8, verify="off")
    assert opened.names == ["snow", "fog"]
    assert [d.severity for d in opened.domains] == [5, 5]
    assert opened.domain("fog").labels.tolist() == [0, 0, 1]
    both = open_dataset("imagenetc", tmp_path, domains="fog", severity=[3, 5], verify="off")
    assert both.names == ["fog/3", "fog/5"]
    missing = r"frost at severity 5 is missing: no folder .*has fog, snow"
    refused(missing, "imagenetc", tmp_path, domains=["fog", "frost"])
    with pytest.warns(FrettaWarning, match="has 2; labels are positions"):
        open_dataset("imagenetc", tmp_path, domains="fog")
    (tmp_path / "ImageNet-C" / "fog" / "5" / "n9").mkdir()
    refused("class names do not match", "imagenetc", tmp_path, domains=["snow", "fog"])
    tree(tmp_path / "clean" / "imagenet-sample", {"": wnids})  # corrupted on the fly
    root = tmp_path / "clean"
    opened = open_dataset("imagenetc", root, domains="brightness", size=32, verify="off")
    clean = open_dataset("folder", root / "imagenet-sample", size=32, fit="crop").domains[0]
    assert opened.names == ["brightness"]
    assert opened.domains[0].labels.tolist() == [0, 0, 1]
    expected = corrupt(clean.read([2]), "brightness", 5, indices=[2])
    assert (opened.domains[0].read([2]) == expected).all()
    assert (expected != clean.read([2])).any()


@pytest.mark.slow
def test_listing_files_opens_none_of_them(tmp_path: Path) -> None:
    for c in range(345):
        (tmp_path / "real" / f"class{c:03}").mkdir(parents=True)
        for i in range(20):  # empty files: opening one as an image would fail
            (tmp_path / "real" / f"class{c:03}" / f"{i:04}.jpg").touch()
    opened = open_dataset("domainnet", tmp_path, verify="off")
    assert len(opened.domains[0]) == 6900
