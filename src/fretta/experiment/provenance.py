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
        "processor": _processor(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


def _git() -> tuple[str | None, bool | None]:
    """Commit and whether the tree differs from it; None outside a checkout of fretta."""
    folder = Path(__file__).parent

    def git(*arguments: str) -> str | None:
        try:
            out = subprocess.run(
                ["git", *arguments],
                cwd=folder,
                capture_output=True,
                text=True,
                timeout=10,
                check=True,
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return out.stdout.strip()

    # An installed copy may lie inside somebody else's repository: ask whether git tracks this file.
    if git("ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None, None
    status = git("status", "--porcelain")
    return git("rev-parse", "HEAD"), None if status is None else bool(status)


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


class PeakMemory:
    """Peak memory of this process (or of the GPU) since construction, in bytes; None if unknown."""

    def __init__(self) -> None:
        self.gpu = torch.cuda.is_available()
        if self.gpu:
            torch.cuda.reset_peak_memory_stats()
        else:
            with suppress(OSError):  # Linux: 5 resets the high-water mark of the resident set
                Path("/proc/self/clear_refs").write_text("5", encoding="ascii")

    def read(self) -> int | None:
        if self.gpu:
            return int(torch.cuda.max_memory_allocated())
        try:
            for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
        except OSError:
            pass
        return None
