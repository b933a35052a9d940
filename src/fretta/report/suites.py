"""Suites of the package: title, table of the paper, order of rows."""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources

from ..experiment.records import Record

# Where no suite says otherwise: the baselines, then by year, then the paper's own.
KNOWN = ("source", "bn", "tent", "eta", "eata", "sar", "tsd", "tipi", "tea", "s-fret", "g-fret")


# Shipped suites in the order of the paper, between one's own and the smoke test.
ORDER = (
    *("digits", "pacs", "pacs-shared", "officehome", "cifar10c", "cifar10c-shared", "cifar100c"),
    *("imagenetc", "cifar100c-lt", "ablation", "vlcs", "domainnet", "sensitivity", "efficiency"),
)
ACROSS = "\0across"  # no suite is called so


@dataclass(frozen=True)
class Shipped:
    title: str
    about: str = ""
    paper: str = ""
    labels: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    shipped: bool = False  # `fretta run NAME` finds it anywhere


@functools.cache
def suite_facts(name: str) -> Shipped:
    """Of a suite of the package; of another only its name is known."""
    base, trial, _ = name.partition("/tune")
    if trial:
        found = suite_facts(base)
        return Shipped(f"Search for settings: {found.title}", shipped=found.shipped)
    if name == ACROSS:
        return Shipped("Across suites")
    if name == "evaluate":
        return Shipped("One-off runs", "Made by `fretta evaluate`.")
    file = resources.files("fretta") / "suites" / f"{name}.toml"
    if not name.replace("-", "").isalnum() or not file.is_file():
        return Shipped(name or "runs without a suite")
    raw = tomllib.loads(file.read_text(encoding="utf-8"))
    return Shipped(
        raw["title"],
        raw.get("about", ""),
        raw.get("paper", ""),
        tuple(m.get("label", m["name"]) for m in raw["methods"]),
        tuple(c.get("name", c["data"]["name"]) for c in raw["cases"]),
        True,
    )


def suite_title(name: str, records: Iterable[Record]) -> str:
    """As the suite said when its latest run was made; else what the package knows of it."""
    base, trial, _ = name.partition("/tune")
    given = [r for r in records if r.tags.get("title")] if base != "evaluate" else []
    latest = max(given, key=lambda r: float(r.provenance.get("finished") or 0), default=None)
    if latest is None:
        return suite_facts(name).title
    title = str(latest.tags["title"])
    return f"Search for settings: {title}" if trial else title


def suite_order(name: str) -> tuple[bool, int, str]:
    """Sort key of a suite: own ones, those of the paper, the rest, searches."""
    place = ORDER.index(name) if name in ORDER else len(ORDER) if suite_facts(name).shipped else -1
    return (name.endswith("/tune"), place, name)


def label_order(suite: str, label: str) -> tuple[int, int, str]:
    """Sort key of a row: as the suite lists it, else as the field does."""
    labels = suite_facts(suite).labels
    first = next((i for i, each in enumerate(labels) if label == each), len(labels))
    if suite == "digits" or not labels:  # digits lists the slowest first
        first = 0
    base = label.split(" ")[0]
    return (first, KNOWN.index(base) if base in KNOWN else len(KNOWN), label)
