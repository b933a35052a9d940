"""The numbers the paper prints, looked up by how our suites call things."""

from __future__ import annotations

import csv
import functools
import re
from collections.abc import Sequence
from importlib import resources

# A table that continues another one for more backbones.
CONTINUED = {"ImageNet": "ImageNet2"}
# Slips in the paper, kept as printed.
NOTES = {
    "LS2": "The paper's table has the rows of tipi and tea the wrong way round; kept as printed.",
    "Ablation": "The paper prints 74.40 for `all` on RealWorld where its average says 73.40.",
    "DomainNet": "For s-fret with ResNet-50 the paper's two tables disagree: 43.69 and 43.59.",
}


def plain(name: str) -> str:
    """`Real World` is `RealWorld`, `vit_b_16` is `ViT-B/16`: letters and digits alone count."""
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _method(label: str) -> str:
    """`g-fret (released)` stands beside the paper's g-fret: its numbers came from that code.

    Signs tell the rows of the ablation apart; only the spelling of case and space is free.
    """
    return label.removesuffix(" (released)").strip().lower()


@functools.cache
def _values() -> dict[tuple[str, str, str, str, str], float]:
    text = (resources.files("fretta") / "report" / "paper.csv").read_text(encoding="utf-8")
    return {
        (
            row["table"],
            plain(row["dataset"]),
            plain(row["backbone"]),
            _method(row["method"]),
            plain(row["column"]),
        ): float(row["value"])
        for row in csv.DictReader(text.splitlines())
    }


@functools.cache
def _backbones(table: str, dataset: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(k[2] for k in _values() if k[:2] == (table, dataset)))


def paper_value(table: str, dataset: str, backbone: str, label: str, column: str) -> float | None:
    """As printed (percent, or seconds); None where the paper has nothing.

    A table with a single backbone is meant whatever the case is called.
    """
    data = plain(dataset)
    for name in (table, CONTINUED.get(table, table)):
        known = _backbones(name, data)
        net = known[0] if len(known) == 1 and plain(backbone) not in known else plain(backbone)
        if name != table and plain(backbone) not in known:
            continue
        found = _values().get((name, data, net, _method(label), plain(column)))
        if found is not None:
            return found
    return None


@functools.cache
def _domains(table: str, dataset: str) -> frozenset[str]:
    summaries = {"average", "gain"}
    return frozenset(k[4] for k in _values() if k[:2] == (table, dataset)) - summaries


def paper_mean(
    table: str, dataset: str, backbone: str, label: str, domains: Sequence[str]
) -> float | None:
    """The paper's average over the domains we have: as printed if these are all of them."""
    if {plain(d) for d in domains} == _domains(table, plain(dataset)):
        return paper_value(table, dataset, backbone, label, "average")
    values = [paper_value(table, dataset, backbone, label, d) for d in domains]
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None
