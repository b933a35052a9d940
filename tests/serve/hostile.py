"""Requests that mean harm, or are just wrong: a seeded endless supply, each with its status."""

from __future__ import annotations

import base64
import io
import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

NAMES = ["../../etc/passwd", "a/b", "..", ".hidden", "", "x" * 65, "nul\0", "ä", "a b", "%2e%2e"]


def encoded(kind: str = "PNG", size: tuple[int, int] = (40, 30), mode: str = "RGB") -> bytes:
    noise = np.random.default_rng(0).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
    out = io.BytesIO()
    Image.fromarray(noise).convert(mode).save(out, kind)
    return out.getvalue()


def png(width: int, height: int, data: bytes = b"") -> bytes:
    """A PNG that claims a size."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        check = struct.pack(">I", zlib.crc32(kind + content))
        return struct.pack(">I", len(content)) + kind + content + check

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    body = chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(data)) + chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + body


@dataclass
class Attack:
    """One request; `arguments` as httpx takes them."""

    kind: str
    status: tuple[int, ...]
    arguments: dict[str, Any]
    path: str = "/predict"
    method: str = "POST"
    headers: dict[str, str] = field(default_factory=dict)


def attacks(seed: int, max_body: int, max_images: int, token: str) -> Iterator[Attack]:
    """For a service with these limits, a stream named `cam` and a token."""
    rng = np.random.default_rng(seed)
    good, jpeg = encoded(), encoded("JPEG", (64, 64))
    bomb, text = png(30_000, 30_000, bytes(10_000)), base64.b64encode(good).decode()

    def files(*images: bytes, **fields: Any) -> dict[str, Any]:
        data = {"stream": "cam", **fields}
        return {"files": [("images", ("a.png", image)) for image in images], "data": data}

    def body(value: Any) -> dict[str, Any]:
        ready = isinstance(value, (bytes, Iterator))
        content = value if ready else json.dumps(value).encode()
        return {"content": content, "headers": {"content-type": "application/json"}}

    def flipped(data: bytes) -> bytes:
        """Damage near the start, where it cannot pass for an image."""
        return bytes(rng.integers(0, 256, 24, dtype=np.uint8)) + data[24:]

    while True:
        cut, name = int(rng.integers(1, len(good) - 20)), NAMES[rng.integers(len(NAMES))]
        wrong = ["", "Bearer", "Bearer x", f"Basic {token}", f"bearer {token}x", f"Token {token}"]
        verb, some = ("reset", "freeze", "resume")[rng.integers(3)], int(rng.integers(1, 9))
        yield from (
            Attack("truncated png", (400,), files(good[:cut])),
            Attack("truncated jpeg", (400,), files(jpeg[: len(jpeg) // (some + 1)])),
            Attack("noise", (400,), files(rng.bytes(200 * some))),
            Attack("damaged", (400,), files(flipped(good))),
            Attack("bad beside good", (400,), files(good, good[:cut], good)),
            Attack("bomb", (400,), files(bomb)),
            Attack("narrow", (400,), files(png(1, 40_000_000))),
            Attack("huge", (413,), files(bytes(max_body + some))),
            Attack("huge chunks", (413,), body(iter([bytes(1 << 16)] * (max_body >> 15)))),
            Attack("wrong type", (400,), files(encoded("GIF"))),
            Attack(
                "text", (400,), {"content": b"hello", "headers": {"content-type": "text/plain"}}
            ),
            Attack("no type", (400,), {"content": good}),
            Attack("many", (400,), files(*[good] * (max_images + some))),
            Attack("none", (400,), body({"stream": "cam", "images": []})),
            Attack("name in form", (400,), files(good, stream=name)),
            Attack("name in json", (400,), body({"stream": name, "images": [text]})),
            Attack("no name", (400,), body({"images": [text]})),
            Attack("number as name", (400,), body({"stream": some, "images": [text]})),
            Attack("base64", (400,), body({"stream": "cam", "images": [text[:-3] + "*=="]})),
            Attack("numbers", (400,), body({"stream": "cam", "images": [some, None, {}]})),
            Attack("unknown key", (400,), body({"stream": "cam", "images": [text], "x": 1})),
            Attack("ids", (400,), body({"stream": "cam", "images": [text], "ids": ["a", "b"]})),
            Attack(
                "long id", (400,), body({"stream": "cam", "images": [text], "ids": ["a" * 200]})
            ),
            Attack("ids twice", (400,), files(good, good, ids=["a", "a"])),
            Attack("bad json", (400,), body(json.dumps({"stream": "cam"}).encode()[:-some])),
            Attack("deep json", (400,), body(b"[" * 100_000)),
            Attack("list", (400,), body([text])),
            Attack("latin-1", (400,), body(b'{"stream": "\xe4"}')),
            Attack(
                "boundary",
                (400,),
                {"content": good, "headers": {"content-type": "multipart/form-data"}},
            ),
            Attack("no token", (401,), files(good), headers={"authorization": wrong[some % 6]}),
            Attack(
                "no token for rows",
                (401,),
                {},
                "/streams",
                "GET",
                {"authorization": wrong[some % 6]},
            ),
            Attack("no token for numbers", (401,), {}, "/metrics", "GET", {"authorization": ""}),
            Attack("other page", (403,), files(good), headers={"origin": "http://evil.example"}),
            Attack("unknown stream", (404,), {}, f"/streams/never-{some}", "GET"),
            Attack("unknown stream", (404,), {}, f"/streams/never-{some}/{verb}"),
            Attack("path", (400, 404), {}, f"/streams/..%2f..%2fetc%2fpasswd/{verb}"),
            Attack("path", (400, 404), {}, "/streams/%2e%2e/%2e%2e/etc/passwd", "GET"),
            Attack("verb", (404, 405), {}, "/streams/cam/delete"),
            Attack("method", (405,), {}, "/streams/cam", "DELETE"),
            Attack(
                "label", (400,), body({"stream": "cam", "labels": {"a": "no class"}}), "/feedback"
            ),
            Attack("labels", (422,), body({"stream": "cam", "labels": [1]}), "/feedback"),
            Attack("labels", (404,), body({"stream": f"no{some}", "labels": {}}), "/feedback"),
        )
