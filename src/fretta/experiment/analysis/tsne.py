"""Features on a plane, before and after adaptation by each method. (Figure 5 of the paper.)"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...errors import ConfigError, MissingExtraError, ModelError
from ...parts.redundancy import redundancy
from .setting import OnBatch, Setting


def tsne(
    setting: Setting,
    domain: str | None = None,
    images: int = 400,
    on_batch: OnBatch | None = None,
) -> dict[str, Any]:
    """t-SNE of the features of some images of one domain, one picture per method.

    Each method adapts along the complete stream; then the same images go through every adapted
    model. Labels are used for colors and for the silhouette only.
    """
    if images < 10:
        raise ConfigError(f"images={images}; at least 10 are needed for a picture")
    case = setting.case()
    shown = replace(case, dataset=case.data.only([domain or case.data.domains[0].name]))
    adapters = setting.adapters(case)
    for _ in setting.steps(case, adapters, on_batch):
        pass
    items = list(shown.items(setting.stream(shown, limit=images)))
    y = torch.cat([item.y for item in items])
    panels: list[dict[str, Any]] = []
    first: NDArray[np.float64] | None = None
    for method, adapter in adapters.items():
        found = [adapter.features(item.x) for item in items]
        z = torch.cat([features.float().cpu() for features, _ in found])
        predicted = torch.cat([logits.argmax(1).cpu() for _, logits in found])
        if not bool(z.isfinite().all()):
            raise ModelError(
                f"the features of {method} are not finite after adaptation, so there is no picture"
                " of them; leave it out, or lower its lr"
            )
        flat = embed(z.numpy(), setting.seed)
        first = flat if first is None else first
        panels.append(
            {
                "method": method,
                "xy": np.round(rotated(flat, first), 3).tolist(),
                "nrs": float(redundancy(z, normalized=True)),
                "accuracy": float((predicted == y).float().mean()),
                "silhouette": separation(z.numpy(), y.numpy()),
            }
        )
    return {
        **setting.about("tsne", "t-SNE", case),
        "domain": shown.data.domains[0].name,
        "classes": list(case.data.classes),
        "labels": y.tolist(),
        "panels": panels,
    }


def embed(z: NDArray[Any], seed: int) -> NDArray[np.float64]:
    """(n, 2), centered, within [-1, 1]; the same on every call with the same seed."""
    try:
        from sklearn.manifold import TSNE
    except ModuleNotFoundError as error:
        raise MissingExtraError("scikit-learn", "data", "t-SNE") from error
    perplexity = min(30.0, (len(z) - 1) / 3)
    # in units of the spread: PCA of features that are all tiny would start from noise
    scaled = (z - z.mean(0)) / max(float(z.std()), 1e-12)
    flat = TSNE(perplexity=perplexity, init="pca", random_state=seed).fit_transform(scaled)
    flat = flat.astype(np.float64) - flat.mean(0)
    result: NDArray[np.float64] = flat / max(float(np.abs(flat).max()), 1e-12)
    return result


def rotated(flat: NDArray[np.float64], to: NDArray[np.float64]) -> NDArray[np.float64]:
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
