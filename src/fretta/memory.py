"""Keep freed memory for the next batch instead of handing it back to the system.

glibc maps large blocks from the system and returns them when they are freed. A step of a
convolutional network frees and asks for the same gigabytes every batch, and each time the system
fills them with zeros, page by page: with EfficientNet-Lite0 that was a third to half of
a step (`benchmarks/memory.py`). The commands that compute call `keep_memory()`; in your own program
it is your decision, because it holds for the entire process.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import suppress

# Parameters of mallopt, from malloc.h.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_MAX = -1, -2, -4
_KEEP = {_MMAP_MAX: 0, _TRIM_THRESHOLD: -1, _TOP_PAD: 2**28}  # -1: never trim
_RETURN = {_MMAP_MAX: 65536, _TRIM_THRESHOLD: 128 * 1024, _TOP_PAD: 128 * 1024}


def keep_memory(on: bool = True) -> bool:
    """Have this process keep freed memory, or give it back as usual; True if that was done.

    Nothing happens where the C library is not glibc, and where the environment (`MALLOC_...`)
    already says what is wanted. Memory in use does not grow; what was in use once stays reserved.
    """
    if not sys.platform.startswith("linux") or _chosen_by_the_user():
        return False
    try:
        libc = ctypes.CDLL("libc.so.6")
        settings = _KEEP if on else _RETURN
        done = [libc.mallopt(key, value) == 1 for key, value in settings.items()]
        return all(done)
    except (OSError, AttributeError):
        return False


def release_memory() -> None:
    """Hand what was freed so far back to the system, once; nothing where that is not possible."""
    if sys.platform.startswith("linux"):
        with suppress(OSError, AttributeError):
            ctypes.CDLL("libc.so.6").malloc_trim(0)


def _chosen_by_the_user() -> bool:
    names = ("MMAP_MAX_", "MMAP_THRESHOLD_", "TRIM_THRESHOLD_", "TOP_PAD_")
    tunables = os.environ.get("GLIBC_TUNABLES", "")
    return "glibc.malloc" in tunables or any(f"MALLOC_{name}" in os.environ for name in names)
