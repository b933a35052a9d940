"""Reads the pickles of CIFAR-10 and CIFAR-100 without running anything in them.

A pickle can have any function of any installed module called. The unpickler here knows the few
names that an array of integers needs and refuses all others. Not even numpy's own reconstruction
code runs: stand-ins collect shape, type and bytes, and check that they fit together.
"""

from __future__ import annotations

import pickle
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import DataError

SIDE = 32
PIXELS = 3 * SIDE * SIDE

_DAMAGE = (  # what unpickling a damaged file raises
    *(pickle.UnpicklingError, EOFError, ValueError, TypeError),
    *(LookupError, AttributeError, OverflowError),
)
_NUMBERS = {"b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"}


class _Dtype:
    """Stands in for `numpy.dtype` while a batch is read."""

    def __init__(self, code: str | bytes = "", align: bool = False, copy: bool = True) -> None:
        name = code.decode("ascii", "replace") if isinstance(code, bytes) else str(code)
        if name not in _NUMBERS:
            raise pickle.UnpicklingError(f"an array of type {name!r}; only integers are expected")
        self.value = np.dtype(name)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        if state[1] in (">", b">"):
            self.value = self.value.newbyteorder(">")


class _Array:
    """Stands in for `numpy.ndarray` while a batch is read."""

    value: NDArray[Any] | None = None

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        _, shape, dtype, fortran, raw = state
        self.fill(raw, dtype, shape, "F" if fortran else "C")

    def fill(self, raw: Any, dtype: Any, shape: Any, order: str) -> None:
        if isinstance(raw, pickle.PickleBuffer):
            raw = raw.raw()
        if not isinstance(raw, (bytes, bytearray, memoryview)) or not isinstance(dtype, _Dtype):
            raise pickle.UnpicklingError("an array without plain bytes")
        flat = np.frombuffer(raw, dtype.value)
        self.value = flat.reshape(tuple(shape), order="F" if order == "F" else "C")


def _array_from_buffer(raw: Any, dtype: Any, shape: Any, order: str) -> _Array:
    array = _Array()
    array.fill(raw, dtype, shape, order)
    return array


def _scalar(dtype: _Dtype, raw: bytes) -> int:
    return int(np.frombuffer(raw, dtype.value)[0])


def _latin1(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes into an old-protocol pickle."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"bytes encoded as {encoding!r}")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("_codecs", "encode"): _latin1,
}
for _core in ("numpy.core", "numpy._core"):  # numpy 1 and numpy 2
    _ALLOWED[f"{_core}.multiarray", "_reconstruct"] = lambda *_: _Array()
    _ALLOWED[f"{_core}.multiarray", "scalar"] = _scalar
    _ALLOWED[f"{_core}.numeric", "_frombuffer"] = _array_from_buffer


class _Restricted(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        try:
            return _ALLOWED[module, name]
        except KeyError:
            raise pickle.UnpicklingError(
                f"it calls {module}.{name}, which no CIFAR file needs"
            ) from None


def _load(path: Path) -> dict[str, Any]:
    """The dictionary in a CIFAR pickle, keys as text. Nothing in the file is executed."""
    try:
        with path.open("rb") as file:
            content = _Restricted(file, encoding="bytes").load()
    except FileNotFoundError:
        raise DataError(f"no file {path}; the python version of CIFAR has it") from None
    except (*_DAMAGE, OSError, MemoryError) as error:
        raise DataError(
            f"{path} cannot be read as a CIFAR batch ({error}); nothing in it ran. Extract it again"
        ) from error
    if not isinstance(content, dict):
        raise DataError(f"{path} holds a {type(content).__name__}; a dictionary is expected")
    return {k.decode("latin1") if isinstance(k, bytes) else str(k): v for k, v in content.items()}


def read_batch(path: str | Path) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (n, 32, 32, 3) uint8 and labels (n,) int64 of one batch; fine labels for CIFAR-100."""
    path = Path(path)
    content = _load(path)
    data = content.get("data")
    data = data.value if isinstance(data, _Array) else data
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape[1:] != (PIXELS,):
        seen = f"{data.dtype} {data.shape}" if isinstance(data, np.ndarray) else type(data).__name__
        raise DataError(f"{path}: 'data' is {seen}; uint8 (n, {PIXELS}) is expected")
    key = "fine_labels" if "fine_labels" in content else "labels"
    labels = content.get(key)
    labels = labels.value if isinstance(labels, _Array) else labels
    try:
        numbers = np.asarray(labels)
        fits = numbers.dtype.kind in "iu" and numbers.shape == (len(data),)
    except ValueError:  # a ragged list
        fits = False
    if not fits or (numbers.size and not 0 <= numbers.min() <= numbers.max() < 1000):
        raise DataError(f"{path}: {key!r} is not a list of {len(data)} class numbers")
    images = data.reshape(-1, 3, SIDE, SIDE).transpose(0, 2, 3, 1)  # planes to pixels
    return np.ascontiguousarray(images), numbers.astype(np.int64)


def read_classes(path: str | Path) -> list[str]:
    """Class names from `batches.meta` (CIFAR-10) or `meta` (CIFAR-100), in label order."""
    content = _load(Path(path))
    names = content.get("fine_label_names", content.get("label_names"))
    if not isinstance(names, list) or not all(isinstance(n, (str, bytes)) for n in names):
        raise DataError(f"{path} has no list of class names; keys {sorted(content)}")
    return [n.decode("utf-8", "replace") if isinstance(n, bytes) else n for n in names]


@lru_cache(maxsize=2)
def read_batches(paths: tuple[str, ...]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Several batches as one, read once per process; the images are read-only."""
    parts = [read_batch(path) for path in paths]
    images = np.concatenate([p[0] for p in parts]) if len(parts) > 1 else parts[0][0]
    labels = np.concatenate([p[1] for p in parts])
    images.setflags(write=False)  # shared by every domain of this process
    return images, labels
