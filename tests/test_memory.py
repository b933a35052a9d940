"""keep_memory: freed blocks are used again instead of being mapped anew."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from fretta.memory import keep_memory

# In a process of its own: one that has lived longer has free room on its heap anyway.
SCRIPT = """
import resource, sys, torch
from fretta.memory import keep_memory

torch.set_num_threads(1)
layers = [torch.nn.Conv2d(8, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.ReLU()] * 3
net, x = torch.nn.Sequential(*layers), torch.randn(8, 8, 160, 160)

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(3):
        net(x).sum().backward()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
returned = faults()
if not keep_memory():
    sys.exit("no mallopt here")
print(returned, min(faults() for _ in range(5)))  # the heap grows for a few rounds
"""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc only")
def test_large_blocks_are_kept() -> None:
    chosen = ("MALLOC_", "GLIBC_TUNABLES")
    environment = {k: v for k, v in os.environ.items() if not k.startswith(chosen)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False
    )
    if "no mallopt" in done.stderr:
        pytest.skip("this C library has no mallopt")
    returned, kept = map(int, done.stdout.split())
    assert kept < returned / 4, (kept, returned)


def test_the_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_TRIM_THRESHOLD_", "131072")
    assert not keep_memory()
