"""Figures to files and into the page.

What matplotlib writes is rewritten for a page with a strict content policy: no style element or
attribute (plain SVG attributes instead), no identifier that nobody refers to, the others prefixed
by the figure's name, and the ink in the color of the page's text.
"""

from __future__ import annotations

import io
import re
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast
from xml.etree import ElementTree as Tree

from ...errors import MissingExtraError
from ..palette import INK, style
from .base import WIDTH, Figure
from .canvas import Canvas, Point
from .maps import Map

SVG, XLINK = "http://www.w3.org/2000/svg", "{http://www.w3.org/1999/xlink}href"
SETTINGS = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "fretta",  # the same file every time
    "text.parse_math": False,  # a $ in a name is a $
    "axes.unicode_minus": True,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "path.simplify": True,
    "image.composite_image": False,  # would show hidden ones
}
FEW = 40  # up to so many points can be reached by the keyboard
_lock = threading.Lock()  # matplotlib's settings are global


@contextmanager
def _settings() -> Iterator[None]:
    try:
        import matplotlib
    except ModuleNotFoundError as error:
        raise MissingExtraError("matplotlib", "report", "drawing figures") from error
    with _lock, matplotlib.rc_context(SETTINGS), warnings.catch_warnings():
        # names in scripts that the bundled font lacks: the reader's browser has one
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def _painted(figure: Figure) -> Canvas:
    """Painting takes as long as writing a file: once for both forms."""
    canvas = figure.cache.get("canvas")
    if canvas is None:
        canvas = figure.cache["canvas"] = Canvas(WIDTH, figure.height)
        figure.paint(canvas)
    return cast(Canvas, canvas)


def png(figure: Figure) -> bytes:
    """Two pixels per unit, on white."""
    out = io.BytesIO()
    with _settings():
        drawing = _painted(figure).shown("png")
        drawing.savefig(out, format="png", dpi=144, facecolor="white", metadata={"Software": None})
    return out.getvalue()


def svg(figure: Figure) -> str:
    """For the page: transparent, in the page's ink, as wide as its place."""
    if "svg" not in figure.cache:
        figure.cache["svg"] = _written(figure, standalone=False)
    return cast(str, figure.cache["svg"])


def svg_file(figure: Figure) -> bytes:
    """A file of its own, on white."""
    return ('<?xml version="1.0" encoding="UTF-8"?>\n' + _written(figure, True)).encode()


def _written(figure: Figure, standalone: bool) -> str:
    if "tree" not in figure.cache:
        out = io.BytesIO()
        with _settings():
            canvas = _painted(figure)
            canvas.shown("svg").savefig(
                out, format="svg", transparent=True, metadata={"Date": None, "Creator": None}
            )
        figure.cache["tree"] = _tidied(figure, out.getvalue(), canvas)
    root = Tree.fromstring(figure.cache["tree"])
    if standalone:
        root.set("width", f"{WIDTH:g}")
        root.set("height", f"{figure.height:g}")
        root.set("font-family", "'DejaVu Sans', sans-serif")
        back = {"width": "100%", "height": "100%", "fill": "#ffffff"}
        root.insert(0, Tree.Element(f"{{{SVG}}}rect", back))
        text = _text(root)
        return text.replace("currentColor", INK)
    root.set("width", "100%")
    return _text(root)


def _text(root: Tree.Element) -> str:
    return Tree.tostring(root, encoding="unicode", default_namespace=None).replace("ns0:", "")


def _tidied(figure: Figure, content: bytes, canvas: Canvas) -> str:
    Tree.register_namespace("", SVG)
    root = Tree.fromstring(content)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{SVG}}}style", f"{{{SVG}}}metadata"):
                parent.remove(child)
    referred = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', content.decode()))
    for element in root.iter():
        _plain_attributes(element, figure.name, referred)
    for key in ("version", "width", "height"):
        root.attrib.pop(key, None)
    root.attrib |= {
        "viewBox": f"0 0 {WIDTH:g} {figure.height:g}",
        # the children of an img cannot be reached
        "role": "group" if 0 < len(canvas.points) <= FEW else "img",
        "aria-label": figure.alt,
        "stroke-linejoin": "round",
        "class": "figure",
    }
    _add_maps(root, canvas.maps)
    _add_points(root, figure, canvas.points)
    return _text(root)


def _plain_attributes(element: Tree.Element, name: str, referred: set[str]) -> None:
    """style="fill: red" becomes fill="red", ids are dropped or prefixed, series get classes."""
    for part in element.attrib.pop("style", "").split(";"):
        key, _, value = part.partition(":")
        key, value = key.strip(), value.strip()
        if key == "font":
            size = re.search(r"([\d.]+)px", value)
            if size:
                element.set("font-size", f"{float(size[1]):g}")
        elif key and key not in ("font-family", "font-stretch", "font-style", "font-variant"):
            element.set(key, "currentColor" if value.lower() == INK else value.removesuffix("px"))
    if element.attrib.get("fill", "").lower() == INK:
        element.set("fill", "currentColor")
    if element.attrib.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]
    for key in element.attrib.keys() & {"d", "x", "y", "transform"}:  # a hundredth of a pixel
        element.set(key, re.sub(r"(\.\d\d)\d+", r"\1", element.attrib[key]))
    identifier = element.attrib.pop("id", "")
    series = re.fullmatch(r"series-(\d+)-\d+", identifier)
    if series:
        element.set("class", f"series s{series[1]}")
    elif identifier in referred:
        element.set("id", f"{name}-{identifier}")
    target = element.attrib.pop(XLINK, None)
    if target is not None:
        element.set("href", target.replace("#", f"#{name}-", 1))
    clip = element.attrib.get("clip-path")
    if clip is not None:
        element.set("clip-path", clip.replace("url(#", f"url(#{name}-"))


def _add_maps(root: Tree.Element, maps: list[Map]) -> None:
    """Heat maps lie below everything else."""
    for number, found in enumerate(maps):
        look = {"class": "map", "fill": found.color, "shape-rendering": "crispEdges"}
        group = Tree.Element(f"{{{SVG}}}g", look)
        root.insert(number, group)
        for opacity, path in found.paths():
            Tree.SubElement(group, f"{{{SVG}}}path", {"fill-opacity": f"{opacity:.3g}", "d": path})


def _add_points(root: Tree.Element, figure: Figure, points: list[Point]) -> None:
    group = Tree.SubElement(root, f"{{{SVG}}}g", {"class": "points"})
    reachable = len(points) <= FEW
    for p in points:
        color, classes = "currentColor", "point"
        if p.series is not None:
            color = style(figure.series[p.series]).color
            classes = f"point series s{p.series}"
        place = {"cx": f"{p.x:.1f}", "cy": f"{p.y:.1f}", "r": "5"}
        look = {"class": classes, "fill": color, "fill-opacity": "0"}
        focus = {"tabindex": "0", "role": "img", "aria-label": p.label} if reachable else {}
        attributes = {**look, **place, "data-label": p.label, **focus}
        circle = Tree.SubElement(group, f"{{{SVG}}}circle", attributes)
        Tree.SubElement(circle, f"{{{SVG}}}title").text = p.label
