"""One color, dash and marker per method, everywhere. Readable by the color-blind.

The colors are those of Okabe and Ito without black and yellow, which vanish on a dark or a light
page, and three more for the other methods of the paper. What shares a color (eta and eata)
differs in dash and marker.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

INK = "#1f2328"  # text and axes; the page paints them in its own color
GRAY = "#808890"
ORANGE, SKY, GREEN, BLUE, RED, PURPLE = (
    *("#e69f00", "#56b4e9", "#009e73", "#0072b2", "#d55e00", "#cc79a7"),
)
OLIVE, SIENNA, VIOLET = "#999933", "#a0522d", "#8074d8"
COLORS = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED)
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (1.5, 1.5), (6, 2, 1.5, 2))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")


@dataclass(frozen=True)
class Style:
    """How a series is drawn; an empty dash is a full line."""

    color: str
    dash: tuple[float, ...] = ()
    marker: str = "o"


KNOWN: dict[str, Style] = {
    "source": Style(GRAY, (4, 2.5), "o"),
    "bn": Style(SKY, (), "s"),
    "tent": Style(ORANGE, (), "^"),
    "eta": Style(PURPLE, (), "v"),
    "eata": Style(PURPLE, (5, 2), "D"),
    "sar": Style(BLUE, (5, 2), "P"),
    "tsd": Style(SIENNA, (5, 2), "X"),
    "tipi": Style(OLIVE, (5, 2), "<"),
    "tea": Style(VIOLET, (1.5, 1.5), ">"),
    "s-fret": Style(GREEN, (), "D"),
    "g-fret": Style(RED, (), "o"),
    "rdumb": Style(PURPLE, (1.5, 1.5), "<"),
    "deyo": Style(PURPLE, (6, 2, 1.5, 2), "X"),
    "t3a": Style(SIENNA, (), "s"),
    "shot-im": Style(SIENNA, (1.5, 1.5), "v"),
    "lame": Style(GRAY, (), "D"),
    "foa-shift": Style(GRAY, (1.5, 1.5), "P"),
    "delta": Style(SKY, (5, 2), "^"),
    "note": Style(SKY, (1.5, 1.5), ">"),
    "rotta": Style(GREEN, (5, 2), "X"),
    "cotta": Style(GREEN, (1.5, 1.5), "<"),
    "roid": Style(BLUE, (), "o"),
    "cmf": Style(BLUE, (1.5, 1.5), "v"),
    "memo": Style(OLIVE, (), "P"),
    "stein": Style(VIOLET, (5, 2), "s"),
    "auto": Style(VIOLET, (), "D"),
}
CORRUPTIONS = (
    *("gaussian_noise", "shot_noise", "impulse_noise", "defocus_blur", "glass_blur"),
    *("motion_blur", "zoom_blur", "snow", "frost", "fog", "brightness", "contrast"),
    *("elastic_transform", "pixelate", "jpeg_compression"),
)
# one color per family: noise, blur, weather, digital; dashes and markers within it
_FAMILY = (BLUE,) * 3 + (ORANGE,) * 4 + (GREEN,) * 4 + (PURPLE,) * 4
_WITHIN = (0, 1, 2, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3)
KNOWN |= {
    name: Style(color, DASHES[n], MARKERS[n])
    for name, color, n in zip(CORRUPTIONS, _FAMILY, _WITHIN, strict=True)
}


def style(label: str) -> Style:
    """Always the same for the same label; others than the known ones by a hash of the name."""
    known = KNOWN.get(label)
    if known is not None:
        return known
    number = zlib.crc32(label.encode("utf-8", "replace"))
    return Style(
        COLORS[number % len(COLORS)],
        DASHES[number // 7 % len(DASHES)],
        MARKERS[number // 29 % len(MARKERS)],
    )


def color(label: str) -> str:
    """#rrggbb of a method."""
    return style(label).color
