"""CIFAR-C arrays, clean CIFAR as a data set, long tails, corruptions made on the fly."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from fretta.corruptions import corrupt
from fretta.data import CORRUPTIONS, corrupt_folder, open_dataset, with_corruptions
from fretta.errors import ConfigError, DataError, FrettaWarning


def test_severity_picks_its_block(cifar10c: Path) -> None:
    for severity in range(1, 6):
        opened = open_dataset("cifar10c", cifar10c, severity=severity, verify="off")
        assert opened.names == list(CORRUPTIONS)
        fog = opened.domain("fog")
        assert (fog.severity, fog.corruption, len(fog)) == (severity, "fog", 20)
        assert fog.read([7, 0])[:, 3, 3, 1].tolist() == [40 * severity + 7, 40 * severity]
        assert fog.labels.tolist() == [i % 10 for i in range(20)]


def test_several_severities_and_chosen_domains(cifar10c: Path) -> None:
    opened = open_dataset(
        "CIFAR-10-C",
        cifar10c / "CIFAR-10-C",
        domains=["snow", "fog"],
        severity=[5, 1],
        verify="off",
    )
    assert opened.names == ["snow/5", "snow/1", "fog/5", "fog/1"]
    assert opened.domain("fog/1").read([2])[0, 0, 0, 0] == 42
    large = open_dataset("cifar10c", cifar10c, domains="fog", size=64, verify="off")
    assert large.domains[0].read([1]).shape == (1, 64, 64, 3)
    for wrong in (0, 6, 2.5, [], [1, 1], True, "5"):
        with pytest.raises(ConfigError, match="severity="):
            open_dataset("cifar10c", cifar10c, severity=wrong)
    with pytest.raises(ConfigError, match="unknown corruption 'rain'"):
        open_dataset("cifar10c", cifar10c, domains=["rain"])


def test_images_are_writable_copies(cifar10c: Path) -> None:
    domain = open_dataset("cifar10c", cifar10c, domains="fog", verify="off").domains[0]
    pixels = domain.read([0])
    assert type(pixels) is np.ndarray
    pixels[:] = 0
    assert domain.read([0]).min() == 200


def test_block_size_is_verified(cifar10c: Path) -> None:
    with pytest.warns(FrettaWarning, match="20 images per severity, not 10,000"):
        open_dataset("cifar10c", cifar10c, domains="fog")


def test_missing_corruption_file(cifar10c: Path) -> None:
    (cifar10c / "CIFAR-10-C" / "frost.npy").unlink()
    with pytest.raises(DataError, match=r"corruption file .*frost.npy is missing; .* has bright"):
        open_dataset("cifar10c", cifar10c, verify="off")
    assert len(open_dataset("cifar10c", cifar10c, domains="fog", verify="off").domains) == 1


def test_severity_that_was_never_written(cifar10c: Path) -> None:
    path = cifar10c / "CIFAR-10-C" / "fog.npy"
    images = np.load(path)
    images[:80] = 0
    np.save(path, images)
    assert open_dataset("cifar10c", cifar10c, verify="off").domain("fog").severity == 5
    with pytest.raises(DataError, match=r"severity 3 in .*fog.npy is black.* It holds 5;"):
        open_dataset("cifar10c", cifar10c, severity=[3, 5], domains="fog", verify="off")


def test_what_fretta_corrupt_writes_can_be_opened(cifar10: Path, tmp_path: Path) -> None:
    source = cifar10 / "cifar-10-batches-py"
    corrupt_folder(source, tmp_path / "CIFAR-10-C", ["gaussian_noise"], 4)
    opened = open_dataset("cifar10c", tmp_path, domains="gaussian_noise", severity=4, verify="off")
    made = open_dataset("cifar10", cifar10, corruption="gaussian_noise", severity=4, verify="off")
    everything = np.arange(40)
    assert (opened.domains[0].read(everything) == made.domains[0].read(everything)).all()
    assert (opened.domains[0].labels == made.domains[0].labels).all()


def test_missing_folder_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"CIFAR-100-C was not found: .*corruption='all'") as error:
        open_dataset("cifar100c", tmp_path)
    assert str(tmp_path / "CIFAR-100-C") in str(error.value)


@pytest.mark.parametrize("keep", [0, 5, 100, 128, 5000, -1])
def test_truncated_array(cifar10c: Path, keep: int) -> None:
    path = cifar10c / "CIFAR-10-C" / "fog.npy"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(DataError, match=r"fog.npy \([\d,]+ bytes\) is truncated or is no .npy"):
        open_dataset("cifar10c", cifar10c, verify="off")


def test_array_of_the_wrong_kind(cifar10c: Path) -> None:
    folder = cifar10c / "CIFAR-10-C"
    for wrong in (np.zeros((100, 32, 32, 3), np.float32), np.zeros((50, 32, 32, 3), np.uint8)):
        np.save(folder / "fog.npy", wrong)
        with pytest.raises(DataError, match=r"uint8 \(100, 32, 32, 3\) is expected"):
            open_dataset("cifar10c", cifar10c, verify="off")
    np.save(folder / "fog.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(DataError, match=r"no \.npy array"):
        open_dataset("cifar10c", cifar10c, verify="off")
    with (folder / "fog.npy").open("wb") as file:
        np.savez(file, a=np.zeros(3))
    with pytest.raises(DataError, match=r"is no \.npy array: it does not begin like one"):
        open_dataset("cifar10c", cifar10c, verify="off")


def test_labels_are_checked(cifar10c: Path) -> None:
    path = cifar10c / "CIFAR-10-C" / "labels.npy"
    np.save(path, np.tile(np.arange(20), 5))
    with pytest.raises(DataError, match="labels 0 to 19; 0 to 9 is expected"):
        open_dataset("cifar10c", cifar10c, verify="off")
    np.save(path, np.zeros((10, 2)))
    with pytest.raises(DataError, match="a list of integers is expected"):
        open_dataset("cifar10c", cifar10c, verify="off")
    np.save(path, np.arange(100) // 10)
    with pytest.raises(DataError, match="labels of the five severities differ"):
        open_dataset("cifar10c", cifar10c, verify="off")
    np.save(path, np.zeros(60, int))
    with pytest.raises(DataError, match=r"has 60 labels, but .*noise.npy has 100 images"):
        open_dataset("cifar10c", cifar10c, verify="off")
    # One block instead of five is understood, also where it repeats itself.
    np.save(path, np.arange(20) % 2)
    opened = open_dataset("cifar10c", cifar10c, verify="off")
    assert opened.domains[0].labels.tolist() == [0, 1] * 10


def test_clean_cifar(cifar10: Path) -> None:
    opened = open_dataset("cifar10", cifar10, verify="off")
    assert opened.names == ["clean"]
    assert opened.classes[3] == "cat"
    assert opened.domains[0].read([39, 4])[:, 0, 0, 0].tolist() == [39, 4]
    with pytest.warns(FrettaWarning, match=r"train in .* has 20 of 50,000 images \(data_batch_1\)"):
        open_dataset("cifar10", cifar10, split="train")
    with pytest.raises(ConfigError, match="split='val'"):
        open_dataset("cifar10", cifar10, split="val")
    with pytest.raises(DataError, match="CIFAR-100 was not found"):
        open_dataset("cifar100", cifar10)


def test_clean_cifar_problems(cifar10: Path) -> None:
    folder = cifar10 / "cifar-10-batches-py"
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": ["a", "b"]}))
    with pytest.raises(DataError, match="names 2 classes and the labels go up to 9"):
        open_dataset("cifar10", cifar10, verify="off")
    (folder / "test_batch").unlink()
    with pytest.raises(DataError, match=r"no test batch of CIFAR-10 in .*cifar-10-batches-py"):
        open_dataset("cifar10", cifar10)


def test_corruption_on_the_fly_does_not_depend_on_the_batch(cifar10: Path) -> None:
    clean = open_dataset("cifar10", cifar10, verify="off").domains[0].read(np.arange(40))
    opened = open_dataset(
        "cifar10", cifar10, corruption=["gaussian_noise", "fog"], severity=3, verify="off"
    )
    assert opened.names == ["gaussian_noise", "fog"]
    noise = opened.domain("gaussian_noise")
    whole = noise.read(np.arange(40))
    assert (whole == corrupt(clean, "gaussian_noise", 3, seed=0)).all()
    assert (noise.read([31, 2]) == whole[[31, 2]]).all()
    assert (noise.subset([31, 2]).read([0]) == whole[[31]]).all()
    other = open_dataset(
        "cifar10", cifar10, corruption="gaussian_noise", severity=3, corruption_seed=1, verify="off"
    )
    assert (other.domains[0].read([2]) != whole[[2]]).any()


def test_corruption_options(cifar10: Path) -> None:
    def names(**options: object) -> list[str]:
        return open_dataset("cifar10", cifar10, verify="off", **options).names

    assert names(corruption="all") == list(CORRUPTIONS)
    assert names(corruption="extra")[0] == "speckle_noise"
    assert names(corruption="fog", severity=[1, 2.5]) == ["fog/1", "fog/2.5"]
    with pytest.raises(ConfigError, match="severity says how to corrupt cifar10"):
        names(severity=3)
    with pytest.raises(ConfigError, match="constants='large'"):
        names(corruption="fog", constants="large")
    with pytest.raises(ConfigError, match="unknown corruption 'rain'"):
        names(corruption=["rain"])


def test_each_corruption_can_have_its_own_strength(cifar10: Path) -> None:
    clean = open_dataset("cifar10", cifar10, verify="off")
    shifted = with_corruptions(
        clean, ["fog", "contrast", "snow"], {"fog": 2, "contrast": (3, "imagenet")}
    )
    strengths = [(d.severity, d.constants) for d in shifted.domains]
    assert strengths == [(2, None), (3, "imagenet"), (5, None)]
    pixels = clean.domains[0].read([5])
    expected = corrupt(pixels, "contrast", 3, indices=[5], constants="imagenet")
    assert (shifted.domain("contrast").read([5]) == expected).all()


def test_several_clean_domains_get_prefixes(pacs: Path) -> None:
    opened = open_dataset("pacs", pacs, size=32, corruption="fog", verify="off")
    assert opened.names == ["cartoon/fog", "photo/fog"]


def full_labels(folder: Path, classes: int) -> None:
    """A full-size CIFAR-C folder with one sparse array: takes no disk space."""
    folder.mkdir()
    np.save(folder / "labels.npy", np.tile(np.arange(10000) % classes, 5))
    array = np.lib.format.open_memmap(folder / "fog.npy", "w+", np.uint8, (50000, 32, 32, 3))
    array[-1] = 1


@pytest.mark.parametrize(("imbalance", "images"), [(1, 10000), (10, 3876), (100, 2131)])
def test_cifar100_c_lt_has_the_published_sizes(
    tmp_path: Path, imbalance: float, images: int
) -> None:
    full_labels(tmp_path / "CIFAR-100-C", 100)
    opened = open_dataset("cifar100c-lt", tmp_path, imbalance=imbalance, domains="fog")
    counts = np.bincount(opened.domains[0].labels, minlength=100)
    assert counts.sum() == images
    assert counts[0] == 100
    assert counts[99] == 100 // imbalance
    assert (np.diff(counts) <= 0).all()


def test_cifar10_c_lt(tmp_path: Path) -> None:
    full_labels(tmp_path / "CIFAR-10-C", 10)
    opened = open_dataset("cifar10c-lt", tmp_path, imbalance=50.0, domains="fog")
    counts = np.bincount(opened.domains[0].labels)
    assert counts.tolist() == [int(1000 * 50 ** (-c / 9)) for c in range(10)]
    with pytest.raises(ConfigError, match=r"imbalance=0\.5"):
        open_dataset("cifar10c-lt", tmp_path, imbalance=0.5, domains="fog")
