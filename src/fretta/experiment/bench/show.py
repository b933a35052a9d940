"""The timings as a plot."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...errors import MissingExtraError
from .steps import FLOOR, FORWARD, Timing


def plot(timings: Sequence[Timing], title: str, path: Path) -> None:
    """Bars of step / floor, shortest first; the floor is a line."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise MissingExtraError("matplotlib", "report", "a plot of the timings") from error
    shown = sorted((t for t in timings if t.name not in (FLOOR,)), key=lambda t: -t.ratio)
    figure = Figure(figsize=(6, 0.9 + 0.35 * len(shown)), layout="constrained")
    axes = figure.add_subplot()
    colors = ["#999999" if t.name.startswith((FORWARD, FLOOR)) else "#0072B2" for t in shown]
    bars = axes.barh([t.name for t in shown], [t.ratio for t in shown], color=colors)
    axes.bar_label(bars, [f"{t.ratio:.2f}" for t in shown], padding=3)
    axes.axvline(1, color="black", linewidth=1, linestyle="--")
    axes.margins(x=0.12)
    axes.set_xlabel("time of a step / floor (forward, entropy, backward, Adam)")
    axes.set_title(title, loc="left", fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
