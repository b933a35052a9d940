"""The training loop: step by step, with validation, checkpoints and progress."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ...data import Dataset, Preprocessing, make_stream
from ...data.workers import ahead
from ...errors import ConfigError
from .checkpoint import load_checkpoint, save_checkpoint
from .config import TrainConfig
from .data import Batches, TrainData

REPORT_EVERY = 10  # steps between looks at the loss, which wait for the device


@dataclass(frozen=True)
class Progress:
    """Where a run is; what the progress callback gets."""

    step: int
    steps: int
    loss: float
    lr: float
    seconds: float  # in this process
    accuracy: float | None = None  # on source validation, where it was just measured


@dataclass
class Best:
    """The weights to keep: the best on source validation, or the last."""

    accuracy: float = -1.0
    step: int = 0
    state: dict[str, Tensor] | None = None

    def offer(self, accuracy: float, step: int, model: nn.Module) -> None:
        if accuracy > self.accuracy:
            self.accuracy, self.step = accuracy, step
            self.state = {k: v.detach().cpu().clone() for k, v in model.state_dict().items()}


def learning_rate(config: TrainConfig, step: int, steps: int) -> float:
    """Domain sets: constant. Otherwise half a cosine from lr down to 0."""
    lr = config.lr or 0.0
    return lr if config.leave_one_out else lr * 0.5 * (1 + math.cos(math.pi * step / steps))


def make_optimizer(config: TrainConfig, model: nn.Module) -> torch.optim.Optimizer:
    lr, decay = config.lr or 0.0, config.weight_decay or 0.0
    parameters = [p for p in model.parameters() if p.requires_grad]
    if config.leave_one_out:
        return torch.optim.Adam(parameters, lr, weight_decay=decay)
    return torch.optim.SGD(
        parameters,
        lr,
        momentum=config.momentum,
        weight_decay=decay,
        nesterov=config.momentum > 0,
    )


def accuracy_of(
    model: nn.Module,
    dataset: Dataset,
    preprocessing: Preprocessing,
    device: torch.device,
    workers: int = 0,
) -> dict[str, float]:
    """The share of images classified correctly, by domain. Leaves the model in eval mode."""
    model.eval()
    right: dict[str, int] = dict.fromkeys(dataset.names, 0)
    with torch.no_grad():
        for batch in make_stream(dataset, batch_size=128, workers=workers):
            logits = model(preprocessing.apply(batch.x, device))
            right[batch.domain] += int((logits.argmax(1).cpu() == batch.y).sum())
    return {domain.name: right[domain.name] / len(domain) for domain in dataset.domains}


def mean_accuracy(by_domain: dict[str, float]) -> float:
    return sum(by_domain.values()) / len(by_domain)


def total_steps(config: TrainConfig, data: TrainData) -> int:
    if config.leave_one_out:
        return config.iterations or 0
    images = len(data.train.domains[0])
    return max(1, (config.epochs or 0) * images // (config.batch_size or 1))


def _rng_states(device: torch.device) -> list[Tensor]:
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return states


def _set_rng_states(states: list[Tensor], device: torch.device) -> None:
    torch.set_rng_state(states[0])
    if device.type == "cuda" and len(states) > 1:
        torch.cuda.set_rng_state(states[1], device)


def fit(
    model: nn.Module,
    data: TrainData,
    config: TrainConfig,
    checkpoint: Path,
    settings: dict[str, Any],
    resume: bool,
    progress: Callable[[Progress], None] | None,
) -> Best:
    """Train `model` in place; returns which weights to keep. Draws from the global generators."""
    device = torch.device(config.device)
    steps, optimizer, best = total_steps(config, data), make_optimizer(config, model), Best()
    preprocessing = replace(config.preprocessing, size=config.size)
    every = config.evaluate_every or 0
    start = 0
    if resume and checkpoint.is_file():
        state = load_checkpoint(checkpoint, settings)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        best, start = Best(**state["best"]), state["step"]
        _set_rng_states(state["random"], device)
    began = time.monotonic()
    batches = Batches(data.train.domains, steps, config)
    decoded = ahead(batches.__getitem__, range(start, steps), config.workers, prefetch=2)
    model.train()
    try:
        for step, samples in zip(range(start, steps), decoded, strict=True):
            if samples.error is not None:
                raise samples.error
            lr = learning_rate(config, step, steps)
            for group in optimizer.param_groups:
                group["lr"] = lr
            x = preprocessing.apply(torch.from_numpy(samples.x), device)
            y = torch.from_numpy(samples.y).to(device)
            loss = F.cross_entropy(model(x), y, label_smoothing=config.label_smoothing)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

            done = step + 1
            evaluate = bool(every) and (done % every == 0 or done == steps)
            save = bool(config.checkpoint_every) and done % config.checkpoint_every == 0
            if not (evaluate or save or done % REPORT_EVERY == 0 or done == steps):
                continue
            value = loss.item()
            if not math.isfinite(value):
                raise ConfigError(
                    f"training diverged: the loss is {value} at step {done} of {steps} with "
                    f"lr={config.lr}; lower it"
                )
            accuracy = None
            if evaluate:
                by_domain = accuracy_of(
                    model, data.held["val"], preprocessing, device, config.workers
                )
                accuracy = mean_accuracy(by_domain)
                best.offer(accuracy, done, model)
                model.train()
            if progress is not None:
                progress(Progress(done, steps, value, lr, time.monotonic() - began, accuracy))
            if save and done < steps:
                state = {
                    "step": done,
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "best": vars(best),
                    "random": _rng_states(device),
                }
                save_checkpoint(checkpoint, state, settings)
    finally:
        decoded.close()
    if best.state is None:
        best.offer(0.0, steps, model)
    return best
