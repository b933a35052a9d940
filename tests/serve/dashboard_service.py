"""A service that gives sample answers to the dashboard, and notes what it is asked."""

from __future__ import annotations

import json
import math
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

from fretta.serve.dashboard import page

HOSTILE = "<img src=x onerror=alert(1)>"


def sample(name: str, batches: int, verdict: str, **more: Any) -> dict[str, Any]:
    """What GET /streams/NAME gives: 32 images a batch, the guard acts on one in 40."""
    history = [
        {
            "batch": b,
            "time": time.time() - 2 * (batches - b),
            "images": 32,
            "learned": True,
            "predicted_by": "adapted",
            "entropy": 0.9 * math.exp(-b / 60) + 0.04 * math.sin(b),
            "nrs": 0.42 - 0.1 * b / max(1, batches),
            "changed": 0.1 + 0.05 * math.cos(b / 9),
            "drift": None if b < 3 else 0.0004 * b,
            "marginal_entropy": 2.1,
            "action": "rollback" if b % 40 == 39 else "",
            "reason": f"fewer classes {HOSTILE}",
        }
        for b in range(max(0, batches - 256), batches)
    ]
    last = history[-1] if history else {}
    return {
        "name": name,
        "shard": 0,
        "in_memory": True,
        "frozen": False,
        "batches": batches,
        "learned": batches,
        "images": 32 * batches,
        "by_source": 64,
        "updated": time.time(),
        "actions": {"rollback": batches // 40},
        "problem": "",
        "verdict": verdict,
        "labeled": 0,
        **{key: last.get(key) for key in ("entropy", "nrs", "drift", "changed")},
        "estimate": {"source": 0.681, "adapted": 0.744, "change": 0.063, "low": 0.02, "high": 0.1},
        "text": f"estimated without labels: +6.3 points of accuracy: adapting {verdict}",
        "history": history,
        "events": [{"batch": 5, "time": 0.0, "event": "reset"}],
        "method": "auto",
        "guard": "rollback",
        "hyperparameters": {},
        "memory_bytes": 3 << 20,
        **more,
    }


class Service:
    """Serve `streams` on a port of this machine while the `with` goes on."""

    def __init__(self, *streams: dict[str, Any], token: str = "") -> None:
        self.streams, self.token, self.down = {s["name"]: s for s in streams}, token, False
        self.asked: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                self.send(*outer.answer(self.path, self.headers.get("Authorization", "")))

            def send(self, status: int, kind: str, content: str) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.end_headers()
                self.wfile.write(content.encode())

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/"

    def answer(self, path: str, authorization: str) -> tuple[int, str, str]:
        if path == "/":
            return 200, "text/html; charset=utf-8", page()
        if self.down:
            return 503, "application/json", "{}"
        if self.token and authorization != f"Bearer {self.token}":
            return 401, "application/json", '{"detail": "token"}'
        if path == "/streams":
            hidden = ("history", "events", "text")
            rows = [{k: v for k, v in s.items() if k not in hidden} for s in self.streams.values()]
            return 200, "application/json", json.dumps(rows)
        found = self.streams.get(unquote(path.removeprefix("/streams/")))
        return (200 if found else 404), "application/json", json.dumps(found)

    def __enter__(self) -> Service:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
