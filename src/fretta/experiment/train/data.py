"""What a run trains on and is measured on, and the batch of every step."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...data import Dataset, Domain, dataset_options, open_dataset
from ...data.folders import fold_name
from ...errors import ConfigError, FrettaError, FrettaWarning
from .augment import (
    color_jitter,
    generator_for,
    random_crop,
    random_flip,
    random_gray,
    random_resized_crop,
)
from .config import TrainConfig

VALIDATION = 0.2  # of every source domain
JITTER, GRAY = 0.3, 0.1  # strength, share of images


@dataclass(frozen=True, eq=False)
class TrainData:
    """The images of a run, by purpose."""

    train: Dataset
    held: dict[str, Dataset]  # "val", "test", "target": what accuracy is measured on

    def facts(self) -> dict[str, Any]:
        """For the card: how many images of which domain served for what."""
        counts = {"train": self.train, **self.held}
        return {
            "name": self.train.name,
            "images": {use: {d.name: len(d) for d in s.domains} for use, s in counts.items()},
            "fingerprint": self.train.fingerprint(),
        }


def open_data(config: TrainConfig) -> TrainData:
    """Everything a resolved config needs; DataError or ConfigError where that is not there."""
    return _leave_one_out(config) if config.leave_one_out else _single(config)


def _single(config: TrainConfig) -> TrainData:
    def split(name: str, **more: Any) -> Dataset:
        opened = open_dataset(config.data, config.root, split=name, size=config.size, **more)
        return replace(opened, domains=[_limited(d, config, name) for d in opened.domains])

    held = {"val": split("val")} if config.data == "digits" else {}
    held["test"] = split("test", corruption=None)
    return TrainData(split("train"), held)


def _leave_one_out(config: TrainConfig) -> TrainData:
    # Training crops the images at their own size, so that nothing is resized twice.
    raw = open_dataset(config.data, config.root, size=None)
    quiet = {"verify": "off"} if "verify" in dataset_options(config.data) else {}  # said once
    sized = open_dataset(config.data, config.root, size=config.size, **quiet)
    wanted = fold_name(str(config.target))
    target = [name for name in raw.names if fold_name(name) == wanted]
    known = [*raw.names, *raw.missing]
    if not any(fold_name(name) == wanted for name in known):
        raise ConfigError(
            f"target={config.target!r} is no domain of {config.data}; it has {', '.join(known)}"
        )
    sources = [name for name in raw.names if name not in target]
    if not sources:
        raise ConfigError(
            f"{config.data} has only the domain {target[0]!r} in {raw.root}: leaving it out leaves "
            "nothing to train on"
        )
    absent = [name for name in raw.missing if fold_name(name) != wanted]
    if absent:
        warnings.warn(
            f"{config.data} in {raw.root} lacks {', '.join(absent)}: training on "
            f"{', '.join(sources)} only",
            FrettaWarning,
            stacklevel=4,
        )
    train, val = [], []
    for name in sources:
        whole = _limited(raw.domain(name), config, "train")
        order = _permutation(len(whole), f"split/{config.seed}/{name}")
        cut = round(VALIDATION * len(whole))
        if not 0 < cut < len(whole):
            raise ConfigError(f"domain {name!r} has {len(whole)} images: too few to split 80/20")
        val.append(_limited(sized.domain(name), config, "train").subset(np.sort(order[:cut])))
        train.append(whole.subset(np.sort(order[cut:])))
    held = {"val": replace(sized, domains=val)}
    if target:
        tested = _limited(sized.domain(target[0]), config, "test")
        held["target"] = replace(sized, domains=[tested])
    return TrainData(replace(raw, domains=train), held)


def _limited(domain: Domain, config: TrainConfig, use: str) -> Domain:
    if config.limit is None or config.limit >= len(domain):
        return domain
    order = _permutation(len(domain), f"limit/{config.seed}/{use}/{domain.name}")
    return domain.subset(np.sort(order[: config.limit]))


@lru_cache(maxsize=64)
def _permutation(count: int, key: str) -> NDArray[np.int64]:
    order: NDArray[np.int64] = torch.randperm(count, generator=generator_for(key)).numpy()
    return order


def rows(count: int, batch: int, step: int, key: str) -> NDArray[np.int64]:
    """The images of one step: a window on shuffled passes laid end to end.

    It is a function of the step, so a resumed run needs no memory of what was shown.
    """
    position = np.arange(step * batch, (step + 1) * batch)
    passes, place = np.divmod(position, count)
    found = [_permutation(count, f"{key}/{p}")[place[passes == p]] for p in np.unique(passes)]
    return np.concatenate(found)


@dataclass(frozen=True)
class Samples:
    """One step's images (n, 3, H, W) uint8 and labels, or the error that stopped them."""

    x: NDArray[np.uint8]
    y: NDArray[np.int64]
    error: FrettaError | None = None


@dataclass(frozen=True, eq=False)
class Batches:
    """The augmented batch of every step, by number. This is what worker processes get."""

    domains: Sequence[Domain]
    steps: int
    config: TrainConfig

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, step: int) -> Samples:
        try:
            return self._made(step)
        except FrettaError as error:  # raised again, with its own type, in the main process
            return Samples(np.zeros((0, 3, 1, 1), np.uint8), np.zeros(0, np.int64), error)

    def _made(self, step: int) -> Samples:
        config, size = self.config, self.config.size or 32
        random = generator_for("augment", config.seed, step)
        x, y = [], []
        for domain in self.domains:
            key = f"order/{config.seed}/{domain.name}"
            chosen = rows(len(domain), config.batch_size or 1, step, key)
            y.append(domain.labels[chosen])
            if config.leave_one_out:
                for index in chosen:  # sizes differ
                    image = torch.from_numpy(domain.read([index])[0]).permute(2, 0, 1)
                    x.append(random_resized_crop(image, size, random)[None])
            else:
                x.append(torch.from_numpy(domain.read(chosen)).permute(0, 3, 1, 2))
        images = torch.cat(x)
        if config.leave_one_out:
            images = random_flip(images, random)
            colors = color_jitter(images.float().div_(255), JITTER, random)
            colors = random_gray(colors, GRAY, random)
            images = colors.mul_(255).round_().to(torch.uint8)
        else:
            images = random_crop(images, size // 8, random)
            if config.data != "digits":  # a mirrored digit is no digit
                images = random_flip(images, random)
        return Samples(images.contiguous().numpy(), np.concatenate(y))
