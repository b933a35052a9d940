"""The page and the live view in headless Chromium, used as a reader would."""

from __future__ import annotations

import io
import itertools
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import HOSTILE, corruption_records, domain_records, fill, record

from fretta.report.palette import CORRUPTIONS
from fretta.report.watch import Watched, serve
from fretta.report.write import write_report
from screens import js, set_scheme, set_size, until

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Address of the report of an ordinary store, and of one full of traps."""
    folder = tmp_path_factory.mktemp("pages")
    ordinary = [
        *corruption_records("digits", labels=("source", "bn", "tent", "g-fret")),
        *domain_records(labels=("source", "tent", "g-fret"), backbones=("resnet18",)),
        record(
            "without_L_R(A)+L_P(A) lam=0.1",
            suite="mine",
            method="g-fret",
            accuracy=dict.fromkeys(CORRUPTIONS, 0.5),
        ),
        record(
            "sar",
            0,
            suite="digits",
            case="digits",
            error="RuntimeError: out of ideas",
            data={"name": "digits", "severity": 5},
        ),
    ]
    traps = [
        record(
            label,
            seed,
            suite=HOSTILE,
            case=HOSTILE,
            method=method,
            data={"name": HOSTILE},
            accuracy={HOSTILE: 0.5 + seed / 50, "<img src=x onerror=alert(2)>": 0.4},
        )
        for label, method in ((HOSTILE, "tent"), ("source", "source"), ("日本 é", "bn"))
        for seed in range(2)
    ]
    traps.append(record("z", 0, suite=HOSTILE, case=HOSTILE, error=f"RuntimeError: {HOSTILE}"))
    found = {}
    for name, records in (("ordinary", ordinary), ("traps", traps), ("empty", [])):
        store = fill(folder / name, records, with_details=True)
        found[name] = write_report(store, folder / f"{name}-out").page.as_uri()
    return found


@pytest.fixture(autouse=True)
def _quiet(browser: Any) -> Iterator[None]:
    """Every test ends without a complaint on the console; no policy was violated."""
    yield
    assert browser.get_log("browser") == []


def labels(browser: Any, table: str) -> list[str]:
    rows = f"""[...document.querySelectorAll('table[data-name="{table}"] tr.row')]"""
    shown = ".filter((r) => !r.hidden).map((r) => r.querySelector('.name').textContent)"
    return list(js(browser, rows + shown))


def press(browser: Any, *keys: str) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    for key in keys:
        ActionChains(browser).send_keys(key).perform()


TABLE = "digits-digits-corruption"


# ---- the page -----------------------------------------------------------------------------------


def test_sort_by_click_and_by_keyboard(browser: Any, pages: dict[str, str]) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.get(pages["ordinary"])
    original = labels(browser, TABLE)
    assert original == ["source", "bn", "tent", "sar", "g-fret"]
    button = js(browser, f"""document.querySelectorAll('table[data-name="{TABLE}"] .sort')[3]""")
    button.click()
    head = "arguments[0].closest('th').getAttribute('aria-sort')"
    assert js(browser, head, button) == "descending"
    # The failed one has no number: it stays last, whichever way.
    assert labels(browser, TABLE) == ["g-fret", "tent", "bn", "source", "sar"]
    button.send_keys(Keys.ENTER)
    assert js(browser, head, button) == "ascending"
    assert labels(browser, TABLE) == ["source", "bn", "tent", "g-fret", "sar"]
    button.send_keys(Keys.SPACE)
    assert js(browser, head, button) is None
    assert labels(browser, TABLE) == original


def test_filter_and_the_numbers_of_the_paper(browser: Any, pages: dict[str, str]) -> None:
    browser.get(pages["ordinary"])
    box = browser.find_element("id", "filter")
    for text, found in (("TENT", ["tent"]), ("failed", ["sar"])):
        box.clear()
        box.send_keys(text)
        assert labels(browser, TABLE) == found
    assert " of " in browser.find_element("id", "count").text
    assert js(browser, "document.querySelectorAll('.block.nothing').length") > 0
    box.clear()
    box.send_keys(" ")
    assert len(labels(browser, TABLE)) == 5
    button = browser.find_element("id", "paper")
    number = browser.find_element("css selector", "td .paper")
    assert not number.is_displayed()
    button.click()
    assert number.is_displayed()
    assert button.get_attribute("aria-pressed") == "true"


def test_toggle_a_method_in_a_figure(browser: Any, pages: dict[str, str]) -> None:
    browser.get(pages["ordinary"])
    figure = js(
        browser,
        "[...document.querySelectorAll('figure')].find((f) => "
        "f.querySelectorAll('.toggle').length > 1 && f.querySelector('.series.s1'))",
    )
    assert figure is not None

    def hidden(series: int) -> bool:
        shown = "getComputedStyle(e).display !== 'none'"
        parts = f"[...arguments[0].querySelectorAll('.drawing .series.s{series}')]"
        return not js(browser, f"{parts}.some((e) => {shown})", figure)

    button = js(browser, "arguments[0].querySelectorAll('.toggle')[1]", figure)
    assert not hidden(1)
    button.click()
    assert hidden(1)
    assert not hidden(0)
    assert button.get_attribute("aria-pressed") == "false"
    button.click()
    assert not hidden(1)


def test_values_on_hover(browser: Any, pages: dict[str, str]) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    browser.get(pages["ordinary"])
    point = js(browser, "document.querySelector('.drawing [data-label]')")
    assert point is not None
    js(browser, "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", point)
    ActionChains(browser).move_to_element(point).perform()
    tip = browser.find_element("id", "tip")
    assert until(lambda: tip.is_displayed())
    assert tip.text
    ActionChains(browser).move_to_element(browser.find_element("css selector", "h1")).perform()
    assert until(lambda: not tip.is_displayed())


def test_the_runs_of_a_number_by_keyboard(browser: Any, pages: dict[str, str]) -> None:
    from selenium.webdriver.common.keys import Keys

    browser.get(pages["ordinary"])
    every = f"""[...document.querySelectorAll('table[data-name="{TABLE}"] .cell')]"""
    cells = js(browser, f"{every}.map((c) => c.tabIndex)")
    assert sorted(set(cells)) == [-1, 0]
    assert cells.count(0) == 1  # one stop for Tab; arrows do the rest
    js(browser, f"{every}[0].focus()")
    press(browser, Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_RIGHT)
    at = js(
        browser,
        "[document.activeElement.dataset.column, "
        "document.activeElement.closest('tr').cells[0].textContent]",
    )
    assert at == ["8-15", "tent"]
    press(browser, Keys.ENTER)
    dialog = browser.find_element("id", "dialog")
    assert until(lambda: dialog.is_displayed())
    assert dialog.find_element("id", "dialog-title").text == "tent"
    text = dialog.text
    assert "3 runs" in text
    assert "fretta run digits --case digits --method tent --store again" in text
    assert "--seed 0 --seed 1 --seed 2" in text
    assert "as committed" in text or "dirty" in text
    assert js(browser, "document.querySelector('#dialog').contains(document.activeElement)")
    press(browser, Keys.ESCAPE)
    assert until(lambda: not dialog.is_displayed())
    assert js(browser, "document.activeElement.dataset.column") == "8-15"
    browser.get(pages["ordinary"])
    browser.find_element("css selector", ".problems button").click()
    # why a run failed
    assert "RuntimeError: out of ideas" in browser.find_element("id", "dialog").text


def contrast(browser: Any, selector: str) -> float:
    """Of a text against the page, as WCAG computes it."""
    return float(
        js(
            browser,
            """(() => {
      const part = (v) => (v /= 255, v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4);
      const light = (c) => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number);
        return .2126 * part(r) + .7152 * part(g) + .0722 * part(b); };
      const ink = light(getComputedStyle(document.querySelector(arguments[0])).color);
      const page = light(getComputedStyle(document.body).backgroundColor);
      return (Math.max(ink, page) + .05) / (Math.min(ink, page) + .05); })()""",
            selector,
        )
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(browser: Any, pages: dict[str, str], scheme: str) -> None:
    set_scheme(browser, scheme)
    browser.get(pages["ordinary"])
    level = js(browser, "getComputedStyle(document.body).backgroundColor.match(/\\d+/g)[0]")
    assert (int(level) < 60) == (scheme == "dark")
    for selector in ("body", ".summary", ".verdict", ".flag", ".card .muted", "a", ".cell small"):
        assert contrast(browser, selector) >= 4.5, selector


@pytest.mark.parametrize("name", ["ordinary", "traps", "empty"])
@pytest.mark.parametrize("width", [360, 768])
def test_narrow_screens(browser: Any, pages: dict[str, str], name: str, width: int) -> None:
    set_size(browser, width, 740, width < 500)
    browser.get(pages[name])
    root = "document.documentElement"
    assert js(browser, f"{root}.scrollWidth <= {root}.clientWidth")
    assert js(browser, "innerWidth") == width
    if name == "empty":
        assert "fretta run smoke" in browser.find_element("id", "content").text
    if name == "ordinary":  # the table scrolls in its own box, and its names stay in sight
        first = js(
            browser,
            """(() => { const s = document.querySelector(".wide").parentElement;
            s.scrollLeft = 300; return [s.scrollLeft,
            s.querySelector("tbody th").getBoundingClientRect().left]; })()""",
        )
        assert first[0] == 300
        assert 0 <= first[1] < 60


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_a_phone(browser: Any, pages: dict[str, str], scheme: str) -> None:
    """A dot stands beside its method; a wide table has a shadow at the right edge, which is gone
    at the end of the table."""
    from PIL import Image

    set_scheme(browser, scheme)
    set_size(browser, 390, 844, True)
    browser.get(pages["ordinary"])
    apart = js(
        browser,
        """[...document.querySelectorAll("tbody th .dot")].filter((dot) => {
        const at = dot.getBoundingClientRect(), name = dot.parentElement.querySelector(".name");
        const line = name.getClientRects()[0];
        return at.right > line.left || at.top > line.bottom || at.bottom < line.top;
        }).length""",
    )
    assert apart == 0
    box = js(browser, "document.querySelector('.wide').parentElement")
    page = js(browser, "getComputedStyle(document.body).backgroundColor")
    plain = [int(v) for v in re.findall(r"\d+", page)]

    def shaded() -> float:
        """The share of the last column of pixels that is not the color of the page."""
        with Image.open(io.BytesIO(box.screenshot_as_png)) as shot:
            last = np.asarray(shot.convert("RGB"), dtype=int)[:, -1]
        return float((np.abs(last - plain).max(1) > 30).mean())

    assert shaded() > 0.8
    js(browser, "arguments[0].scrollTo({left: 9999, behavior: 'instant'})", box)
    assert shaded() < 0.2


def test_print(browser: Any, pages: dict[str, str]) -> None:
    import base64

    browser.get(pages["ordinary"])
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert not browser.find_element("css selector", ".bar").is_displayed()
    assert browser.find_element("css selector", ".card").is_displayed()
    set_size(browser, 1030, 730, False)  # A4 on its side
    widest = "Math.max(...[...document.querySelectorAll('table')].map((t) => t.offsetWidth))"
    assert js(browser, widest) <= 1030  # paper does not scroll
    printed = browser.execute_cdp_cmd("Page.printToPDF", {"preferCSSPageSize": True})
    assert base64.b64decode(printed["data"]).startswith(b"%PDF")


def test_hostile_names_do_nothing(browser: Any, pages: dict[str, str]) -> None:
    from selenium.common.exceptions import NoAlertPresentException

    browser.get(pages["traps"])
    assert HOSTILE in js(browser, "document.body.innerText")
    browser.find_element("css selector", ".cell").click()
    assert HOSTILE in browser.find_element("id", "dialog").text
    with pytest.raises(NoAlertPresentException):
        _ = browser.switch_to.alert
    assert js(browser, "document.querySelectorAll('script').length") == 2
    assert js(browser, "document.querySelectorAll('img').length") == 0


def test_landmarks_and_names(browser: Any, pages: dict[str, str]) -> None:
    """What a screen reader needs: a name for every control, a header for every number."""
    browser.get(pages["ordinary"])
    unnamed = js(
        browser,
        """[...document.querySelectorAll("button, input, [role=img], [role=group], table")]
        .filter((e) => !(e.textContent.trim() || e.getAttribute("aria-label") || e.labels?.length))
        .map((e) => e.outerHTML)""",
    )
    assert unnamed == []
    assert js(browser, "document.querySelectorAll('main').length") == 1
    assert js(
        browser,
        """[...document.querySelectorAll("table[data-name]")].every((t) =>
        t.caption && [...t.querySelectorAll("thead th, tbody th")].every((h) => h.scope))""",
    )
    headings = "[...document.querySelectorAll('h1, h2, h3')].filter((h) => !h.closest('dialog'))"
    levels = js(browser, f"{headings}.map((h) => Number(h.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(b - a <= 1 for a, b in itertools.pairwise(levels))
    figures = "[...document.querySelectorAll('figure')]"
    assert js(browser, f"{figures}.every((f) => f.querySelector('details table'))")


# ---- live ---------------------------------------------------------------------------------------


def test_a_record_that_arrives_while_watching(browser: Any, tmp_path: Path) -> None:
    store = fill(tmp_path, corruption_records("digits", labels=("source", "tent"), seeds=(0,)))
    server = serve(Watched(store))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        browser.get(f"http://127.0.0.1:{server.server_address[1]}/")
        until(lambda: "Watching" in browser.find_element("id", "status").text)
        browser.find_element("id", "filter").send_keys("t")
        table = f"""document.querySelector('table[data-name="{TABLE}"]')"""
        js(browser, f"{table}.querySelectorAll('.sort')[1].click()")
        js(browser, f"{table}.scrollIntoView({{behavior: 'instant'}})")
        assert labels(browser, TABLE) == ["tent"]
        before = js(browser, f"{table}.getBoundingClientRect().top")
        fill(tmp_path, corruption_records("digits", labels=("tea", "bn"), seeds=(0,)))
        until(lambda: "tea" in labels(browser, TABLE))
        # Filter, order and place are as the reader left them.
        assert set(labels(browser, TABLE)) == {"tent", "tea"}
        assert browser.find_element("id", "filter").get_attribute("value") == "t"
        assert js(browser, f"{table}.querySelector('[aria-sort]').cellIndex") == 1
        assert js(browser, f"{table}.getBoundingClientRect().top") == pytest.approx(before, abs=3)
        (tmp_path / "checkpoints").mkdir()
        (tmp_path / "checkpoints" / "abc.pt").write_bytes(b"x")
        until(lambda: "1 in flight" in browser.find_element("id", "status").text)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
        browser.get("about:blank")
        browser.get_log("browser")
