"""Features on a plane, before and after adaptation by each method. (Figure 5 of the paper.)"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...errors import ConfigError, MissingExtraError, ModelError
from ...parts.redundancy import redundancy
from .setting import OnBatch, Setting, in_step


def tsne(
    setting: Setting,
    domain: str | None = None,
    images: int = 400,
    on_batch: OnBatch | None = None,
) -> dict[str, Any]:
    """t-SNE of the features of some images of one domain, one picture per method.

    Each method adapts along the whole stream; then the same images go through every model as it
    is by then. Labels are used for colors and for the silhouette only.
    """
    if images < 10:
        raise ConfigError(f"images={images}; at least 10 are needed for a picture")
    dataset = setting.dataset()
    drawn = dataset.only([domain or dataset.domains[0].name])
    subject = setting.subject(dataset)
    adapters = subject.adapters()
    stream = setting.stream(dataset)
    for _, x in in_step(stream, adapters, subject.preprocessing, setting.device, on_batch):
        for adapter in adapters.values():
            adapter(x)
    found: dict[str, list[Any]] = {method: [] for method in adapters}
    logits: dict[str, list[Any]] = {method: [] for method in adapters}
    labels = []
    for batch in setting.stream(drawn, limit=images):
        labels.append(batch.y)
        x = subject.preprocessing.apply(batch.x, setting.device)
        for method, adapter in adapters.items():
            z, p = adapter.features(x)
            found[method].append(z.float().cpu())
            logits[method].append(p.argmax(1).cpu())
    y = torch.cat(labels)
    panels: list[dict[str, Any]] = []
    first: NDArray[np.float64] | None = None
    for method in adapters:
        z = torch.cat(found[method])
        if not bool(z.isfinite().all()):
            raise ModelError(
                f"the features of {method} are not finite after adaptation, so there is no picture"
                " of them; leave it out, or lower its lr"
            )
        right = torch.cat(logits[method]) == y
        flat = embed(z.numpy(), setting.seed)
        first = flat if first is None else first
        panels.append(
            {
                "method": method,
                "xy": np.round(turned(flat, first), 3).tolist(),
                "nrs": float(redundancy(z, normalized=True)),
                "accuracy": float(right.float().mean()),
                "silhouette": separation(z.numpy(), y.numpy()),
            }
        )
    return {
        **subject.about("tsne", f"t-SNE: {setting.data['name']}, {subject.facts['spec']}"),
        "domain": drawn.domains[0].name,
        "classes": list(dataset.classes),
        "labels": y.tolist(),
        "panels": panels,
    }


def embed(z: NDArray[Any], seed: int) -> NDArray[np.float64]:
    """(n, 2), centerd, within [-1, 1]; the same on every call with the same seed."""
    try:
        from sklearn.manifold import TSNE
    except ModuleNotFoundError as error:
        raise MissingExtraError("scikit-learn", "data", "t-SNE") from error
    perplexity = min(30.0, (len(z) - 1) / 3)
    # in units of the whole spread: PCA of features that are all tiny would start from noise
    scaled = (z - z.mean(0)) / max(float(z.std()), 1e-12)
    flat = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(scaled)
    flat = flat.astype(np.float64) - flat.mean(0)
    result: NDArray[np.float64] = flat / max(float(np.abs(flat).max()), 1e-12)
    return result


def turned(flat: NDArray[np.float64], to: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rotated or mirrored, so that the same images lie where they lie in another picture.

    t-SNE knows no direction; the nearest orthogonal map changes none of its distances.
    """
    u, _, v = np.linalg.svd(flat.T @ to)
    result: NDArray[np.float64] = flat @ (u @ v)
    return result / max(float(np.abs(result).max()), 1e-12)


def separation(z: NDArray[Any], labels: NDArray[Any]) -> float | None:
    """Silhouette of the classes in feature space by cosine, in [-1, 1]; None with one class."""
    from sklearn.metrics import silhouette_score

    if not 1 < len(np.unique(labels)) < len(labels):
        return None
    live = z if (np.abs(z).sum(1) > 0).all() else z + 1e-12
    return float(silhouette_score(live, labels, metric="cosine"))
