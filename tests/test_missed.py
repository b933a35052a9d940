"""What was missed or said wrongly stands on the pages, and follows the records."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

from pages import ROOT

Content = dict[str, Any]


class Records:
    """The committed benchmarks; what is given replaces them."""

    def __init__(self, **other: Content) -> None:
        self.other = {name.replace("_", "-"): content for name, content in other.items()}

    def benchmark(self, name: str) -> Content:
        path = ROOT / "evidence" / "benchmarks" / f"{name}.json"
        content: Content = self.other.get(name) or json.loads(path.read_text(encoding="utf-8"))
        return content


def with_ratios(**ratios: float) -> Records:
    content = Records().benchmark("steps-contiguous")
    for step in content["grid"][0]["steps"]:
        step["ratio"] = ratios.get(step["name"].replace("-", "_"), 1.0)
    return Records(steps_contiguous=content)


def test_a_missed_target_is_named_first(build: ModuleType) -> None:
    speed = build.speed
    assert speed.speed_text(with_ratios()).startswith(
        "**Targets missed** in the floor's own layout: none."
    )
    found = with_ratios(g_fret=1.051, tent=1.03)
    assert ": g-fret 1.051 (target ≤ 1.05). Met: tent," in speed.targets_text(found)
    table = speed.contiguous_table(found)
    assert "| g-fret | 1.051 | ≤ 1.05 | **missed** |" in table
    assert table.count("**missed**") == 1


def test_the_page_of_speed_begins_with_them(build: ModuleType) -> None:
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")
    assert page.startswith("# Performance\n\n<!-- evidence: speed -->\n**Targets missed**")


def test_a_wrong_verdict_is_listed(build: ModuleType) -> None:
    content = Records().benchmark("verdicts")
    column = content["columns"].index
    before = build.estimates.wrong_list(Records(verdicts=content))
    row = next(
        r
        for r in content["rows"]
        if (r[column("part")], r[column("data")], r[column("verdict")])
        == ("report", "pacs", "cannot tell")
    )
    row[column("verdict")] = "hurts" if row[column("true")] > 0 else "helps"
    after = build.estimates.wrong_list(Records(verdicts=content))
    assert len(after.split("- W")) == len(before.split("- W")) + 1
    assert "PACS" in after
    assert "PACS" not in before
