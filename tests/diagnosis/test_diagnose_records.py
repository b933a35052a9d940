"""docs/diagnose.md shows what the committed streams say, row by row."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest

from pages import ROOT

PAGE = (ROOT / "docs" / "diagnose.md").read_text(encoding="utf-8")
RECORDS = ROOT / "evidence" / "benchmarks"
Stream = dict[str, Any]


def streams(name: str) -> list[Stream]:
    found: list[Stream] = json.loads((RECORDS / f"{name}.json").read_text())["streams"]
    return found


def rows(block: str) -> list[list[str]]:
    """The cells of a table on the page, without its head."""
    text = PAGE.partition(f"<!-- evidence: {block} -->\n")[2].partition("\n<!-- /evidence -->")[0]
    return [line.strip("| ").split(" | ") for line in text.splitlines()[2:]]


@dataclass
class Changed:
    """The committed records, with one of the streams changed."""

    change: Callable[[Stream], object] = bool
    where: Callable[[Stream], bool] = bool

    def benchmark(self, name: str) -> dict[str, list[Stream]]:
        found = streams(name)
        for stream in [s for s in found if self.where(s)][:1]:
            self.change(stream)
        return {"streams": found}


def test_pacs_has_a_row_for_each_stream_and_no_other() -> None:
    said = {"adapt": "adapt", "adapt-uneven": "adapt, uneven", "measure": "measure"}
    expected = [
        [
            s["domain"]
            + ", seen in training" * (s["domain"] != "art_painting")
            + ", 80 % persons" * (s["share"] == 0.8),
            f"{s['moved']:.2f}",
            said[s["advice"][0]],
            f"{s['source']:.1f}",
            f"{s['bn']:.1f}",
        ]
        for s in streams("diagnose-pacs")
    ]
    assert [row[:5] for row in rows("diagnose-pacs")] == expected


def test_every_stream_is_counted_once() -> None:
    table = rows("diagnose-recommended")
    counts = [sum(int(row[column]) for row in table) for column in (1, 3)]
    data = [s["data"] for s in streams("diagnose")]
    assert counts == [data.count("cifar10"), data.count("digits")]


@pytest.mark.parametrize(
    ("block", "where", "change"),
    [
        ("diagnose-pacs", {}, {"moved": 0.99}),
        ("diagnose-pacs", {}, {"advice": ["measure"]}),
        ("diagnose-pacs", {}, {"source": 99.0}),
        ("diagnose-pacs", {}, {"domain": "photo"}),
        ("diagnose-recommended", {"share": 0.0}, {"bn": 0.0}),
        ("diagnose-recommended", {"share": 0.8}, {"advice": ["measure-uneven"]}),
        ("diagnose-uneven", {"share": 0.8}, {"advice": ["adapt"]}),
        ("diagnose-uneven", {"share": 0.0}, {"advice": ["adapt-uneven", "uneven"]}),
        ("diagnose-limits", {"domain": "brightness"}, {"bn": 0.0}),
        ("diagnose-limits", {"domain": "cartoon", "share": 0.0}, {"moved": 0.01}),
        ("diagnose-layers", {"data": "digits", "domain": "clean", "share": 0.8}, {"late": 0.01}),
        ("diagnose-layers", {"domain": "clean", "class": 8, "share": 0.8}, {"early": 0.99}),
    ],
)
def test_a_changed_stream_changes_the_page(
    build: ModuleType, block: str, where: Stream, change: Stream
) -> None:
    made = build.BLOCKS[block]
    assert made(Changed()) in PAGE
    other = Changed(lambda s: s.update(change), lambda s: where.items() <= s.items())
    assert made(other) not in PAGE
