"""summary.html: curves whose scale can be read off, no other file needed, any screen."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fretta.deploy import AdaptOptions, adapt_images
from fretta.deploy.page import HEIGHT, WIDTH, chart, ticks
from screens import check_screens, js

Make = Callable[..., AdaptOptions]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.238, 0.798, [0.2, 0.4, 0.6, 0.8]),
        (40.6, 75, [40, 50, 60, 70, 80]),
        (-1.2e-5, 3e-5, [-2e-5, 0, 2e-5, 4e-5]),
        (99.99, 100.01, [99.99, 99.995, 100, 100.005, 100.01]),
    ],
)
def test_ticks_are_round_and_enclose(low: float, high: float, expected: list[float]) -> None:
    assert ticks(low, high) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("curve", "batches"),
    [
        ([0.3], 1),
        ([1.8, 1.8 + 4e-16], 2),
        ([0.0, 0.0, math.nan, 0.0], 4),
        ([2.0, math.nan, 1.0, 5e4], 51),
        ([1e-9 * i for i in range(240)], 100_000),
    ],
)
def test_axes_enclose_the_curve(curve: list[float], batches: int) -> None:
    drawn = chart([np.array(curve)], [0.5], "title", "nats", batches)
    levels = [float(text) for _, text in drawn["y_ticks"]]
    assert min(levels) <= np.nanmin(curve) <= np.nanmax(curve) <= max(levels) * (1 + 1e-9)
    numbers = [int(text.replace(",", "")) for _, text in drawn["x_ticks"]]
    assert numbers[0] == 0
    assert 2 <= len(numbers) <= 6
    ((_, points),) = drawn["lines"]
    assert len(points) == np.isfinite(curve).sum()
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)


class Seen(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def test_the_page_needs_nothing_else(options: Make, tmp_path: Path) -> None:
    adapt_images(options(hyperparameters={"lr": 30.0}))
    page, seen = (tmp_path / "out" / "summary.html").read_text(), Seen()
    seen.feed(page)
    names = [tag for tag, _ in seen.tags]
    assert not set(names) & {"script", "link", "img", "iframe", "object"}
    assert not any({"src", "href", "onclick"} & attrs.keys() for _, attrs in seen.tags)
    assert "http" not in page.replace("http-equiv", "")
    assert names.count("svg") >= 5
    assert all(f">{text}</text>" in page for text in ("nats", "batch", "0"))  # axes
    assert 'class="mark"' in page  # with this learning rate the guard acts
    assert "<td>rollback</td>" in page


def test_the_page_says_how_large_batches_were(options: Make, tmp_path: Path) -> None:
    said = {17: "1 batch of 17.", 32: "2 batches of 16.", 44: "3 batches of 12 to 16."}
    for limit, sizes in said.items():
        adapt_images(options(batch_size=16, limit=limit), force=True)
        page = (tmp_path / "out" / "summary.html").read_text()
        lead = page.split('class="lead">')[1].split("</p>")[0]
        assert " ".join(lead.split()).endswith(f"in {sizes}")
    assert "over about 32 images" in page  # a moving mean, and it says so


@pytest.mark.browser
def test_the_summary_on_screens(options: Make, tmp_path: Path, browser: Any) -> None:
    hostile = (
        "<script>document.title = 'run'</script><img src=x onerror=\"document.title = 'run'\">"
    )
    (tmp_path / "labels.json").write_text(json.dumps([hostile, f'">{hostile}', "c", "d"]))
    (tmp_path / "images" / "broken <img src=x onerror=alert(1)>.png").write_text("no picture")
    changes = {"labels": tmp_path / "labels.json", "skip_unreadable": True}
    adapt_images(options(hyperparameters={"lr": 30.0}, **changes))
    check_screens(browser, tmp_path / "out" / "summary.html")
    assert browser.title != "run"
    assert hostile in js(browser, "document.body.innerText")  # shown, not run
    assert browser.find_elements("css selector", "script, img, iframe") == []
    assert browser.get_log("browser") == []  # nothing was blocked, nothing is missing
