"""The images a run trains on and is measured on, and the augmented batch of every step.

Random numbers depend on the seed and the step alone: neither on workers nor on interruptions.
"""

from __future__ import annotations

import hashlib
import importlib
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from ...compat import import_torchvision
from ...data import Dataset, Domain, dataset_options, open_dataset
from ...data.folders import fold_name
from ...errors import ConfigError, FrettaError, FrettaWarning
from ...parts.random import drawing_from
from .config import TrainConfig

VALIDATION = 0.2  # of every source domain

Images = tuple[NDArray[np.uint8], NDArray[np.int64]]  # (n, 3, H, W) and labels


def generator_for(*key: int | str) -> torch.Generator:
    """A generator whose numbers depend on the key and nothing else."""
    digest = hashlib.blake2b("/".join(map(str, key)).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


@lru_cache(maxsize=64)
def _permutation(count: int, key: str) -> NDArray[np.int64]:
    order: NDArray[np.int64] = torch.randperm(count, generator=generator_for(key)).numpy()
    return order


# ---- data sets ----------------------------------------------------------------------------------


def open_data(config: TrainConfig) -> dict[str, Dataset]:
    """By purpose: "train", and "val", "test" or "target", on which accuracy is measured."""
    if config.leave_one_out:
        return _leave_one_out(config)
    found = {}
    for name in ("train", "val", "test") if config.data == "digits" else ("train", "test"):
        options: dict[str, Any] = {"corruption": None} if name == "test" else {}
        split = open_dataset(config.data, config.root, split=name, size=config.size, **options)
        domains = [_limited(domain, config, name) for domain in split.domains]
        found[name] = replace(split, domains=domains)
    return found


def _leave_one_out(config: TrainConfig) -> dict[str, Dataset]:
    # Training crops the images at their own size, so that nothing is resized twice.
    raw = open_dataset(config.data, config.root, size=None)
    verified = {"verify": "off"} if "verify" in dataset_options(config.data) else {}
    sized = open_dataset(config.data, config.root, size=config.size, **verified)
    known = [*raw.names, *raw.missing]
    targets = [name for name in known if fold_name(name) == fold_name(str(config.target))]
    if not targets:
        raise ConfigError(
            f"target={config.target!r} is no domain of {config.data}; it has {', '.join(known)}"
        )
    target = targets[0]
    sources = [name for name in raw.names if name != target]
    if not sources:
        raise ConfigError(
            f"{config.data} has only the domain {target!r} in {raw.root}: leaving it out leaves "
            "nothing to train on"
        )
    absent = [name for name in raw.missing if name != target]
    if absent:
        warnings.warn(
            f"{config.data} in {raw.root} lacks {', '.join(absent)}: training on "
            f"{', '.join(sources)} only",
            FrettaWarning,
            stacklevel=4,
        )
    train, val = [], []
    for name in sources:
        images = _limited(raw.domain(name), config, "train")
        order = _permutation(len(images), f"split/{config.seed}/{name}")
        cut = round(VALIDATION * len(images))
        if not 0 < cut < len(images):
            raise ConfigError(f"domain {name!r} has {len(images)} images: too few to split 80/20")
        val.append(_limited(sized.domain(name), config, "train").subset(np.sort(order[:cut])))
        train.append(images.subset(np.sort(order[cut:])))
    found = {"train": replace(raw, domains=train), "val": replace(sized, domains=val)}
    if target in raw.names:
        test = _limited(sized.domain(target), config, "test")
        found["target"] = replace(sized, domains=[test])
    return found


def _limited(domain: Domain, config: TrainConfig, use: str) -> Domain:
    if config.limit is None or config.limit >= len(domain):
        return domain
    order = _permutation(len(domain), f"limit/{config.seed}/{use}/{domain.name}")
    return domain.subset(np.sort(order[: config.limit]))


# ---- batches ------------------------------------------------------------------------------------


def rows(count: int, batch: int, step: int, key: str) -> NDArray[np.int64]:
    """The images of one step: a window on shuffled passes laid end to end.

    It is a function of the step, so a resumed run needs no memory of what was shown.
    """
    position = np.arange(step * batch, (step + 1) * batch)
    passes, place = np.divmod(position, count)
    found = [_permutation(count, f"{key}/{p}")[place[passes == p]] for p in np.unique(passes)]
    return np.concatenate(found)


def random_crop(x: Tensor, pad: int, random: torch.Generator) -> Tensor:
    """Shift each image by up to `pad` pixels; black comes in at the border."""
    n, channels, height, width = x.shape
    top, left = torch.randint(0, 2 * pad + 1, (2, n, 1), generator=random)
    row = (top + torch.arange(height))[:, None, :, None]
    column = (left + torch.arange(width))[:, None, None, :]
    image = torch.arange(n)[:, None, None, None]
    channel = torch.arange(channels)[None, :, None, None]
    return F.pad(x, (pad, pad, pad, pad))[image, channel, row, column]


def random_flip(x: Tensor, random: torch.Generator) -> Tensor:
    """Mirror half of the images, left to right."""
    flip = torch.rand(len(x), generator=random) < 0.5
    return torch.where(flip[:, None, None, None], x.flip(3), x)


def random_cutout(x: Tensor, side: int, fill: Sequence[float], random: torch.Generator) -> Tensor:
    """Paint over a square of each image with the color `fill`; at the border it is cut off."""
    n, channels, height, width = x.shape
    center_row = torch.randint(height, (n, 1), generator=random)
    center_column = torch.randint(width, (n, 1), generator=random)
    row, column = torch.arange(height) - center_row, torch.arange(width) - center_column
    inside = _within(row, side)[:, None, :, None] & _within(column, side)[:, None, None, :]
    return torch.where(inside, torch.tensor(fill, dtype=x.dtype).view(1, channels, 1, 1), x)


def _within(offset: Tensor, side: int) -> Tensor:
    return (offset >= -(side // 2)) & (offset < side - side // 2)


@lru_cache(maxsize=1)
def domain_transform(size: int) -> Callable[[Tensor], Tensor]:
    """The augmentation of domain generalization, for one (3, H, W) image of any size."""
    import_torchvision()
    v2 = importlib.import_module("torchvision.transforms.v2")
    transform: Callable[[Tensor], Tensor] = v2.Compose(
        [
            v2.RandomResizedCrop(size, scale=(0.7, 1.0)),
            v2.RandomHorizontalFlip(),
            v2.ColorJitter(brightness=0.3, contrast=0.3, saturation=0.3, hue=0.3),
            v2.RandomGrayscale(0.1),
        ]
    )
    return transform


def make_batch(domains: Sequence[Domain], config: TrainConfig, step: int) -> Images | FrettaError:
    """The augmented batch of a step. An error is returned: the main process raises it."""
    random = generator_for("augment", config.seed, step)
    try:
        x, y = zip(*(_augmented(domain, config, step, random) for domain in domains), strict=True)
    except FrettaError as error:
        return error
    return np.concatenate(x), np.concatenate(y)


def _augmented(domain: Domain, config: TrainConfig, step: int, random: torch.Generator) -> Images:
    size = config.size or 32
    key = f"order/{config.seed}/{domain.name}"
    chosen = rows(len(domain), config.batch_size or 1, step, key)
    if config.leave_one_out:  # image by image: sizes differ
        images = [torch.from_numpy(domain.read([i])[0]).permute(2, 0, 1) for i in chosen]
        with drawing_from(random):
            x = torch.stack([domain_transform(size)(image) for image in images])
    else:
        x = torch.from_numpy(domain.read(chosen)).permute(0, 3, 1, 2)
        x = random_crop(x, size // 8, random)
        if config.data != "digits":  # a mirrored digit is no digit
            x = random_flip(x, random)
        if config.cutout:
            x = random_cutout(x, config.cutout, [255 * m for m in config.mean], random)
    return x.contiguous().numpy(), domain.labels[chosen]
