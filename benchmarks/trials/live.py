"""The live page (`fretta report --live`) under slow, many, huge and hostile requests."""

from __future__ import annotations

import http.client
import random
import shutil
import socket
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

from fretta.experiment.execute import Options, run_jobs
from fretta.experiment.store import Store
from fretta.experiment.suite import load_suite
from fretta.report.watch import HOST, Watched, serve

from .tally import Tally, hold

SLOW = "200 silent or half-sent requests are open: others get the page"
MANY = "200 requests at once: each gets the same page"
HUGE = "requests of a megabyte, and answers that nobody reads: others get the page"
STRANGE = "requests for files, by other names and methods, or of any bytes: refused; never a file"
SECONDS = 20


@contextmanager
def served() -> Iterator[int]:
    """The port of a server on a small store."""
    base = Path(tempfile.mkdtemp(prefix="faults-"))
    store = Store(str(base / "results"))
    jobs = load_suite("smoke").restricted(["source", "bn"], [0], 32).jobs(None)
    run_jobs(jobs, store, options=Options(threads=1, device="cpu"))
    (base / "results" / "secret.txt").write_text("what it holds", encoding="utf-8")
    server = serve(Watched(store))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        shutil.rmtree(base, ignore_errors=True)


def page(port: int) -> bytes:
    connection = http.client.HTTPConnection(HOST, port, timeout=SECONDS)
    try:
        connection.request("GET", "/")
        answer = connection.getresponse()
        content = answer.read()
        hold(answer.status == 200, f"status {answer.status}")
        return content
    finally:
        connection.close()


def raw(port: int, content: bytes) -> bytes:
    """What a server says to these bytes."""
    said = b""
    with socket.create_connection((HOST, port), timeout=SECONDS) as connection:
        connection.settimeout(2)
        with suppress(OSError):
            connection.sendall(content)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                said += part
    return said


def strange(chance: random.Random, count: int, port: int) -> list[bytes]:
    paths = ["/../../etc/passwd", "//etc/passwd", "/results/secret.txt", "/secret.txt", "/%2e%2e/"]
    paths += ["/records/", "/.", "/?<script>", "/version/../secret.txt", "http://x/", "*", "\\", ""]
    methods = ["GET", "POST", "PUT", "DELETE", "TRACE", "CONNECT", "OPTIONS", "GET GET", "\0"]
    hosts = [f"{HOST}:{port}", "evil.example", f"evil.example:{port}", "", f"{HOST}:{port}\r\nX: y"]
    found = []
    for _ in range(count):
        method, path = chance.choice(methods), chance.choice(paths)
        version = chance.choice(["HTTP/1.0", "HTTP/1.1", "HTTP/9.9", "", "HTTP/1.1\r\n\tfold"])
        text = f"{method} {path} {version}\r\nHost: {chance.choice(hosts)}\r\n\r\n"
        bad = bytes(chance.randrange(256) for _ in range(chance.randrange(400)))
        found.append(bad if chance.random() < 0.2 else text.encode("latin-1"))
    return found


def trials(methods: list[str], seed: int, short: bool) -> Tally:
    tally, chance = Tally("live"), random.Random(f"{seed}/live")
    number = 20 if short else 200
    with served() as port:
        expected = page(port)
        halves = [b"", b"GET", b"GET / HTTP/1.1\r\nHost:", b"GET / HTTP/1.1\r\nX: " + b"a" * 5000]
        idle = []
        for i in range(number):
            idle.append(socket.create_connection((HOST, port), timeout=SECONDS))
            idle[-1].sendall(halves[i % len(halves)])
            with tally.trial(SLOW, str(i)):
                if i % 10 == 9:
                    hold(page(port) == expected, "another page")
        with ThreadPoolExecutor(number) as pool:
            asked = [pool.submit(page, port) for _ in range(number)]
        for i, one in enumerate(asked):
            with tally.trial(MANY, str(i)):
                hold(one.result() == expected, "another page")
        for connection in idle:
            connection.close()
        large = b"GET /" + b"a" * 10**6 + b" HTTP/1.1\r\n\r\n"
        header = b"GET / HTTP/1.1\r\n" + b"X: " + b"a" * 10**6 + b"\r\n\r\n"
        many = b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: y\r\n" % i for i in range(10**5))
        body = b"POST / HTTP/1.1\r\nContent-Length: 999999999\r\n\r\n" + b"a" * 10**6
        for i in range(number // 10):
            with tally.trial(HUGE, str(i)):
                said = raw(port, (large, header, many, body)[i % 4])
                hold(b"200 OK" not in said, "it was taken")
                with socket.create_connection((HOST, port), timeout=SECONDS) as unread:
                    unread.sendall(f"GET / HTTP/1.1\r\nHost: {HOST}:{port}\r\n\r\n".encode() * 50)
                hold(page(port) == expected, "another page")
        for content in strange(chance, 50 if short else 1000, port):
            with tally.trial(STRANGE, repr(content[:80])):
                said = raw(port, content)
                hold(b"what it holds" not in said and b"root:" not in said, "a file was sent")
        with tally.trial(STRANGE, "afterwards"):
            hold(page(port) == expected, "another page")
    return tally
