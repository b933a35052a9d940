"""NRS, loss and accuracy against adaptation step, as in figure 3 of the paper."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..palette import style
from .base import WIDTH, Figure, Value, plain, stem
from .canvas import Canvas
from .time import Span, domain_axis, spans_of

Lines = dict[str, NDArray[np.float64]]


def curves(analysis: dict[str, Any]) -> dict[str, Lines]:
    """Panel -> method -> values per step.

    NRS is taken relative to that of `bn`, if it ran: both see the same batch with statistics of
    its own, so that only what was learned remains, not which domain it is. Losses have scales of
    their own and are divided by their first value. Accuracy is that of all images so far, relative
    to `bn` as well.
    """
    found, images = _ordered(analysis), np.cumsum(analysis["images"])
    nrs = {m: np.asarray(c["nrs"], dtype=float) for m, c in found.items()}
    right = {m: 100 * np.cumsum(c["right"]) / images for m, c in found.items()}
    loss = {}
    for method, curve in found.items():
        values = np.array([np.nan if v is None else v for v in curve["loss"]], dtype=float)
        there = values[np.isfinite(values)]
        if len(there) and there[0]:
            loss[method] = values / there[0]
    # an entropy falls to a fraction of itself; beside it the paper's losses would be flat lines
    own = {m: v for m, v in loss.items() if m in ("s-fret", "g-fret")}
    loss = own or loss
    base = "bn" if "bn" in found else None
    shown = [m for m in found if m not in (("source", "bn") if base else ())]
    if base is None:
        return {"nrs": nrs, "loss": loss, "accuracy": right}
    return {
        "nrs": {m: nrs[m] - nrs[base] for m in shown},
        "loss": loss,
        "accuracy": {m: right[m] - right[base] for m in shown},
    }


def _ordered(analysis: dict[str, Any]) -> dict[str, dict[str, list[Any]]]:
    return {m: analysis["curves"][m] for m in analysis["methods"]}


def smooth(values: NDArray[np.float64], window: int) -> NDArray[np.float64]:
    """Mean of the last `window` values, of fewer at the beginning."""
    filled = np.nan_to_num(values)
    known = np.isfinite(values).astype(float)
    sums = [np.concatenate([[0], np.cumsum(v)]) for v in (filled, known)]
    stop = np.arange(1, len(values) + 1)
    start = np.clip(stop - window, 0, None)
    total, n = (s[stop] - s[start] for s in sums)
    result: NDArray[np.float64] = np.where(n > 0, total / np.maximum(n, 1), np.nan)
    return result


def build(analysis: dict[str, Any]) -> Figure | None:
    found = _ordered(analysis)
    lines = curves(analysis)
    methods = list(lines["nrs"])
    if not methods or len(analysis["images"]) < 2:
        return None
    spans = spans_of(analysis["domains"])
    window = max(1, len(analysis["images"]) // 20)
    halves = {m: _halves(c["nrs"]) for m, c in found.items()}
    total = sum(analysis["images"])
    rows: list[list[Value]] = [
        [
            m,
            *(None if h is None else round(h, 4) for h in halves[m]),
            *_ends(c["loss"]),
            round(100 * sum(c["right"]) / total, 2),
        ]
        for m, c in found.items()
    ]
    relative = "bn" in found
    against = " minus that of bn on the same batch" if relative else ""
    return Figure(
        name=stem("mechanism", analysis),
        title=f"Step by step: {plain(analysis['data']['name'])}",
        caption=(
            f"Normalized redundancy score of each batch{against}, the loss that is descended"
            " relative to its first value (of the FRET methods), and accuracy of all images so far"
            f"{' minus that of bn' if relative else ''}, against the step, on"
            f" {plain(analysis['data']['name'])}, {plain(analysis['model']['spec'])}, batches of"
            f" {analysis['batch_size']}; NRS and loss are means of the last {window} steps. Below"
            " zero at the top and above zero at the bottom: learning reduces redundancy and"
            " raises accuracy."
            if relative
            else f"Normalized redundancy score, relative loss and accuracy so far on"
            f" {plain(analysis['data']['name'])}, {plain(analysis['model']['spec'])}."
        ),
        alt="; ".join(
            f"{plain(m)}: NRS {_shown(halves[m][0])} in the first half of the stream and"
            f" {_shown(halves[m][1])} in the second, accuracy {100 * sum(c['right']) / total:.1f} %"
            for m, c in found.items()
        )
        + ".",
        group="paper",
        header=[
            *("method", "NRS, first half", "NRS, second half"),
            *("first loss", "last loss", "accuracy %"),
        ],
        rows=rows,
        series=methods,
        paint=lambda canvas: _paint(canvas, lines, spans, window, relative),
        height=470,
    )


def _halves(values: list[float | None]) -> tuple[float | None, float | None]:
    """Means of the two halves of the stream, of what is there."""
    half = max(len(values) // 2, 1)
    parts = ([v for v in part if v is not None] for part in (values[:half], values[half:]))
    first, second = (float(np.mean(part)) if part else None for part in parts)
    return first, second


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"


def _ends(values: list[float | None]) -> list[float | None]:
    there = [v for v in values if v is not None]
    return [float(f"{there[0]:.5g}"), float(f"{there[-1]:.5g}")] if there else [None, None]


def _paint(
    canvas: Canvas, lines: dict[str, Lines], spans: list[Span], window: int, relative: bool
) -> None:
    from ..palette import INK

    titles = {
        "nrs": "NRS minus bn's" if relative else "normalized redundancy score",
        "loss": "loss / first loss",
        "accuracy": "accuracy so far minus bn's, points" if relative else "accuracy so far %",
    }
    numbers = {m: n for n, m in enumerate(lines["nrs"])}
    for top, (panel, title) in zip((28, 158, 288), titles.items(), strict=True):
        ax = canvas.axes(46, top, WIDTH - 46 - 62, 98)
        canvas.words(ax, y=title)
        steps = spans[-1].stop
        drawn = {
            m: smooth(v, window) if panel != "accuracy" else v for m, v in lines[panel].items()
        }
        values = np.concatenate([v[np.isfinite(v)] for v in drawn.values()] or [np.zeros(1)])
        room = 0.08 * max(float(np.ptp(values)), 1e-6)
        ax.set_ylim(float(values.min()) - room, float(values.max()) + room)
        ax.set_xlim(0, steps)
        ax.locator_params(axis="y", nbins=5)
        if relative and panel != "loss":
            ax.axhline(0, color=INK, linewidth=0.8, alpha=0.6)
        at = np.arange(steps) + 0.5
        for method, v in drawn.items():
            canvas.line(ax, at, v, style(method), numbers[method], 1.4)
            for span in spans:
                x = span.stop - 0.5
                value = float(v[span.stop - 1])
                text = f"{method}, step {span.stop}: {title} {value:.4g}"
                canvas.point(ax, x, value, numbers[method], text)
        ends = {m: v[np.isfinite(v)] for m, v in drawn.items()}
        canvas.labels(ax, [(float(v[-1]), m, numbers[m]) for m, v in ends.items() if len(v)])
        if panel == "accuracy":
            domain_axis(canvas, ax, spans)
            if len(spans) == 1:
                canvas.words(ax, x="step")
        else:
            ax.set_xticks([])
            for span in spans[1:]:
                ax.axvline(span.start, color=INK, alpha=0.25, linewidth=0.6)
