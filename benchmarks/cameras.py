"""Clients of `fretta serve` for the benchmark and the tests: cameras that send and remember."""

from __future__ import annotations

import http.client
import io
import json
import os
import signal
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from processes import replica
from torch import Tensor

from fretta.data import open_dataset
from fretta.experiment.case import Case
from fretta.serve.host import StreamHost
from fretta.serve.settings import Settings

PATIENCE = 120.0  # seconds that a camera tries again


@dataclass
class Said:
    """A request and its answer."""

    images: list[int]  # rows of the pool
    ids: list[str]
    answers: list[dict[str, Any]]
    seconds: float
    tries: int


@dataclass
class Camera:
    """A stream and what it was told, in its order; one request at a time."""

    name: str
    rows: Iterable[list[int]]  # of each request
    said: list[Said] = field(default_factory=list)
    refused: Counter[int] = field(default_factory=Counter)  # by status; 0: no answer at all


class Pool:
    """Shifted digits, as pixels and as files."""

    def __init__(self, images: int = 540) -> None:
        domains = open_dataset("digits", corruption=["gaussian_noise", "fog"], severity=4).domains
        read = [domain.read(np.arange(images)) for domain in domains]
        self.pixels: NDArray[np.uint8] = np.concatenate(read)
        self.files = [self._png(image) for image in self.pixels]

    @staticmethod
    def _png(image: NDArray[np.uint8]) -> bytes:
        out = io.BytesIO()
        Image.fromarray(image).save(out, "PNG")
        return out.getvalue()

    def cameras(self, count: int, images: int, each: int, seed: int = 0) -> list[Camera]:
        """`images` in all, shared evenly, `each` in a request."""
        rng = np.random.RandomState(seed)
        found = []
        for number in range(count):
            rows = rng.choice(len(self.files), images // count).tolist()
            parts = [rows[i : i + each] for i in range(0, len(rows), each)]
            found.append(Camera(f"cam-{number:03d}", parts))
        return found


def post(port: int, path: str, fields: dict[str, Any], files: Sequence[bytes]) -> tuple[int, bytes]:
    """A multipart request, over a connection of its own."""
    mark, parts = uuid.uuid4().hex, []
    for name, value in fields.items():
        for one in value if isinstance(value, list) else [value]:
            head = f'--{mark}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'
            parts.append(f"{head}{one}\r\n".encode())
    for data in files:
        head = (
            f'--{mark}\r\nContent-Disposition: form-data; name="images"; filename="i.png"\r\n'
            "Content-Type: image/png\r\n\r\n"
        )
        parts.append(head.encode() + data + b"\r\n")
    body = b"".join([*parts, f"--{mark}--\r\n".encode()])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        kind = {"Content-Type": f"multipart/form-data; boundary={mark}"}
        connection.request("POST", path, body, kind)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def run(
    port: int,
    pool: Pool,
    cameras: list[Camera],
    path: str = "/predict",
    on_answer: Callable[[], None] = lambda: None,
    again: Collection[int] = (503,),
    patience: float = PATIENCE,
) -> float:
    """All cameras at once, each one request after the other; the seconds it took.

    What is not answered, or with a status of `again`, is sent again.
    """

    def send(camera: Camera) -> None:
        for rows in camera.rows:
            number = len(camera.said)
            ids = [f"{camera.name}-{number}-{i}" for i in range(len(rows))]
            fields: dict[str, Any] = {"stream": camera.name, "ids": ids}
            begin, tries = time.perf_counter(), 0
            while True:
                tries += 1
                try:
                    status, text = post(port, path, fields, [pool.files[row] for row in rows])
                except (OSError, http.client.HTTPException) as error:  # the connection broke
                    status, text = 0, repr(error).encode()
                if status == 200:
                    break
                camera.refused[status] += 1
                if status not in (0, *again) or time.perf_counter() - begin > patience:
                    raise RuntimeError(f"{camera.name}: {status} {text[:300]!r}")
                fields["retry"] = "true"
                time.sleep(0.5)
            seconds = time.perf_counter() - begin
            camera.said.append(Said(rows, ids, json.loads(text)["answers"], seconds, tries))
            on_answer()

    begin = time.perf_counter()
    with ThreadPoolExecutor(len(cameras)) as threads:
        for ended in [threads.submit(send, camera) for camera in cameras]:
            ended.result()
    return time.perf_counter() - begin


# ---- the processes of the service ---------------------------------------------------------------


class Killer:
    """Ends the replica with kill -9 when so many requests have been answered."""

    def __init__(self, moments: list[int]) -> None:
        self.moments, self.answered = sorted(moments), 0
        self.killed: list[int] = []
        self._lock = threading.Lock()

    def __call__(self) -> None:
        with self._lock:
            self.answered += 1
            if not self.moments or self.answered < self.moments[0]:
                return
            process = replica()
            if process is not None and process not in self.killed:  # else it is not back yet
                self.moments.pop(0)
                os.kill(process, signal.SIGKILL)
                self.killed.append(process)


# ---- what should have been said -----------------------------------------------------------------


@dataclass
class Checked:
    answers: int = 0
    wrong: int = 0  # another image's answer, or another number than the undisturbed replay
    again: int = 0  # requests that a camera sent more than once
    lost: list[int] = field(default_factory=list)  # batches forgotten at a death, by stream
    states: dict[str, list[Any]] = field(default_factory=dict)  # before each batch, and in the end

    def compare(self, host: StreamHost) -> int:
        """How many streams of the store have the state of the replay, after as many batches.

        A stream that sent nothing after a death is where its checkpoint is.
        """
        right = 0
        for name, states in self.states.items():
            stream = host._known(name)
            if stream.batches < len(states) - 1:
                self.lost.append(len(states) - 1 - stream.batches)
            right += equal(stream.adapter.state_dict(), states[stream.batches])
        return right


def check(case: Case, settings: Settings, pool: Pool, cameras: list[Camera]) -> Checked:
    """Replay what each stream learned, in this process and undisturbed.

    A stream that died goes on from its checkpoint: the number of its next batch says from which.
    Every answer, also one that was forgotten later, is compared with the replay up to there.
    """
    found = Checked()
    guard = None if settings.guard == "none" else settings.guard
    options = {"guard": guard, "batch_size": settings.batch_size, **settings.hyperparameters}
    for camera in cameras:
        adapter = case.adapter(settings.method, **options)
        states: list[Any] = [None]  # before each batch
        for said in camera.said:
            found.answers += len(said.answers)
            found.again += said.tries > 1
            number = said.answers[0]["batch"]
            found.wrong += sum(a["batch"] != number for a in said.answers)
            found.wrong += [a["id"] for a in said.answers] != said.ids
            if number < len(states) - 1:
                found.lost.append(len(states) - 1 - number)
                del states[number + 1 :]
                adapter = case.adapter(settings.method, **options)
                if states[number] is not None:
                    adapter.load_state_dict(deepcopy(states[number]))
            elif number > len(states) - 1:
                found.wrong += 1  # a batch that nobody was told of
                break
            shares = adapter(inputs(case, pool, said.images)).float().softmax(1)
            found.wrong += sum(
                not same(share, answer) for share, answer in zip(shares, said.answers, strict=True)
            )
            states.append(deepcopy(adapter.state_dict()))
        found.states[camera.name] = states
    return found


def inputs(case: Case, pool: Pool, rows: list[int]) -> Tensor:
    pixels = torch.from_numpy(pool.pixels[rows]).permute(0, 3, 1, 2).contiguous()
    return case.preprocessing.apply(pixels)


def same(shares: Tensor, answer: dict[str, Any]) -> bool:
    """Bit for bit: JSON keeps them."""
    best = shares.sort(descending=True, stable=True)
    wanted = list(zip(best.indices[:5].tolist(), best.values[:5].tolist(), strict=True))
    return wanted == [(one["index"], one["confidence"]) for one in answer["top5"]]


def equal(a: Any, b: Any) -> bool:
    """Nested states, bit for bit."""
    if isinstance(a, Tensor):
        return isinstance(b, Tensor) and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(equal(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(equal, a, b))
    return bool(a == b)
