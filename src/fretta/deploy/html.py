"""Parts of a page that needs nothing else, readable on light and dark screens.

Everything that comes from outside (names of files, labels, settings) passes through `e`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from .style import STYLE

MOST, FEW = 50, 15  # classes in a table of numbers, and in one of bars

Counts = Mapping[int, Sequence[int]]
Shares = Mapping[int, float]


def e(value: object) -> str:
    """Text for HTML; bytes that are no text are shown as escapes."""
    return escape(str(value).encode("utf-8", "backslashreplace").decode())


def document(title: str, body: Iterable[str]) -> str:
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<meta http-equiv='Content-Security-Policy' content=\"default-src 'none'; style-src"
        " 'unsafe-inline'\">"
        f"<title>{e(title)}</title><style>{STYLE}</style></head>\n<body><main>\n"
        + "\n".join(body)
        + "\n</main></body></html>\n"
    )


def section(title: str, content: str) -> list[str]:
    return [f"<section><h2>{e(title)}</h2>{content}</section>"] if content else []


def percent(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def bar(share: float, top: float, kind: str) -> str:
    width = 100 * share / top if top else 0.0
    return (
        f"<td><div class='bar'><i class='{kind}' style='width:{0.7 * width:.1f}%'></i>"
        f"{percent(share)}</div></td>"
    )


def table(head: list[str], rows: Iterable[list[str]], short: bool = False) -> str:
    """`short`: cells of numbers and single words, which are not broken into lines."""
    top = "".join(f"<th>{e(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{e(c)}</td>" for c in row) + "</tr>" for row in rows)
    return _whole(top, body, short)


def bullets(items: list[str]) -> str:
    return "<ul>" + "".join(f"<li>{e(i)}</li>" for i in items) + "</ul>" if items else ""


def class_table(head: list[str], names: list[str], counts: Counts) -> str:
    """Accuracy by class, those with most images first. `counts`: class -> images, right, ..."""
    order = sorted(counts, key=lambda c: (-counts[c][0], c))
    rows = []
    for c in order[:MOST]:
        images, *right = counts[c]
        rows.append([names[c], f"{images:,}", *(percent(r / images) for r in right)])
    if not rows:
        return ""
    rest = len(order) - len(rows)
    note = f"<p>{rest:,} more classes have fewer images.</p>" if rest > 0 else ""
    return table(["label", "images", *head], rows, short=True) + note


def share_table(names: list[str], before: Shares, after: Shares, notes: tuple[str, str]) -> str:
    """Shares of the predicted classes by the source model and by the adapted one, as bars."""
    found = sorted(before.keys() | after.keys())
    shares = [(c, before.get(c, 0.0), after.get(c, 0.0)) for c in found]
    shares = sorted(shares, key=lambda row: (-max(row[1:]), row[0]))[:FEW]
    top = max(max(row[1:]) for row in shares)
    rows = [
        f"<tr><td>{e(names[c])}</td>{bar(one, top, 'before')}{bar(other, top, 'after')}</tr>"
        for c, one, other in shares
    ]
    rest = len(found) - len(shares)
    note = f"<p>{rest:,} more classes were predicted less often.</p>" if rest > 0 else ""
    head = "".join(f"<th>{e(cell)}</th>" for cell in ("label", *notes))
    return _whole(head, "".join(rows), short=True) + note


def _whole(head: str, body: str, short: bool) -> str:
    """A table that scrolls by itself where the screen is narrow."""
    rows = f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody>"
    kind = "short" if short else "long"
    return f"<div class='wide'><table class='{kind}'>{rows}</table></div>"
