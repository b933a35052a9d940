"""The service under slow, many, huge and hostile requests, over real connections."""

from __future__ import annotations

import importlib
import random
import socket
import sys
from contextlib import suppress
from itertools import islice
from pathlib import Path
from urllib.parse import quote

import httpx2
from cameras import Camera, Pool, run
from processes import replica, resident_mib

from .live import raw, strange
from .serving import HOST, Service
from .tally import Tally, hold

SLOW = "200 silent or half-sent requests are open: others are answered; a late body gets a 408"
MANY = "200 requests at once, each of a stream of its own: all are answered"
HOSTILE = (
    "bombs, huge bodies, wrong types, hostile names, paths and JSON: refused by their status;"
    " no stream and no file changes"
)
STRANGE = "requests for files, by other names and methods, or of any bytes: never a file"
INERT = "HTML in names and paths comes back as JSON, never as a page"
GROWTH = 300  # MiB that the process that decodes may grow
NAMES = (
    "<img src=x onerror=alert(1)>",
    "<script>alert(1)</script>",
    "\"><svg onload='a()'>",
    "{{1}}",
)
TESTS = Path(__file__).resolve().parents[2] / "tests" / "serve"

HEAD = b"POST /predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
BODIES = (  # whose rest never comes
    HEAD + b"Content-Length: 5000\r\n\r\n",
    HEAD + b'Content-Length: 5000\r\n\r\n{"stream": "cam", "images": ["',
    HEAD + b'Transfer-Encoding: chunked\r\n\r\nc\r\n{"stream": "\r\n',
)
HALVES = (b"", b"POST /pre", HEAD + b"X: " + b"a" * 5000, *BODIES)


def slow(tally: Tally, service: Service, pool: Pool, number: int, wait: bool) -> Camera:
    """Connections that stay open, until the service ends them or at once."""
    camera, idle = Camera("slow", []), []
    for i in range(number):
        idle.append(socket.create_connection((HOST, service.port), timeout=60))
        idle[-1].sendall(HALVES[i % len(HALVES)])
        with tally.trial(SLOW, str(i)):
            if i % 10 == 9:
                camera.rows = [[i % len(pool.files)] * 8]
                run(service.port, pool, [camera])
    for i, connection in enumerate(idle):
        if wait and HALVES[i % len(HALVES)] in BODIES:
            with tally.trial(SLOW, f"408 of {i}"):
                said = connection.recv(65536)
                hold(said.startswith(b"HTTP/1.1 408"), f"{said[:100]!r}")
        connection.close()
    return camera


def many(tally: Tally, service: Service, pool: Pool, number: int) -> list[Camera]:
    cameras = pool.cameras(number, number * 4, 4, seed=3)
    with tally.trial(MANY, "all"):
        run(service.port, pool, cameras)
    for camera in cameras:
        with tally.trial(MANY, camera.name):
            hold(len(camera.said) == 1, "no answer")
    return cameras


def files(service: Service) -> list[str]:
    found = (p for p in service.folder.rglob("*") if p.is_file() and not p.name.startswith("."))
    return sorted(str(path.relative_to(service.folder)) for path in found)


def hostile(tally: Tally, service: Service, client: httpx2.Client, seed: int, number: int) -> None:
    """What tests/serve/hostile.py supplies, without the kinds about a token."""
    sys.path.append(str(TESTS))
    attacks = importlib.import_module("hostile").attacks
    settings = service.settings
    supply = attacks(seed, settings.max_body, settings.max_images, "none")
    for each in islice((one for one in supply if "no token" not in one.kind), number):
        headers = {**each.arguments.pop("headers", {}), **each.headers}
        with tally.trial(HOSTILE, each.kind):
            try:
                said = client.request(each.method, each.path, headers=headers, **each.arguments)
            except httpx2.TransportError:  # refused before all of it was sent
                hold(each.kind.startswith("huge"), "no answer")
            else:
                hold(said.status_code in each.status, f"{said.status_code} {said.text[:200]}")


def inert(tally: Tally, client: httpx2.Client) -> None:
    for name in NAMES:
        path = f"/streams/{quote(name, safe='')}"
        body = {"stream": name, "images": ["aGVsbG8="], name: 1}
        for method, where, more in (
            ("GET", path, {}),
            ("GET", f"/{quote(name, safe='')}", {}),
            ("POST", f"{path}/reset", {}),
            ("POST", "/predict", {"json": body}),
            ("POST", "/predict", {"data": {"stream": name, name: name}}),
            ("POST", "/predict", {"content": b"x", "headers": {"content-type": name}}),
            ("POST", "/feedback", {"json": {"stream": name, "labels": {name: name}}}),
            ("POST", "/feedback", {"json": {name: name}}),
        ):
            with tally.trial(INERT, f"{method} {where}"):
                said = client.request(method, where, **more)
                hold(400 <= said.status_code < 500, f"status {said.status_code}")
                kind = said.headers.get("content-type", "")
                hold(kind.startswith("application/json"), f"it came as {kind}")


def trials(
    tally: Tally, service: Service, pool: Pool, chance: random.Random, short: bool
) -> list[Camera]:
    """The cameras that were answered; what they were told is not compared here."""
    number = 20 if short else 200
    cameras = [slow(tally, service, pool, number, not short)]
    cameras += many(tally, service, pool, number)
    one = Camera("cam", [[0] * 8])  # which the hostile requests name
    run(service.port, pool, [one])
    (service.folder / "store" / "secret.txt").write_text("what it holds", encoding="utf-8")
    with httpx2.Client(base_url=f"http://{HOST}:{service.port}", timeout=60) as client:
        before, there = client.get("/streams").json(), files(service)
        memory = resident_mib(replica("Ingress"))
        hostile(tally, service, client, chance.randrange(1000), 39 if short else 1014)
        inert(tally, client)
        for content in strange(chance, 30 if short else 500, service.port):
            with tally.trial(STRANGE, repr(content[:80])), suppress(ConnectionError):
                said = raw(service.port, content)
                hold(b"what it holds" not in said and b"root:" not in said, "a file was sent")
        with tally.trial(HOSTILE, "afterwards"):
            hold(client.get("/streams").json() == before, "a stream changed")
            hold(files(service) == there, "a file changed")
            grown = resident_mib(replica("Ingress")) - memory
            hold(grown < GROWTH, f"the process that decodes grew by {grown:.0f} MiB")
    return [*cameras, one]
