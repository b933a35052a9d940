"""Files that appear whole or not at all."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomic(path: Path) -> Iterator[Path]:
    """A hidden name beside `path` to write to; it takes its place at once if all went well."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # The suffix stays last: it is how Pillow knows the format.
    draft = path.with_name(f".{path.stem}.{uuid.uuid4().hex}.part{path.suffix}")
    try:
        yield draft
        os.replace(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def replace_file(path: Path, content: bytes) -> None:
    """Write beside `path`, flush to disk, then rename over it: a reader never sees half a file."""
    with atomic(path) as draft, draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
