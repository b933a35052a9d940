"""Randomness that belongs to an adapter: seeded, saved with its state, apart from the user's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

import torch


def seeded(seed: int, device: torch.device) -> torch.Generator:
    return torch.Generator(device=device).manual_seed(seed)


@contextmanager
def drawing_from(generator: torch.Generator) -> Iterator[None]:
    """While active, global draws on the generator's device (dropout) come from the generator.

    After an exception the generator stands where it stood: a failed step leaves no trace.
    """
    get, put = _global_state(generator.device)
    with undisturbed(generator.device):
        put(generator.get_state())
        yield
        generator.set_state(get())


def undisturbed(device: torch.device) -> AbstractContextManager[None]:
    """While active, global draws on the device (by a model that is random in eval mode) leave the
    caller's random numbers as they would have been."""
    if device.type == "cpu":
        return torch.random.fork_rng(devices=[])
    return torch.random.fork_rng(devices=[device], device_type=device.type)


def _global_state(
    device: torch.device,
) -> tuple[Callable[[], torch.Tensor], Callable[[torch.Tensor], None]]:
    """How to read and write the global random state of a device."""
    if device.type == "cpu":
        return torch.get_rng_state, torch.set_rng_state
    module = torch.get_device_module(device)
    return partial(module.get_rng_state, device), lambda state: module.set_rng_state(state, device)
