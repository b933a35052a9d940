"""Memory that large sets take, measured in a fresh process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fretta.data import CORRUPTIONS, open_dataset

MEASURE = """
import json, sys
from fretta.data import make_stream, open_dataset

def peak():  # kB, highest resident size so far
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmHWM"))

stream = make_stream(open_dataset("cifar10c", sys.argv[1]), batch_size=200)
before, samples, total = peak(), 0, 0
for batch in stream:
    samples += len(batch)
    total += int(batch.x.sum())
print(json.dumps([samples, total, (peak() - before) / 1024]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_full_size_cifar10_c_stays_small(tmp_path: Path) -> None:
    folder = tmp_path / "CIFAR-10-C"
    folder.mkdir()
    np.save(folder / "labels.npy", np.tile(np.arange(10000) % 10, 5))
    for corruption in CORRUPTIONS:  # sparse: 15 × 154 MB that take no space on disk
        array = np.lib.format.open_memmap(
            folder / f"{corruption}.npy", "w+", np.uint8, (50000, 32, 32, 3)
        )
        array[-1] = 1
        del array
    result = subprocess.run(
        [sys.executable, "-c", MEASURE, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    samples, total, megabytes = json.loads(result.stdout)
    assert samples == 150000
    assert total == 15 * 3072  # the last image of severity 5 was seen once per file
    assert megabytes < 200


@pytest.mark.slow
def test_listing_files_opens_none_of_them(tmp_path: Path) -> None:
    for c in range(345):
        (tmp_path / "real" / f"class{c:03}").mkdir(parents=True)
        for i in range(20):  # empty files: opening one as an image would fail
            (tmp_path / "real" / f"class{c:03}" / f"{i:04}.jpg").touch()
    opened = open_dataset("domainnet", tmp_path, verify="off")
    assert len(opened.domains[0]) == 6900
