"""A client of `fretta serve`, with the standard library alone.

    fretta serve --model digits --port 8000
    python client.py http://127.0.0.1:8000 camera-1 images/*.png

FRETTA_TOKEN of the environment is sent as the bearer token. A request that gets no answer is sent
again with the same ids, so that the service does not learn from its images twice.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class Client:
    def __init__(self, url: str, token: str | None = None, tries: int = 5) -> None:
        self.url, self.token, self.tries = url.rstrip("/"), token, tries

    def predict(self, stream: str, images: Sequence[bytes]) -> list[dict[str, Any]]:
        """One answer per image: label, confidence, top5, predicted_by, id, ..."""
        body = {
            "stream": stream,
            "images": [base64.b64encode(image).decode() for image in images],
            "ids": [uuid.uuid4().hex for _ in images],
        }
        answers: list[dict[str, Any]] = self._ask("/predict", body)["answers"]
        return answers

    def feedback(self, stream: str, labels: Mapping[str, str]) -> Any:
        """Labels that came late, {id of an answer: label}; they measure, and never teach."""
        return self._ask("/feedback", {"stream": stream, "labels": dict(labels)})

    def stream(self, name: str) -> Any:
        """The health over time and the verdict."""
        return self._ask(f"/streams/{name}")

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        headers = {"Content-Type": "application/json"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        for left in reversed(range(self.tries)):
            data = None if body is None else json.dumps(body).encode()
            request = urllib.request.Request(self.url + path, data, headers)
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                starting = error.code == 404 and path == "/predict"  # Ray's proxy, not the service
                if not left or not (starting or error.code == 503):
                    raise RuntimeError(f"{error.code}: {error.read().decode()}") from error
                time.sleep(float(error.headers.get("Retry-After", 1)))
            except (urllib.error.URLError, ConnectionError, TimeoutError):
                if not left:
                    raise
                time.sleep(1)
            if body is not None and path == "/predict":
                body["retry"] = True
        raise AssertionError("unreachable")


def main(url: str, stream: str, *files: str, batch: int = 32) -> None:
    client = Client(url, os.environ.get("FRETTA_TOKEN"))
    for start in range(0, len(files), batch):
        some = files[start : start + batch]
        answers = client.predict(stream, [Path(file).read_bytes() for file in some])
        for file, answer in zip(some, answers, strict=True):
            print(
                f"{file}\t{answer['label']}\t{answer['confidence']:.3f}\t{answer['predicted_by']}"
            )
    detail = client.stream(stream)
    print(f"{detail['images']} images in this stream so far; {detail['text']}", file=sys.stderr)


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(f"usage: {sys.argv[0]} URL STREAM IMAGE...")
    main(*sys.argv[1:])
