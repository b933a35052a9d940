"""The second set of recorded trajectories: any case of its `meta.json` as an adapter and a stream.

    adapter = build(case, net, source)
    logits = torch.cat([adapter(x) for x in feed(case, images)])

A case names the authors' code and its hyper-parameters; here they are said in our words.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

import fretta
from fretta.method import Need
from fretta.methods import find_method
from fretta.parts.destroy import occluded, ordered_patches, ordered_pixels

CLASSES = 10
Values = dict[str, Any]
LEARNING = ("lr", "optimizer", "momentum", "steps")  # the same words there and here


def golden() -> Path:
    """The folder of the first set, which has networks and stream of both."""
    return Path(os.environ["FRETTA_DATA"]).resolve().parent / "golden"


def inputs(images: Tensor) -> Tensor:
    """uint8 (N, H, W, 3) as the networks take it; floats are left as they are."""
    if images.dtype != torch.uint8:
        return images
    return ((images.float() / 255 - 0.5) / 0.5).permute(0, 3, 1, 2).contiguous()


def order(case: Values, count: int) -> Tensor:
    """Which images of the stream are fed, in order."""
    if case["order"] == "stream":
        return torch.arange(count)[: case["samples"]]
    meta = json.loads((golden() / "meta.json").read_text())
    labels = load_file(golden() / "stream.safetensors")["labels"][:count]
    domains = [d for d, n in zip(meta["domains"], meta["batches"], strict=True) for _ in range(n)]
    changes = [i for i in range(1, count) if domains[i] != domains[i - 1]]
    runs = torch.arange(count).tensor_split(changes)
    return torch.cat([run[labels[run].argsort(stable=True)] for run in runs])[: case["samples"]]


def feed(case: Values, images: Tensor) -> list[Tensor]:
    """The batches of a case: the images of the stream in its order and of its sizes."""
    fed = inputs(images)[order(case, len(images))]
    if case["batch"] is not None:
        return list(fed.split(case["batch"]))
    sizes = json.loads((golden() / "meta.json").read_text())["batches"]
    ends = torch.tensor(sizes).cumsum(0)
    return [x for x in fed.tensor_split(ends[ends < len(fed)]) if len(x)]


def build(case: Values, net: nn.Module, source: Tensor | Iterable[Tensor]) -> fretta.Adapter:
    """The adapter that a case describes, over the network it names."""
    given = dict(case["hyperparameters"])
    values = {name: given.pop(name) for name in LEARNING if name in given}
    key, ours = TRANSLATED[case["method"]](given)
    if given:
        raise ValueError(f"{case['method']} has no {', '.join(given)}")
    if isinstance(source, Tensor):
        source = inputs(source).split(64)
    return fretta.adapt(
        net,
        key,
        source=source if Need.SOURCE in find_method(key).needs else None,
        compute=fretta.Compute(layout="contiguous"),
        **{**values, **ours},
    )


# ---- hyper-parameters: taken out of what is given, returned in our words -------------------------


def t3a(given: Values) -> tuple[str, Values]:
    return "t3a", {"k": given.pop("filter_K")}


def lame(given: Values) -> tuple[str, Values]:
    return "lame", {"affinity": given.pop("affinity").lower(), "k": given.pop("knn")}


def shot_im(given: Values) -> tuple[str, Values]:
    values = {"weight_decay": given.pop("weight_decay", None)}
    return "shot-im", {"variant": given.pop("code"), **values}


def deyo(given: Values) -> tuple[str, Values]:
    kind, n = given.pop("aug_type"), given.pop("patch_len", 4)
    values: Values = {"variant": "released", "plpd_margin": given.pop("plpd_threshold")}
    values["e_margin"] = given.pop("margin") / math.log(CLASSES)
    values["e_zero"] = given.pop("margin_e0") / math.log(CLASSES)
    if kind == "patch":  # reversed instead of random
        values["destroy"] = lambda x: ordered_patches(
            x, n, torch.arange(n * n).flip(0).expand(len(x), -1)
        )
    elif kind == "pixel":
        values["destroy"] = lambda x: ordered_pixels(x, torch.arange(x[0, 0].numel()).flip(0))
    else:
        places = ("occlusion_size", "row_start", "column_start")
        square = [given.pop(place) for place in places]
        values["destroy"] = lambda x: occluded(x, *square)
    return "deyo", values


AUGMENTED = {"hflip": "flip", "none": "none"}
NORMALIZED = {"mean": 0.5, "std": 0.5}


def roid(given: Values) -> tuple[str, Values]:
    values = {
        "variant": "released",
        "augment": AUGMENTED[given.pop("augmentation")],
        "consistency": given.pop("consistency"),
        "rate": given.pop("momentum_probs"),
        "temperature": given.pop("temperature"),
        "reference_batch": given.pop("batch_size"),
        "output": "prior-released" if given.pop("prior_correction") else "none",
        "mean": 0.5,
        "std": 0.5,
    }
    if "momentum_src" in given:
        values["merge"] = given.pop("momentum_src")
    return "roid", values


def cmf(given: Values) -> tuple[str, Values]:
    _, values = roid(given)
    own = {"alpha": given.pop("alpha"), "merge": given.pop("gamma"), "q": given.pop("q")}
    return "cmf", {**values, **own, "variant": "paper"}  # every .half() was made to do nothing


class Alternate:
    """Every other view is the mirror image."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, p: Tensor) -> Tensor:
        self.calls += 1
        return p if self.calls % 2 else p.flip(-1)


def cotta(given: Values) -> tuple[str, Values]:
    augmentation = given.pop("augmentation")
    alternate = augmentation == "alternate"
    return "cotta", {
        "augment": Alternate() if alternate else AUGMENTED[augmentation],
        "views": 2 if alternate else 1,  # more views would all be the same
        "symmetric": given.pop("code") == "imagenet",
        "alpha": given.pop("mt"),
        "restore": given.pop("rst"),
        "p_th": given.pop("ap"),
        **NORMALIZED,
    }


def rotta(given: Values) -> tuple[str, Values]:
    names = ("memory", "update_every", "nu", "alpha", "lambda_t", "lambda_u")
    augment = AUGMENTED[given.pop("augmentation")]
    return "rotta", {"augment": augment, **{n: given.pop(n) for n in names}, **NORMALIZED}


@dataclass
class FixedNOTE(fretta.methods.NOTE):
    """NOTE without chance: the first of the largest classes, its oldest image, one number."""

    key = "note-fixed"

    uniform: float = 0.0

    def _draws(self, n: int) -> list[list[float]]:
        return [[0.0, 0.0, self.uniform]] * n


def note(given: Values) -> tuple[str, Values]:
    same = ("memory", "update_every", "bn_momentum", "uniform")
    return f"{__name__}:FixedNOTE", {
        **{name: given.pop(name) for name in same if name in given},
        "k": given.pop("iabn_k"),
        "memory_type": {"PBRS": "reservoir", "FIFO": "fifo"}[given.pop("memory_type", "PBRS")],
        "learned_statistics": given.pop("use_learned_stats", True),
    }


def shifted_views(p: Tensor) -> Tensor:
    """View j: mirrored if j is odd, then rolled by 2 ⌊j / 2⌋ pixels along the width."""
    views = [(view.flip(-1) if j % 2 else view) for j, view in enumerate(p)]
    return torch.stack([view.roll(2 * (j // 2), -1) for j, view in enumerate(views)])


def memo(given: Values) -> tuple[str, Values]:
    strength = given.pop("prior_strength", None)
    return "memo", {
        "prior_strength": strength if given.pop("code") == "imagenet" else None,
        "views": given.pop("views"),
        "augment": shifted_views,
        **NORMALIZED,
    }


def rdumb(given: Values) -> tuple[str, Values]:
    values = {name: given.pop(name) for name in ("d_margin", "reset_every")}
    return "rdumb", {**values, "e_margin": given.pop("e_margin") / math.log(CLASSES)}


def delta(given: Values) -> tuple[str, Values]:
    momentum, dot = given.pop("old_prior", 0.0), given.pop("dot")
    base, weighted = given.pop("loss_type"), given.pop("ent_w", False)
    moving = given.pop("norm_type") == "rn"
    name = "weighted-entropy" if weighted else "entropy"
    return "delta", {
        "alpha": momentum if moving else 0.0,
        "lam": 1.0 if dot is None else dot,
        "base": "pseudo-label" if base == "cross_entropy" else name,
    }


def foa_shift(given: Values) -> tuple[str, Values]:
    return "foa-shift", {}


def bn_prior(given: Values) -> tuple[str, Values]:
    return "bn", {"prior_strength": given.pop("N")}


def bn_parts(given: Values) -> tuple[str, Values]:
    mean, var = given.pop("adapt_mean"), given.pop("adapt_var")
    if not mean and not var:
        return "source", {}
    both = "both" if mean and var else "mean" if mean else "variance"
    return "bn", {"parts": both, **({"prior_strength": 0} if both == "both" else {})}


def bn_cumulative(given: Values) -> tuple[str, Values]:
    return "bn", {"memory": "cumulative"}


def bn_ema(given: Values) -> tuple[str, Values]:
    return "bn", {"memory": "moving"}


TRANSLATED: dict[str, Callable[[Values], tuple[str, Values]]] = {
    "t3a": t3a,
    "lame": lame,
    "shot-im": shot_im,
    "deyo": deyo,
    "roid": roid,
    "cmf": cmf,
    "cotta": cotta,
    "rotta": rotta,
    "note": note,
    "memo": memo,
    "rdumb": rdumb,
    "delta": delta,
    "foa-shift": foa_shift,
    "bn-prior": bn_prior,
    "bn-parts": bn_parts,
    "bn-cumulative": bn_cumulative,
    "bn-ema": bn_ema,
}
