"""Statistics of the benchmark's own generator, corruption by corruption, severity by severity.

CIFAR rows come from 500 images. ImageNet rows come from 20, so where a corruption is a matter of
chance for the whole image (which photograph, which affine map, which direction) a row is one throw
of 20 dice; there the engine's mean over several seeds is compared.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fretta.corruptions import ALL, corrupt
from fretta.corruptions.base import read_rgb
from fretta.corruptions.weather import photograph_folder
from fretta.data.cifar_pickle import read_batch

pytestmark = pytest.mark.data

Images = np.ndarray[Any, np.dtype[np.uint8]]
COLUMNS = ("mean", "std", "mean_abs_diff", "rms_diff", "laplacian_energy_ratio")
TOLERANCE = {"cifar": (0.02, 0.02, 0.05, 0.05, 0.10), "imagenet": (0.15,) * 5}
SEEDS = {"frost": 20, "elastic_transform": 6, "motion_blur": 4, "fog": 4}


@cache
def clean(shared: Path, constants: str) -> Images:
    if constants == "cifar":
        return read_batch(shared / "data" / "cifar-10-batches-py" / "test_batch")[0][:500]
    files = sorted((shared / "data" / "imagenet-sample").glob("*/*.JPEG"))
    return np.stack([read_rgb(file) for file in files[::50]])


@cache
def golden(shared: Path) -> dict[tuple[str, str, int], list[float]]:
    with (shared / "golden" / "corruptions.csv").open() as file:
        return {
            (row["constants"], row["corruption"], int(row["severity"])): [
                float(row[column]) for column in COLUMNS
            ]
            for row in csv.DictReader(file)
        }


def laplacian_energy(images: Images) -> float:
    """Mean square of the 4-neighbor Laplacian of the gray image, inside."""
    gray = images.mean(axis=-1)
    around = gray[:, 1:-1, :-2] + gray[:, 1:-1, 2:] + gray[:, :-2, 1:-1] + gray[:, 2:, 1:-1]
    return float(np.square(around - 4 * gray[:, 1:-1, 1:-1]).mean())


def statistics(images: Images, results: list[Images]) -> list[float]:
    everything = np.stack(results).astype(np.float64)
    change = everything - images
    energy = np.mean([laplacian_energy(result) for result in results])
    return [
        everything.mean(),
        everything.std(),
        np.abs(change).mean(),
        np.sqrt(np.square(change).mean()),
        float(energy) / laplacian_energy(images),
    ]


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("constants", ["cifar", "imagenet"])
def test_statistics_of_the_benchmark(shared: Path, constants: str, name: str) -> None:
    if name == "frost" and photograph_folder() is None:
        pytest.skip("the photographs of frost are not installed")
    images = clean(shared, constants)
    seeds = SEEDS.get(name, 1) if constants == "imagenet" else 1
    wrong = []
    for severity in (1, 2, 3, 4, 5):
        results = [corrupt(images, name, severity, seed=seed) for seed in range(seeds)]
        found = statistics(images, results)
        rows = zip(COLUMNS, found, golden(shared)[constants, name, severity], strict=True)
        for (column, value, target), part in zip(rows, TOLERANCE[constants], strict=True):
            # Energies near zero are printed to three digits: there 0.02 is the tolerance.
            slack = max(part * target, 0.02 if column == "laplacian_energy_ratio" else 0)
            if abs(value - target) > slack:
                wrong.append(f"{name} {severity} {column}: {value:.3f}, benchmark {target:.3f}")
    assert not wrong, "\n".join(wrong)
