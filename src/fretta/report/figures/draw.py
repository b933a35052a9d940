"""A figure: words, numbers, and how to paint it with matplotlib; written as SVG and PNG.

What belongs to a series carries its number, so that the page can hide it; places worth a tooltip
are collected as points. In the page's SVG the ink takes the color of the page's text, and
identifiers begin with the figure's name.
"""

from __future__ import annotations

import io
import re
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from typing import Any
from xml.etree import ElementTree as Tree

import numpy as np
from numpy.typing import NDArray
from pandas import DataFrame

from ..palette import INK, style

WIDTH = 420.0  # px of the viewBox: text stays readable when it is shown 360 px wide
SMALL, NORMAL = 9.2, 10.2  # px
FEW = 40  # up to so many points can be reached by the keyboard
SVG, HREF = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
SETTINGS = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "fretta",  # the same file every time
    "text.parse_math": False,  # a $ in a name is a $
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": SMALL,
    "axes.titlesize": NORMAL,
    "axes.labelsize": NORMAL,
    "axes.titlelocation": "left",
    "axes.facecolor": "none",
    "axes.linewidth": 0.6,
    "axes.axisbelow": True,
    "xtick.major.size": 0,
    "ytick.major.size": 0,
    "grid.alpha": 0.17,
    "grid.linewidth": 0.6,
    "legend.frameon": False,
    "lines.markersize": 4.5,
    "lines.markeredgewidth": 0,
    **{f"axes.spines.{side}": False for side in ("left", "right", "top")},
    **{f"axes.{part}color": INK for part in ("label", "edge")},
    **{f"{part}.color": INK for part in ("text", "xtick", "ytick", "grid")},
}
_lock = threading.Lock()  # matplotlib's settings are global


@dataclass
class Figure:
    """One figure. `numbers` are what it shows: the table below it, and a CSV."""

    name: str  # unique file stem [a-z0-9-]
    title: str
    caption: str  # what is shown, on what data, and how to read it
    alt: str  # the finding in a sentence, for screen readers
    numbers: DataFrame
    paint: Callable[[Canvas], None] = field(repr=False)
    series: list[str] = field(default_factory=list)  # can be hidden: class "series s<i>"
    height: float = 280.0  # of a width of WIDTH
    group: str = "runs"  # or "paper"

    @cached_property
    def _canvas(self) -> Canvas:
        canvas = Canvas(self.height)
        self.paint(canvas)
        return canvas

    def png(self) -> bytes:
        """Two pixels per unit, on white."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        _ = self._svg  # which decides on the layout
        figure, out = self._canvas.figure, io.BytesIO()
        with _settings():
            figure.patch.set_facecolor("white")
            figure.set_dpi(144)
            FigureCanvasAgg(figure).print_png(out, metadata={"Software": None})
        return out.getvalue()

    def svg(self) -> str:
        """For the page: transparent, in the page's ink, as wide as its place."""
        return self._svg.replace(INK, "currentColor")

    def svg_file(self) -> bytes:
        """A file of its own, on white."""
        size = f'width="{WIDTH:g}" height="{self.height:g}" font-family="DejaVu Sans, sans-serif"'
        text = self._svg.replace('width="100%"', size, 1)
        back = '<rect width="100%" height="100%" fill="#ffffff" />'
        head, end, rest = text.partition(">")
        return f'<?xml version="1.0" encoding="UTF-8"?>\n{head}{end}{back}{rest}'.encode()

    @cached_property
    def _svg(self) -> str:
        from matplotlib.backends.backend_svg import FigureCanvasSVG

        out = io.BytesIO()
        with _settings():
            canvas = self._canvas
            nothing = {"Date": None, "Creator": None, "Format": None, "Type": None}
            # not savefig, which draws everything twice
            FigureCanvasSVG(canvas.figure).print_svg(out, metadata=nothing)
            canvas.figure.set_layout_engine("none")
        Tree.register_namespace("", SVG[1:-1])
        root = Tree.fromstring(out.getvalue())
        _tidy(root, self.name)
        root.attrib.clear()
        root.attrib |= {
            "viewBox": f"0 0 {WIDTH:g} {self.height:g}",
            "width": "100%",
            # the children of an img cannot be reached
            "role": "group" if 0 < len(canvas.points) <= FEW else "img",
            "aria-label": self.alt,
            "class": "figure",
        }
        self._add_points(root)
        return Tree.tostring(root, encoding="unicode")

    def _add_points(self, root: Tree.Element) -> None:
        points = self._canvas.points
        group = Tree.SubElement(root, f"{SVG}g", {"class": "points"})
        for ax, x, y, series, label in points:
            px, py = ax.transData.transform((x, y))
            look = {"class": "point", "fill": INK, "fill-opacity": "0", "r": "5"}
            if series is not None:
                look["class"] = f"point series s{series}"
                look["fill"] = style(self.series[series]).color
            look |= {"cx": f"{px:.1f}", "cy": f"{self.height - py:.1f}", "data-label": label}
            if len(points) <= FEW:
                look |= {"tabindex": "0", "role": "img", "aria-label": label}
            circle = Tree.SubElement(group, f"{SVG}circle", look)
            Tree.SubElement(circle, f"{SVG}title").text = label


@contextmanager
def _settings() -> Iterator[None]:
    import matplotlib

    with _lock, matplotlib.rc_context(SETTINGS), warnings.catch_warnings():
        # names in scripts that the bundled font lacks: the reader's browser has one
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def _tidy(root: Tree.Element, name: str) -> None:
    """No style element, series as classes, and only identifiers that something refers to."""
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{SVG}style", f"{SVG}metadata"):
                parent.remove(child)
    elements = list(root.iter())
    used = {e.attrib[HREF][1:] for e in elements if e.attrib.get(HREF, "").startswith("#")}
    used |= {e.attrib["clip-path"][5:-1] for e in elements if "clip-path" in e.attrib}
    for element in elements:
        identifier = element.attrib.pop("id", "")
        series = re.fullmatch(r"series-(\d+)-\d+", identifier)
        if series:
            element.set("class", f"series s{series[1]}")
        elif identifier in used:
            element.set("id", f"{name}-{identifier}")
        target = element.attrib.pop(HREF, None)
        if target is not None:
            element.set("href", target.replace("#", f"#{name}-", 1))
        if "clip-path" in element.attrib:
            element.set("clip-path", element.attrib["clip-path"].replace("#", f"#{name}-"))
        if "d" in element.attrib:  # a hundredth of a pixel
            element.set("d", re.sub(r"(\.\d\d)\d+", r"\1", element.attrib["d"]))


class Canvas:
    """A matplotlib figure with constrained layout, and what all figures draw."""

    def __init__(self, height: float) -> None:
        from matplotlib.figure import Figure as Drawing

        size = (WIDTH / 72, height / 72)
        self.figure: Any = Drawing(figsize=size, dpi=72, layout="constrained", facecolor="none")
        self.points: list[tuple[Any, float, float, int | None, str]] = []
        self._marks = 0

    def axes(self, rows: int = 1, columns: int = 1, **options: Any) -> list[Any]:
        """Axes with a light horizontal grid, row by row."""
        made = list(self.figure.subplots(rows, columns, squeeze=False, **options).ravel())
        for ax in made:
            ax.grid(axis="y")
        return made

    def mark(self, artist: Any, series: int | None) -> None:
        """Let an artist belong to a series."""
        if series is not None:
            artist.set_gid(f"series-{series}-{self._marks}")
            self._marks += 1

    def line(
        self,
        ax: Any,
        x: Sequence[float] | NDArray[Any],
        y: Sequence[float | None] | NDArray[Any],
        name: str,
        series: int,
        width: float = 1.4,
        markers: bool = False,
    ) -> None:
        look = style(name)
        values = np.array([np.nan if v is None else v for v in y], dtype=float)
        marker = look.marker if markers else ""
        (artist,) = ax.plot(x, values, color=look.color, linewidth=width, marker=marker)
        if look.dash:
            artist.set_dashes(look.dash)
        self.mark(artist, series)

    def point(self, ax: Any, x: float, y: float | None, series: int | None, label: str) -> None:
        """A place for a tooltip."""
        if y is not None and np.isfinite(y):
            self.points.append((ax, float(x), float(y), series, plain(label, 90)))

    def legend(self, names: Mapping[str, int], notes: Mapping[str, str], title: str = "") -> None:
        """Series, each with a note, on the right."""
        from matplotlib.lines import Line2D

        short = short_names(names, 18)
        samples, texts = [], []
        for name in names:
            look = style(name)
            sample = Line2D([], [], color=look.color, marker=look.marker, linewidth=1.4)
            if look.dash:
                sample.set_dashes(look.dash)
            samples.append(sample)
            texts.append(f"{short[name]}  {notes[name]}" if name in notes else short[name])
        place = {"loc": "outside right upper", "alignment": "left", "title": title or None}
        made = self.figure.legend(samples, texts, title_fontsize=SMALL, fontsize=SMALL, **place)
        for series, sample, text in zip(
            names.values(), made.get_lines(), made.get_texts(), strict=True
        ):
            self.mark(sample, series)
            self.mark(text, series)

    def heat(self, ax: Any, shade: NDArray[Any], color: str, most: float = 1.0) -> None:
        """A matrix; shade in [0, 1] becomes opacity, so that it suits any background."""
        from matplotlib.colors import to_rgb

        picture = np.zeros((*shade.shape, 4))
        picture[..., :3] = to_rgb(color)
        picture[..., 3] = most * np.nan_to_num(np.clip(shade, 0, 1))
        ax.imshow(picture, interpolation="none", aspect="auto")
        ax.grid(False)
        ax.spines["bottom"].set_visible(False)

    def ticks(self, axis: Any, names: Sequence[str], at: Sequence[float] = ()) -> None:
        """Names along an axis; slanted along x unless they are very short."""
        short = short_names(names, 18)
        axis.set_ticks(list(at) or range(len(names)), [short[name] for name in names])
        if axis.axis_name == "x" and max(map(len, names), default=0) > 5:
            top = axis.get_ticks_position() == "top"
            look = {"rotation": 50, "ha": "left" if top else "right", "rotation_mode": "anchor"}
            for label in axis.get_ticklabels():
                label.set(**look)


# ---- names ---------------------------------------------------------------------------------------


def plain(text: object, longest: int = 40) -> str:
    """Names come from anywhere: one line without control characters, not too long."""
    line = "".join(c if c.isprintable() else "·" for c in str(text))
    return line if len(line) <= longest else line[: longest - 1] + "…"


def short_names(names: Iterable[str], longest: int) -> dict[str, str]:
    """Each name in at most so many letters, no two alike.

    Of names that would be cut to the same text, the words they begin with in common are left out;
    what is still the same is numbered.
    """
    long = {name: name for name in names}
    for same in _alike({name: plain(name, longest) for name in long}):
        words = {name: name.split(" ") for name in same}
        columns = zip(*words.values(), strict=False)
        start = len(list(takewhile(lambda column: len(set(column)) == 1, columns)))
        long |= {name: "…" + " ".join(words[name][start:]) for name in same if start}
    cut = {name: plain(text, longest) for name, text in long.items()}
    still = [name for same in _alike(cut) for name in same]
    for number, name in enumerate(still, 1):
        cut[name] = f"{plain(long[name], longest - len(str(number)) - 1)} {number}"
    return cut


def _alike(cut: dict[str, str]) -> list[list[str]]:
    groups: dict[str, list[str]] = {}
    for name, text in cut.items():
        groups.setdefault(text, []).append(name)
    return [same for same in groups.values() if len(same) > 1]
