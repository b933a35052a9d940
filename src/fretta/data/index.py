"""Index files: a stream's order on disk, to replay it exactly."""

from __future__ import annotations

import json
import os
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError
from .batch import Plan
from .datasets import open_dataset
from .domain import Dataset
from .stream import Stream

FORMAT = 1
_ARRAYS = ("domain", "index", "edges", "resets")


def save_index(stream: Stream, path: Path) -> None:
    """Order, recipe and the data set's fingerprint in one compressed file, written atomically."""
    header = {
        "format": FORMAT,
        "dataset": stream.dataset.name,
        "options": stream.dataset.options,
        "domains": stream.dataset.names,
        "fingerprint": stream.dataset.fingerprint(),
        "recipe": stream.recipe,
        "errors": stream.errors,
    }
    plan = stream.plan
    # The smallest type that holds the numbers: 150,000 samples take about 300 kB.
    packed = {
        name: values.astype(np.min_scalar_type(int(values.max(initial=0))))
        for name, values in ((n, getattr(plan, n)) for n in _ARRAYS)
    }
    text = np.frombuffer(json.dumps(header, sort_keys=True).encode(), dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            np.savez_compressed(file, header=text, **packed)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _read(path: Path) -> tuple[dict[str, Any], Plan]:
    try:
        with path.open("rb") as handle, np.load(handle, allow_pickle=False) as file:
            header = json.loads(file["header"].tobytes())
            numbers = {name: file[name].astype(np.int64) for name in _ARRAYS}
        if header["format"] != FORMAT:
            raise DataError(
                f"{path} has index format {header['format']}; this version reads format {FORMAT}"
            )
    except FileNotFoundError:
        raise DataError(f"no index file {path}") from None
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{path} is no stream index file: {error}") from error
    edges, size = numbers["edges"], len(numbers["index"])
    if (
        len(numbers["domain"]) != size
        or len(edges) != len(numbers["resets"]) + 1
        or edges[0] != 0
        or edges[-1] != size
        or (np.diff(edges) < 1).any()
    ):
        raise DataError(f"{path} is damaged: its arrays do not fit together")
    resets = numbers["resets"].astype(np.bool_)
    return header, Plan(numbers["domain"], numbers["index"], edges, resets)


def load_stream(
    path: str | Path,
    dataset: Dataset | None = None,
    *,
    root: str | os.PathLike[str] | None = None,
    workers: int = 0,
    errors: str | None = None,
) -> Stream:
    """The stream written by `Stream.save`, batch for batch.

    Without `dataset` the one the file names is opened with the options it had. The data must be
    what they were: same domains, labels and file names.
    """
    path = Path(path)
    header, plan = _read(path)
    if dataset is None:
        dataset = open_dataset(header["dataset"], root, **header["options"])
    if dataset.names != header["domains"]:
        dataset = dataset.only(header["domains"])
    if dataset.fingerprint() != header["fingerprint"]:
        raise DataError(
            f"{path} was made for {header['dataset']} with other images or labels than "
            f"{dataset.root or dataset.name} has now; replaying it would show different data. Make "
            f"the stream again: {json.dumps(header['recipe'])}"
        )
    sizes = np.array([len(domain) for domain in dataset.domains])
    if plan.domain.max(initial=0) >= len(sizes) or (plan.index >= sizes[plan.domain]).any():
        raise DataError(f"{path} is damaged: it names images outside the data set")
    return Stream(dataset, plan, header["recipe"], workers, errors or header["errors"])
