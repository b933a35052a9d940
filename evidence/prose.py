"""Sentences of the pages."""

from __future__ import annotations

from textwrap import fill


def paragraph(text: str, indent: str = "") -> str:
    """In lines of the length that the pages have; all but the first are indented."""
    return fill(text, 118, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def signed(value: float, digits: int = 0) -> str:
    """A difference in points, with a minus sign and without a negative zero."""
    text = f"{value:+.{digits}f}".replace("-", "−")
    return f"{0:.{digits}f}" if float(f"{value:.{digits}f}") == 0 else text
