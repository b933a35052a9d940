"""docs/diagnose.md shows what the committed streams say."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pages import ROOT

PAGE = (ROOT / "docs" / "diagnose.md").read_text(encoding="utf-8")
RECORDS = ROOT / "evidence" / "benchmarks"


def streams(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((RECORDS / name).read_text())["streams"]
    return found


def points(value: float) -> str:
    text = f"{value:+.1f}".replace("-", "−")
    return "0.0" if text in ("+0.0", "−0.0") else text


@pytest.mark.parametrize(
    ("row", "kind", "uneven"),
    [
        ("equal shares: do not adapt", "do-not-adapt", False),
        ("equal shares: measure", "measure", False),
        ("equal shares: adapt", "adapt", False),
        ("one class at 30 to 80 %: do not adapt, uneven", "do-not-adapt", True),
        ("one class at 30 to 80 %: measure, uneven", "measure-uneven", True),
        ("one class at 30 to 80 %: adapt, uneven", "adapt-uneven", True),
    ],
)
def test_what_was_recommended_and_what_it_would_have_gained(
    row: str, kind: str, uneven: bool
) -> None:
    cells = [row]
    for data in ("cifar10", "digits"):
        gains = [
            s["bn"] - s["source"]
            for s in streams("diagnose.json")
            if (s["data"], s["advice"][0], bool(s["share"])) == (data, kind, uneven)
        ]
        low, high, mean = map(points, (min(gains), max(gains), sum(gains) / len(gains)))
        cells += [str(len(gains)), f"{mean} ({low}, {high})"]
    assert f"| {' | '.join(cells)} |" in PAGE


def test_uneven_classes_that_were_missed() -> None:
    said = [(s["share"], "uneven" in s["advice"]) for s in streams("diagnose.json")]
    frequent = [uneven for share, uneven in said if share]
    assert (len(frequent), frequent.count(False)) == (72, 3)
    assert all(uneven for share, uneven in said if share >= 0.5)
    equal = [uneven for share, uneven in said if not share]
    assert (len(equal), equal.count(True)) == (52, 1)


def test_pacs() -> None:
    for s in streams("diagnose-pacs.json"):
        cells = f" | {s['source']:.1f} | {s['bn']:.1f} | "
        assert cells in PAGE
