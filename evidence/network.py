"""A ResNet-18 of 512 features, as many as in the paper: is G-FRET first? And its weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pandas import DataFrame

from fretta.experiment.records import Record
from fretta.experiment.suite import describe, load_suite
from fretta.models import read_card
from fretta.models.cards import card_path

from .committed import METHODS, VARIANTS, Evidence, by_seed, compare, mean
from .pages import LAM
from .tables import FEWER, LAYERNORM, NOT_RUN, markdown, percent, points
from .tuning import TUNED, rates_markdown

SUITE = "cifar10c-resnet18"
RATES = "rates-resnet18"  # the same stream, other rates
TUNED_ROW = "(tuned)"
WEIGHTS = "weights/cifar10-resnet18.safetensors"


def _default(evidence: Evidence, method: str) -> DataFrame:
    return evidence.accuracy(SUITE, method)


def _released(evidence: Evidence, method: str) -> DataFrame:
    return evidence.accuracy(SUITE, f"{method} (released)" if method in VARIANTS else method)


def _tuned(evidence: Evidence, method: str) -> DataFrame:
    """The best rate of RATES, where it is not the default."""
    return evidence.accuracy(SUITE, f"{method} {TUNED_ROW}" if method in chosen() else method)


def chosen() -> dict[str, dict[str, Any]]:
    """By method, the settings of the rows called tuned."""
    return {e.name: e.hyperparameters for e in load_suite(SUITE).methods if TUNED_ROW in e.title}


WAYS: Mapping[str, Callable[[Evidence, str], DataFrame]] = {
    "with the defaults": _default,
    "as released": _released,
    "tuned on the target's labels": _tuned,
}


def first_list(evidence: Evidence) -> str:
    """A line for each way of setting the methods."""
    return "\n".join(f"- {line}" for line in first_lines(evidence))


def first_lines(evidence: Evidence) -> list[str]:
    return [f"{way}: {_first(evidence, scores)}" for way, scores in WAYS.items()]


def _first(evidence: Evidence, scores_of: Callable[[Evidence, str], DataFrame]) -> str:
    """G-FRET's place by mean accuracy over the seeds that all have, and whether it is noise."""
    wanted = {entry.name for entry in load_suite(SUITE).methods}
    scores = {m: scores_of(evidence, m) for m in METHODS if m in wanted}
    absent = sum(found.empty for found in scores.values())
    if absent:
        return f"cannot be told, {absent} of {len(scores)} methods were not run"
    seeds = set.intersection(*({seed for seed, _ in found.index} for found in scores.values()))
    scores = {m: found[found.index.isin(seeds, level="seed")] for m, found in scores.items()}
    means = {m: mean(found) for m, found in scores.items()}
    best, second, *_ = ranked = sorted(means, key=lambda m: -means[m])
    other = second if best == "g-fret" else best
    test = compare(scores["g-fret"], scores[other])
    if test is None:
        return "no seed is common to all methods yet"
    answer = ("yes" if best == "g-fret" else "no") if test.distinct else "cannot be told"
    plural = "seed" if len(seeds) == 1 else "seeds"
    return (
        f"**{answer}**, {ranked.index('g-fret') + 1} of {len(ranked)}: g-fret"
        f" {100 * means['g-fret']:.2f} %, {other} {100 * means[other]:.2f} %, difference"
        f" {points(scores['g-fret'], scores[other])}, {len(seeds)} {plural}"
    )


def tuned_table(evidence: Evidence) -> str:
    """The rates that were chosen with labels, and what they give."""
    settings, rows = chosen(), []
    for method in TUNED:
        default, tuned = _default(evidence, method), _tuned(evidence, method)
        if tuned.empty:
            continue
        setting = describe(settings.get(method, {})) or "the default"
        rows.append([method, setting, percent(default), percent(tuned), points(tuned, default)])
    return markdown(["method", "chosen", "default", "tuned", "difference"], rows)


def rates_table(evidence: Evidence) -> str:
    """Accuracy by learning rate on the whole stream."""
    found = rates(evidence)
    order = [row for m in TUNED for row in sorted(found) if row.split(",")[0] == m]
    return rates_markdown({row: found[row] for row in order})


def rates(evidence: Evidence) -> dict[str, dict[float, Record]]:
    """By method, with λ where that is not the default, and rate: runs on the whole stream."""
    found: dict[str, dict[float, Record]] = {}
    for record in evidence.records:
        if record.tags["suite"] == RATES:
            lam = record.settings.get("lam", LAM)
            row = record.run["method"] + (f", λ = {lam:g}" if lam != LAM else "")
            found.setdefault(row, {})[float(record.settings["lr"])] = record
    return found


def auto_text(evidence: Evidence) -> str:
    """Our default on this network, beside the best of the paper's methods."""
    scores = {m: evidence.accuracy(SUITE, m) for m in ("auto", *METHODS)}
    if scores["auto"].empty:
        return NOT_RUN
    seeds = {seed for seed, _ in scores["auto"].index}
    scores = {m: found[found.index.isin(seeds, level="seed")] for m, found in scores.items()}
    means = {m: 100 * mean(found) for m, found in scores.items() if not found.empty}
    auto = means.pop("auto")
    best = max(means, key=lambda m: means[m])
    few = " (one seed)" if len(seeds) == 1 else ""
    return (
        f"- **Other networks.** On a CIFAR ResNet-18{few} `auto` has {auto:.1f}, the source model"
        f" {means['source']:.1f}, `bn` {means['bn']:.1f}, the best, `{best}`, {means[best]:.1f}"
        f" ([more](docs/auto.md#what-is-not-met)).{_imagenet(evidence)}{_transformer(evidence)}"
    )


IMAGENET, HALF = "imagenet-shared", "bn alpha=0.5"


def _one_seed(evidence: Evidence) -> str:
    return f" {FEWER}" if len(by_seed(evidence.accuracy(IMAGENET, HALF))) == 1 else ""


def _imagenet(evidence: Evidence) -> str:
    """Where the default stays with the source model, and batch statistics would gain."""
    wanted = ("auto", "source", "bn", HALF)
    scores = {m: 100 * mean(evidence.accuracy(IMAGENET, m)) for m in wanted}
    return (
        f" On ImageNet it stays with the source model, {scores['auto']:.1f}; `bn` has"
        f" {scores['bn']:.1f}, with `alpha=0.5` {scores[HALF]:.1f}{_one_seed(evidence)}."
    )


def _transformer(evidence: Evidence) -> str:
    """The same on a network without batch norms."""
    methods = [m for m in evidence.labels(LAYERNORM) if m != "auto"]
    means = {m: 100 * mean(evidence.accuracy(LAYERNORM, m, "vit")) for m in (*methods, "auto")}
    if "source" not in means:
        return ""
    best = max(methods, key=lambda m: means[m])
    return (
        f" On digits, with a small transformer, it has {means['auto']:.1f}, the source model"
        f" {means['source']:.1f}, the best, `{best}`, {means[best]:.1f}"
        " ([more](docs/auto.md#networks-without-batch-norms))."
    )


def hedge_text(evidence: Evidence) -> str:
    """Why `auto` stays with the source model on ImageNet."""
    wanted = ("source", "auto", "bn", HALF)
    scores = {m: 100 * mean(evidence.accuracy(IMAGENET, m)) for m in wanted}
    entropy = {
        m: by_seed(evidence.accuracy(IMAGENET, m, measure="entropy")).mean()
        for m in ("source", "bn")
    }
    return (
        "- **ImageNet.** On corrupted images `auto` stays with the source model (step 2 below):"
        f" {scores['auto']:.1f}, `source` {scores['source']:.1f}. Batch statistics make predictions"
        f" far less certain there (mean entropy of `bn` {entropy['bn']:.2f}, of the source model"
        f" {entropy['source']:.2f} nats), which it takes for harm. They gain all the same over 15"
        f" corruptions of severity 5: `bn` {scores['bn']:.1f}, with `alpha=0.5` {scores[HALF]:.1f}"
        f"{_one_seed(evidence)} ([the table](evidence.md#imagenet-sample-c)); on the four milder"
        " ones of the stream below `bn` loses."
    )


def weights_text(evidence: Evidence) -> str:
    """What the card says."""
    path = evidence.folder.parent / WEIGHTS
    if not card_path(path).is_file():
        return NOT_RUN
    card = read_card(path)
    (images,) = card.data["images"]["train"].values()
    settings = card.training["settings"]
    begun = f", from {settings['init'].split()[0]}" if settings["init"] else ""
    return (
        f"`{WEIGHTS}`: {card.model}, trained on {images:,} images for {settings['epochs']}"
        f" epochs{begun}; {100 * card.accuracy['test']:.2f} % on the clean test images."
    )
