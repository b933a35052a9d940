"""CIFAR-C arrays, clean CIFAR as a data set, long tails, corruptions made on the fly."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fretta.corruptions import corrupt
from fretta.data import CORRUPTIONS, Dataset, corrupt_folder, open_dataset, with_corruptions
from fretta.errors import ConfigError, DataError, FrettaWarning


def opened(name: str, root: Path, **options: Any) -> Dataset:
    return open_dataset(name, root, verify="off", **options)


def refused(message: str, root: Path, error: type[Exception] = DataError, **options: Any) -> None:
    with pytest.raises(error, match=message):
        opened(options.pop("name", "cifar10c"), root, **options)


def test_severities_and_domains(cifar10c: Path) -> None:
    for severity in range(1, 6):
        dataset = opened("cifar10c", cifar10c, severity=severity)
        assert dataset.names == list(CORRUPTIONS)
        fog = dataset.domain("fog")
        assert (fog.severity, fog.corruption, len(fog)) == (severity, "fog", 20)
        assert fog.read([7, 0])[:, 3, 3, 1].tolist() == [40 * severity + 7, 40 * severity]
        assert fog.labels.tolist() == [i % 10 for i in range(20)]
    pixels = fog.read([0])
    pixels[:] = 0  # a copy that may be written to
    assert fog.read([0]).min() == 200
    folder = cifar10c / "CIFAR-10-C"
    dataset = opened("CIFAR-10-C", folder, domains=["snow", "fog"], severity=[5, 1])
    assert dataset.names == ["snow/5", "snow/1", "fog/5", "fog/1"]
    assert dataset.domain("fog/1").read([2])[0, 0, 0, 0] == 42
    large = opened("cifar10c", cifar10c, domains="fog", size=64)
    assert large.domains[0].read([1]).shape == (1, 64, 64, 3)
    for wrong in (0, 6, 2.5, [], [1, 1], True, "5"):
        refused("severity=", cifar10c, ConfigError, severity=wrong)
    refused("unknown corruption 'rain'", cifar10c, ConfigError, domains=["rain"])
    with pytest.warns(FrettaWarning, match="20 images per severity, not 10,000"):
        open_dataset("cifar10c", cifar10c, domains="fog")


def test_missing_and_damaged_arrays(cifar10c: Path) -> None:
    folder = cifar10c / "CIFAR-10-C"
    path, wanted = folder / "fog.npy", cifar10c / "CIFAR-100-C"
    refused(rf"CIFAR-100-C was not found: .*{wanted}.*corruption='all'", cifar10c, name="cifar100c")
    content, images = path.read_bytes(), np.load(path)
    for keep in (0, 5, 100, 128, 5000, -1):
        path.write_bytes(content[:keep])
        refused(r"fog.npy \([\d,]+ bytes\) is truncated or is no .npy", cifar10c)
    for wrong in (images.astype(np.float32), images[:50]):
        np.save(path, wrong)
        refused(r"uint8 \(100, 32, 32, 3\) is expected", cifar10c)
    np.save(path, np.array([{}]), allow_pickle=True)
    refused(r"no \.npy array", cifar10c)
    with path.open("wb") as file:
        np.savez(file, a=np.zeros(3))
    refused(r"is no \.npy array: it does not begin like one", cifar10c)
    images[:80] = 0
    np.save(path, images)
    assert opened("cifar10c", cifar10c, domains="fog").domain("fog").severity == 5
    black = r"severity 3 in .*fog.npy is black.* It holds 5;"
    refused(black, cifar10c, severity=[3, 5], domains="fog")
    (folder / "frost.npy").unlink()
    refused(r"frost.npy is missing; there are bright", cifar10c)


def test_labels_are_checked(cifar10c: Path) -> None:
    path = cifar10c / "CIFAR-10-C" / "labels.npy"
    for labels, message in (
        (np.tile(np.arange(20), 5), "labels 0 to 19; 0 to 9 is expected"),
        (np.zeros((10, 2)), "a list of integers is expected"),
        (np.arange(100) // 10, "labels of the five severities differ"),
        (np.zeros(60, int), r"has 60 labels, but .*noise.npy has 100 images"),
    ):
        np.save(path, labels)
        refused(message, cifar10c)
    # One block instead of five is accepted, also where it repeats itself.
    np.save(path, np.arange(20) % 2)
    assert opened("cifar10c", cifar10c).domains[0].labels.tolist() == [0, 1] * 10


def test_clean_cifar(cifar10: Path) -> None:
    dataset = opened("cifar10", cifar10)
    assert (dataset.names, dataset.classes[3]) == (["clean"], "cat")
    assert dataset.domains[0].read([39, 4])[:, 0, 0, 0].tolist() == [39, 4]
    with pytest.warns(FrettaWarning, match=r"train in .* has 20 of 50,000 images \(data_batch_1\)"):
        open_dataset("cifar10", cifar10, split="train")
    refused("split='val'", cifar10, ConfigError, name="cifar10", split="val")
    refused("CIFAR-100 was not found", cifar10, name="cifar100")
    folder = cifar10 / "cifar-10-batches-py"
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": ["a", "b"]}))
    refused("names 2 classes and the labels go up to 9", cifar10, name="cifar10")
    (folder / "test_batch").unlink()
    refused(r"no test batch of CIFAR-10 in .*cifar-10-batches-py", cifar10, name="cifar10")


def test_corruption_on_the_fly(cifar10: Path, tmp_path: Path) -> None:
    clean = opened("cifar10", cifar10)
    images = clean.domains[0].read(np.arange(40))
    shift = {"corruption": ["gaussian_noise", "fog"], "severity": 3}
    dataset = opened("cifar10", cifar10, **shift)
    assert dataset.names == ["gaussian_noise", "fog"]
    noise = dataset.domain("gaussian_noise")
    pixels = noise.read(np.arange(40))
    assert (pixels == corrupt(images, "gaussian_noise", 3, seed=0)).all()
    assert (noise.read([31, 2]) == pixels[[31, 2]]).all()  # whatever the batch
    assert (noise.subset([31, 2]).read([0]) == pixels[[31]]).all()
    other = opened("cifar10", cifar10, **shift, corruption_seed=1)
    assert (other.domains[0].read([2]) != pixels[[2]]).any()
    # the same as written to disk
    corrupt_folder(cifar10 / "cifar-10-batches-py", tmp_path / "CIFAR-10-C", "gaussian_noise", 3)
    written = opened("cifar10c", tmp_path, domains="gaussian_noise", severity=3).domains[0]
    assert (written.read(np.arange(40)) == pixels).all()
    assert (written.labels == noise.labels).all()
    # each with its own strength
    strengths = {"fog": 2, "contrast": (3, "imagenet")}
    shifted = with_corruptions(clean, ["fog", "contrast", "snow"], strengths)
    found = [(d.severity, d.constants) for d in shifted.domains]
    assert found == [(2, None), (3, "imagenet"), (5, None)]
    expected = corrupt(images[[5]], "contrast", 3, indices=[5], constants="imagenet")
    assert (shifted.domain("contrast").read([5]) == expected).all()


def test_corruption_options(cifar10: Path, pacs: Path) -> None:
    assert opened("cifar10", cifar10, corruption="all").names == list(CORRUPTIONS)
    assert opened("cifar10", cifar10, corruption="extra").names[0] == "speckle_noise"
    several = opened("cifar10", cifar10, corruption="fog", severity=[1, 2.5])
    assert several.names == ["fog/1", "fog/2.5"]
    several = opened("pacs", pacs, size=32, corruption="fog")
    assert several.names == ["cartoon/fog", "photo/fog"]
    options: dict[str, Any]
    for options, message in (
        ({"severity": 3}, "severity says how to corrupt cifar10"),
        ({"corruption": "fog", "constants": "large"}, "constants='large'"),
        ({"corruption": ["rain"]}, "unknown corruption 'rain'"),
        ({"corruption": "fog", "severity": {"fgo": 3}}, "unknown corruption 'fgo'"),
        ({"corruption": "fog", "severity": {"fog": [1, 2, 3]}}, r"'fog': \[1, 2, 3\].* has one"),
        ({"corruption": "fog", "severity": {"fog": [1, 3]}}, r"'fog': \[1, 3\].* has one"),
        ({"corruption": "fog", "corruption_seed": "x"}, "corruption_seed='x'"),
        ({"corruption": "fog", "corruption_seed": True}, "corruption_seed=True"),
    ):
        refused(message, cifar10, ConfigError, name="cifar10", **options)


@pytest.mark.parametrize(
    ("name", "classes", "imbalance", "images"),
    [
        ("cifar100c-lt", 100, 10, 3876),  # the published sizes
        ("cifar100c-lt", 100, 100, 2131),
        ("cifar10c-lt", 10, 50.0, sum(int(1000 * 50 ** (-c / 9)) for c in range(10))),
    ],
)
def test_long_tails(tmp_path: Path, name: str, classes: int, imbalance: float, images: int) -> None:
    folder = tmp_path / f"CIFAR-{classes}-C"  # full size, with one sparse array
    folder.mkdir()
    np.save(folder / "labels.npy", np.tile(np.arange(10000) % classes, 5))
    array = np.lib.format.open_memmap(folder / "fog.npy", "w+", np.uint8, (50000, 32, 32, 3))
    array[-1] = 1
    dataset = open_dataset(name, tmp_path, imbalance=imbalance, domains="fog")
    counts = np.bincount(dataset.domains[0].labels, minlength=classes)
    largest = 10000 // classes
    assert (counts.sum(), counts[0], counts[-1]) == (images, largest, int(largest / imbalance))
    assert (np.diff(counts) <= 0).all()
    with pytest.raises(ConfigError, match=r"imbalance=0\.5"):
        open_dataset(name, tmp_path, imbalance=0.5, domains="fog")
