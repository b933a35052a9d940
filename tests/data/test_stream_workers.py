"""Worker processes: same batches, errors that arrive, nothing left running; memory."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from fretta.data import CORRUPTIONS, Batch, make_stream, open_dataset
from fretta.errors import DataError, FrettaWarning, MissingExtraError

Tree = Callable[..., Path]

CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
pytestmark = pytest.mark.skipif(CORES < 2, reason="two workers need two cores")


def same(a: Batch, b: Batch) -> bool:
    return (
        bool((a.x == b.x).all() and (a.y == b.y).all() and (a.index == b.index).all())
        and (a.domain, a.number, a.reset) == (b.domain, b.number, b.reset)
        and a.skipped == b.skipped
    )


def test_workers_change_nothing(tmp_path: Path, tree: Tree) -> None:
    tree(tmp_path / "set", {"a": {"cat": 9, "dog": 5}, "b": {"cat": 7, "dog": 4}})
    (tmp_path / "set" / "b" / "cat" / "003.png").write_bytes(b"broken")
    dataset = open_dataset(
        "folder", tmp_path / "set", size=32, corruption=["gaussian_noise", "elastic_transform"]
    )
    torch.manual_seed(0)
    state = torch.get_rng_state()
    passes = []
    for workers in (0, 1, 2):
        stream = make_stream(dataset, "mixed", batch_size=6, workers=workers, errors="skip")
        with pytest.warns(FrettaWarning, match="skipped"):
            passes.append(list(stream))
        assert len(stream.skipped) == 2  # the same file under two corruptions
    assert len(passes[0]) == 9
    for other in passes[1:]:
        assert all(same(a, b) for a, b in zip(passes[0], other, strict=True))
    assert (torch.get_rng_state() == state).all()  # methods may draw from the default generator
    assert not multiprocessing.active_children()


def test_errors_and_early_ends_leave_no_process(tmp_path: Path, tree: Tree) -> None:
    tree(tmp_path / "set", {"": {"cat": 20}})
    dataset = open_dataset("folder", tmp_path / "set", size=8)
    stream = make_stream(dataset, batch_size=2, workers=2)
    for _ in stream:
        assert multiprocessing.active_children()
        break
    del _
    assert not multiprocessing.active_children()
    with pytest.raises(ZeroDivisionError):  # the user's code fails between two batches
        list(batch.number / 0 for batch in stream)  # noqa: C400
    assert not multiprocessing.active_children()
    (tmp_path / "set" / "cat" / "007.png").write_bytes(b"broken")
    with pytest.raises(DataError, match=r"unreadable image .*007.png"):
        list(stream)
    assert not multiprocessing.active_children()


SCRIPT = """
import sys, time
from fretta.data import make_stream, open_dataset

def main():
    dataset = open_dataset("folder", sys.argv[1], size=8)
    for batch in make_stream(dataset, batch_size=2, workers=2):
        print(batch.number, flush=True)
        time.sleep(30)

if __name__ == "__main__":
    main()
"""


def running(group: int) -> list[str]:
    """Processes of a group that have not ended; one that only waits to be collected has."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, own = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:  # it ended meanwhile
            continue
        if int(own) == group and state != "Z":
            found.append(path.parent.name)
    return found


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads /proc")
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_interrupt_and_kill_end_every_process(
    tmp_path: Path, tree: Tree, how: signal.Signals
) -> None:
    tree(tmp_path / "set", {"": {"cat": 20}})
    (tmp_path / "script.py").write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, str(tmp_path / "script.py"), str(tmp_path / "set")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "0\n"
        if how == signal.SIGINT:  # as Ctrl-C in a terminal does: to the whole group
            os.killpg(process.pid, how)
        else:  # as the system does when memory runs out: to the main process alone
            process.kill()
        _, errors = process.communicate(timeout=120)
        if how == signal.SIGINT:
            assert errors.strip().endswith("KeyboardInterrupt")
        for _ in range(100):  # the helper server needs a moment after its parent is gone
            if not running(process.pid):
                break
            time.sleep(0.1)
        assert running(process.pid) == []
    finally:
        if running(process.pid):
            os.killpg(process.pid, signal.SIGKILL)


def test_a_missing_package_is_named_by_workers_too() -> None:
    error = MissingExtraError("pillow", "data", "decoding image files")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


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
