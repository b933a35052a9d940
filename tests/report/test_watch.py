"""The live view over HTTP: what it answers, to whom, and what it never does."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from synthetic import fill, record

from fretta.errors import ConfigError, StoreError
from fretta.experiment.store import Store
from fretta.report import watch
from fretta.report.watch import HOST, Watched, serve


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("fretta.report.write.find_figures", lambda *_: ([], ""))
    fill(tmp_path / "store", [record("tent", 0, accuracy={"fog": 0.5})])
    return tmp_path / "store"


@pytest.fixture
def port(folder: Path) -> Iterator[int]:
    server = serve(Watched(fill(folder, [])))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield int(server.server_address[1])
    server.shutdown()
    thread.join()
    server.server_close()


def ask(
    port: int, path: str = "/", method: str = "GET", **headers: str
) -> tuple[int, dict[str, str], str]:
    connection = http.client.HTTPConnection(HOST, port, timeout=30)
    try:
        connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), answer.read().decode()
    finally:
        connection.close()


def test_the_page_and_its_version(port: int) -> None:
    status, headers, page = ask(port)
    assert status == 200
    version = json.loads(ask(port, "/version")[2])
    assert (version["records"], version["running"]) == (1, [])
    assert f'data-live="{version["version"]}"' in page
    assert "tent 50.0 %" in page
    assert "connect-src 'self'" in headers["Content-Security-Policy"]
    assert headers["X-Content-Type-Options"] == "nosniff"
    status, headers, body = ask(port, method="HEAD")
    assert (status, body) == (200, "")
    assert int(headers["Content-Length"]) > 1000


def test_a_new_record_and_runs_in_flight(port: int, folder: Path) -> None:
    before = json.loads(ask(port, "/version")[2])
    (folder / "checkpoints").mkdir()
    (folder / "checkpoints" / "abc123.pt").write_bytes(b"x")
    fill(folder, [record("source", 0, accuracy={"fog": 0.25})])
    after = json.loads(ask(port, "/version")[2])
    assert after["version"] != before["version"]
    assert (after["records"], after["running"]) == (2, ["abc123"])
    deadline = time.monotonic() + 30  # a page that took long to make rests before the next one
    while "against 25.0 % for source" not in (page := ask(port)[2]):
        assert time.monotonic() < deadline
    assert "abc123" in page
    (folder / "checkpoints" / "abc123.pt").write_bytes(b"rewritten")  # no news: same version
    assert json.loads(ask(port, "/version")[2]) == after


def test_a_failed_run_is_not_running(folder: Path) -> None:
    """Its checkpoint stays, for the next attempt."""
    failed = record("bn", 0, error="Traceback")
    fill(folder, [failed])
    (folder / "checkpoints").mkdir()
    for key in (failed.key, "abc123"):
        (folder / "checkpoints" / f"{key}.pt").write_bytes(b"x")
    watched = Watched(fill(folder, []))
    record_file = folder / "records" / f"{failed.key}.json"
    written = record_file.stat().st_mtime
    for later, running in ((-1, ["abc123"]), (1, sorted([failed.key, "abc123"]))):  # tried again
        os.utime(folder / "checkpoints" / f"{failed.key}.pt", (written, written + later))
        assert sorted(watched.status()["running"]) == running


def test_the_page_is_made_only_when_the_store_changed(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    real = watch.build
    monkeypatch.setattr(watch, "build", lambda *a: made.append(1) or real(*a))
    watched = Watched(fill(folder, []))
    first = watched.page()
    assert watched.page() is first
    assert len(made) == 1
    watched._rest_until = 0.0
    fill(folder, [record("bn", 0, accuracy={"fog": 0.4})])
    assert watched.page() != first
    assert len(made) == 2


def test_read_only(port: int, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = sorted(p.name for p in folder.rglob("*"))
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert ask(port, "/", method)[0] == 501
    for path in ("/records", "/../records", "/etc/passwd", "/?x", "/%2e%2e/", "/version/", "*"):
        assert ask(port, path)[0] == 404
    assert sorted(p.name for p in folder.rglob("*")) == before

    def broken(*_: object) -> None:
        raise StoreError("the bucket is gone")

    monkeypatch.setattr(watch, "build", broken)
    assert ask(port)[::2] == (500, "the bucket is gone")
    assert ask(port, "/version")[0] == 200


def test_other_names_addresses_and_ports_are_refused(port: int, folder: Path) -> None:
    """A page of another site that points its own name at 127.0.0.1 gets nothing."""
    hosts = ("evil.example", f"evil.example:{port}", HOST, f"{HOST}:1", "", f"[::1]:{port}")
    for host in hosts:
        status, _, body = ask(port, "/", Host=host)
        assert status == 403
        assert "tent" not in body
    assert ask(port, "/version", Host=f"localhost:{port}")[0] == 200
    # bound to 127.0.0.1 and nothing wider: on Linux every 127.x.x.x would answer otherwise
    with socket.socket() as other:
        other.settimeout(5)
        assert other.connect_ex(("127.0.0.2", port)) != 0
    with pytest.raises(ConfigError, match=rf"port={port}: .*in use.*port=0"):
        serve(Watched(fill(folder, [])), port)
    with pytest.raises(ConfigError, match="port=99999"):
        serve(Watched(fill(folder, [])), 99999)


def test_ctrl_c_ends_it(folder: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-m", "fretta.cli", "watch", str(folder), "--port", "0", "--no-browser"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )
    try:
        assert child.stdout is not None
        line = child.stdout.readline()
        number = int(line.split("http://127.0.0.1:")[1].split("/")[0])
        assert json.loads(ask(number, "/version")[2])["records"] == 1
        child.send_signal(signal.SIGINT)
        out, error = child.communicate(timeout=30)
        assert child.returncode == 0
        assert "stopped" in out
        assert "Traceback" not in error
    finally:
        child.kill()
        child.wait()


def test_a_packed_store_is_seen_and_its_changes_too(folder: Path) -> None:
    watched = Watched(fill(folder, []))
    assert Store(folder).pack() == 1
    before = watched.status()
    assert before["records"] == 1
    fill(folder, [record("bn", 0, accuracy={"fog": 0.4})])
    assert Store(folder).pack() == 2
    after = watched.status()
    assert after["records"] == 2
    assert after["version"] != before["version"]
