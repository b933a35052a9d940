"""NOTE: robust continual test-time adaptation against temporal correlation.

Gong, Jeong, Kim, Kim, Shin, Lee, NeurIPS 2022, https://arxiv.org/abs/2208.05117
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..errors import NeedError
from ..method import GradientMethod, Need
from ..parts.classifier import Classifier
from ..parts.images import ImageMemory, ReservoirMemory
from ..parts.moving import instance_aware
from ..parts.norm import batch_norms
from ..parts.random import seeded
from ..parts.replaced import source_statistics

CPU = torch.device("cpu")
UPDATE_BATCH = 128  # images of a larger memory are learned from in batches of so many
MEMORIES = ("reservoir", "fifo")


@dataclass
class NOTE(GradientMethod):
    """Correct the statistics of each image only where it is far from the layer's, and learn from a
    memory that is balanced over predictions. Made for models trained with such layers.

    k              k: standard errors that an image may differ by before it is corrected
    memory         N: images kept
    memory_type    "reservoir": balanced over predicted classes; "fifo": the last ones
    update_every   images between two updates; a batch is predicted in pieces that end there
    learned_statistics   normalize a prediction by the running statistics; False: by those of the
                   images it is made with
    bn_momentum    m: how far the running statistics move at an update
    seed           of the reservoir
    lr, optimizer, momentum: see GradientMethod.
    """

    key = "note"
    summary = "instance-aware batch norm, balanced memory"
    passes = "2F+1B"  # in a batch with one update
    needs = frozenset({Need.NORM, Need.BATCH_NORM})
    own_statistics = True
    loss = "mean over the memory and the classes of -σ log(σ + 1e-6)"
    published = {
        "lr": "1e-4, Adam",
        "k": "4",
        "memory": "64",
        "update_every": "64",
        "bn_momentum": "0.01",
        "memory_type": "reservoir; FIFO in the i.i.d. runs, with lr 1e-3 and batch statistics",
    }

    lr: float = 1e-4
    k: float = 4.0
    memory: int = 64
    memory_type: str = "reservoir"
    update_every: int = 64
    learned_statistics: bool = True
    bn_momentum: float = 0.01
    seed: int = 0

    def check(self) -> None:
        super().check()
        self.require(self.k >= 0, "k", wanted="a number >= 0")
        good = self.memory_type in MEMORIES
        self.require(good, "memory_type", wanted=" or ".join(map(repr, MEMORIES)))
        for name in ("memory", "update_every"):
            self.require(getattr(self, name) >= 1, name, wanted="at least 1 image")
        self.require(0 <= self.bn_momentum <= 1, "bn_momentum", wanted="a rate in [0, 1]")

    def configure(self, model: Classifier) -> None:
        model.freeze()
        model.thaw_norm(batch_norms(model.net))
        model.net.eval()  # the statistics are those of `instance_aware`

    def start(self, model: Classifier) -> None:
        super().start(model)
        self.moving = source_statistics(model.net)  # mean and variance of each batch norm
        kinds = {"reservoir": ReservoirMemory, "fifo": ImageMemory}
        self.images: ImageMemory = kinds[self.memory_type](self.memory)
        self.generator = seeded(self.seed, CPU)  # places in the memory are plain numbers

    def forward(self, model: Classifier, x: Tensor) -> Tensor:
        """By the running statistics no image sees another: a batch gives what single ones would."""
        with instance_aware(model.net, self.moving, self.k, alone=not self.learned_statistics) as L:
            logits = model(x)
        if max(L, default=1) == 1:
            raise NeedError(
                "note compares the statistics of an image with those of a layer, but the batch"
                " norms of this model see single positions, which have none; use 'tent' or 'eta'"
            )
        return logits

    def step(self, model: Classifier, x: Tensor) -> Tensor:
        """In pieces that end where an update is due: each image meets the model of its time."""
        first = self.update_every - self.images.clock % self.update_every
        rest = max(len(x) - first, 0)
        pieces = [min(first, len(x)), *[self.update_every] * (rest // self.update_every)]
        pieces += [rest % self.update_every] if rest % self.update_every else []
        logits = []
        for piece in x.split(pieces):
            with torch.no_grad():
                logits.append(self.forward(model, piece))
            labels, draws = logits[-1].argmax(1).tolist(), self._draws(len(piece))
            for image, label, numbers in zip(piece, labels, draws, strict=True):
                self.images.add(image, label, draws=numbers)
            if self.images.clock % self.update_every == 0:
                self._learn(model, x)
        return torch.cat(logits)

    def _draws(self, n: int) -> list[list[float]]:
        """Three numbers in [0, 1) for each image, by which the reservoir chooses."""
        numbers: list[list[float]] = torch.rand(n, 3, generator=self.generator).tolist()
        return numbers

    def _learn(self, model: Classifier, like: Tensor) -> None:
        """One pass over the memory, in train mode."""
        images, _ = self.images.batch(like)
        if len(images) > UPDATE_BATCH:
            images = images[torch.randperm(len(images), generator=self.generator).to(like.device)]
        for part in images.split(UPDATE_BATCH):
            moved = instance_aware(model.net, self.moving, self.k, True, self.bn_momentum)
            with model.using({}, aside=True), moved:
                q = model(part).softmax(1)
            self.update(-(q * (q + 1e-6).log()).mean(1))
