"""The images themselves: near-duplicates, those without color, and a contact sheet."""

from __future__ import annotations

import base64
import heapq
import io
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d, interpolate

from ..corruptions.base import pillow_image

THUMBNAIL = 96  # pixels of the longer side
SHOWN = 24  # images on the contact sheet
BITS = 6  # in which the difference hashes of near-duplicates may differ
APART = 0.1  # of their contrast: by so much their small versions may differ, on average
EXPOSURE = 8.0  # gray levels: so much brighter one may be
WINDOW = 8  # neighbors that are compared in each order
GROUPS = 20  # of near-duplicates that are named


class Prints:
    """64-bit difference hashes and 9×8 gray versions: 80 bytes an image.

    A bit says whether a cell of the 9×8 version is brighter than the one to its left. Two images
    are near-duplicates if their hashes differ in at most `BITS` bits and their small versions by
    little, compared with their contrast. Candidates are neighbors where the hashes are sorted, in
    eight rotations: the time is that of sorting.
    """

    def __init__(self) -> None:
        self.names: list[str] = []
        self.gray = 0
        self._hashes: list[NDArray[np.uint64]] = []
        self._small: list[NDArray[np.uint8]] = []

    def add(self, names: list[str], pixels: Tensor) -> None:
        """uint8 (n, channels, H, W)."""
        self.names += names
        if pixels.shape[1] == 1:
            self.gray += len(pixels)
        else:
            spread = pixels.amax(1).int() - pixels.amin(1).int()
            self.gray += int((spread.flatten(1).amax(1) <= 8).sum())  # JPEG blurs color a little
        small = adaptive_avg_pool2d(pixels.float().mean(1, keepdim=True), (8, 9))[:, 0]
        bits = (small[:, :, 1:] > small[:, :, :-1]).flatten(1).numpy()
        packed = np.packbits(bits, axis=1).view(np.uint64)[:, 0]
        self._hashes.append(packed)
        self._small.append(small.round().to(torch.uint8).flatten(1).numpy())

    def groups(self) -> list[list[int]]:
        """Positions of images that are near-duplicates of each other; single ones are left out."""
        if not self.names:
            return []
        hashes, small = np.concatenate(self._hashes), np.concatenate(self._small)
        parent = np.arange(len(hashes))

        def find(i: int) -> int:
            while parent[i] != i:
                parent[i] = parent[parent[i]]
                i = int(parent[i])
            return i

        for turn in range(0, 64, 8):
            low = hashes >> np.uint64((64 - turn) % 64) if turn else np.uint64(0)
            order = np.argsort(hashes << np.uint64(turn) | low, kind="stable")
            for step in range(1, min(WINDOW, len(order) - 1) + 1):
                a, b = order[:-step], order[step:]
                differ = (hashes[a] ^ hashes[b])[:, None].view(np.uint8)
                close = np.unpackbits(differ, axis=1).sum(1) <= BITS
                a, b = a[close], b[close]
                same = _alike(small[a], small[b])
                for i, j in zip(a[same], b[same], strict=True):
                    first, second = sorted((find(int(i)), find(int(j))))
                    parent[second] = first
        found: dict[int, list[int]] = {}
        for i in range(len(hashes)):
            found.setdefault(find(i), []).append(i)
        return [group for group in found.values() if len(group) > 1]

    def duplicates(self) -> tuple[int, int, list[list[str]]]:
        """(how many nearly equal another one, how many of them lie beside it, some groups)."""
        groups = self.groups()
        place = {
            i: p for p, i in enumerate(sorted(range(len(self.names)), key=self.names.__getitem__))
        }
        beside = 0
        for group in groups:
            places = sorted(place[i] for i in group)
            beside += sum(b - a == 1 for a, b in pairwise(places))
        listed = sorted(groups, key=len, reverse=True)[:GROUPS]
        named = [sorted(self.names[i] for i in group) for group in listed]
        return sum(len(g) - 1 for g in groups), beside, named


def _alike(first: NDArray[np.uint8], second: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Whether small versions show the same picture, a little brighter perhaps; row by row."""
    a, b = first.astype(np.float32), second.astype(np.float32)
    means = [v.mean(1, keepdims=True) for v in (a, b)]
    contrast = np.maximum(np.minimum(a.std(1), b.std(1)), 1.0)
    apart = np.abs(a - means[0] - b + means[1]).mean(1)
    close: NDArray[np.bool_] = apart <= APART * contrast
    close &= np.abs(means[0] - means[1])[:, 0] <= EXPOSURE
    return close


@dataclass(frozen=True, order=True)
class Moved:
    """An image and its distance from the source."""

    distance: float
    number: int
    name: str = field(compare=False)
    picture: Tensor = field(compare=False)  # uint8 (3, h, w), small

    def uri(self) -> str:
        """A JPEG as a data URI."""
        image = pillow_image("the contact sheet").fromarray(self.picture.permute(1, 2, 0).numpy())
        content = io.BytesIO()
        image.save(content, "JPEG", quality=85)
        return "data:image/jpeg;base64," + base64.b64encode(content.getvalue()).decode()


class ContactSheet:
    """The images that moved most; only these are kept, and small."""

    def __init__(self, shown: int = SHOWN) -> None:
        self.shown = shown
        self._kept: list[Moved] = []
        self._seen = 0

    def add(self, names: list[str], pixels: Tensor, distances: Tensor) -> None:
        for name, image, distance in zip(names, pixels, distances.tolist(), strict=True):
            self._seen += 1
            if len(self._kept) < self.shown:
                heapq.heappush(self._kept, Moved(distance, -self._seen, name, _small(image)))
            elif distance > self._kept[0].distance:
                moved = Moved(distance, -self._seen, name, _small(image))
                heapq.heapreplace(self._kept, moved)

    def images(self) -> list[Moved]:
        """The one that moved most first."""
        return sorted(self._kept, reverse=True)


def _small(image: Tensor) -> Tensor:
    """At most THUMBNAIL pixels, three channels."""
    longer = max(image.shape[1:])
    image = image.expand(3, -1, -1) if image.shape[0] == 1 else image[:3]
    if longer <= THUMBNAIL:
        return image.clone()
    size = [max(1, round(side * THUMBNAIL / longer)) for side in image.shape[1:]]
    x = interpolate(image[None].float(), size, mode="bilinear", antialias=True)
    return x[0].round().clamp(0, 255).to(torch.uint8)
