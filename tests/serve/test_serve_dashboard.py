"""The page at `/`: alone it is safe and whole; in Chromium it shows what the service says."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest
from dashboard_service import HOSTILE, Service, sample
from PIL import Image

from fretta.serve.dashboard import page
from screens import js, set_scheme, set_size, until
from served import served


def test_the_page_is_whole_and_allows_only_its_own_script() -> None:
    text = page()
    (script,) = re.findall(r"<script>(.*?)</script>", text, re.S)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert f"script-src &#39;sha256-{digest}&#39;" in policy or f"'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'")
    assert not re.search(r"""(src|href)=["']?(http|//)|@import|url\(""", text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", script)


def text_of(browser: Any, selector: str) -> str:
    return str(js(browser, f"document.querySelector({selector!r}).innerText"))


@pytest.mark.browser
def test_streams_are_shown_and_kept_up_to_date(browser: Any) -> None:
    with Service(sample("cam-1", 120, "helps"), sample("cam-2", 20, "hurts")) as service:
        browser.get(service.url)
        until(lambda: "cam-2" in text_of(browser, "body"))
        assert "74.4 %" in text_of(browser, "#streams")
        js(browser, "document.querySelectorAll('#streams button')[0].click()")
        until(lambda: js(browser, "document.querySelectorAll('#charts svg').length") == 4)
        assert (
            js(
                browser,
                "document.querySelectorAll('#charts svg')[0].querySelectorAll('.mark').length",
            )
            == 3
        )
        assert "adapting helps" in text_of(browser, "#one")
        # a batch later
        service.streams["cam-1"] = sample("cam-1", 121, "cannot tell", frozen=True)
        service.streams["cam-3"] = sample("cam-3", 1, "")
        until(lambda: "cannot tell, frozen" in text_of(browser, "#streams"))
        until(lambda: "3,872 images" in text_of(browser, "#facts"))
        assert js(browser, "document.querySelectorAll('#streams tbody tr').length") == 3
        # unreachable, and back
        service.down = True
        until(lambda: "503" in text_of(browser, "#status"))
        service.down = False
        until(lambda: "Updated" in text_of(browser, "#status"))
        # the address of a stream, and one that is not there
        browser.get(f"{service.url}#cam-3")
        until(lambda: text_of(browser, "#name") == "cam-3")
        browser.get(f"{service.url}#nobody")
        until(lambda: js(browser, "document.querySelector('#one').hidden"))
        assert {path for path in service.asked if "?" in path} == set()
        logged = [e["message"] for e in browser.get_log("browser")]
        assert all("503" in message for message in logged)


@pytest.mark.browser
def test_the_service_itself(browser: Any, tmp_path: Path) -> None:
    """No sample answers: the app, the digits model, three batches and a reset."""
    pixels = np.random.RandomState(0).randint(0, 256, (8, 8, 3), np.uint8)
    Image.fromarray(pixels).resize((32, 32)).save(tmp_path / "a.png")
    image = base64.b64encode((tmp_path / "a.png").read_bytes()).decode()
    with served(model="digits", wait=0.0) as address:

        def post(path: str, body: Any) -> None:
            content, kind = json.dumps(body).encode(), {"Content-Type": "application/json"}
            urlopen(Request(address + path, content, kind), timeout=60).close()

        for _ in range(3):
            post("/predict", {"stream": "door", "images": [image] * 8})
        post("/streams/door/reset", {})
        post("/predict", {"stream": "gate", "images": [image]})
        browser.get(f"{address}/#door")
        until(lambda: js(browser, "document.querySelectorAll('#charts svg').length") >= 2)
        rows = js(browser, "[...document.querySelectorAll('#streams tr')].map((r) => r.innerText)")
        assert [row.split()[:2] for row in rows[1:]] == [["door", "24"], ["gate", "1"]]
        facts = text_of(browser, "#facts")
        assert "auto, guard rollback" in facts
        assert "24 images in 3 batches" in facts
        assert "reset" in text_of(browser, "#happened")
        assert "undefined" not in text_of(browser, "body")
        assert "NaN" not in text_of(browser, "body")
        assert browser.get_log("browser") == []
        browser.save_screenshot(str(tmp_path / "real.png"))


@pytest.mark.browser
def test_names_and_reasons_stay_text(browser: Any) -> None:
    trap = sample(HOSTILE, 80, HOSTILE, problem=HOSTILE, text=HOSTILE, method=HOSTILE)
    names = [
        HOSTILE,
        "\"'><script>document.title = 'run'</script>",
        "javascript:alert(1)#/../?a=b&",
    ]
    with Service(trap, *(sample(name, 5, "") for name in names[1:])) as service:
        browser.get(service.url)
        title = browser.title
        for name in names:
            until(lambda name=name: name in text_of(browser, "#streams"))
            js(
                browser,
                "[...document.querySelectorAll('#streams button')]"
                f".find((b) => b.textContent.includes({json.dumps(name)})).click()",
            )
            until(lambda name=name: name == text_of(browser, "#name"))
            if name == HOSTILE:
                until(lambda: "fewer classes <img" in text_of(browser, "#happened"))
        assert (
            js(browser, "document.querySelectorAll('img, iframe, #all script, #one script').length")
            == 0
        )
        assert browser.title == title
        assert browser.get_log("browser") == []


@pytest.mark.browser
def test_the_token_is_asked_for_once(browser: Any) -> None:
    with Service(sample("cam-1", 5, ""), token="secret") as service:
        browser.get(service.url)
        until(lambda: "token" in text_of(browser, "#status"))
        assert "cam-1" not in text_of(browser, "body")
        for given, then in (("wrong", "not accepted"), ("secret", "Updated")):
            browser.find_element("id", "token").send_keys(given + "\n")
            until(lambda then=then: then in text_of(browser, "#status"))
        assert "cam-1" in text_of(browser, "#streams")
        browser.refresh()
        until(lambda: "cam-1" in text_of(browser, "#streams"))
        assert "secret" not in " ".join(service.asked)
        browser.execute_script("sessionStorage.clear()")
        logged = [e["message"] for e in browser.get_log("browser")]
        assert all("401" in message for message in logged)


@pytest.mark.browser
def test_on_screens(browser: Any, tmp_path: Path) -> None:
    """Wide and narrow, light and dark: nothing sticks out to the side."""
    names = [f"camera-{n:02d}-with-a-rather-long-name" for n in range(8)]
    verdicts = ["helps", "", "hurts", "cannot tell"] * 2
    streams = [sample(n, 100, v) for n, v in zip(names, verdicts, strict=True)]
    grounds = set()
    with Service(*streams) as service:
        for scheme in ("light", "dark"):
            set_scheme(browser, scheme)
            for width in (1280, 390):
                set_size(browser, width, 900, mobile=width < 500)
                browser.get("about:blank")
                browser.get(f"{service.url}#{names[2]}")
                until(lambda: js(browser, "document.querySelectorAll('#charts svg').length") == 4)
                over = "document.documentElement.scrollWidth - window.innerWidth"
                assert js(browser, over) <= 0
                height = js(browser, "document.documentElement.scrollHeight")
                set_size(browser, width, height, mobile=width < 500)
                browser.save_screenshot(str(tmp_path / f"{scheme}-{width}.png"))
            grounds.add(js(browser, "getComputedStyle(document.body).backgroundColor"))
        assert browser.get_log("browser") == []
    assert len(grounds) == 2
