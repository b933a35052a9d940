"""keep_memory: freed blocks are used again instead of being mapped anew."""

from __future__ import annotations

import sys

import pytest
import torch

from fretta.memory import keep_memory

linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")


@linux
def test_large_blocks_are_kept(monkeypatch):
    import resource

    for name in ("MALLOC_MMAP_MAX_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)

    def faults() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for _ in range(5):
            torch.ones(16 * 2**20)  # 64 MiB
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    if not keep_memory():
        pytest.skip("no mallopt here")
    torch.ones(16 * 2**20)
    kept = faults()
    keep_memory(False)
    try:
        returned = faults()
    finally:
        keep_memory()
    assert kept < returned / 4, (kept, returned)


def test_the_environment_wins(monkeypatch):
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    assert not keep_memory()
