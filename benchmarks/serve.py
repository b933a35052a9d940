"""`fretta serve` under load: nothing lost, how long it takes, what a dead replica costs.

    python benchmarks/serve.py [--streams 50] [--images 10000] [--kills 10] [--out serve.json]

Cameras send images of the digits model, one request after the other each, over HTTP on 127.0.0.1.
In the same run the same cameras ask a bare endpoint on Ray Serve: the same model, batches and
decoding, without adaptation. Then, with --kills, a second service is killed (kill -9) at seeded
random moments, and every answer is compared with a replay in this process.
"""

from __future__ import annotations

import json
import random
import statistics
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cameras import Camera, Killer, Pool, check, run
from common import arguments, write
from processes import replica, resident_mib

from fretta.serve.host import StreamHost
from fretta.serve.local import here, serving
from fretta.serve.settings import Settings

BARE = "/bare"
PARTS = 4


def deploy_bare(settings: Settings) -> None:
    """The same model behind Serve's own batching: what there is without fretta."""
    from ray import serve

    @serve.deployment(max_ongoing_requests=1000, ray_actor_options={"num_cpus": 1})
    class Model:
        def __init__(self) -> None:
            self.case = settings.open_case()
            self.case.net.eval()

        @serve.batch(max_batch_size=settings.batch_size, batch_wait_timeout_s=settings.wait)
        async def __call__(self, images: list[Any]) -> list[list[tuple[int, float]]]:
            pixels = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2)
            with torch.inference_mode():
                logits = self.case.net(self.case.preprocessing.apply(pixels.contiguous()))
            best = logits.softmax(1).topk(5)
            return [
                list(zip(i, p, strict=True))
                for i, p in zip(best.indices.tolist(), best.values.tolist(), strict=True)
            ]

        def decoding(self) -> Any:
            return self.case.preprocessing.decoding(alpha=settings.alpha)

    @serve.deployment(max_ongoing_requests=1000, ray_actor_options={"num_cpus": 0})
    class Front:
        def __init__(self, model: Any) -> None:
            self.model = model

        async def __call__(self, request: Any) -> Any:
            import asyncio

            from fretta.serve.images import decode_bytes

            how = await self.model.decoding.remote()
            async with request.form() as form:
                files = [await file.read() for file in form.getlist("images")]
            images = [decode_bytes(data, how, settings.max_pixels) for data in files]
            answers = await asyncio.gather(*(self.model.remote(image) for image in images))
            return {"answers": answers}

    serve.run(Front.bind(Model.bind()), name="bare", route_prefix=BARE)


@dataclass
class Load:
    """What one endpoint was asked, in parts."""

    path: str
    cameras: list[Camera]
    seconds: float = 0.0
    memory: list[float] = field(default_factory=list)  # MiB of the replica, after each part

    def run(self, port: int, pool: Pool, part: int, parts: int) -> None:
        rows = [camera.rows for camera in self.cameras]
        for camera, all_rows in zip(self.cameras, rows, strict=True):
            cuts = [len(all_rows) * i // parts for i in range(parts + 1)]
            camera.rows = all_rows[cuts[part] : cuts[part + 1]]
        self.seconds += run(port, pool, self.cameras, self.path)
        for camera, all_rows in zip(self.cameras, rows, strict=True):
            camera.rows = all_rows
        self.memory.append(resident_mib(replica()))

    def result(self) -> dict[str, Any]:
        said = [one for camera in self.cameras for one in camera.said]
        sent = sum(len(rows) for camera in self.cameras for rows in camera.rows)
        times = statistics.quantiles([one.seconds for one in said], n=100, method="inclusive")
        answered = sum(len(one.answers) for one in said)
        return {
            "requests": len(said),
            "images": sent,
            "answered": answered,
            "lost": sent - answered,
            "sent_again": sum(one.tries > 1 for one in said),
            "p50_ms": 1000 * times[49],
            "p95_ms": 1000 * times[94],
            "p99_ms": 1000 * times[98],
            "images_per_second": answered / self.seconds,
        }


def measure_load(settings: Settings, pool: Pool, options: Any) -> dict[str, Any]:
    def cameras(images: int) -> list[Camera]:
        return pool.cameras(options.streams, images, options.each)

    paths = {"bare": BARE, "fretta": "/predict"}
    loads = {name: Load(path, cameras(options.images)) for name, path in paths.items()}
    with serving(settings, num_cpus=2, log_to_driver=False):
        deploy_bare(settings)
        for path in paths.values():  # streams begin, code is loaded
            run(settings.port, pool, cameras(options.streams * options.each * 2), path)
        for part in range(PARTS):  # in turns: the machine may have other work
            for name, load in loads.items():
                load.run(settings.port, pool, part, PARTS)
                print(f"{name} {part + 1} of {PARTS}: {load.seconds:.0f} s", flush=True)
    result = {name: load.result() for name, load in loads.items()}
    fretta, bare = result["fretta"], result["bare"]
    keys = ("p50_ms", "p95_ms", "p99_ms", "images_per_second")
    ratios = {key: fretta[key] / bare[key] for key in keys}
    return {**result, "fretta_over_bare": ratios, "replica_mib": loads["fretta"].memory}


def measure_kills(settings: Settings, pool: Pool, options: Any) -> dict[str, Any]:
    """Kill -9 at random moments; then compare every answer and the last state with a replay."""
    cameras = pool.cameras(options.streams, options.images, options.each, seed=1)
    requests = sum(len(camera.rows) for camera in cameras)
    rng = random.Random(options.seed)
    killer = Killer(rng.sample(range(requests // 20, requests * 9 // 10), options.kills))
    with serving(settings, log_to_driver=False):
        run(settings.port, pool, cameras, on_answer=killer)
    found = check(settings.open_case(), settings, pool, cameras)
    equal_states = found.compare(StreamHost(here(settings)))
    return {
        "kills": len(killer.killed),
        "images": options.images,
        "answered": found.answers,
        "wrong": found.wrong,
        "sent_again": found.again,
        "checkpoint_every": settings.checkpoint_every,
        "most_batches_forgotten": max(found.lost, default=0),
        "batches_forgotten": sum(found.lost),
        "batches": sum(len(camera.said) for camera in cameras),
        "streams": len(cameras),
        "streams_with_the_state_of_the_replay": equal_states,
    }


@contextmanager
def store() -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        yield str(Path(folder) / "streams")


def main() -> None:
    parser = arguments(
        __doc__, streams=50, images=10_000, each=8, kills=0, method="auto", port=8765, seed=0
    )
    parser.add_argument("--only-kills", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    pool, result = Pool(), dict[str, Any]()
    values = {"model": "digits", "method": options.method, "device": "cpu", "port": options.port}
    if not options.only_kills:
        with store() as folder:
            settings = Settings(**values, store=folder)
            result["load"] = measure_load(settings, pool, options)
        print(json.dumps(result["load"]), flush=True)
    if options.kills:
        with store() as folder:
            settings = Settings(**values, store=folder, checkpoint_every=4)
            result["kills"] = measure_kills(settings, pool, options)
        print("kills", json.dumps(result["kills"]), flush=True)
    write(options.out, {"settings": vars(options), **result})


if __name__ == "__main__":
    main()
