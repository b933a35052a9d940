"""`fretta serve`: slow, many, huge and hostile requests; kill -9 of its processes and of itself.

Cameras send images of a few streams all the time. What they were told is compared with a replay
in this process, which goes back where the service went on from a checkpoint (cameras.py).
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass

from cameras import Camera, Checked, Pool, check, run
from processes import replica

from fretta.serve.host import StreamHost

from . import bad_requests
from .serving import LONGEST, Service, running, until
from .tally import Tally, hold

PART = "kill -9 of a process of the service, under load: every stream is answered again by itself"
WHOLE = "kill -9 of fretta serve, then the same command: no process is left, streams go on"
RIGHT = (
    "an answer is that of an undisturbed replay, bit for bit; else it is a 5xx, none, or, while"
    " the service starts, a 404 of Ray's proxy"
)
STATE = "afterwards a stream has the state of the replay, and lost less than checkpoint_every"
STREAMS, EACH, PAUSE = 4, 8, 0.1  # streams, images of a request, seconds between two
PARTS = ("streams-0", "streams-0", "Ingress")
PART_KILLS, WHOLE_KILLS = 10, 12


def images(pool: Pool, name: str, stop: threading.Event) -> Iterator[list[int]]:
    """Of one request after the other."""
    chance = random.Random(name)
    while not stop.wait(PAUSE):
        yield [chance.randrange(len(pool.files)) for _ in range(EACH)]


@dataclass
class Load:
    """Cameras that send all the time."""

    cameras: list[Camera]
    sender: Future[float]

    def answered(self) -> None:
        """Wait until every camera was told something new."""
        before = [len(camera.said) for camera in self.cameras]

        def all_were() -> bool:
            if self.sender.done():  # an answer that must not be
                self.sender.result()
            return all(len(c.said) > n for c, n in zip(self.cameras, before, strict=True))

        until(all_were, "an answer for every stream")


@contextmanager
def loaded(service: Service, pool: Pool) -> Iterator[Load]:
    stop = threading.Event()
    names = [f"door-{number}" for number in range(STREAMS)]
    cameras = [Camera(name, images(pool, name, stop)) for name in names]
    with ThreadPoolExecutor(1) as thread:
        given = {"again": (404, *range(500, 600)), "patience": 3 * LONGEST}
        sender = thread.submit(run, service.port, pool, cameras, **given)
        try:
            yield Load(cameras, sender)
        finally:
            stop.set()
    sender.result()


def kill_parts(tally: Tally, load: Load, chance: random.Random, count: int) -> None:
    for number in range(count):
        title = PARTS[number % len(PARTS)]
        with tally.trial(PART, f"{number}: {title}"):
            time.sleep(chance.uniform(0, 1))
            os.kill(until(lambda title=title: replica(title), title), signal.SIGKILL)
            load.answered()


def kill_whole(
    tally: Tally, service: Service, load: Load, chance: random.Random, count: int
) -> None:
    """Three times under load, then once while it starts, and so on."""
    for number in range(count):
        with tally.trial(WHOLE, str(number)):
            if number % 4 == 3:
                time.sleep(chance.uniform(0, service.startup))
            else:
                service.ready()
                load.answered()
                time.sleep(chance.uniform(0, 1))
            left = service.kill()
            service.start()
            hold(not left, f"processes were left: {left}")
    service.ready()
    load.answered()


def compare(tally: Tally, service: Service, pool: Pool, cameras: list[Camera]) -> list[Checked]:
    """Every answer with the replay."""
    settings, case = service.settings, service.settings.open_case()
    checked = []
    for camera in cameras:
        found = check(case, settings, pool, [camera])
        checked.append(found)
        for number in range(len(camera.said)):
            tally.count(RIGHT, "another" if number < found.wrong else None, camera.name)
    return checked


def trials(methods: list[str], seed: int, short: bool) -> Tally:
    tally, chance, pool = Tally("service"), random.Random(f"{seed}/service"), Pool(64)
    parts, whole = (1, 1) if short else (PART_KILLS, WHOLE_KILLS)
    with running() as service:
        cameras = bad_requests.trials(tally, service, pool, chance, short)
        with loaded(service, pool) as load:
            load.answered()
            kill_parts(tally, load, chance, parts)
            kill_whole(tally, service, load, chance, whole)
        with tally.trial(STATE, "Ctrl-C"):
            hold(service.stop() == 0, f"ended with another code: {service.log()}")
        compare(tally, service, pool, cameras)
        host = StreamHost(service.settings)
        for found in compare(tally, service, pool, load.cameras):
            with tally.trial(STATE, *found.states):
                hold(found.compare(host) == 1, "another state")
                most = max(found.lost, default=0)
                hold(most < service.settings.checkpoint_every, f"{most} batches were lost")
        refused = sum((camera.refused for camera in load.cameras), Counter[int]())
        print(f"service: not answered while it was killed, by status (0: none): {dict(refused)}")
    return tally
