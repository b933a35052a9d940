"""`train_source`: from a config to a safetensors file and its card."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save
from torch import nn

from ..._util import replace_file
from ...errors import ConfigError, ModelError
from ...models.cards import Card, card_path, find_card, sha256, write_card
from ...models.imagenet import PACKAGED, check_packaged, packaged_state
from ...models.load import build
from ...models.weights import initialize, load_state, read_weights
from ...parts.compute import find_device
from .checkpoint import checkpoint_path
from .config import TrainConfig
from .data import TrainData, open_data
from .loop import Progress, accuracy_of, fit, mean_accuracy, total_steps

PRETRAINED = "pretrained"


def train_source(
    config: TrainConfig,
    *,
    resume: bool = False,
    progress: Callable[[Progress], None] | None = None,
) -> Card:
    """Train a source model, write `config.out` and its card, return the card.

    resume     go on from the checkpoint beside `out` if there is one; a finished run with the same
               settings is not repeated. The weights are those of an undisturbed run.
    progress   called every few steps, and after every validation

    The global random generators are left as they were.
    """
    config = config.resolved()
    settings = _settings(config)
    finished = _check_place(config, settings, resume)
    if finished is not None:
        return finished
    device = find_device(config.device)
    data = open_data(config)
    classes = data.train.classes
    began = time.monotonic()
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(config.seed)
        model = _model(config, len(classes))
        _try_out(model, config, len(classes))
        model.to(device)
        path = checkpoint_path(config.out)
        best = fit(model, data, config, path, settings, resume, progress)
    load_state(model, best.state or {}, "the trained weights")
    card = Card(
        model=str(config.model),
        num_classes=len(classes),
        classes=list(classes),
        data=data.facts(),
        preprocessing=config.preprocessing.to_json(),
        accuracy=_accuracies(model, data, config, device),
        seed=config.seed,
        training={
            "settings": settings,
            "steps": total_steps(config, data),
            "selected_step": best.step,
            "seconds": round(time.monotonic() - began, 1),  # since the last resume
        },
        versions=_versions(config),
    )
    return _write(Path(config.out), model, card)


def _write(out: Path, model: nn.Module, card: Card) -> Card:
    card_path(out).unlink(missing_ok=True)  # never a card beside weights it does not describe
    state = {k: v.detach().cpu().contiguous() for k, v in model.state_dict().items()}
    replace_file(out, save(state, metadata={"format": "pt"}))
    card = replace(card, sha256=sha256(out))
    write_card(out, card)
    checkpoint_path(out).unlink(missing_ok=True)
    return card


def _settings(config: TrainConfig) -> dict[str, Any]:
    """What decides the weights. A file to start from counts by its content, not its place."""
    settings = config.settings()
    init = config.init
    if init is not None and str(init) not in (PRETRAINED, *PACKAGED):
        if not Path(init).is_file():
            raise ConfigError(
                f"init={str(init)!r} is no weights file, nor {PRETRAINED!r} or one of "
                f"{', '.join(map(repr, PACKAGED))}"
            )
        settings["init"] = f"{Path(init).name} sha256:{sha256(init)[:16]}"
    return settings


def _check_place(config: TrainConfig, settings: dict[str, Any], resume: bool) -> Card | None:
    """Nothing is overwritten unasked. The card of this very run if it is finished."""
    out, checkpoint = Path(config.out), checkpoint_path(config.out)
    if out.is_file() and resume and not checkpoint.is_file():
        card = find_card(out)
        if card is not None and card.training.get("settings") == settings:
            return card
    if out.exists() and not config.overwrite and not (resume and checkpoint.is_file()):
        raise ConfigError(
            f"{str(out)!r} exists and is of another run; choose another name, or overwrite=True"
        )
    if checkpoint.is_file() and not resume and not config.overwrite:
        raise ConfigError(
            f"{str(checkpoint)!r} is the checkpoint of an unfinished run; pass resume=True to go "
            "on with it, or overwrite=True to begin again"
        )
    if not resume:
        checkpoint.unlink(missing_ok=True)
    parent = out.absolute().parent
    while not parent.exists():
        parent = parent.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise ConfigError(f"out={str(out)!r} cannot be written: {str(parent)!r} is not writable")
    return None


def _model(config: TrainConfig, num_classes: int) -> nn.Module:
    spec, init = str(config.model), config.init
    model = build(spec, num_classes, pretrained=init == PRETRAINED)
    if init is None or init == PRETRAINED:
        return model
    if str(init) in PACKAGED:
        check_packaged(str(init), spec)
        initialize(model, packaged_state(str(init), model), f"init={init!r}")
    else:
        initialize(model, read_weights(init), f"init={str(init)!r}")
    return model


def _try_out(model: nn.Module, config: TrainConfig, num_classes: int) -> None:
    """A wrong size or head shows on two black images, before hours of training."""
    size = config.size or 32
    try:
        with torch.no_grad():
            logits = model.eval()(torch.zeros(2, 3, size, size))
    except (RuntimeError, AssertionError, ValueError, TypeError) as error:
        raise ModelError(
            f"{config.model} does not take images of {size}×{size} pixels: {error}; set size="
        ) from error
    if not isinstance(logits, torch.Tensor) or logits.shape != (2, num_classes):
        seen = tuple(logits.shape) if isinstance(logits, torch.Tensor) else type(logits).__name__
        raise ModelError(
            f"{config.model} returns {seen} for two images where logits (2, {num_classes}) are "
            "expected"
        )


def _accuracies(
    model: nn.Module, data: TrainData, config: TrainConfig, device: torch.device
) -> dict[str, float]:
    """By split, and by domain where a split has several."""
    found: dict[str, float] = {}
    for use, held in data.held.items():
        by_domain = accuracy_of(model, held, config.preprocessing, device, config.workers)
        found[use] = round(mean_accuracy(by_domain), 6)
        if len(by_domain) > 1:
            found |= {f"{use}/{name}": round(value, 6) for name, value in by_domain.items()}
    return found


def _versions(config: TrainConfig) -> dict[str, str]:
    from ... import __version__

    found = {"fretta": __version__, "torch": torch.__version__, "python": platform.python_version()}
    library = str(config.model).partition(":")[0]
    if library in ("timm", "torchvision"):
        found[library] = importlib.metadata.version(library)
    return found
