"""Requests to batches: sizes, order, errors and clients that went away."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from fretta.errors import BusyError, InputError
from fretta.serve.batcher import Batcher, Waiting

LONG = 3600.0  # seconds nobody waits


class Model:
    """Notes its batches; a batch waits while the gate is closed."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, list[Any]]] = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, name: str, items: list[Waiting]) -> list[str]:
        self.gate.wait(10)
        images = [item.image for item in items]
        self.batches.append((name, images))
        if "bad" in images:
            raise InputError("bad image")
        return [f"{item.id} is {item.image}" for item in items]


def run(test: Callable[[Batcher, Model], Awaitable[None]], **settings: Any) -> None:
    async def main() -> None:
        model = Model()
        with ThreadPoolExecutor(1) as pool:
            given = {"batch_size": 4, "wait": 0.0, "limit": 100, **settings}
            batcher = Batcher(model, pool, **given)
            await test(batcher, model)
            model.gate.set()
            await batcher.drain()
        assert batcher.waiting == 0

    asyncio.run(main())


def test_a_full_batch_goes_at_once_and_answers_belong_to_their_images() -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        answers = await asyncio.gather(
            batcher.predict("a", [1, 2, 3], ["x", "y", "z"]),
            batcher.predict("b", [7, 8, 9, 10], list("hijk")),
            batcher.predict("a", [4, 5, 6, 7, 8], list("uvwop")),
        )
        assert answers[0] == ["x is 1", "y is 2", "z is 3"]
        assert answers[2] == ["u is 4", "v is 5", "w is 6", "o is 7", "p is 8"]
        assert model.batches == [
            ("a", [1, 2, 3, 4]),
            ("b", [7, 8, 9, 10]),
            ("a", [5, 6, 7, 8]),
        ]

    run(test, wait=LONG)


def test_a_batch_that_waited_enough_goes_as_it_is() -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        assert await batcher.predict("a", [1, 2], ["x", "y"]) == ["x is 1", "y is 2"]
        assert model.batches == [("a", [1, 2])]

    run(test, wait=0.001)


def test_what_comes_while_a_batch_runs_makes_the_next() -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        model.gate.clear()
        tasks = [asyncio.create_task(batcher.predict("a", [0], ["0"]))]
        await asyncio.sleep(0.05)
        tasks += [asyncio.create_task(batcher.predict("a", [n], [str(n)])) for n in range(1, 7)]
        await asyncio.sleep(0.05)
        model.gate.set()
        assert [len(answers) for answers in await asyncio.gather(*tasks)] == [1] * 7
        assert [images for _, images in model.batches] == [[0], [1, 2, 3, 4], [5, 6]]

    run(test)


def test_an_error_is_the_answer_of_its_batch_and_of_no_other() -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        answers = await asyncio.gather(
            batcher.predict("a", [1, 2, 3, "bad"], list("wxyz")),
            batcher.predict("a", [5, 6, 7, 8], list("hijk")),
            return_exceptions=True,
        )
        assert isinstance(answers[0], InputError)
        assert answers[1] == ["h is 5", "i is 6", "j is 7", "k is 8"]

    run(test, wait=LONG)


def test_nothing_learns_from_an_image_whose_client_is_gone() -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        model.gate.clear()
        first = asyncio.create_task(batcher.predict("a", [1], ["1"]))
        await asyncio.sleep(0.05)
        gone = asyncio.create_task(batcher.predict("a", [2], ["2"]))
        stays = asyncio.create_task(batcher.predict("a", [3], ["3"]))
        await asyncio.sleep(0.05)
        gone.cancel()
        model.gate.set()
        assert await first == ["1 is 1"]
        assert await stays == ["3 is 3"]
        assert [images for _, images in model.batches] == [[1], [3]]

    run(test)


def test_too_many_images_are_turned_away() -> None:
    async def test(batcher: Batcher, model: Model) -> None:
        model.gate.clear()
        task = asyncio.create_task(batcher.predict("a", [1, 2, 3], list("xyz")))
        await asyncio.sleep(0)
        with pytest.raises(BusyError, match="3 images wait already and 5 may"):
            await batcher.predict("b", [1, 2, 3], list("xyz"))
        model.gate.set()
        assert len(await task) == 3

    run(test, limit=5)
