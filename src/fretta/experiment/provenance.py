"""What made a number: versions, commit, hardware. Stored beside it."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from ..memory import release_memory


@functools.cache
def provenance() -> dict[str, Any]:
    """Facts that do not change while the process lives."""
    commit, dirty = _git()
    return {
        "fretta": importlib.metadata.version("fretta"),
        "commit": commit,
        "dirty": dirty,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": importlib.metadata.version("numpy"),
        "system": platform.system(),
        "machine": platform.machine(),
        "processor": _line_of("/proc/cpuinfo", "model name") or platform.processor() or "unknown",
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _git() -> tuple[str | None, bool | None]:
    """Commit and whether its code was changed since; None outside a checkout of fretta."""

    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        ).stdout.strip()

    try:
        # an installed copy may lie inside somebody else's repository: does git track this file?
        git("ls-files", "--error-unmatch", Path(__file__).name)
        code = (":(top)src", ":(top)benchmarks")  # new records are no change
        return git("rev-parse", "HEAD"), bool(git("status", "--porcelain", "--", *code))
    except (OSError, subprocess.SubprocessError):
        return None, None


def _line_of(file: str, start: str) -> str | None:
    """What follows the colon in the line of a /proc file that starts so; None elsewhere."""
    with suppress(OSError):
        for line in Path(file).read_text(encoding="utf-8").splitlines():
            if line.startswith(start):
                return line.partition(":")[2].strip()
    return None


class PeakMemory:
    """Peak memory of this process (or of the GPU) since construction, in bytes; None if unknown."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        else:
            release_memory()  # what earlier runs freed would count
            with suppress(OSError):  # Linux: 5 resets the high-water mark of the resident set
                Path("/proc/self/clear_refs").write_text("5", encoding="ascii")

    def read(self) -> int | None:
        if self.device.type == "cuda":
            return int(torch.cuda.max_memory_allocated(self.device))
        peak = _line_of("/proc/self/status", "VmHWM")
        return None if peak is None else int(peak.split()[0]) * 1024
