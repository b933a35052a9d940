"""Randomness that belongs to an adapter: seeded, saved with its state, apart from the user's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


def seeded(seed: int, device: torch.device) -> torch.Generator:
    return torch.Generator(device=device).manual_seed(seed)


@contextmanager
def drawing_from(generator: torch.Generator) -> Iterator[None]:
    """While active, global draws on the generator's device (dropout) come from the generator."""
    device = generator.device
    if device.type == "cpu":
        outside = torch.get_rng_state()
        torch.set_rng_state(generator.get_state())
        try:
            yield
        finally:
            generator.set_state(torch.get_rng_state())
            torch.set_rng_state(outside)
        return
    module = torch.get_device_module(device)
    outside = module.get_rng_state(device)
    module.set_rng_state(generator.get_state(), device)
    try:
        yield
    finally:
        generator.set_state(module.get_rng_state(device))
        module.set_rng_state(outside, device)
