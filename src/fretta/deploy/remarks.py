"""What is worth saying once, collected for the page; warnings are among it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..errors import FrettaWarning


class Remarks:
    """Sentences, each told once."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell = tell
        self.texts: list[str] = []

    def add(self, text: str) -> None:
        if text not in self.texts:
            self.texts.append(text)
            self.tell(text)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Warnings become remarks: they belong on the page, not between the lines of a bar."""

        def show(message: Warning | str, *_: Any) -> None:
            self.add(str(message))

        with warnings.catch_warnings():
            warnings.simplefilter("always", FrettaWarning)
            # large photographs are fine; what Pillow refuses outright is refused by name
            warnings.filterwarnings("ignore", "Image size .* exceeds limit")
            warnings.filterwarnings("ignore", module=r"PIL\..*")
            warnings.showwarning = show  # type: ignore[assignment]
            yield
