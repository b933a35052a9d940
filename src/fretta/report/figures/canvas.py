"""Painting with matplotlib in pixels of the page: axes, lines, cells, labels that do not overlap.

Nothing is measured by a layout engine: places are given in pixels from the top left corner, which
is quick and the same everywhere. What belongs to a series carries its number, so that the page
can switch it off; places worth a tooltip are collected as `points`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..palette import INK, Style, style
from .base import plain, short_names
from .maps import LEVELS, Map
from .places import free, spread

SMALL, NORMAL = 9.2, 10.2  # px
LINE = 11.5  # px between names
LONGEST = 18  # letters of a name along an axis


@dataclass(frozen=True)
class Point:
    """A place that can be hovered: pixels from the top left, series, text."""

    x: float
    y: float
    series: int | None
    label: str


class Canvas:
    """One matplotlib figure of `width` × `height` px."""

    def __init__(self, width: float, height: float) -> None:
        from matplotlib.figure import Figure as Drawing

        self.width, self.height = width, height
        self.maps: list[Map] = []
        self._pictures: list[Any] = []  # the same for a PNG
        self.drawing: Any = Drawing(figsize=(width / 72, height / 72), dpi=72)
        self.points: list[Point] = []
        self._marks = 0

    # ---- axes --------------------------------------------------------------------------------

    def axes(self, left: float, top: float, width: float, height: float, title: str = "") -> Any:
        """Axes at a place in px; light horizontal grid, no frame."""
        w, h = self.width, self.height
        ax = self.drawing.add_axes((left / w, 1 - (top + height) / h, width / w, height / h))
        ax.patch.set_visible(False)
        for side, spine in ax.spines.items():
            spine.set_visible(side == "bottom")
            spine.set_color(INK)
            spine.set_linewidth(0.6)
        ax.tick_params(colors=INK, labelsize=SMALL, length=0, pad=3)
        ax.grid(axis="y", color=INK, alpha=0.17, linewidth=0.6)
        ax.set_axisbelow(True)
        if title:
            ax.set_title(plain(title, 60), loc="left", fontsize=NORMAL, color=INK, pad=6)
        return ax

    def blank(self, ax: Any) -> None:
        """No ticks, no lines: for heat maps and maps of points."""
        ax.grid(False)
        ax.set_xticks([])
        ax.set_yticks([])
        for spine in ax.spines.values():
            spine.set_visible(False)

    def names(
        self,
        ax: Any,
        at: Sequence[float],
        names: Sequence[str],
        axis: str = "x",
        slant: float = 0,
        above: bool = False,
    ) -> None:
        """Names instead of numbers along an axis."""
        short = short_names(names, LONGEST)
        shown = [short[n] for n in names]
        if axis == "x":
            side = "left" if above else "right"
            end = {"ha": side, "rotation_mode": "anchor"} if slant else {}
            ax.set_xticks(at, shown, rotation=slant, fontsize=SMALL, **end)
        else:
            ax.set_yticks(at, shown, fontsize=SMALL)

    def words(self, ax: Any, x: str = "", y: str = "") -> None:
        """What the axes mean; y stands above the axis, where it can be read without turning."""
        if x:
            ax.set_xlabel(x, fontsize=NORMAL, color=INK, labelpad=4)
        if y:
            ax.set_title(y, loc="left", fontsize=NORMAL, color=INK, pad=6)

    # ---- series ------------------------------------------------------------------------------

    def mark(self, artist: Any, series: int | None) -> Any:
        """Let an artist belong to a series."""
        if series is not None:
            artist.set_gid(f"series-{series}-{self._marks}")
            self._marks += 1
        return artist

    def line(
        self,
        ax: Any,
        x: Sequence[float] | NDArray[Any],
        y: Sequence[float | None] | NDArray[Any],
        look: Style,
        series: int | None,
        width: float = 1.5,
        markers: bool = False,
        alpha: float = 1.0,
    ) -> None:
        values = np.array([np.nan if v is None else v for v in y], dtype=float)
        (artist,) = ax.plot(
            np.asarray(x, dtype=float),
            values,
            color=look.color,
            linewidth=width,
            alpha=alpha,
            marker=look.marker if markers else "",
            markersize=4.5,
            markeredgewidth=0,
            solid_joinstyle="round",
        )
        if look.dash:
            artist.set_dashes(look.dash)
        self.mark(artist, series)

    def point(self, ax: Any, x: float, y: float | None, series: int | None, label: str) -> None:
        """A place for a tooltip. Call it when the limits of the axes are set."""
        if y is None or not np.isfinite(y):
            return
        px, py = ax.transData.transform((x, y))
        self.points.append(Point(float(px), self.height - float(py), series, plain(label, 90)))

    def text(
        self, ax: Any, x: float, y: float, text: str, series: int | None = None, **options: Any
    ) -> None:
        options = {"fontsize": SMALL, "color": INK, "va": "center", **options}
        self.mark(ax.text(x, y, plain(text, 60), clip_on=False, **options), series)

    def labels(
        self,
        ax: Any,
        ends: Sequence[tuple[float | None, str, int]],
    ) -> None:
        """Names at the right end of lines, (value, name, series), moved apart where they meet."""
        there = [(v, n, s) for v, n, s in ends if v is not None and np.isfinite(v)]
        if not there:
            return
        ax.set_xlim(*ax.get_xlim())  # the leaders below must not move the limits
        ax.set_ylim(*ax.get_ylim())
        low, high = (float(ax.transData.transform((0, v))[1]) for v in ax.get_ylim())
        at = [float(ax.transData.transform((0, v))[1]) for v, _, _ in there]
        missing = max(LINE * (len(at) - 1) - (high - low), 0)  # px: many names need more room
        low, high = low - missing / 2 - 1, high + missing / 2 + 1
        edge = float(ax.transAxes.transform((1, 0))[0])
        back = ax.transData.inverted()
        short = short_names([name for _, name, _ in there], 22)
        for (_, name, series), old, new in zip(there, at, spread(at, LINE, low, high), strict=True):
            look = style(name)
            x0, y0 = back.transform((edge + 2, old))
            x1, y1 = back.transform((edge + 10, new))
            (leader,) = ax.plot(
                [x0, x1], [y0, y1], color=look.color, linewidth=0.8, clip_on=False, alpha=0.8
            )
            self.mark(leader, series)
            x2, _ = back.transform((edge + 13, new))
            self.text(ax, x2, y1, short[name], series)

    def legend(
        self, left: float, top: float, names: Mapping[str, int], notes: Mapping[str, str], head: str
    ) -> None:
        """A column of samples, names and a number each: for lines that end in one place."""
        ax = self.axes(left, top, self.width - left, 14.0 * (len(names) + 1))
        self.blank(ax)
        ax.set_xlim(0, self.width - left)
        ax.set_ylim(14.0 * (len(names) + 1), 0)
        self.text(ax, self.width - left - 2, 7, head, ha="right", alpha=0.75)
        short = short_names(names, 10)  # beside it the number
        for row, (name, series) in enumerate(names.items(), 1):
            look, y = style(name), 14.0 * row + 7
            self.line(ax, [0, 9, 18], [y, y, y], look, series, 1.5)
            (dot,) = ax.plot(
                [9], [y], marker=look.marker, color=look.color, markersize=4.5, markeredgewidth=0
            )
            self.mark(dot, series)
            self.text(ax, 22, y, short[name], series)
            self.text(ax, self.width - left - 2, y, notes.get(name, ""), series, ha="right")

    def tags(self, ax: Any, places: Sequence[tuple[float, float, str, int]]) -> None:
        """Names beside points, (x, y, name, series): right, left, above or below, where room is."""
        pixels = [ax.transData.transform((x, y)) for x, y, _, _ in places]
        taken = [(px - 5, py - 5, px + 5, py + 5) for px, py in pixels]
        back = ax.transData.inverted()
        short = short_names([name for _, _, name, _ in places], 22)
        for (px, py), (_, _, name, series) in zip(pixels, places, strict=True):
            text = short[name]
            w, h = 5.8 * len(text), 11.0
            # (where the text is anchored, how, and its left edge)
            spots = [(px + 8, py, "left", px + 8), (px - 8, py, "right", px - 8 - w)]
            spots += [(px, py + k, "center", px - w / 2) for k in (13, -13)]
            spots += [(px + 8, py + k, "left", px + 8) for k in (9, -9, 18, -18, 27, -27)]
            boxes = [(edge, y - h / 2, edge + w, y + h / 2) for _, y, _, edge in spots]
            room = [free(box, taken) and box[2] < self.width for box in boxes]
            best = room.index(True) if True in room else 0
            taken.append(boxes[best])
            anchor_x, anchor_y, side, _ = spots[best]
            x, y = back.transform((anchor_x, anchor_y))
            self.text(ax, x, y, text, series, ha=side)

    def names_at(self, ax: Any, places: Sequence[tuple[float, float, str]]) -> None:
        """Names on top of clouds of points, (x, y, name), moved up or down where they meet."""
        taken: list[tuple[float, float, float, float]] = []
        back = ax.transData.inverted()
        short = all(len(name) <= 2 for _, _, name in places)
        size, wide = (11.0, 7.0) if short else (SMALL, 5.8)
        left, right = (float(ax.transAxes.transform((e, 0))[0]) for e in (0, 1))
        for x, y, name in places:
            px, py = ax.transData.transform((x, y))
            half = wide * len(name) / 2
            px = min(max(px, left + half), right - half)
            steps = [0, *(s * k for k in (10, 20, 30) for s in (1, -1))]
            boxes = [(px - half, py + s - 5, px + half, py + s + 5) for s in steps]
            best = next((i for i, box in enumerate(boxes) if free(box, taken)), 0)
            taken.append(boxes[best])
            x, y = back.transform((px, py + steps[best]))
            self.text(ax, x, y, name, ha="center", fontsize=size, fontweight="bold")

    # ---- heat maps ---------------------------------------------------------------------------

    def cells(
        self, ax: Any, shade: NDArray[Any], color: str, most: float = 1.0, gap: float = 0.0
    ) -> None:
        """A matrix as rectangles; shade in [0, 1] is the opacity, so that it suits any background.

        gap: px between them. For a page they become one path per shade, written by `render`: a
        map of 128 × 128 stays small and needs no embedded picture.
        """
        rows, columns = shade.shape
        levels = np.round(np.nan_to_num(np.clip(shade, 0, 1)) * LEVELS).astype(int)
        ax.set_xlim(0, columns)
        ax.set_ylim(rows, 0)
        box = ax.get_position()
        place = (box.x0 * self.width, (1 - box.y1) * self.height)
        size = (box.width * self.width / columns, box.height * self.height / rows)
        self.maps.append(Map(levels, color, most, place, size, gap))
        from matplotlib.colors import to_rgb

        picture = np.zeros((rows, columns, 4))
        picture[..., :3] = to_rgb(color)
        picture[..., 3] = most * levels / LEVELS
        scale = max(1, round(2 * min(size))) if gap else 1
        picture = picture.repeat(scale, 0).repeat(scale, 1)
        if gap and scale > 4:
            picture[::scale], picture[:, ::scale] = 0, 0
        extent = (0, columns, rows, 0)
        self._pictures.append(
            ax.imshow(picture, extent=extent, aspect="auto", interpolation="nearest", zorder=0)
        )

    def shown(self, form: str) -> Any:
        """The drawing: with pictures of the heat maps, or for an SVG without."""
        for picture in self._pictures:
            picture.set_visible(form == "png")
        return self.drawing

    def scale(
        self, left: float, top: float, color: str, low: str, high: str, most: float = 1.0
    ) -> None:
        """A small bar that says what the shades of `cells` mean."""
        ax = self.axes(left, top, 70, 7)
        self.blank(ax)
        self.cells(ax, np.linspace(0.05, 1, LEVELS)[None, :], color, most)
        self.text(ax, -1, 0.55, low, ha="right")
        self.text(ax, LEVELS + 1, 0.55, high, ha="left")
