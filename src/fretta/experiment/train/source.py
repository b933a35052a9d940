"""Train a source model: step by step, with validation and checkpoints, to a file and its card."""

from __future__ import annotations

import importlib.metadata
import io
import json
import math
import os
import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import save
from torch import Tensor, nn

from ..._util import replace_file
from ...data import Dataset, make_stream
from ...data.workers import ahead
from ...errors import ConfigError, FrettaError, ModelError, WeightsError
from ...models.cards import Card, card_path, find_card, sha256, write_card
from ...models.imagenet import PACKAGED, check_packaged, packaged_state
from ...models.load import build
from ...models.weights import initialize, load_state, read_weights
from ...parts.compute import autocasting, check_precision, find_device
from ..provenance import provenance
from .config import TrainConfig
from .data import make_batch, open_data

PRETRAINED = "pretrained"
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


OnProgress = Callable[[Progress], None]


def train_source(
    config: TrainConfig, *, resume: bool = False, progress: OnProgress | None = None
) -> Card:
    """Train a source model, write `config.out` and its card, return the card.

    resume     go on from the checkpoint beside `out` if there is one; a finished run with the same
               settings is not repeated. The weights are those of an undisturbed run.
    progress   called every few steps, and after every validation

    The global random generators are left as they were.
    """
    config = config.resolved()
    settings = _settings(config)
    data = open_data(config)
    fingerprint, classes = data["train"].fingerprint(), data["train"].classes
    finished = _check_out(config, settings, fingerprint, resume)
    if finished is not None:
        return finished
    device = find_device(config.device)
    check_precision(config.precision, device)
    began = time.monotonic()
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(config.seed)
        model = _model(config, len(classes)).to(device)
        identity = {**settings, "images": fingerprint}
        steps, best = _fit(model, data, config, identity, resume, progress)
    state = _halved(best["state"]) if config.half else best["state"]
    load_state(model, state, "the trained weights")
    card = Card(
        model=str(config.model),
        num_classes=len(classes),
        classes=list(classes),
        data={
            "name": data["train"].name,
            "images": {use: {d.name: len(d) for d in s.domains} for use, s in data.items()},
            "fingerprint": fingerprint,
        },
        preprocessing=config.preprocessing.to_json(),
        accuracy=_accuracies(model, data, config),
        seed=config.seed,
        training={
            "settings": settings,
            "steps": steps,
            "selected_step": best["step"],
            "seconds": round(time.monotonic() - began, 1),  # since the last resume
        },
        versions=_versions(config),
    )
    return _write(Path(config.out), state, card)


# ---- before -------------------------------------------------------------------------------------


def _settings(config: TrainConfig) -> dict[str, Any]:
    """What decides the weights. A file to start from counts by its content, not its place."""
    settings, init = config.settings(), config.init
    if init is not None and str(init) not in (PRETRAINED, *PACKAGED):
        if not Path(init).is_file():
            raise ConfigError(
                f"init={str(init)!r} is no weights file, nor {PRETRAINED!r} or one of "
                f"{', '.join(map(repr, PACKAGED))}"
            )
        settings["init"] = f"{Path(init).name} sha256:{sha256(init)[:16]}"
    return settings


def _check_out(
    config: TrainConfig, settings: dict[str, Any], fingerprint: str, resume: bool
) -> Card | None:
    """Files are replaced with overwrite=True only. The card of this run if it is finished."""
    out, checkpoint = Path(config.out), checkpoint_path(config.out)
    unfinished = checkpoint.is_file()
    if resume and out.is_file() and not unfinished:
        card = find_card(out)
        if (
            card is not None
            and card.training.get("settings") == settings
            and card.data.get("fingerprint") == fingerprint
        ):
            return card
    if not config.overwrite:
        if out.exists() and not (resume and unfinished):
            raise ConfigError(
                f"{str(out)!r} exists and is of another run; choose another name, or overwrite=True"
            )
        if unfinished and not resume:
            raise ConfigError(
                f"{str(checkpoint)!r} is the checkpoint of an unfinished run; pass resume=True to "
                "go on with it, or overwrite=True to begin again"
            )
    if not resume:
        checkpoint.unlink(missing_ok=True)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"out={str(out)!r} cannot be written: {error}") from error
    if not os.access(out.parent, os.W_OK):
        raise ConfigError(f"out={str(out)!r}: the folder {str(out.parent)!r} is not writable")
    return None


def _model(config: TrainConfig, num_classes: int) -> nn.Module:
    """The network with its first weights, tried on two images before hours of training."""
    spec, init, size = str(config.model), config.init, config.size or 32
    model = build(spec, num_classes, pretrained=init == PRETRAINED)
    if str(init) in PACKAGED:
        check_packaged(str(init), spec)
        initialize(model, packaged_state(str(init), model), f"init={init!r}")
    elif init is not None and init != PRETRAINED:
        initialize(model, read_weights(init), f"init={str(init)!r}")
    _try(model, spec, num_classes, size, "set size=")
    if config.progressive:
        _try(model, spec, num_classes, min(config.progressive), "leave out progressive=")
    return model


def _try(model: nn.Module, spec: str, num_classes: int, size: int, repair: str) -> None:
    try:
        with torch.no_grad():
            logits = model.eval()(torch.zeros(2, 3, size, size))
    except (RuntimeError, AssertionError, ValueError, TypeError) as error:
        raise ModelError(
            f"{spec} does not take images of {size}×{size} pixels: {error}; {repair}"
        ) from error
    if not isinstance(logits, Tensor) or logits.shape != (2, num_classes):
        seen = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise ModelError(
            f"{spec} returns {seen} for two images where logits (2, {num_classes}) are expected"
        )


# ---- the loop -----------------------------------------------------------------------------------


def _fit(
    model: nn.Module,
    data: dict[str, Dataset],
    config: TrainConfig,
    identity: dict[str, Any],
    resume: bool,
    progress: OnProgress | None,
) -> tuple[int, dict[str, Any]]:
    """Train `model` in place, drawing from the global generators.

    Returns the number of steps, and the weights to keep: those with the best accuracy on source
    validation, or the last.
    """
    device, checkpoint = torch.device(config.device), checkpoint_path(config.out)
    optimizer = _optimizer(config, model)
    images = (config.epochs or 0) * len(data["train"].domains[0])
    passes = max(1, images // (config.batch_size or 1))
    steps = (config.iterations or 0) if config.leave_one_out else passes
    best: dict[str, Any] = {"accuracy": -1.0, "step": 0, "state": None}
    start, every = 0, config.evaluate_every or 0
    if resume and checkpoint.is_file():
        saved = _load_checkpoint(checkpoint, identity)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        best, start = saved["best"], saved["step"]
        torch.set_rng_state(saved["random"][0])
        if device.type == "cuda" and len(saved["random"]) > 1:
            torch.cuda.set_rng_state(saved["random"][1], device)
    began = time.monotonic()
    batch_of = partial(make_batch, data["train"].domains, config)
    batches = ahead(batch_of, range(start, steps), config.workers, prefetch=2)
    model.train()
    if config.precision is not None:  # a sixth faster on a CPU with bfloat16
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    try:
        for done, batch in enumerate(batches, start + 1):
            if isinstance(batch, FrettaError):
                raise batch
            lr = learning_rate(config, done - 1, steps)
            for group in optimizer.param_groups:
                group["lr"] = lr
            x = config.preprocessing.apply(torch.from_numpy(batch[0]), device)
            size = image_size(config, done - 1, steps)
            if size is not None and size != config.size:
                x = F.interpolate(x, (size, size), mode="bilinear", antialias=True)
            y = torch.from_numpy(batch[1]).to(device)
            with autocasting(config.precision, device):
                logits = model(x).float()
            loss = F.cross_entropy(logits, y, label_smoothing=config.label_smoothing)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

            last = done == steps
            validate = every > 0 and (done % every == 0 or last)
            # the last step too: the weights and their card are two files
            keep = config.checkpoint_every > 0 and (done % config.checkpoint_every == 0 or last)
            if not (validate or keep or last or done % REPORT_EVERY == 0):
                continue
            value = loss.item()
            if not math.isfinite(value):
                raise ConfigError(
                    f"training diverged: the loss is {value} at step {done} of {steps} with "
                    f"lr={config.lr}; lower it"
                )
            accuracy = None
            if validate:
                accuracy = _mean(_accuracy_by_domain(model, data["val"], config))
                if accuracy > best["accuracy"]:
                    best = {"accuracy": accuracy, "step": done, "state": _copied(model)}
                model.train()
            if progress is not None:
                progress(Progress(done, steps, value, lr, time.monotonic() - began, accuracy))
            if keep:
                cuda = [torch.cuda.get_rng_state(device)] if device.type == "cuda" else []
                state = {
                    "step": done,
                    "model": model.state_dict(),
                    "optimizer": optimizer.state_dict(),
                    "best": best,
                    "random": [torch.get_rng_state(), *cuda],
                    "identity": json.dumps(identity),
                }
                buffer = io.BytesIO()
                torch.save(state, buffer)
                replace_file(checkpoint, buffer.getvalue())
    finally:
        batches.close()
    if best["state"] is None:
        best = {"accuracy": 0.0, "step": steps, "state": _copied(model)}
    return steps, best


def _copied(model: nn.Module) -> dict[str, Tensor]:
    return {k: v.detach().cpu().clone() for k, v in model.state_dict().items()}


def learning_rate(config: TrainConfig, step: int, steps: int) -> float:
    """Domain sets: constant. Otherwise half a cosine from lr down to 0, or one cycle."""
    lr = config.lr or 0.0
    if config.schedule == "one-cycle":
        top = max(1, steps // 4)
        return lr * min((step + 1) / top, (steps - step) / (steps - top + 1))
    return lr if config.leave_one_out else lr * 0.5 * (1 + math.cos(math.pi * step / steps))


def image_size(config: TrainConfig, step: int, steps: int) -> int | None:
    """Progressive resizing: early steps see small images, which cost less."""
    sizes = config.progressive
    return sizes[len(sizes) * step // steps] if sizes else config.size


def _optimizer(config: TrainConfig, model: nn.Module) -> torch.optim.Optimizer:
    lr, decay, momentum = config.lr or 0.0, config.weight_decay or 0.0, config.momentum
    parameters = [p for p in model.parameters() if p.requires_grad]
    if config.leave_one_out:
        return torch.optim.Adam(parameters, lr, weight_decay=decay)
    nesterov = momentum > 0
    return torch.optim.SGD(parameters, lr, momentum, weight_decay=decay, nesterov=nesterov)


def _accuracy_by_domain(
    model: nn.Module, dataset: Dataset, config: TrainConfig
) -> dict[str, float]:
    """The share of images classified correctly. Leaves the model in eval mode."""
    model.eval()
    correct = dict.fromkeys(dataset.names, 0)
    with torch.no_grad():
        for batch in make_stream(dataset, batch_size=128, workers=config.workers):
            logits = model(config.preprocessing.apply(batch.x, config.device))
            correct[batch.domain] += int((logits.argmax(1).cpu() == batch.y).sum())
    return {domain.name: correct[domain.name] / len(domain) for domain in dataset.domains}


def _mean(by_domain: dict[str, float]) -> float:
    return sum(by_domain.values()) / len(by_domain)


# ---- checkpoints: everything a run needs to go on as if it had not stopped ----------------------


def checkpoint_path(out: str | os.PathLike[str]) -> Path:
    """`model.safetensors` is trained through `model.ckpt`, which goes when it is finished."""
    return Path(out).with_suffix(".ckpt")


def _load_checkpoint(path: Path, identity: dict[str, Any]) -> dict[str, Any]:
    """The state of a run with these settings and images. Never executes code from the file."""
    damage = (pickle.UnpicklingError, RuntimeError, EOFError, OSError, LookupError, ValueError)
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
        saved = json.loads(state.pop("identity"))
    except (*damage, AttributeError, TypeError) as error:
        raise WeightsError(
            f"the checkpoint {str(path)!r} cannot be read ({str(error).splitlines()[0]}); remove "
            "it to train from the beginning"
        ) from error
    different = [
        f"{name}: {saved.get(name)!r} then, {identity.get(name)!r} now"
        for name in sorted(saved.keys() | identity.keys())
        if saved.get(name) != identity.get(name)
    ]
    if different:
        raise ConfigError(
            f"the checkpoint {str(path)!r} belongs to another run: {'; '.join(different)}. Resume "
            "with the same settings and images, or remove it to train from the beginning"
        )
    return state


# ---- after --------------------------------------------------------------------------------------


def _accuracies(
    model: nn.Module, data: dict[str, Dataset], config: TrainConfig
) -> dict[str, float]:
    """By split, and by domain where a split has several."""
    found: dict[str, float] = {}
    for use, dataset in data.items():
        if use == "train":
            continue
        by_domain = _accuracy_by_domain(model, dataset, config)
        found[use] = round(_mean(by_domain), 6)
        if len(by_domain) > 1:
            found |= {f"{use}/{name}": round(value, 6) for name, value in by_domain.items()}
    return found


def _versions(config: TrainConfig) -> dict[str, str]:
    found = {name: str(provenance()[name]) for name in ("fretta", "torch", "python")}
    library = str(config.model).partition(":")[0]
    if library in ("timm", "torchvision"):
        found[library] = importlib.metadata.version(library)
    return found


def _halved(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """Matrices and kernels in float16. Vectors are small, and variances may be."""
    return {k: v.half() if v.ndim > 1 and v.is_floating_point() else v for k, v in state.items()}


def _write(out: Path, state: dict[str, Tensor], card: Card) -> Card:
    card_path(out).unlink(missing_ok=True)  # never a card beside weights it does not describe
    state = {k: v.contiguous() for k, v in state.items()}
    replace_file(out, save(state, metadata={"format": "pt"}))
    card = replace(card, sha256=sha256(out))
    write_card(out, card)
    checkpoint_path(out).unlink(missing_ok=True)
    return card
