"""kill -9 on a Ray cluster that stays: of drivers, and of workers, whose runs go to others."""

from __future__ import annotations

import random

from processes import ray_cluster, titled

from .kills import FEW, Command, kill, records
from .tally import Tally


def a_worker(driver: int) -> int | None:
    return titled("ray::fretta")


def trials(methods: list[str], seed: int, short: bool) -> Tally:
    tally = Tally("cluster")
    with ray_cluster() as address:
        words = ["run", "smoke", "--seed", "0", "--threads", "1", "--checkpoint", "0"]
        words += ["--ray", address]
        driver = Command("fretta run --ray", words, records)
        worker = Command("a worker of fretta run --ray", words, records, each=1, victim=a_worker)
        for command in [driver] if short else [driver, worker]:
            command.kills = FEW if short else command.kills
            kill(tally, command, random.Random(f"{seed}/{command.name}"))
    return tally
