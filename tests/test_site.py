"""The site: every method has its page, the notebook runs, and a strict build has no dead link."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest

import fretta
from pages import ROOT, notebook_cells, paste
from screens import set_size


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    printed = "".join(paste(cell, names) for cell in notebook_cells("examples/quickstart.ipynb"))
    assert names["accuracy"]["auto"] > names["accuracy"]["source"] + 0.2
    assert "of the last batch" in printed


def test_every_method_has_advice() -> None:
    section = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    section = section.partition("\n## When to use which\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`([a-z0-9-]+)`", "".join(rows))) == fretta.list_methods()


@pytest.mark.data
def test_verified_means_recorded_and_reproduced(shared: Path) -> None:
    """The numbers of docs/comparison.md are those of the recorded runs."""
    runs: Counter[str] = Counter()
    for folder in ("golden", "golden-next"):
        cases = json.loads((shared / folder / "meta.json").read_text(encoding="utf-8"))["cases"]
        runs.update("bn" if c["method"].startswith("bn-") else c["method"] for c in cases)
    page = (ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([a-z0-9-]+) \| (\d+|•) \|", page, re.M))
    assert sorted(rows) == fretta.list_methods()
    assert {name: int(n) for name, n in rows.items() if n != "•"} == runs
    assert f"{len(runs)} of {len(rows)}" in page


class Links(HTMLParser):
    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []  # to click
        self.loaded: list[str] = []  # by the browser itself
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {key: value for key, value in attrs if value is not None}
        self.ids.add(values.get("id", ""))
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        self.loaded += [values[k] for k in ("src", "href") if k in values and tag != "a"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    return folder


@pytest.mark.slow
def test_links_lead_somewhere_and_nothing_comes_from_elsewhere(site: Path) -> None:
    texts = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}
    pages = {path: Links(text) for path, text in texts.items() if path.name != "404.html"}
    assert {f"{name}.html" for name in fretta.list_methods()} <= {path.name for path in pages}
    checked = 0
    for path, page in pages.items():
        for link in [*page.links, *page.loaded]:
            if re.match(r"\w+:", link):
                assert link not in page.loaded, f"{path.name} loads {link}"
                continue
            file, _, anchor = link.partition("#")
            target = (path.parent / unquote(file)).resolve() if file else path
            target = target / "index.html" if target.is_dir() else target
            assert target.is_file(), f"{path.name} links to {link}"
            if anchor and target in pages:
                assert unquote(anchor) in pages[target].ids, f"{path.name} links to {link}"
            checked += 1
    assert checked > 1000


@pytest.mark.slow
def test_stars_behind_numbers_are_shown(site: Path) -> None:
    text = (site / "evidence.html").read_text(encoding="utf-8")
    assert re.search(r"[+-]\d+\.\d\d\*", text)
    assert not re.search(r"<em>[^<]*[+-]\d", text)


@pytest.mark.slow
def test_a_method_page_has_what_info_says_and_its_results(site: Path) -> None:
    page = (site / "methods" / "tent.html").read_text(encoding="utf-8")
    text = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", "", page))
    for expected in ("When to use it", "mean_i H(p_i)", "1F+1B", "learning rate"):
        assert expected in text
    lines = (ROOT / "evidence" / "benchmarks" / "streams.jsonl").read_text(encoding="utf-8")
    found: dict[str, dict[int, float]] = {"tent": {}, "source": {}}
    for r in map(json.loads, lines.splitlines()):
        if r["stream"] == "cifar-128" and r["method"] in found:
            found[r["method"]][r["seed"]] = 100 * r["accuracy"]
    seeds = found["tent"].keys() & found["source"].keys()
    tent, source = (sum(found[m][s] for s in seeds) / len(seeds) for m in ("tent", "source"))
    row = f"{tent:.1f} {source:.1f} {tent - source:+.1f} {len(seeds)}"
    assert f"CIFAR-10-C, 128 {row}" in text


@pytest.mark.browser
def test_search_works_from_disk_and_pages_fit_a_phone(site: Path, browser: Any) -> None:
    from selenium.webdriver.common.by import By
    from selenium.webdriver.support.ui import WebDriverWait

    browser.execute_cdp_cmd("Network.enable", {})
    browser.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["http://*", "https://*"]})
    browser.get(f"{(site / 'index.html').as_uri()}?q=entropy+minimization")
    found = WebDriverWait(browser, 60).until(
        lambda b: b.find_elements(By.CSS_SELECTOR, ".md-search-result__item a")
    )
    assert any("methods/" in link.get_attribute("href") for link in found)
    set_size(browser, 390, 844, mobile=True)
    for name in ("index", "methods/g-fret", "comparison", "api/fretta"):
        browser.get((site / f"{name}.html").as_uri())
        width = "document.documentElement.scrollWidth"
        assert browser.execute_script(f"return {width}") <= 390, name
    assert browser.get_log("browser") == []
