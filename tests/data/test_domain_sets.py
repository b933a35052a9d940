"""Domain folders: what is there, what is missing, what does not match."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from fretta.corruptions import corrupt
from fretta.data import list_datasets, open_dataset
from fretta.data.domainsets import DOMAIN_SETS, OFFICEHOME_CLASSES
from fretta.data.folders import locate
from fretta.errors import ConfigError, DataError, FrettaWarning

Tree = Callable[..., Path]


def test_facts_add_up() -> None:
    totals = {name: sum(facts.counts.values()) for name, facts in DOMAIN_SETS.items()}
    assert totals == {"pacs": 9991, "officehome": 15588, "vlcs": 10729, "domainnet": 586575}
    for facts in DOMAIN_SETS.values():
        if facts.classes is not None:
            assert list(facts.classes) == sorted(facts.classes)
            assert len(facts.classes) == facts.class_count


def test_pacs_from_its_parent_from_itself_and_from_the_environment(
    pacs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for root in (pacs, pacs / "PACS", str(pacs)):
        opened = open_dataset("pacs", root, size=20, verify="off")
        assert opened.names == ["cartoon", "photo"]
        assert opened.missing == ("art_painting", "sketch")
    monkeypatch.setenv("FRETTA_DATA", str(pacs))
    opened = open_dataset("PACS", size=20, verify="off")
    photo = opened.domain("photo")
    assert len(photo) == 14
    assert photo.labels.tolist() == [c for c in range(7) for _ in range(2)]
    assert photo.paths is not None
    assert photo.paths[3].endswith("PACS/photo/elephant/001.png")
    pixels = photo.read([3, 0])
    assert pixels.shape == (2, 20, 20, 3)
    assert pixels[:, 5, 5].tolist() == [[0, 20, 1], [0, 0, 0]]


def test_counts_and_missing_domains(pacs: Path) -> None:
    with pytest.warns(FrettaWarning, match=r"cartoon 14 \(known: 2,344\), photo 14"):
        open_dataset("pacs", pacs)
    with pytest.raises(DataError, match="known number of images"):
        open_dataset("pacs", pacs, verify="error")
    with pytest.raises(ConfigError, match="verify='maybe'"):
        open_dataset("pacs", pacs, verify="maybe")
    assert open_dataset("pacs", pacs, domains="photo", verify="off").names == ["photo"]
    with pytest.raises(DataError, match=r"domain sketch is missing: no folder .*PACS"):
        open_dataset("pacs", pacs, domains=["photo", "sketch"])
    with pytest.raises(ConfigError, match="no domain 'clipart'; it has art_painting, cartoon"):
        open_dataset("pacs", pacs, domains=["clipart"])
    with pytest.raises(ConfigError, match="empty list of domains"):
        open_dataset("pacs", pacs, domains=[])


def test_wrong_root(tmp_path: Path, pacs: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        open_dataset("pacs", tmp_path / "gone")
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="is not a folder"):
        open_dataset("pacs", tmp_path / "file")
    with pytest.raises(DataError, match=r"FRETTA_DATA"):
        open_dataset("pacs")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"VLCS was not found: .*Caltech101.* looked for in") as e:
        open_dataset("vlcs", tmp_path / "empty")
    assert str(tmp_path / "empty" / "VLCS") in str(e.value)


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
    assert len(opened.classes) == 345
    assert opened.names == ["real", "sketch"]
    (tmp_path / "domain_net" / "real" / "class000" / "000.png").unlink()
    (tmp_path / "domain_net" / "real" / "class000").rmdir()
    with pytest.raises(DataError, match=r"class names do not match.*class000"):
        open_dataset("domainnet", tmp_path, verify="off")
    with pytest.raises(DataError, match=r"345 classes, but .* has 344"):
        open_dataset("domainnet", tmp_path, domains="real", verify="off")


def test_folders_that_cannot_be_right(pacs: Path) -> None:
    photo = pacs / "PACS" / "photo"

    def refused(message: str) -> None:
        with pytest.raises(DataError, match=message):
            open_dataset("pacs", pacs, verify="off")

    os.rename(photo / "house", photo / "hut")
    refused(r"'photo' in .*PACS lacks house and has hut as well")
    assert open_dataset("pacs", pacs, domains="cartoon", verify="off").names == ["cartoon"]
    os.rename(photo / "hut", photo / "house")
    (photo / "Dog").mkdir()
    refused("two folders for one class, 'Dog' and 'dog'")
    (photo / "Dog").rmdir()
    (pacs / "PACS" / "Photo").mkdir()
    refused("two folders for domain 'photo'")
    (pacs / "PACS" / "Photo").rmdir()
    for image in photo.glob("*/*.png"):
        image.unlink()
    refused(r"domain 'photo' is empty: .* \(7 class folders")


def test_clutter_is_ignored(pacs: Path) -> None:
    (pacs / "PACS" / "__MACOSX" / "photo").mkdir(parents=True)
    for name in (".DS_Store", "dog/Thumbs.db", "dog/._000.png"):
        (pacs / "PACS" / "photo" / name).write_text("")
    assert len(open_dataset("pacs", pacs, verify="off").domain("photo")) == 14


def test_folder_of_classes_and_of_domains(tmp_path: Path, tree: Tree) -> None:
    tree(tmp_path / "a", {"": {"cat": 2, "dog": 1}})
    one = open_dataset("folder", tmp_path / "a", size=8)
    assert (one.names, one.classes, len(one.domains[0])) == (["clean"], ["cat", "dog"], 3)
    tree(tmp_path / "b", {"day": {"cat": 1, "dog": 1}, "night": {"cat": 0, "dog": 2}})
    two = open_dataset("folder", tmp_path, path="b", size=8)
    assert two.names == ["day", "night"]
    assert two.domain("night").labels.tolist() == [1, 1]
    assert open_dataset("folder", tmp_path / "b", domains="night").names == ["night"]
    with pytest.raises(DataError, match="no domain 'dusk'"):
        open_dataset("folder", tmp_path / "b", domains=["dusk"])
    with pytest.raises(ConfigError, match="one domain, 'clean'"):
        open_dataset("folder", tmp_path / "a", domains=["cat"])
    # A class may have folders inside: layout='classes' decides.
    tree(tmp_path / "b", {"": {"day": 1}})
    with pytest.raises(DataError, match="ambiguous: night hold folders and day hold images"):
        open_dataset("folder", tmp_path / "b")
    assert open_dataset("folder", tmp_path / "b", layout="classes").classes == ["day", "night"]


def test_folder_with_the_labels_of_a_model(tmp_path: Path, tree: Tree) -> None:
    tree(tmp_path, {"": {"cat": 1, "dog": 1}})
    opened = open_dataset("folder", tmp_path, classes=["ant", "dog", "cat"])
    assert opened.classes == ["ant", "dog", "cat"]
    assert opened.domains[0].labels.tolist() == [2, 1]
    with pytest.raises(DataError, match="has cat as well"):
        open_dataset("folder", tmp_path, classes=["ant", "dog"])


def test_folder_problems(tmp_path: Path, tree: Tree) -> None:
    with pytest.raises(DataError, match="no class folder in"):
        open_dataset("folder", tmp_path)
    tree(tmp_path, {"": {"cat": 1, "dog": 0}})
    with pytest.raises(DataError, match=r"no image of class dog .* would shift the labels"):
        open_dataset("folder", tmp_path)
    tree(tmp_path / "x", {"a": {"cat": 1, "dog": 1}, "b": {"cat": 1, "Dog": 1}})
    with pytest.raises(DataError, match="lacks dog and has Dog as well"):
        open_dataset("folder", tmp_path, path="x")
    with pytest.raises(ConfigError, match="layout='tree'"):
        open_dataset("folder", tmp_path, layout="tree")


def test_images_of_different_sizes_need_a_size(tmp_path: Path, tree: Tree) -> None:
    from PIL import Image

    tree(tmp_path, {"": {"cat": 1}})
    Image.new("RGB", (10, 10)).save(tmp_path / "cat" / "b.png")
    domain = open_dataset("folder", tmp_path, size=None).domains[0]
    with pytest.raises(DataError, match=r"b.png is 10×10 but .*000.png is 24×18.*size="):
        domain.read([0, 1])
    assert open_dataset("folder", tmp_path, size=16).domains[0].read([0, 1]).shape[1] == 16


def test_unreadable_image_raises_or_is_left_out(tmp_path: Path, tree: Tree) -> None:
    tree(tmp_path, {"": {"cat": 3}})
    (tmp_path / "cat" / "001.png").write_bytes(b"nonsense")
    domain = open_dataset("folder", tmp_path, size=8).domains[0]
    with pytest.raises(DataError, match=r"unreadable image .*001.png"):
        domain.read([0, 1, 2])
    images, kept, failures = domain.read_some([2, 1, 0])
    assert kept.tolist() == [0, 2]
    assert images[:, 0, 0, 2].tolist() == [2, 0]
    assert [f.path for f in failures] == [str(tmp_path / "cat" / "001.png")]


def test_indices_are_checked_and_subsets_keep_identity(pacs: Path) -> None:
    domain = open_dataset("pacs", pacs, size=8, verify="off").domain("photo")
    for wrong in ([14], [-1], [[0]], [0.5]):
        with pytest.raises(ConfigError):
            domain.read(wrong)
    part = domain.subset([5, 3])
    assert part.labels.tolist() == [2, 1]
    assert (part.read([1]) == domain.read([3])).all()
    assert domain.read([]).shape[0] == 0


def test_unknown_names_and_options(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"unknown data set 'mnist'; known: pacs, officehome"):
        open_dataset("mnist")
    with pytest.raises(ConfigError, match="pacs has no option 'split'; it has domains"):
        open_dataset("pacs", tmp_path, split="test")
    assert {"pacs", "digits", "cifar100c-lt", "folder"} <= set(list_datasets())


def test_locate_prefers_the_listed_order(tmp_path: Path) -> None:
    for name in ("imagenet", "imagenet-c"):
        (tmp_path / name).mkdir()
    found = locate(tmp_path, "x", ("ImageNet-C", "imagenet"), lambda folder: True, "y")
    assert found == tmp_path / "imagenet-c"


def test_imagenet_c_layout(tmp_path: Path, tree: Tree) -> None:
    wnids = {"n01440764": 2, "n01443537": 1}
    tree(tmp_path / "ImageNet-C" / "fog", {"3": wnids, "5": wnids})
    tree(tmp_path / "ImageNet-C" / "weather" / "snow", {"5": wnids})  # as the archives unpack
    opened = open_dataset("imagenetc", tmp_path, domains=["snow", "fog"], size=8, verify="off")
    assert opened.names == ["snow", "fog"]
    assert [d.severity for d in opened.domains] == [5, 5]
    assert opened.domain("fog").labels.tolist() == [0, 0, 1]
    both = open_dataset("imagenetc", tmp_path, domains="fog", severity=[3, 5], verify="off")
    assert both.names == ["fog/3", "fog/5"]
    with pytest.raises(
        DataError, match=r"frost at severity 5 is missing: no folder .*has fog, snow"
    ):
        open_dataset("imagenetc", tmp_path, domains=["fog", "frost"])
    with pytest.warns(FrettaWarning, match="has 2; labels are positions"):
        open_dataset("imagenetc", tmp_path, domains="fog")
    (tmp_path / "ImageNet-C" / "fog" / "5" / "n9").mkdir()
    with pytest.raises(DataError, match="class names do not match"):
        open_dataset("imagenetc", tmp_path, domains=["snow", "fog"])


def test_imagenet_c_from_clean_images(tmp_path: Path, tree: Tree) -> None:
    tree(tmp_path / "imagenet-sample", {"": {"n01440764": 2, "n01443537": 1}})
    opened = open_dataset("imagenetc", tmp_path, domains="brightness", size=32, verify="off")
    clean = open_dataset("folder", tmp_path / "imagenet-sample", size=32, fit="crop")
    assert opened.names == ["brightness"]
    assert opened.domains[0].labels.tolist() == [0, 0, 1]
    expected = corrupt(clean.domains[0].read([2]), "brightness", 5, indices=[2])
    assert (opened.domains[0].read([2]) == expected).all()
    assert (expected != clean.domains[0].read([2])).any()
